//! `plan` and the time to go, beside what happens with real agents.

use super::failures::describe;
use super::{orchestrate, set_policy, started};
use schema::codec;
use schema::keys;
use schema::records::{Ended, RolloutRecord};
use serde_json::Value;
use std::time::{Duration, SystemTime};
use tests::etcd::Etcd;
use tests::host::Host;
use tests::store::Store;
use tests::wait;

const POLICY: &str = "failure_budget = 0\nhold = \"8s\"\n[[limit]]\nby = \"fleet\"\nmax = 2\n
[[stage]]\nname = \"canary\"\ncount = 1\nsoak = \"6s\"\n";

/// How long the rollout may take.
const WITHIN: Duration = Duration::from_secs(240);

/// The store tells times in whole seconds, and an answer takes a moment.
const CLOCKS: f64 = 3.0;

fn answer(ops: &Host, line: &str) -> Value {
    let answer = ops.command(&line.split(' ').chain(["-o", "json"]).collect::<Vec<_>>(), "");
    serde_json::from_str(&answer.out).unwrap_or_else(|error| panic!("{line}: {error}: {answer:?}"))
}

fn now() -> i64 {
    let passed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time after 1970");
    passed.as_secs().cast_signed()
}

/// The last value below a prefix whose key ends so.
fn newest<T: serde::de::DeserializeOwned>(store: &Store, ends: &str) -> T {
    let rollouts = store.list("/orchestrate/rollouts/");
    let (_, value) = rollouts.iter().rev().find(|(key, _)| key.ends_with(ends)).expect("a rollout");
    codec::read(value.as_bytes()).expect("a value")
}

/// How long the hosts took in the last rollout, in the middle, in seconds.
fn median_took(store: &Store, hosts: usize) -> f64 {
    let progress = store.list("/orchestrate/progress/");
    let took = progress.values().rev().take(hosts).map(|value| {
        let progress = keys::Progress::read(value.as_bytes()).expect("progress");
        progress.took.expect("the host is proven").0.as_secs_f64()
    });
    let mut took: Vec<f64> = took.collect();
    took.sort_by(f64::total_cmp);
    took[took.len() / 2]
}

fn wait_for_end(hosts: &[Host], version: &str, mut look: impl FnMut(&Value)) {
    let ended = || {
        let status = answer(&hosts[0], "rollout status");
        look(&status);
        (status["version"] == version && status["state"] == "ended").then_some(())
    };
    wait::until_within(WITHIN, "the rollout ends", ended, || describe(hosts));
}

#[test]
fn the_plan_and_the_time_to_go_are_near_to_what_happens() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let hosts = started(&["a1", "a2", "a3", "a4", "a5"], &etcd);
    let ops = &hosts[0];
    // So long that what the machine does besides does not matter much.
    hosts.iter().for_each(|host| host.write("do-packages", "sleep 3\n"));
    store.put("/current_version", "1");
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "1"));
    set_policy(ops, "failure_budget = 0\n[[limit]]\nby = \"fleet\"\nmax = 5\n");
    orchestrate(ops, "trigger_update 2", 0);
    wait_for_end(&hosts, "2", |_| {});
    let took_before = median_took(&store, hosts.len());
    set_policy(ops, POLICY);
    let plan = answer(ops, "plan 3");
    let planned = plan["ends_after_seconds"].as_f64().expect("it would end");
    orchestrate(ops, "trigger_update 3", 0);
    let mut answers: Vec<(i64, f64)> = Vec::new();
    wait_for_end(&hosts, "3", |status| {
        answers.extend(status["to_go_seconds"].as_f64().map(|to_go| (now(), to_go)));
    });
    let (record, ended): (RolloutRecord, Ended) = (newest(&store, "/record"), newest(&store, "/ended"));
    let took = (ended.at.0 - record.at.0) as f64;
    // A machine with other work makes all hosts slower than before, which no plan knows.
    let slower = (median_took(&store, hosts.len()) / took_before).max(1.0);
    let check = |what: &str, expected: f64, real: f64, allowance: f64| {
        let is_near = real <= 1.3 * slower * expected + allowance && expected <= 1.3 * real + allowance;
        assert!(is_near, "{what}: expected {expected} s, it was {real} s, hosts took {slower:.2} as long");
    };
    check("plan", planned, took, 1.0);
    assert!(answers.len() > 5, "{answers:?}");
    for (at, to_go) in &answers {
        check("to go", *to_go, (ended.at.0 - at) as f64, CLOCKS);
    }
}

#[test]
fn why_says_that_a_stage_waits_for_hosts_that_hold_their_claims() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let hosts = started(&["a1", "a2"], &etcd);
    let ops = &hosts[0];
    store.put("/current_version", "1");
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "1"));
    set_policy(ops, &POLICY.replace("8s", "5m"));
    orchestrate(ops, "trigger_update 2", 0);
    let why = |host: &Host| answer(ops, &format!("why {}", host.name));
    let held = || {
        let mut pairs = [[&hosts[0], &hosts[1]], [&hosts[1], &hosts[0]]].into_iter();
        pairs.find_map(|[canary, other]| {
            let says =
                format!("stage rest is not open: {} is proven and holds its claims for 5m", canary.name);
            let why = why(other);
            (why["held_back_by"].as_str() == Some(&says)).then_some(why)
        })
    };
    let held = wait::until("why names the hold", held, || {
        let all: Vec<String> = hosts.iter().map(|host| why(host).to_string()).collect();
        all.join("\n")
    });
    assert!(held["held_until"].is_string(), "{held}");
}
