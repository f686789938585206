//! The failure budget: a version that fails everywhere reaches few hosts.

use super::{orchestrate, set_policy, started};
use std::collections::BTreeSet;
use std::time::Duration;
use tests::etcd::Etcd;
use tests::host::Host;
use tests::store::Store;
use tests::wait;

/// The hosts on which an apply step of a version has begun.
pub(super) fn disturbed(hosts: &[Host], version: &str) -> BTreeSet<String> {
    hosts
        .iter()
        .filter(|host| host.begins("packages", version) > 0)
        .map(|host| host.name.to_string())
        .collect()
}

pub(super) fn describe(hosts: &[Host]) -> String {
    hosts.iter().map(Host::describe).collect()
}

/// Waits until the rollout is halted.
pub(super) fn wait_for_halt(hosts: &[Host], store: &Store) {
    let halted =
        || store.list("/orchestrate/rollouts/").keys().any(|key| key.ends_with("/halt")).then_some(());
    wait::until("the rollout is halted", halted, || describe(hosts));
}

#[test]
fn a_version_that_fails_everywhere_reaches_few_hosts() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let names: Vec<String> = (1..=12).map(|number| format!("a{number}")).collect();
    let hosts = started(&names.iter().map(String::as_str).collect::<Vec<_>>(), &etcd);
    let ops = &hosts[0];
    store.put("/current_version", "1");
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "1"));
    set_policy(ops, "failure_budget = 2\n[[limit]]\nby = \"fleet\"\nmax = 6\n");
    hosts.iter().for_each(|host| host.write("code-packages-2", "1\n"));
    orchestrate(ops, "trigger_update 2", 0);
    wait_for_halt(&hosts, &store);
    // Those that started before the halt go on to their end.
    let failed =
        || store.list("/orchestrate/rollouts/").keys().filter(|key| key.contains("/failed/")).count();
    let claimed = || store.list("/orchestrate/claims/").len();
    wait::until(
        "every host that started has failed",
        || (failed() >= 3 && failed() >= claimed()).then_some(()),
        || describe(&hosts),
    );
    let reached = disturbed(&hosts, "2");
    assert!((3..=8).contains(&reached.len()), "budget 2 and limit 6: {reached:?}");
    let status = orchestrate(ops, "status", 1);
    assert!(status.contains("the rollout is halted: "), "{status}");
    assert!(status.contains(" of 2 used"), "{status}");
    assert!(status.contains("apply step packages exited with code 1"), "{status}");
    let rollout = orchestrate(ops, "rollout status", 3);
    let says = [
        "2, from 1, triggered by ",
        "at most 6 of the fleet are unavailable at the same time; failure budget: ",
        " of 2 used",
        " failed: apply step packages exited with code 1 (orchestrate why a",
    ];
    says.iter().for_each(|text| assert!(rollout.contains(text), "{text}: {rollout}"));
    let waits = hosts.iter().find(|host| !reached.contains(host.name.as_str())).expect("a host that waits");
    // After ten reports in quick succession a host writes one in a minute.
    let why = wait::until_within(
        Duration::from_secs(90),
        "it says so",
        || {
            let why = orchestrate(ops, &format!("why {}", waits.name), 0);
            why.contains("waits for an operator: the rollout is halted: ").then_some(why)
        },
        || orchestrate(ops, &format!("why {}", waits.name), 0),
    );
    assert!(why.contains("`orchestrate rollout resume`"), "{why}");
    // A fix reaches everybody, without a word of an operator about the hosts that failed.
    orchestrate(ops, "trigger_update 3", 0);
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "3"));
    assert!(disturbed(&hosts, "2").len() <= 8, "{:?}", disturbed(&hosts, "2"));
}

#[test]
fn an_operator_resumes_a_halted_rollout() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let hosts = started(&["a1", "a2", "a3", "a4"], &etcd);
    let ops = &hosts[0];
    store.put("/current_version", "1");
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "1"));
    orchestrate(ops, "rollout resume", 0);
    set_policy(ops, "failure_budget = 0\n[[limit]]\nby = \"fleet\"\nmax = 1\nkeep_failed = false\n");
    hosts.iter().for_each(|host| host.write("code-packages-2", "1\n"));
    store.put("/current_version", "2");
    wait_for_halt(&hosts, &store);
    assert_eq!(disturbed(&hosts, "2").len(), 1);
    let failed = store.list("/orchestrate/rollouts/").into_iter().find(|(key, _)| key.contains("/failed/"));
    let failed = failed.expect("a failure").1;
    assert!(failed.contains(r#""cause":{"fingerprint":"f1-"#), "{failed}");
    let resumed = orchestrate(ops, "rollout resume", 0);
    let first = disturbed(&hosts, "2").into_iter().next().expect("one");
    assert!(resumed.contains(&format!("do not count any more (1): {first}")), "{resumed}");
    wait_for_halt(&hosts, &store);
    assert_eq!(disturbed(&hosts, "2").len(), 2, "one more fails, and the rollout is halted again");
    hosts.iter().for_each(|host| host.remove("code-packages-2"));
    orchestrate(ops, "rollout resume", 0);
    let failed = disturbed(&hosts, "2");
    hosts.iter().filter(|host| !failed.contains(host.name.as_str())).for_each(|host| {
        host.wait_for_listing(&store, "2");
    });
    hosts.iter().for_each(|host| drop(orchestrate(ops, &format!("retry {}", host.name), 0)));
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "2"));
    let events = store.list("/orchestrate/events/");
    assert!(
        events.values().any(|event| event.contains("rollout resume") && event.contains("/halt")),
        "{events:?}"
    );
}

#[test]
fn a_pause_and_a_halt_are_ended_one_by_one() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let hosts = started(&["a1", "a2"], &etcd);
    let ops = &hosts[0];
    store.put("/current_version", "1");
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "1"));
    set_policy(ops, "failure_budget = 0\n[[limit]]\nby = \"fleet\"\nmax = 1\nkeep_failed = false\n");
    hosts.iter().for_each(|host| host.write("code-packages-2", "1\n"));
    store.put("/current_version", "2");
    wait_for_halt(&hosts, &store);
    orchestrate(ops, "rollout pause --reason lunch", 0);
    let revision = store.revision();
    let refused = orchestrate(ops, "rollout resume", 3);
    assert!(refused.contains("updates are paused by") && refused.contains("1 host failed"), "{refused}");
    let stands = |part: &str| store.list("/orchestrate/").keys().any(|key| key.contains(part));
    assert!(stands("/freezes/pause/") && stands("/halt"), "since revision {revision}");
    let resumed = orchestrate(ops, "rollout resume --pause", 0);
    assert!(resumed.contains("still: the rollout is halted: 1 host failed"), "{resumed}");
    assert!(!stands("/freezes/pause/") && stands("/halt"));
    let resumed = orchestrate(ops, "rollout resume", 0);
    assert!(resumed.contains("do not count any more (1)"), "{resumed}");
}
