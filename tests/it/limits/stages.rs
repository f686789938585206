//! Stages: a few hosts update first, and the others when these work.

use super::failures::{describe, disturbed, wait_for_halt};
use super::{orchestrate, set_policy, started};
use serde_json::Value;
use std::time::Duration;
use tests::etcd::Etcd;
use tests::host::Host;
use tests::recorder::Recorder;
use tests::store::Store;
use tests::wait;

const CANARY: &str =
    "[[limit]]\nby = \"fleet\"\nmax = 2\n[[stage]]\nname = \"canary\"\ncount = 1\nsoak = \"5s\"\n";

fn status(ops: &Host) -> (i32, Value) {
    let answer = ops.command(&["rollout", "status", "-o", "json"], "");
    (answer.code, serde_json::from_str(&answer.out).unwrap_or_default())
}

/// Waits until the rollout says what is expected of it.
fn wait_for_status(what: &str, ops: &Host, hosts: &[Host], is: impl Fn(i32, &Value) -> bool) -> Value {
    wait::until_within(
        Duration::from_secs(90),
        what,
        || {
            let (code, status) = status(ops);
            is(code, &status).then_some(status)
        },
        || format!("{:?} {}", status(ops), describe(hosts)),
    )
}

fn fleet_at_1<'a>(hosts: &'a [Host], store: &Store, budget: u32) -> &'a Host {
    store.put("/current_version", "1");
    hosts.iter().for_each(|host| host.wait_for_listing(store, "1"));
    set_policy(&hosts[0], &format!("failure_budget = {budget}\n{CANARY}"));
    &hosts[0]
}

#[test]
fn the_others_start_when_the_canary_is_proven_and_was_observed() {
    let etcd = Etcd::single();
    let (store, recorder) = (etcd.store(), Recorder::start(&etcd));
    let hosts = started(&["a1", "a2", "a3", "a4"], &etcd);
    let ops = fleet_at_1(&hosts, &store, 0);
    orchestrate(ops, "trigger_update 2", 0);
    // The update of the canary may be over before anybody looks; then it is observed.
    wait_for_status("the canary is updated alone", ops, &hosts, |code, status| {
        let canary = &status["stages"][0];
        let is_alone = canary["running_count"] == 1 || canary["proven_count"] == 1;
        code == 1 && is_alone && status["stages"][1]["state"] == "closed"
    });
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "2"));
    let ended = wait_for_status("the rollout ends", ops, &hosts, |code, _| code == 0);
    let proven = |stage: usize| ended["stages"][stage]["proven_count"].as_u64();
    assert_eq!((proven(0), proven(1)), (Some(1), Some(3)), "{ended}");
    // The order of the writes says who went first.
    let changes = recorder.up_to(store.revision());
    let first = |part: &str| {
        let change = changes.iter().find(|change| change.key.contains(part) && change.value.is_some());
        change.unwrap_or_else(|| panic!("{part} is never written")).revision
    };
    let (soak, opened) = (first("/soak/0"), first("/opened/1"));
    assert!(soak < opened);
    let started = changes.iter().filter(|change| change.key.starts_with("/orchestrate/progress/"));
    let started =
        started.filter(|change| change.value.as_ref().is_some_and(|value| value.contains("started")));
    let (before, after): (Vec<_>, Vec<_>) = started.partition(|change| change.revision < opened);
    assert_eq!((before.len(), after.len()), (1, 3), "{before:?} {after:?}");
    assert!(before.iter().all(|change| change.revision < soak));
}

#[test]
fn a_canary_that_fails_keeps_the_fleet_whole() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let hosts = started(&["a1", "a2", "a3", "a4"], &etcd);
    let ops = fleet_at_1(&hosts, &store, 1);
    hosts.iter().for_each(|host| host.write("code-packages-2", "1\n"));
    orchestrate(ops, "trigger_update 2", 0);
    let failed = wait_for_status("the canary gave up", ops, &hosts, |code, status| {
        code == 1 && status["stages"][0]["failed_count"] == 1
    });
    let canary = failed["waits_for"][0].as_str().expect("a host").to_owned();
    let others = hosts.iter().filter(|host| host.name.as_str() != canary);
    others.for_each(|host| host.wait_for_listing(&store, "1"));
    let waiting = hosts.iter().find(|host| host.name.as_str() != canary).expect("another one");
    let why = || orchestrate(ops, &format!("why {}", waiting.name), 0);
    let says = "stage rest is not open: not all hosts of stage canary are proven";
    let waits = || why().contains(says).then_some(());
    wait::until_within(Duration::from_secs(90), "another host says what it waits for", waits, why);
    // An operator blames the host. The next canary fails too, and that is one more than is tolerated.
    let excused = orchestrate(ops, &format!("rollout excuse {canary} --reason disk"), 0);
    assert!(excused.contains("takes its place"), "{excused}");
    wait_for_halt(&hosts, &store);
    assert_eq!(disturbed(&hosts, "2").len(), 2, "{}", describe(&hosts));
    assert_eq!(status(ops).0, 3);
}

#[test]
fn scripts_open_stages_where_no_agent_does() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut hosts = started(&["a1"], &etcd);
    fleet_at_1(&hosts, &store, 0);
    let scripts = ["s1", "s2"].map(|name| Host::new(name, &etcd.endpoints()));
    for script in &scripts {
        orchestrate(script, "local_version 1", 0);
        orchestrate(script, "update_own_info", 0);
        orchestrate(&hosts[0], &format!("hosts add {} --role script", script.name), 0);
    }
    let stage = "[[stage]]\nname = \"canary\"\nselect = { role = [\"script\"] }\ncount = 1\n";
    set_policy(&hosts[0], &format!("failure_budget = 0\n[[limit]]\nby = \"fleet\"\nmax = 2\n{stage}"));
    hosts[0].kill();
    // Its lease alone takes 30 s.
    wait::until_within(
        wait::DEADLINE * 2,
        "the agent is gone",
        || store.list("/orchestrate/live/").is_empty().then_some(()),
        String::new,
    );
    orchestrate(&scripts[0], "trigger_update 2", 0);
    let may_start = |script: &Host| script.command(&["pending_update", "--peek"], "").code == 0;
    assert!(scripts.iter().all(may_start), "peeking takes nothing");
    let starts = |script: &&Host| script.command(&["pending_update"], "").code == 0;
    let (first, second): (Vec<&Host>, Vec<&Host>) = scripts.iter().partition(starts);
    let (first, second) = (first[0], second[0]);
    let held = orchestrate(second, "pending_update", 2);
    assert!(held.contains("stage rest is not open: not all hosts of stage canary are proven"), "{held}");
    orchestrate(first, "local_version 2", 0);
    orchestrate(first, "update_own_info", 0);
    orchestrate(second, "pending_update", 0);
}
