//! What a rollout is expected to do, and how an operator changes and follows one.

use super::failures::{describe, wait_for_halt};
use super::{orchestrate, set_policy, started};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;
use tests::etcd::Etcd;
use tests::host::Host;
use tests::store::Store;
use tests::wait;

const POLICY: &str = "failure_budget = 0\n[[limit]]\nby = \"fleet\"\nmax = 2\n
[[stage]]\nname = \"canary\"\ncount = 1\nsoak = \"5s\"\n";

fn json(ops: &Host, line: &str, code: i32) -> Value {
    let answer = ops.command(&line.split(' ').chain(["-o", "json"]).collect::<Vec<_>>(), "");
    assert_eq!(answer.code, code, "{line}: {answer:?}");
    serde_json::from_str(&answer.out).unwrap_or_else(|error| panic!("{line}: {error}: {answer:?}"))
}

fn fleet_at_1(etcd: &Etcd, store: &Store) -> Vec<Host> {
    let hosts = started(&["a1", "a2", "a3", "a4"], etcd);
    store.put("/current_version", "1");
    hosts.iter().for_each(|host| host.wait_for_listing(store, "1"));
    set_policy(&hosts[0], POLICY);
    hosts
}

/// Names the hosts of an answer of `plan` that start before others of its rollout may.
fn of_stage(plan: &Value, stage: &str) -> BTreeSet<String> {
    let hosts = plan["hosts"].as_array().expect("hosts").iter();
    let of_stage = hosts.filter(|host| host["stage"] == stage);
    of_stage.map(|host| host["host"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn a_plan_names_the_canary_and_the_halt_that_then_happen() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let hosts = fleet_at_1(&etcd, &store);
    let ops = &hosts[0];
    let revision = store.revision();
    let plan = json(ops, "plan 2", 0);
    assert!(plan["host_takes_seconds"].is_u64(), "the reports say how long steps took: {plan}");
    assert_eq!(plan["stages"][1]["host_count"], 3, "{plan}");
    let canary = of_stage(&plan, "canary");
    let [canary] = &canary.iter().collect::<Vec<_>>()[..] else { panic!("one canary: {plan}") };
    let failing = json(ops, &format!("plan 2 --assume-fail {canary}"), 1);
    assert_eq!(failing["halt"]["why"], "1 host failed, 0 tolerated", "{failing}");
    assert_eq!(store.revision(), revision, "a plan writes nothing");
    // It says what steps would mean that take longer.
    let slow = json(ops, "plan 2 --duration packages=10m", 0);
    assert!(slow["ends_after_seconds"].as_u64() > Some(1200), "{slow}");
    let unknown = orchestrate(ops, "plan 2 --duration none=10m", 1);
    assert!(unknown.contains("no host has reported a step none; they have: "), "{unknown}");
    orchestrate(ops, "plan 2 --max 0", 1);
    let text = orchestrate(ops, "plan 2", 0);
    assert!(text.contains("the rollout would end after about "), "{text}");
    assert!(text.contains("which hosts of a stage are the first is not certain"), "{text}");
    // What is wrong with limits is named.
    ops.write(
        "limits.toml",
        "[[limit]]\nby = \"role\"\nmax = 1\nvalues = { wbe = 1 }\n[[limit]]\nby = \"fleet\"\nmax = 0\n",
    );
    let wrong = orchestrate(ops, &format!("plan 2 --policy {}", ops.path("limits.toml").display()), 1);
    assert!(wrong.contains("a limit names role wbe, and no host of the roster has it"), "{wrong}");
    assert!(wrong.contains("the limit of the fleet is 0"), "{wrong}");
    // What was planned happens.
    ops_fail(&hosts, canary, "2");
    orchestrate(ops, "trigger_update 2", 0);
    wait_for_halt(&hosts, &store);
    let status = json(ops, "rollout status", 3);
    let chosen = status["stages"][0]["host_count"].as_u64();
    assert_eq!((chosen, &status["state"]), (Some(1), &Value::from("halted")), "{status}");
    let failed = (&status["failed"][0]["host"], &status["failure_count"]);
    assert_eq!(failed, (&Value::from(canary.as_str()), &Value::from(1)), "{status}");
    let started: Vec<&str> =
        hosts.iter().filter(|host| host.runs("packages", "2") > 0).map(|host| host.name.as_str()).collect();
    assert_eq!(started, [canary.as_str()], "{}", describe(&hosts));
}

fn ops_fail(hosts: &[Host], name: &str, version: &str) {
    let host = hosts.iter().find(|host| host.name.as_str() == name).expect("the host");
    host.write(&format!("code-packages-{version}"), "1\n");
}

#[test]
fn options_hold_for_one_rollout_and_its_numbers_change_while_it_goes_on() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let hosts = fleet_at_1(&etcd, &store);
    let ops = &hosts[0];
    let refused = orchestrate(ops, "rollout start 2 --budget 0 --max fleet=99999", 3);
    assert!(refused.contains("the largest is 99998; nothing was changed"), "{refused}");
    assert_eq!(store.get("/current_version").as_deref(), Some("1"));
    orchestrate(ops, "rollout start 2 --max 0 --reason kernel", 0);
    let record = || -> Value {
        let records = store.list("/orchestrate/rollouts/");
        let record = records.into_iter().rev().find(|(key, _)| key.ends_with("/record")).expect("a record");
        serde_json::from_str(&record.1).expect("JSON")
    };
    assert_eq!(
        (&record()["limits"][0]["max"], &record()["reason"]),
        (&Value::from(0), &Value::from("kernel"))
    );
    orchestrate(ops, "rollout set --max role=1", 3);
    let waits = || (ops.command(&["rollout", "queue"], "").code == 1).then_some(());
    wait::until("the canary waits for the limit", waits, || describe(&hosts));
    // Whoever waits for the rollout hears of its end.
    let mut waiting = ops.start_command(&["rollout", "status", "--wait", "90s"], "wait.log");
    orchestrate(ops, "rollout set --max 4 --budget 1", 0);
    let ended = || waiting.ended();
    let code = wait::until_within(Duration::from_secs(90), "the wait ends", ended, || describe(&hosts));
    let text = ops.read("wait.log");
    assert_eq!(code, Some(0), "{text}{}", describe(&hosts));
    assert!(text.contains("the rollout has ended"), "{text}");
    assert_eq!((&record()["limits"][0]["max"], &record()["budget"]), (&Value::from(4), &Value::from(1)));
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "2"));
    // The next rollout has the numbers of the policy again.
    orchestrate(ops, "trigger_update 3", 0);
    assert_eq!((&record()["limits"][0]["max"], &record()["budget"]), (&Value::from(2), &Value::from(0)));
    let late = orchestrate(ops, "rollout status --wait 1ms", 1);
    assert!(late.contains("canary"), "{late}");
    let nobody = orchestrate(ops, "rollout set --max role/nobody=1", 3);
    assert!(nobody.contains("no host of the roster has role nobody"), "{nobody}");
    // Another version in the place of the awaited one is not its end.
    orchestrate(ops, "trigger_update 4 --max 0", 0);
    let mut waiting = ops.start_command(&["rollout", "status", "--watch"], "watch.log");
    let shown = || ops.read("watch.log").contains("4, from 3, triggered by").then_some(());
    wait::until("version 4 is shown", shown, || ops.read("watch.log"));
    orchestrate(ops, "trigger_update 5", 0);
    let ended = || waiting.ended();
    let code = wait::until("the watch ends", ended, || ops.read("watch.log"));
    let text = ops.read("watch.log");
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("the rollout was replaced by 5"), "{text}");
    ops.write("without-budget.toml", "[[limit]]\nby = \"fleet\"\nmax = 4\n");
    orchestrate(ops, &format!("policy set {}", ops.path("without-budget.toml").display()), 0);
    let refused = orchestrate(ops, "trigger_update 6 --on-halt stop", 3);
    assert!(refused.contains("--on-halt: without a failure budget"), "{refused}");
    assert_eq!(store.get("/current_version").as_deref(), Some("5"));
}

#[test]
fn a_watched_rollout_is_shown_until_it_has_ended() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let hosts = fleet_at_1(&etcd, &store);
    let ops = &hosts[0];
    orchestrate(ops, "trigger_update 2", 0);
    let text = ops.command(&["rollout", "status", "--watch"], "");
    assert_eq!(text.code, 0, "{text:?}");
    let text = text.out;
    let frames: Vec<&str> = text.split("\n\n").collect();
    assert!(frames.len() > 1 && frames.iter().all(|frame| frame.contains("canary")), "{text}");
    assert!(frames.iter().any(|frame| frame.contains(" to go (a host takes ")), "{text}");
    assert!(text.ends_with("the rollout has ended\n"), "{text}");
}
