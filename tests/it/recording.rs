//! The recorder of the observer beside real stores: what it recorded is what the store held, and it never says more.

use archive::recording::{
    At, Directory, Moment, NOT_RECORDED, Past, Recording, RecordingError, Segment, SegmentName, Source,
};
use etcd_client::GetOptions;
use proptest::sample::subsequence;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use rustix::process::Signal;
use schema::keys::Prefix;
use schema::reads::Keys;
use schema::snapshot::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use tests::etcd::Etcd;
use tests::host::Host;
use tests::recording::RecordingObserver;
use tests::store::Store;
use tests::wait;

type Entries = BTreeMap<String, Entry>;

/// Returns all keys that are recorded, as the store held them at a revision.
fn held(store: &Store, revision: i64) -> Entries {
    let (runtime, client) = store.parts();
    let options = GetOptions::new().with_all_keys().with_revision(revision);
    let found = runtime.block_on(client.kv_client().get("", Some(options))).expect("what the store held");
    let parts = Keys::all();
    let is_recorded = |key: &str| {
        parts.iter().any(|part| match part {
            Keys::One(one) => one.to_string() == key,
            Keys::Below(range) => key.starts_with(&range.to_string()),
        })
    };
    let read = |kv: &etcd_client::KeyValue| {
        let entry = Entry {
            value: kv.value().to_vec(),
            create_revision: kv.create_revision(),
            mod_revision: kv.mod_revision(),
            lease: kv.lease(),
            version: kv.version(),
        };
        (kv.key_str().expect("text").to_owned(), entry)
    };
    found.kvs().iter().map(read).filter(|(key, _)| is_recorded(key)).collect()
}

fn names(directory: &Path) -> Vec<SegmentName> {
    Directory::new(directory).names().expect("a recording")
}

fn ask(directory: &Path, at: &str) -> Result<Past, RecordingError> {
    let at = At::read(at, 0).expect("a moment");
    Recording::new(names(directory)).at(&at, &Directory::new(directory))
}

fn recorded(directory: &Path, revision: i64) -> Entries {
    match ask(directory, &revision.to_string()) {
        Ok(past) => past.into_snapshot().entries,
        Err(error) => panic!("{revision}: {error}"),
    }
}

/// Returns 50 random revisions from one to another, or all if there are fewer, and both ends.
fn samples(from: i64, to: i64) -> BTreeSet<i64> {
    let all: Vec<i64> = (from..=to).collect();
    let count = all.len().min(50);
    let random = subsequence(all, count).new_tree(&mut TestRunner::default()).expect("revisions");
    random.current().into_iter().chain([from, to]).collect()
}

#[test]
fn what_is_recorded_of_an_incident_is_what_the_store_held() {
    let etcd = Etcd::single_real();
    let store = etcd.store();
    let recorder = RecordingObserver::start(&etcd.endpoints());
    let first = names(&recorder.directory)[0].revision;
    let mut hosts: Vec<Host> = ["h1", "h2", "h3"].map(|name| Host::new(name, &etcd.endpoints())).into();
    let operator = Host::new("operator", &etcd.endpoints());
    let run = |arguments: &[&str]| {
        let result = operator.command(arguments, "");
        assert_eq!(result.code, 0, "{arguments:?}: {result:?}");
    };
    hosts[0].write_service("web", "port = 80\n");
    hosts.iter_mut().for_each(Host::start);
    let has_identity = || store.get("/orchestrate/store");
    wait::until("the store has an identity", has_identity, || hosts[0].describe());
    operator.write("policy.toml", "failure_budget = 0\n[[limit]]\nby = \"fleet\"\nmax = 1\n");
    run(&["policy", "set", operator.path("policy.toml").to_str().expect("text")]);
    run(&["values", "set", "api_key", "a-secret-value"]);
    run(&["trigger_update", "1", "--reason", "first"]);
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "1"));
    // A version that fails, and a host that dies meanwhile.
    hosts.iter().for_each(|host| host.write("code-check-2", "1\n"));
    hosts[2].kill();
    run(&["trigger_update", "2", "--reason", "fails"]);
    let halted = || {
        let result = operator.command(&["rollout", "status", "-o", "json"], "");
        result.out.contains("\"halted\"").then_some(())
    };
    wait::until("the rollout is halted", halted, || operator.command(&["rollout", "status"], "").out);
    hosts[2].start();
    run(&["hosts", "decommission", "h3", "--force"]);
    run(&["values", "rm", "api_key"]);
    let last = store.revision();
    recorder.wait_for(last);
    changes_of_hosts_are_told(&recorder, last);
    let config = Prefix::Config.to_string();
    for revision in samples(first, last) {
        let (mut recorded, mut expected) = (recorded(&recorder.directory, revision), held(&store, revision));
        // Of values only lengths are recorded, beside a hash, and events say only who changed them.
        let tells_of_value = |entry: &Entry| text(entry).contains(&format!("\"what\":\"{config}"));
        let of_values = |entries: &mut Entries| {
            entries.retain(|key, entry| !key.starts_with(&config) && !tells_of_value(entry));
        };
        let hidden: Vec<String> =
            recorded.iter().filter(|(key, _)| key.starts_with(&config)).map(|(_, e)| text(e)).collect();
        assert!(hidden.iter().all(|value| value == NOT_RECORDED), "{hidden:?}");
        of_values(&mut recorded);
        of_values(&mut expected);
        assert_eq!(recorded, expected, "{revision}");
    }
    // No byte of the value is in any file.
    for name in names(&recorder.directory) {
        let bytes = Directory::new(&recorder.directory).load(&name).expect("read");
        let segment = Segment::read(&bytes).expect("a segment");
        let secret = format!("{:?}", b"a-secret-value");
        assert!(!format!("{segment:?}").contains(secret.trim_matches(['[', ']'])), "{name}");
    }
}

/// Acts and what changed about hosts by itself stand in one list, and of an hour later only what came then.
fn changes_of_hosts_are_told(recorder: &RecordingObserver, last: i64) {
    let away = Host::new("elsewhere", &["http://127.0.0.1:1".to_owned()]);
    let directory = recorder.directory.display().to_string();
    let ask = |more: &[&str]| {
        let at = last.to_string();
        let words = [&["events", "--recording", &directory, "--at", &at][..], more].concat();
        let result = away.command(&words, "");
        assert_eq!(result.code, 0, "{result:?}");
        result.out
    };
    let listed_events = ask(&["--since", "1h"]);
    let place = |words: &[&str]| {
        let found = listed_events.lines().position(|line| words.iter().all(|word| line.contains(word)));
        found.unwrap_or_else(|| panic!("{words:?}: {listed_events}"))
    };
    let triggered = place(&["trigger_update", "version 1 to 2"]);
    let listed = place(&["listing", "host h1: none to 1"]);
    let failed = place(&["verdict", " to failed", "exit"]);
    let died = place(&["live", "host h3: live to none", "its lease ended"]);
    assert!(listed < triggered && triggered < failed && triggered < died, "{listed_events}");
    let of_host = ask(&["h1", "--since", "1h", "-o", "json"]);
    let json: serde_json::Value = serde_json::from_str(&of_host).expect("JSON");
    let events = json["answer"]["events"].as_array().expect("a list");
    let is_change = |event: &&serde_json::Value| event["change"] == "listing" && event["new_value"] == "1";
    assert!(events.iter().any(|event| is_change(&event)) && !of_host.contains("h3"), "{of_host}");
    assert!(!ask(&[]).contains("verdict"), "acts alone");
}

fn text(entry: &Entry) -> String {
    String::from_utf8_lossy(&entry.value).into_owned()
}

#[test]
fn a_recorder_that_is_killed_leaves_what_it_had_written() {
    let etcd = Etcd::single_real();
    let store = etcd.store();
    let mut recorder = RecordingObserver::start(&etcd.endpoints());
    let first = names(&recorder.directory)[0].revision;
    let put = |n: i32| store.put("/orchestrate/hosts/h1", &format!("{{\"format\":1,\"n\":{n}}}"));
    let mut ends = Vec::new();
    for round in 0..3 {
        let last = (0..20).fold(0, |_, n| put(round * 100 + n));
        if round != 1 {
            recorder.wait_for(last);
        }
        recorder.observer.signal(Signal::KILL);
        let newest = names(&recorder.directory).into_iter().max_by_key(|name| name.begun).expect("a segment");
        let bytes = Directory::new(&recorder.directory).load(&newest).expect("read");
        let end = Segment::read(&bytes).expect("what was written").last_revision();
        assert!(round == 1 || end >= last, "what the metric showed was on the disk: {end} of {last}");
        // The store goes on while nobody records.
        let lost = put(1000 + round);
        recorder.observer = recorder.observer.again();
        recorder.observer.wait_for_health("fresh");
        recorder.wait_for(lost);
        ends.push((end, lost));
    }
    let last = put(9999);
    recorder.wait_for(last);
    let in_gap = |at: i64| ends.iter().any(|(end, begin)| (end + 1..*begin).contains(&at));
    for revision in first..=last {
        match ask(&recorder.directory, &revision.to_string()) {
            Ok(past) => assert_eq!(past.into_snapshot().entries, held(&store, revision), "{revision}"),
            Err(error) => {
                assert!(in_gap(revision), "{revision}: {error}");
                assert!(error.to_string().contains("nothing between the revisions"), "{error}");
            }
        }
    }
}

#[test]
fn a_restored_store_is_recorded_as_another_branch() {
    let mut etcd = Etcd::single_real();
    let recorder = RecordingObserver::start(&etcd.endpoints());
    let put = |etcd: &Etcd, value: &str| etcd.store().put("/orchestrate/hosts/h1", value);
    (0..5).for_each(|n| _ = put(&etcd, &format!("first {n}")));
    let snapshot = etcd.save_snapshot();
    let of_first = put(&etcd, "only in the first");
    // So far does the other store not come before it is looked at.
    let last = (0..5).fold(0, |_, _| put(&etcd, "later"));
    recorder.wait_for(last);
    etcd.restore_snapshot(&snapshot);
    let of_second = put(&etcd, "only in the second");
    assert_eq!(of_first, of_second, "the same revision in both");
    let has_second = || {
        let past = ask(&recorder.directory, &of_second.to_string());
        let are_both = |moments: &[Moment]| moments.len() == 2;
        matches!(&past, Err(RecordingError::Ambiguous { moments, .. }) if are_both(moments)).then_some(past)
    };
    let Err(RecordingError::Ambiguous { moments, .. }) =
        wait::until("both are recorded", has_second, || recorder.observer.log())
    else {
        panic!("not ambiguous");
    };
    let value = |moment: &Moment| {
        let past = ask(&recorder.directory, &moment.to_string()).expect("one of the two");
        text(&past.into_snapshot().entries["/orchestrate/hosts/h1"])
    };
    let mut values: Vec<String> = moments.iter().map(value).collect();
    values.sort();
    assert_eq!(values, ["only in the first", "only in the second"]);
}

#[test]
fn two_recorders_know_more_than_each_of_them() {
    let etcd = Etcd::single_real();
    let store = etcd.store();
    let mut first = RecordingObserver::start(&etcd.endpoints());
    let files = tempfile::tempdir().expect("a directory");
    let mut second = RecordingObserver::into_directory(&etcd.endpoints(), first.directory.clone(), files);
    let begin = names(&first.directory).iter().map(|name| name.revision).max().expect("two segments");
    let put = |n: i32| store.put("/orchestrate/hosts/h1", &n.to_string());
    let wait = |one: &RecordingObserver, revision| one.wait_for(revision);
    let at_first = put(1);
    wait(&first, at_first);
    wait(&second, at_first);
    first.observer.signal(Signal::KILL);
    (0..10).for_each(|n| _ = put(n));
    let without_first = put(11);
    wait(&second, without_first);
    first.observer = first.observer.again();
    first.observer.wait_for_health("fresh");
    wait(&first, without_first);
    second.observer.signal(Signal::KILL);
    (0..10).for_each(|n| _ = put(n));
    let without_second = put(22);
    wait(&first, without_second);
    second.observer = second.observer.again();
    for revision in begin..=without_second {
        assert_eq!(recorded(&first.directory, revision), held(&store, revision), "{revision}");
    }
    assert_eq!(Recording::new(names(&first.directory)).recorders().count(), 2);
}
