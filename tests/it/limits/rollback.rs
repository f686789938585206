//! The end of rollouts, rollbacks, and hosts that keep their claims after their proof.

use super::failures::{describe, disturbed, wait_for_halt};
use super::{orchestrate, set_policy, started};
use serde_json::Value;
use std::time::Duration;
use tests::etcd::Etcd;
use tests::host::Host;
use tests::store::Store;
use tests::wait;

/// The records of all rollouts, the oldest first, and whether each has ended.
fn rollouts(store: &Store) -> Vec<(Value, bool)> {
    let keys = store.list("/orchestrate/rollouts/");
    let records = keys.iter().filter_map(|(key, value)| Some((key.strip_suffix("/record")?, value)));
    let records = records.map(|(rollout, value)| {
        let record = serde_json::from_str(value).expect("JSON");
        (record, keys.contains_key(&format!("{rollout}/ended")))
    });
    records.collect()
}

/// Waits until the rollout of a version has ended.
fn wait_for_end(version: &str, store: &Store, hosts: &[Host]) {
    let ended = || rollouts(store).iter().any(|(record, ended)| record["version"] == version && *ended);
    wait::until_within(
        Duration::from_secs(90),
        &format!("the rollout of {version} ends"),
        || ended().then_some(()),
        || format!("{:?} {}", store.list("/orchestrate/"), describe(hosts)),
    );
}

fn desired(store: &Store) -> Option<String> {
    store.list("/current_version").remove("/current_version")
}

#[test]
fn hosts_go_back_by_themselves_to_the_last_version_that_worked() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let names: Vec<String> = (1..=12).map(|number| format!("a{number}")).collect();
    let hosts = started(&names.iter().map(String::as_str).collect::<Vec<_>>(), &etcd);
    let ops = &hosts[0];
    wait::until("an agent has used the store", || store.get("/orchestrate/store"), || describe(&hosts));
    set_policy(ops, "failure_budget = 2\non_halt = \"roll_back\"\n[[limit]]\nby = \"fleet\"\nmax = 6\n");
    orchestrate(ops, "trigger_update 1", 0);
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "1"));
    wait_for_end("1", &store, &hosts);
    hosts.iter().for_each(|host| host.write("code-packages-2", "1\n"));
    orchestrate(ops, "trigger_update 2", 0);
    // Nobody says a word.
    wait_for_halt(&hosts, &store);
    assert_eq!(desired(&store).as_deref(), Some("1"));
    let back = || {
        let listed = store.list("/running_version/1/");
        hosts.iter().all(|host| listed.contains_key(&format!("/running_version/1/{}", host.name)))
    };
    let settled = || orchestrate_code(ops, "status") == 0;
    wait::until_within(
        Duration::from_secs(120),
        "all hosts are back",
        || (back() && settled()).then_some(()),
        || describe(&hosts),
    );
    let reached = disturbed(&hosts, "2");
    assert!((3..=8).contains(&reached.len()), "budget 2 and limit 6: {reached:?}");
    let all = rollouts(&store);
    let (last, _) = all.last().expect("a record");
    assert_eq!(last["rollback"], true, "{all:?}");
    assert_eq!(last["version"], "1");
    let status = orchestrate(ops, "status", 0);
    assert!(status.contains("rolled back to 1 by a"), "{status}");
    assert!(status.contains(" failed, 2 tolerated"), "{status}");
}

fn orchestrate_code(host: &Host, line: &str) -> i32 {
    host.command(&line.split(' ').collect::<Vec<_>>(), "").code
}

#[test]
fn an_operator_rolls_back_and_the_rollback_is_not_rolled_back() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let hosts = started(&["a1", "a2", "a3"], &etcd);
    let ops = &hosts[0];
    store.put("/current_version", "1");
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "1"));
    set_policy(ops, "[[limit]]\nby = \"fleet\"\nmax = 2\n");
    // What was rolled out without a policy is not known.
    let refused = orchestrate(ops, "rollout rollback", 3);
    assert!(refused.contains("no version before 1 is known to have worked"), "{refused}");
    orchestrate(ops, "trigger_update 2", 0);
    // The rollout of version 1 had no policy.
    let refused = orchestrate(ops, "rollout rollback", 3);
    assert!(refused.contains("use --to, such as --to 1 for the version before it"), "{refused}");
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "2"));
    wait_for_end("2", &store, &hosts);
    orchestrate(ops, "trigger_update 3", 0);
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "3"));
    let back = orchestrate(ops, "rollout rollback --reason disk", 0);
    assert!(back.contains("rolling back from 3 to 2"), "{back}");
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "2"));
    let all = rollouts(&store);
    let (last, _) = all.last().expect("a record");
    assert_eq!((&last["rollback"], &last["good"]), (&Value::Bool(true), &Value::from("2")), "{last}");
    assert_eq!(last["reason"], "disk");
    let again = orchestrate(ops, "rollout rollback", 0);
    assert!(again.contains("2 is the desired version already; nothing was written"), "{again}");
    orchestrate(ops, "rollout rollback --to 1", 0);
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "1"));
}

#[test]
fn a_version_that_all_hosts_proved_is_good_also_when_the_next_one_follows_at_once() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let hosts = started(&["a1", "a2"], &etcd);
    let ops = &hosts[0];
    set_policy(ops, "[[limit]]\nby = \"fleet\"\nmax = 2\n");
    orchestrate(ops, "trigger_update 1", 0);
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "1"));
    wait_for_end("1", &store, &hosts);
    orchestrate(ops, "trigger_update 2", 0);
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "2"));
    // Nobody has looked for its end yet.
    orchestrate(ops, "trigger_update 3", 0);
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "3"));
    wait_for_end("3", &store, &hosts);
    // Somebody writes the version again that every host has. That rollout has a record and an end too, and leads back
    // to where the first one would.
    store.put("/current_version", "3");
    let all_ended = || {
        let of_3: Vec<bool> =
            rollouts(&store).iter().filter(|(r, _)| r["version"] == "3").map(|(_, e)| *e).collect();
        (of_3 == [true, true]).then_some(())
    };
    wait::until_within(Duration::from_secs(60), "the second rollout ends", all_ended, || describe(&hosts));
    orchestrate(ops, "rollout status", 0);
    let back = orchestrate(ops, "rollout rollback", 0);
    assert!(back.contains("rolling back from 3 to 2"), "{back}");
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "2"));
}

#[test]
fn a_host_that_breaks_while_it_is_held_keeps_others_from_starting() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let hosts = started(&["a1", "a2", "a3"], &etcd);
    let ops = &hosts[0];
    store.put("/current_version", "1");
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "1"));
    let policy =
        "failure_budget = 0\nhold = \"30s\"\n[[limit]]\nby = \"fleet\"\nmax = 1\nkeep_failed = false\n";
    set_policy(ops, policy);
    orchestrate(ops, "trigger_update 2", 0);
    let listed = || {
        hosts.iter().find(|host| {
            store.list("/running_version/2/").keys().any(|key| key.ends_with(host.name.as_str()))
        })
    };
    let first = wait::until("one host is proven", listed, || describe(&hosts));
    assert_eq!(store.list("/orchestrate/claims/").len(), 1, "it is listed, and keeps its claim");
    first.write("code-check-2", "1\n");
    wait_for_halt(&hosts, &store);
    assert_eq!(disturbed(&hosts, "2").len(), 1, "{}", describe(&hosts));
}
