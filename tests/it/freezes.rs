//! Freezes and pauses: no start is committed while one stands that matches the host.

use serde_json::{Value, json};
use tests::etcd::Etcd;
use tests::host::Host;
use tests::recorder::{Change, Recorder};
use tests::store::Store;
use tests::wait;

/// Rounds of the race between a trigger and a freeze, unless `ORCHESTRATE_TEST_FREEZES` says otherwise.
const ROUNDS: usize = 50;

fn started(names: &[&str], etcd: &Etcd) -> Vec<Host> {
    names.iter().map(|name| Host::started(name, &etcd.endpoints())).collect()
}

/// Runs the command on the first host; it must exit with 0.
fn orchestrate(host: &Host, line: &str) -> String {
    let result = host.command(&line.split(' ').collect::<Vec<_>>(), "");
    assert_eq!(result.code, 0, "{line}: {result:?}");
    result.out
}

fn verdict(host: &Host, name: &str) -> (String, String) {
    let answer: Value =
        serde_json::from_str(&orchestrate(host, &format!("why {name} -o json"))).expect("JSON");
    let text = |field: &str| answer[field].as_str().unwrap_or_default().to_owned();
    (text("verdict"), text("reason"))
}

fn wait_until_frozen(host: &Host, name: &str, reason: &str) {
    wait::until(
        &format!("{name} is frozen"),
        || {
            let (verdict, because) = verdict(host, name);
            (verdict == "frozen" && because.contains(reason)).then_some(())
        },
        || format!("{:?}", verdict(host, name)),
    );
}

#[test]
fn a_frozen_host_fetches_says_why_it_waits_and_starts_as_soon_as_it_may() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let hosts = started(&["a1", "b1"], &etcd);
    store.put("/current_version", "1");
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "1"));
    let ops = &hosts[0];
    orchestrate(ops, "hosts add b1 --role b");
    orchestrate(ops, "freeze --role b --reason moving");
    store.put("/current_version", "2");
    hosts[0].wait_for_listing(&store, "2");
    wait_until_frozen(ops, "b1", "role b is frozen by");
    assert!(orchestrate_any(ops, "status").contains("role b is frozen by"));
    // A pause holds everybody, and the freeze outlives its end.
    orchestrate(ops, "rollout pause --reason lunch");
    store.put("/current_version", "3");
    wait_until_frozen(ops, "a1", "updates are paused by");
    let resumed = ops.command(&["rollout", "resume"], "");
    assert_eq!(resumed.code, 0, "{resumed:?}");
    assert!(resumed.err.contains("still: role b is frozen by"), "{resumed:?}");
    hosts[0].wait_for_listing(&store, "3");
    assert_eq!(hosts[1].read("current_version"), "1", "nothing was disturbed");
    assert_eq!(store.list("/running_version/1/").len(), 1, "a frozen host stays on its list");
    orchestrate(ops, "unfreeze --role b");
    hosts[1].wait_for_listing(&store, "3");
    assert_eq!(hosts[1].begins("packages", "2"), 0, "the version between was never started");
    assert_eq!(ops.command(&["freezes"], "").code, 0);
}

#[test]
fn a_freeze_with_a_length_ends_by_itself() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let hosts = started(&["a1"], &etcd);
    store.put("/current_version", "1");
    hosts[0].wait_for_listing(&store, "1");
    orchestrate(&hosts[0], "freeze --for 15s --reason briefly");
    store.put("/current_version", "2");
    wait_until_frozen(&hosts[0], "a1", "briefly");
    hosts[0].wait_for_listing(&store, "2");
}

#[test]
fn a_freeze_that_outlives_its_length_is_named_with_the_command_that_ends_it() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let ops = Host::new("a1", &etcd.endpoints());
    let freeze = |until| json!({ "by": "ops", "reason": "briefly", "at": 1, "until": until }).to_string();
    store.put("/orchestrate/freezes/role/b/t1", &freeze(Some(2)));
    store.put("/orchestrate/freezes/role/c/t2", &freeze(None));
    let listed = ops.command(&["freezes"], "");
    assert_eq!(listed.code, 1, "{listed:?}");
    let lines: Vec<&str> = listed.err.lines().collect();
    let [line] = lines[..] else { panic!("{listed:?}") };
    assert!(line.contains("role b") && line.contains("`orchestrate unfreeze --role b` ends it"), "{line}");
}

/// R10: an agent that does not know freezes would start in spite of one.
#[test]
fn a_freeze_is_refused_while_an_older_agent_lives() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let hosts = started(&["a1"], &etcd);
    store.put("/current_version", "1");
    hosts[0].wait_for_listing(&store, "1");
    let older = r#"{"format":1,"instance":"i","machine_id":"m","boot_id":"b","driver":"agent"}"#;
    store.put("/orchestrate/live/old-1", older);
    for line in ["freeze --reason disk", "rollout pause"] {
        let refused = hosts[0].command(&line.split(' ').collect::<Vec<_>>(), "");
        assert_eq!(refused.code, 3, "{line}: {refused:?}");
        assert!(refused.err.contains("older agents (1): old-1"), "{line}: {refused:?}");
    }
    assert_eq!(store.list("/orchestrate/freezes/").len(), 0);
    store.delete("/orchestrate/live/old-1");
    orchestrate(&hosts[0], "freeze --reason disk");
    assert!(store.get("/orchestrate/store").expect("an identity").starts_with(r#"{"format":2,"#));
    // The agent goes on with the marked store.
    orchestrate(&hosts[0], "unfreeze");
    store.put("/current_version", "2");
    hosts[0].wait_for_listing(&store, "2");
}

#[test]
fn a_script_that_applies_versions_is_held_back_by_a_freeze() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let hosts = started(&["a1"], &etcd);
    store.put("/current_version", "1");
    hosts[0].wait_for_listing(&store, "1");
    let script = Host::new("s1", &etcd.endpoints());
    let pending = |arguments: &[&str]| script.command(arguments, "");
    assert_eq!(pending(&["pending_update"]).code, 0);
    // It never reported, so the fleet does not know it.
    orchestrate(&hosts[0], "freeze --hostname s1 --force --reason disk");
    let held = pending(&["pending_update"]);
    assert_eq!(held.code, 2, "{held:?}");
    assert!(held.out.starts_with("Held back: host s1 is frozen by"), "{held:?}");
    assert_eq!(pending(&["pending_update", "--peek"]).code, 0);
    orchestrate(&hosts[0], "unfreeze --hostname s1");
    assert_eq!(pending(&["pending_update"]).code, 0);
}

/// Runs the command, whatever its exit code.
fn orchestrate_any(host: &Host, line: &str) -> String {
    host.command(&line.split(' ').collect::<Vec<_>>(), "").out
}

/// Returns the revisions at which hosts were taken off their lists: those of their starts.
fn starts(recorder: &Recorder, store: &Store, since: i64) -> Vec<i64> {
    let is_start = |change: &&Change| {
        change.revision > since && change.value.is_none() && change.key.starts_with("/running_version/")
    };
    recorder.up_to(store.revision()).iter().filter(is_start).map(|change| change.revision).collect()
}

/// Returns the number of hosts that are frozen.
fn frozen(host: &Host) -> usize {
    let answer: Value = serde_json::from_str(&orchestrate_any(host, "status -o json")).expect("JSON");
    let not_ok = answer["not_ok"].as_array().expect("hosts");
    not_ok.iter().filter(|host| host["verdict"] == "frozen").count()
}

/// R2: once a freeze was answered with 0, not one more host starts.
#[test]
fn no_host_starts_after_a_freeze_was_answered() {
    let etcd = Etcd::single();
    let recorder = Recorder::start(&etcd);
    let store = etcd.store();
    let hosts = started(&["a1", "b1", "c1"], &etcd);
    store.put("/current_version", "0");
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "0"));
    let (mut before, mut held) = (0, 0);
    let rounds =
        std::env::var("ORCHESTRATE_TEST_FREEZES").map_or(ROUNDS, |text| text.parse().expect("a number"));
    for round in 1..=rounds {
        let version = round.to_string();
        let since = store.revision();
        store.put("/current_version", &version);
        // In some rounds the freeze comes at once, in others when one or two hosts have started.
        let wanted = round % hosts.len();
        wait::until(
            "hosts start",
            || (starts(&recorder, &store, since).len() >= wanted).then_some(()),
            || format!("round {round}: {wanted} wanted"),
        );
        let answer = orchestrate(&hosts[0], "freeze --reason race -o json");
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        let frozen_at = answer["revision"].as_i64().expect("a revision");
        let state = || (starts(&recorder, &store, since), frozen(&hosts[0]));
        let settled = || {
            let (starts, frozen) = state();
            (starts.len() + frozen == hosts.len()).then_some(starts)
        };
        let starts = wait::until("every host has started or is frozen", settled, || format!("{:?}", state()));
        assert!(starts.iter().all(|at| *at < frozen_at), "round {round}: {starts:?}, frozen at {frozen_at}");
        before += starts.len();
        held += hosts.len() - starts.len();
        orchestrate(&hosts[0], "unfreeze");
        hosts.iter().for_each(|host| host.wait_for_listing(&store, &version));
    }
    assert!(before > 0 && held > 0, "the race has no winner: {before} starts before, {held} after");
}

#[test]
fn a_freeze_of_what_the_fleet_does_not_have_is_refused() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let ops = Host::new("ops1", &etcd.endpoints());
    let run = |line: &str, code: i32| {
        let result = ops.command(&line.split(' ').collect::<Vec<_>>(), "");
        assert_eq!(result.code, code, "{line}: {result:?}");
        result.err
    };
    run("hosts add web-1 --role web --group g1", 0);
    let refused = run("freeze --role wbe --reason disk", 3);
    assert!(
        refused.contains("no host of the roster has role wbe (there are web); nothing was frozen"),
        "{refused}"
    );
    run("freeze --group g2 --reason disk", 3);
    run("freeze --hostname web-2 --reason disk", 3);
    assert!(store.list("/orchestrate/freezes/").is_empty());
    run("freeze --role web --reason disk", 0);
    run("freeze --hostname web-2 --force --reason disk", 0);
    for line in ["unfreeze --all", "unfreeze --hostname web-1"] {
        let says = run(line, 1);
        assert!(says.contains("is not frozen; other freezes stand"), "{says}");
        assert!(says.contains("`orchestrate unfreeze --role web` ends that"), "{says}");
        assert!(says.contains("`orchestrate unfreeze --hostname web-2` ends that"), "{says}");
    }
}
