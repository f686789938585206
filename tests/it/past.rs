//! The command asks a recording: it answers about the past as it answered then.

use crate::contract::fleet::{FLEET, fill};
use archive::recording::{Between, Branch, Concealer, Directory, Erased, Header, SegmentName, SegmentWriter};
use schema::names::Token;
use schema::snapshot::{Entry, KeySnapshot};
use serde_json::Value;
use std::path::Path;
use tests::etcd::Etcd;
use tests::host::{CommandOutput, Host};
use tests::recording::RecordingObserver;

/// Every verb that reads the store once.
const READS: [&str; 27] = [
    "status",
    "hosts",
    "hosts list --all --sort verdict",
    "hosts --role web --verdict failed",
    "unaccounted",
    "why",
    "why web-1",
    "logs web-1",
    "events",
    "events web-1",
    "verify_hosts 43 web-1 web-2",
    "get_failures --hosts",
    "get_failures --group --show_warnings",
    "check_single_version -v 43",
    "hosts_at_version 43",
    "running_versions",
    "current_version",
    "rollout status",
    "rollout history",
    "rollout queue",
    "freezes",
    "claims",
    "policy show",
    "plan 44",
    "services list",
    "services show web --checks",
    "check_puppet --hostname web-1",
];

/// Lines of an answer that tell of the moment itself.
const ABOUT_THE_MOMENT: [&str; 2] = ["the past: ", "revision "];

fn ask(operator: &Host, arguments: &str, more: &[&str]) -> CommandOutput {
    let words: Vec<&str> = arguments.split(' ').chain(more.iter().copied()).collect();
    operator.command(&words, "")
}

/// Asks for JSON. Of an answer about the past, returns that of the verb. Alarms are not
/// compared, and no values that are not recorded.
fn json(operator: &Host, arguments: &str, more: &[&str]) -> (i32, Value) {
    let more = [more, &["-o", "json"]].concat();
    let result = ask(operator, arguments, &more);
    let mut value: Value =
        serde_json::from_str(&result.out).unwrap_or_else(|error| panic!("{arguments}: {error}: {result:?}"));
    if let Some(answer) = value.get_mut("answer") {
        value = answer.take();
        assert!(arguments != "status" || value["alarms"].is_null(), "alarms are in no key");
    }
    if let Value::Object(fields) = &mut value {
        fields.remove("alarms");
        let events = fields.get_mut("events").and_then(Value::as_array_mut);
        let is_of_values = |event: &&mut Value| {
            event["key"].as_str().is_some_and(|key| key.starts_with("/orchestrate/config/"))
        };
        events.into_iter().flatten().filter(is_of_values).for_each(|event| {
            event["new_value"] = Value::Null;
            event["old_value"] = Value::Null;
        });
    }
    (result.code, value)
}

fn of_recording<'a>(directory: &'a Path, at: &'a str) -> [&'a str; 4] {
    ["--recording", directory.to_str().expect("text"), "--at", at]
}

#[test]
fn a_question_about_the_past_is_answered_as_it_was_then() {
    let etcd = Etcd::single_real();
    let store = etcd.store();
    let recorder = RecordingObserver::start(&etcd.endpoints());
    let operator = Host::new("operator", &etcd.endpoints());
    let run = |arguments: &str| {
        let result = ask(&operator, arguments, &[]);
        assert_eq!(result.code, 0, "{arguments}: {result:?}");
    };
    fill(&store, &FLEET);
    store.put(
        "/available_services/web/web-1",
        r#"{"format":1,"host":"web-1","addresses":["10.0.0.1"],"port":80}"#,
    );
    store.put("/orchestrate/health/web/web-1", "passing");
    // Each act, and what was answered after it.
    let acts = [
        "freeze --hostname web-1 --reason test",
        "hosts decommission lost-1",
        "drain web-1 --reason disk --force",
    ];
    let mut answers: Vec<(i64, &str, (i32, Value))> = Vec::new();
    for act in std::iter::once(None).chain(acts.map(Some)) {
        act.into_iter().for_each(run);
        let revision = store.revision();
        answers.extend(READS.map(|verb| (revision, verb, json(&operator, verb, &[]))));
        assert_eq!(store.revision(), revision, "reading changes nothing");
    }
    let last = store.put("/orchestrate/freezes/fleet", "not readable");
    recorder.wait_for(last);
    let away = Host::new("elsewhere", &["http://127.0.0.1:1".to_owned()]);
    for (revision, verb, expected) in &answers {
        let at = revision.to_string();
        let found = json(&away, verb, &of_recording(&recorder.directory, &at));
        assert_eq!(&found, expected, "{verb} at {revision}");
    }
    // Asking about the past leaves nothing behind for questions about the present.
    assert!(!away.state().join("current_version").exists());
    assert!(!away.state().join("seen_stores").exists());
}

#[test]
fn an_answer_about_the_past_says_which_moment_and_what_it_does_not_know() {
    let etcd = Etcd::single_real();
    let store = etcd.store();
    let recorder = RecordingObserver::start(&etcd.endpoints());
    fill(&store, &FLEET);
    let revision = store.put("/current_version", "43");
    recorder.wait_for(revision);
    let away = Host::new("elsewhere", &["http://127.0.0.1:1".to_owned()]);
    let directory = recorder.directory.as_path();
    let at = revision.to_string();
    let result = ask(&away, "current_version", &of_recording(directory, &at));
    assert_eq!((result.code, result.out.as_str()), (0, "43\n"), "{result:?}");
    let first = result.err.lines().next().unwrap_or_default().to_owned();
    assert!(
        first.starts_with(ABOUT_THE_MOMENT[0]) && first.contains(&format!("/{at}, reached by ")),
        "{first}"
    );
    let more = [&of_recording(directory, &at)[..], &["--now", "2030-01-01T00:00:00Z", "-o", "json"]].concat();
    let result = ask(&away, "status", &more);
    let shown: Value = serde_json::from_str(&result.out).expect("JSON");
    assert_eq!(shown["past"]["present_at"], "2030-01-01T00:00:00.000Z");
    assert_eq!(shown["past"]["recording"], directory.to_str().expect("text"));
    assert!(shown["past"]["moment"].as_str().expect("text").ends_with(&format!("/{at}")), "{shown}");
    // The whole moment can be given back, and gives the same bytes.
    let moment = shown["past"]["moment"].as_str().expect("text").to_owned();
    let again =
        [&of_recording(directory, &moment)[..], &["--now", "2030-01-01T00:00:00Z", "-o", "json"]].concat();
    assert_eq!(ask(&away, "status", &again).out, result.out);
    let check = |arguments: &str, at: &str, code: i32, message: &str| {
        let result = ask(&away, arguments, &of_recording(directory, at));
        assert_eq!(result.code, code, "{arguments} {at}: {result:?}");
        assert!(result.err.contains(message), "{arguments} {at}: {result:?}");
    };
    let later = (revision + 1000).to_string();
    check("status", &later, 2, &format!("revision {later} is not recorded"));
    check("status", "2020-01-01T00:00:00Z", 2, "is not recorded: recorder ");
    check("status", "yesterday", 64, "\"yesterday\" is no moment: name a revision (1234)");
    for (verb, why) in [
        ("trigger_update 44", "this one does not"),
        ("hosts decommission web-1", "this one does not"),
        ("claims release web-1 --reason x", "this one does not"),
        ("ping", "this one does not"),
        ("status --watch", "waits for changes"),
        ("rollout status --watch", "waits for changes"),
        ("rollout status --wait 1s", "waits for changes"),
        ("verify_hosts 43 web-1 --wait 1s", "waits for changes"),
        ("events --follow", "waits for changes"),
        ("wait_for web", "waits for changes"),
        ("logs --this-host", "are not recorded"),
        ("values list", "are not recorded"),
        ("values get x", "are not recorded"),
    ] {
        check(verb, &at, 64, why);
    }
    let nowhere = directory.join("nowhere");
    let result = ask(&away, "status", &of_recording(&nowhere, "5"));
    assert!(result.code == 2 && result.err.contains("No such file or directory"), "{result:?}");
    let result = ask(&away, "status", &["--at", "5"]);
    assert!(result.code == 64 && result.err.contains("--at needs a recording"), "{result:?}");
    let recording = ["--recording", directory.to_str().expect("text")];
    let result = ask(&away, "status", &recording);
    assert!(result.code == 64 && result.err.contains("add --at MOMENT"), "{result:?}");
    // A flipped bit is said, and nothing is answered.
    recorder.observer.signal(rustix::process::Signal::STOP);
    let segments = archive::recording::Directory::new(directory);
    for name in segments.names().expect("a recording") {
        let path = segments.path_of(&name);
        let mut bytes = std::fs::read(&path).expect("read");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).expect("written");
    }
    check("status", &at, 2, "it is damaged at byte");
}

#[test]
fn the_observer_shows_the_past_that_it_recorded() {
    let etcd = Etcd::single_real();
    let store = etcd.store();
    let recorder = RecordingObserver::start(&etcd.endpoints());
    let observer = &recorder.observer;
    fill(&store, &FLEET);
    // The history begins when the store has its identity.
    recorder.wait_for(store.revision());
    store.put("/running_version/43/new-1", "1");
    let then =
        store.put("/available_services/web/web-1", r#"{"format":1,"host":"web-1","addresses":["10.0.0.1"]}"#);
    let operator = Host::new("operator", &etcd.endpoints());
    for act in ["hosts decommission lost-1", "freeze --reason later"] {
        let result = ask(&operator, act, &[]);
        assert_eq!(result.code, 0, "{act}: {result:?}");
    }
    recorder.wait_for(store.revision());
    let at = then.to_string();
    for (path, verb) in [
        ("/v1/status", "status"),
        ("/v1/hosts", "hosts"),
        ("/v1/hosts/lost-1", "why lost-1"),
        ("/v1/services/web", "services show web"),
        ("/v1/failures", "get_failures --group --show_warnings"),
        ("/v1/events", "events"),
        ("/v1/events?since=1h", "events --since 1h"),
    ] {
        let sign = if path.contains('?') { '&' } else { '?' };
        let shown = observer.get(&format!("{path}{sign}at={at}"));
        assert_eq!(shown.code, 200, "{path}: {shown:?}");
        assert_eq!(shown.age(), None, "the past has no age");
        let result =
            ask(&operator, verb, &[&of_recording(&recorder.directory, &at)[..], &["-o", "json"]].concat());
        let expected: Value = serde_json::from_str(&result.out).expect("JSON");
        assert_eq!(shown.json(), expected, "{path}");
    }
    let changes = observer.get(&format!("/events?since=1h&at={at}")).body;
    for expected in ["○ listing</td>", "host new-1: none to 43", "Not recorded: nothing is recorded before "]
    {
        assert!(changes.contains(expected), "{expected}: {changes}");
    }
    // Of the present, the host is gone.
    assert_eq!(observer.get("/v1/hosts/lost-1").code, 404);
    let page = |path: &str| observer.get(path).body;
    let now = page("/events");
    assert!(now.contains("href=\"/?at=") && now.contains("see then"), "{now}");
    let past = page(&format!("/hosts?role=web&at={at}"));
    let shown = observer.get(&format!("/v1/status?at={at}")).json();
    let moment = shown["past"]["moment"].as_str().expect("text");
    let parameter = format!("at={}", moment.replace('/', "%2F"));
    for expected in [
        "<body class=\"past\">",
        &format!("<section id=\"past\" aria-label=\"Moment of the past\">the past: {moment}, "),
        "<a href='/hosts?role=web'>back to now</a>",
        &format!("href=\"/rollouts?{parameter}\""),
        &format!("<input type=\"hidden\" name=\"at\" value=\"{moment}\">"),
        &format!("href=\"/hosts/web-1?{parameter}\""),
    ] {
        assert!(past.contains(expected), "{expected}: {past}");
    }
    // An exact search stays in the moment as well.
    let found = observer.get(&format!("/search?q=web-1&{parameter}"));
    assert_eq!(
        (found.code, found.headers["location"].as_str()),
        (303, format!("/hosts/web-1?{parameter}").as_str())
    );
    assert!(!past.contains("id=\"freshness\""), "{past}");
    for (path, code, why) in [
        ("/v1/status?at=999999", 404, "revision 999999 is not recorded"),
        ("/v1/status?at=yesterday", 400, "is no moment"),
        ("/v1/stream?at=5", 400, "unknown parameter \"at\""),
        ("/metrics?at=5", 200, "orchestrate_fleet_revision"),
    ] {
        let refused = observer.get(path);
        assert_eq!(refused.code, code, "{path}: {refused:?}");
        assert!(refused.body.contains(why), "{path}: {refused:?}");
    }
    let without = tests::observer::Observer::of(&etcd.endpoints());
    let refused = without.get("/v1/status?at=5");
    assert!(refused.code == 400 && refused.body.contains("does not record"), "{refused:?}");
    assert!(!without.get("/events").body.contains("see then"));
}

/// Adds a segment of another history of the same store to a recording: one key at a revision, and something erased.
fn add_history(directory: &Path, revision: i64) -> Branch {
    let names = Directory::new(directory).names().expect("a recording");
    let own = names.iter().max_by_key(|name| name.begun).expect("a segment");
    let branch = Branch { branch: Token::new("restored").expect("a token"), ..own.branch.clone() };
    let name = SegmentName { branch: branch.clone(), revision, ..own.clone() };
    let header = Header {
        format: 0,
        program: "test".into(),
        lineage: branch.lineage.clone(),
        epoch: branch.epoch,
        branch: branch.branch.clone(),
        recorder: name.recorder.clone(),
        revision,
        keys: 0,
        between: Between { after: None, by: name.begun },
        restored: true,
        continues: false,
        gap: None,
        erased: vec![Erased { at: 1_416_300_000_000, what: "key /x".into() }],
    };
    let entry =
        Entry { value: b"7".into(), create_revision: revision, mod_revision: revision, version: 1, lease: 0 };
    let entries = [("/current_version".to_owned(), entry)].into();
    let snapshot = KeySnapshot { revision, raft_term: 1, entries };
    let path = directory.join(name.to_string());
    std::fs::create_dir_all(path.parent().expect("a directory")).expect("created");
    let file = std::fs::File::create(path).expect("a file");
    let writer = SegmentWriter::begin(file, header, &snapshot, Concealer::new(b"key")).expect("begun");
    writer.finish().expect("written");
    branch
}

#[test]
fn a_page_offers_the_histories_that_have_a_revision_and_says_what_was_erased() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let recorder = RecordingObserver::start(&etcd.endpoints());
    let observer = &recorder.observer;
    fill(&store, &FLEET);
    // The history before the store had its identity may have the revision of that too.
    recorder.wait_for(store.revision());
    let then = store.put("/orchestrate/config/motd", "hello");
    recorder.wait_for(then);
    let restored = add_history(&recorder.directory, then);
    let own = Branch { branch: Token::new("0").expect("a token"), ..restored.clone() };
    let bearer = format!("Bearer {}", observer.token());
    let address = observer.address();
    let headers = [("Host", address.as_str()), ("Authorization", &bearer), ("Accept", "text/html")];
    let which = observer.ask(&format!("/hosts?role=web&at={then}"), &headers);
    assert_eq!(which.code, 300, "{which:?}");
    for branch in [&own, &restored] {
        let moment = format!("{branch}/{then}");
        let link = format!("href=\"/hosts?role=web&#38;at={}\">{moment}</a>", moment.replace('/', "%2F"));
        assert!(which.body.contains(&link), "{link}: {which:?}");
    }
    // A path that browsers take for another site is no place to lead to.
    let elsewhere = observer.ask(&format!("//elsewhere.example/x?at={then}"), &headers);
    assert!(
        !elsewhere.body.contains("href=\"//") && elsewhere.body.contains("href=\"/?at="),
        "{elsewhere:?}"
    );
    let refused = observer.get(&format!("/v1/hosts?at={then}"));
    assert_eq!(refused.code, 300, "{refused:?}");
    assert!(
        refused.body.contains(&format!("several histories have revision {then}: {own}/{then}, ")),
        "{refused:?}"
    );
    let erased = "erased at 2014-11-18T08:40:00.000Z: key /x";
    for (branch, is_erased) in [(&own, false), (&restored, true)] {
        let at = format!("at={branch}/{then}").replace('/', "%2F");
        let page = observer.get(&format!("/?{at}"));
        assert_eq!((page.code, page.body.contains(erased)), (200, is_erased), "{page:?}");
        let answer = observer.get(&format!("/v1/status?{at}")).json();
        let expected = if is_erased { serde_json::json!([erased]) } else { serde_json::json!([]) };
        assert_eq!(answer["past"]["erased"], expected);
    }
    std::fs::write(recorder.directory.join(segment_of(&recorder.directory, &restored)), "something else")
        .expect("written");
    // The moment that was shown last needs no recording.
    assert_eq!(observer.get(&format!("/v1/hosts?at={own}/{then}")).code, 200);
    let unreadable = observer.get(&format!("/v1/hosts?at={restored}/{then}"));
    assert_eq!(unreadable.code, 500, "{unreadable:?}");
}

fn segment_of(directory: &Path, branch: &Branch) -> String {
    let names = Directory::new(directory).names().expect("a recording");
    names.iter().find(|name| name.branch == *branch).expect("a segment").to_string()
}
