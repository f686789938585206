//! `verify_hosts --wait` with hosts that do not come.

use rustix::process::Signal;
use std::time::{Duration, Instant};
use tests::etcd::Etcd;
use tests::host::{CommandOutput, Host};
use tests::store::Store;
use tests::wait;

/// A fleet: h1 runs version 1, h2 ran it and is gone, h3 waits for a service, and ghost is on the roster and never
/// came.
struct Fleet {
    etcd: Etcd,
    store: Store,
    h1: Host,
    _h3: Host,
}

impl Fleet {
    fn new() -> Self {
        let etcd = Etcd::single();
        let store = etcd.store();
        let h1 = Host::started("h1", &etcd.endpoints());
        let of_h2 =
            format!("[store]\nendpoints = {:?}\nbackstop = \"1s\"\nlive_lease = \"5s\"\n", etcd.endpoints());
        let mut h2 = Host::new("h2", &etcd.endpoints()).with(&of_h2);
        h2.start();
        let needs = "[[requires]]\nservice = \"nosuch\"\nphase = \"prefetch\"\n";
        let mut h3 = Host::new("h3", &etcd.endpoints()).with(needs);
        h3.start();
        assert_eq!(h1.command(&["trigger_update", "1"], "").code, 0);
        [&h1, &h2].iter().for_each(|host| host.wait_for_listing(&store, "1"));
        h3.wait_for_verdict("waiting");
        h2.kill();
        let is_gone = || store.get("/orchestrate/live/h2").is_none().then_some(());
        wait::until("h2 is gone", is_gone, || format!("{:?}", store.list("/orchestrate/live/")));
        assert_eq!(h1.command(&["hosts", "add", "ghost"], "").code, 0);
        Self { etcd, store, h1, _h3: h3 }
    }

    fn verify(&self, arguments: &str) -> (CommandOutput, Duration) {
        let begin = Instant::now();
        let result = self.h1.command(&words(arguments), "");
        (result, begin.elapsed())
    }
}

fn words(line: &str) -> Vec<&str> {
    ["verify_hosts"].into_iter().chain(line.split(' ')).collect()
}

const LOST: &str = "h2: lost: neither live nor listed under a version\n";

#[test]
fn the_wait_ends_early_when_a_host_cannot_reach_the_version() {
    let fleet = Fleet::new();
    // Beyond the time of one query, and beside a host that waits for a service.
    let (result, took) = fleet.verify("1 h1 h2 --wait 10m -o json");
    assert_eq!(result.code, 1, "{result:?}");
    assert!(took < Duration::from_secs(300), "{took:?}");
    assert!(result.err.contains("not at 1 (1): h2\n"), "{result:?}");
    assert!(result.err.contains(LOST) && result.err.contains("the wait ends early"), "{result:?}");
    assert!(result.out.contains(r#""ended_by": "stuck""#), "{result:?}");

    for line in ["1 h1 h2 --wait 12s -o json", "1 h1 h2 --wait 25s --wait-anyway -o json"] {
        let (result, took) = fleet.verify(line);
        assert_eq!(result.code, 1, "{result:?}");
        assert!(took >= Duration::from_secs(12), "{took:?}");
        assert!(result.err.contains(LOST) && !result.err.contains("early"), "{result:?}");
        assert!(result.out.contains(r#""ended_by": "time""#), "{result:?}");
    }
}

#[test]
fn the_wait_goes_on_while_a_host_may_reach_the_version() {
    let fleet = Fleet::new();
    let host = &fleet.h1;
    // One says "not yet", and tries again; one was never seen; one waits for another version than the desired one.
    host.write("code-packages-2", "75\n");
    assert_eq!(host.command(&["trigger_update", "2"], "").code, 0);
    host.wait_for_verdict("waiting");
    let start = |line: &str, log: &str| host.start_command(&words(line), log);
    let mut of_waiting = start("2 h1 --wait 5m", "waiting.log");
    let mut others = [start("2 ghost --wait 5m", "ghost.log"), start("1 h2 --wait 5m", "other.log")];
    let (result, _) = fleet.verify("2 h1 --wait 1s");
    let why = "h1: waiting: waits for apply step packages, which said \"not yet\"";
    assert!(result.err.contains(why), "{result:?}");
    // Two looks are ten seconds apart.
    let (result, _) = fleet.verify("2 h2 --wait 5m");
    assert!(result.err.contains("the wait ends early"), "{result:?}");
    assert_eq!(of_waiting.ended(), None, "{}", host.read("waiting.log"));
    assert!(others.iter_mut().all(|other| other.ended().is_none()), "{}", host.read("ghost.log"));
    host.remove("code-packages-2");
    host.wait_for_listing(&fleet.store, "2");
    let ended = || of_waiting.ended();
    assert_eq!(wait::until("the answer is yes", ended, || host.read("waiting.log")), Some(0));
}

/// Two hosts at version 1 under a policy that tolerates no failure: one host comes first, then the other.
struct Governed {
    hosts: [Host; 2],
    _etcd: Etcd,
}

impl Governed {
    fn new() -> Self {
        let etcd = Etcd::single();
        let store = etcd.store();
        let hosts = ["h1", "h2"].map(|name| Host::started(name, &etcd.endpoints()));
        let governed = Self { hosts, _etcd: etcd };
        let operator = &governed.hosts[0];
        // A host before its stage does not watch whether the rollout is halted.
        let stage = "[[stage]]\nname = \"canary\"\ncount = 1\n";
        let policy = format!("failure_budget = 0\n[[limit]]\nby = \"fleet\"\nmax = 1\n{stage}");
        operator.write("policy.toml", &policy);
        let known = || store.get("/orchestrate/store");
        wait::until("the store has an identity", known, || operator.describe());
        governed.run(&format!("policy set {}", operator.path("policy.toml").display()));
        governed.run("trigger_update 1");
        governed.hosts.iter().for_each(|host| host.wait_for_listing(&store, "1"));
        governed
    }

    fn run(&self, line: &str) {
        let result = self.hosts[0].command(&line.split(' ').collect::<Vec<_>>(), "");
        assert_eq!(result.code, 0, "{line}: {result:?}");
    }

    /// Returns what `verify_hosts` says when it has ended early.
    fn verify_early(&self) -> String {
        let result = self.hosts[0].command(&words("2 h1 h2 --wait 5m -o json"), "");
        assert_eq!(result.code, 1, "{result:?}");
        assert!(result.out.contains(r#""ended_by": "stuck""#), "{result:?}");
        result.err
    }
}

#[test]
fn the_wait_ends_early_when_updates_are_paused() {
    let fleet = Governed::new();
    fleet.run("rollout pause --reason release");
    fleet.run("trigger_update 2");
    let text = fleet.verify_early();
    assert!(text.contains("h1, h2: frozen: updates are paused by ") && text.contains(": release"), "{text}");
}

#[test]
fn the_wait_ends_early_when_the_rollout_is_halted() {
    let fleet = Governed::new();
    fleet.hosts.iter().for_each(|host| host.write("code-check-2", "1\n"));
    fleet.run("trigger_update 2");
    let text = fleet.verify_early();
    let why = "waiting: waits for an operator: the rollout is halted: 1 host failed, 0 tolerated";
    assert!(text.contains(why), "{text}");
    for line in ["status", "hosts"] {
        let answer = fleet.hosts[0].command(&[line], "");
        assert!(answer.out.contains("waits for an operator: the rollout is halted"), "{answer:?}");
    }
}

#[test]
fn a_store_that_does_not_answer_was_asked_for_the_whole_time() {
    let host = Host::new("h1", &["http://127.0.0.1:1".to_owned()]);
    let result = host.command(&words("1 h1 --wait 3s"), "");
    assert_eq!(result.code, 2, "{result:?}");
    assert!(result.err.contains("no answer within 3s: the store is not reachable"), "{result:?}");
}

#[test]
fn an_interrupted_wait_says_who_is_missing() {
    let fleet = Fleet::new();
    let host = &fleet.h1;
    // An interrupt may come before the first answer.
    for round in 0..50 {
        let log = format!("wait-{round}.log");
        let mut command = host.start_command(&words("1 h1 ghost --wait 5m"), &log);
        let status = format!("/proc/{}/status", command.pid().as_raw_nonzero());
        let catches = || {
            let text = std::fs::read_to_string(&status).ok()?;
            let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:"))?.trim().to_owned();
            (u64::from_str_radix(&mask, 16).ok()? & 2 != 0).then_some(())
        };
        wait::until("it listens for the signal", catches, || host.read(&log));
        command.signal(Signal::INT);
        let ended = || command.ended();
        assert_eq!(wait::until("it ends", ended, || host.read(&log)), Some(130));
        let text = host.read(&log);
        if text == "not at 1 (1): ghost\ninterrupted\n" {
            return;
        }
        assert!(text.contains("interrupted; the store has not answered yet"), "{text}");
    }
    panic!("no interrupt came after the first answer, {} members", fleet.etcd.endpoints().len());
}
