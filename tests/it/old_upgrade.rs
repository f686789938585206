//! The rolling upgrade of the original tool, over hosts that unmodified old cron scripts update.

use super::old_clients::OldMachine;
use rustix::process::Signal;
use schema::host_config::{ConfigScope, enables, role_of};
use schema::keys::Key;
use schema::names::HostName;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tests::etcd::Etcd;
use tests::host::{CommandOutput, Host};
use tests::recorder::Recorder;
use tests::store::Store;
use tests::wait;

/// The cron script that asks `check_puppet`.
const SCRIPT: &str = "maybe-upgrade-pause.sh";
/// Time for ten loops and five scripts on a busy machine.
const LONG: Duration = Duration::from_secs(150);

fn upgrade(ops: &Host, arguments: &[&str]) -> CommandOutput {
    ops.command(&[&["rolling_upgrade"], arguments].concat(), "")
}

/// Returns the largest number of hosts of each role that might run and were not listed under the version, at
/// any revision.
fn most_at_once(recorder: &Recorder, store: &Store, version: &str) -> BTreeMap<String, usize> {
    let (mut enabled, mut done): (BTreeSet<HostName>, BTreeSet<HostName>) = Default::default();
    let mut most = BTreeMap::new();
    let changes = recorder.up_to(store.revision());
    for group in changes.chunk_by(|a, b| a.revision == b.revision) {
        for change in group {
            let (set, host, is_in) = match Key::parse(&change.key) {
                Ok(Key::EnablePuppet(ConfigScope::Host(host))) => {
                    (&mut enabled, host, change.value.as_ref().is_some_and(|value| enables(value.as_bytes())))
                }
                Ok(Key::RunningVersion(listed, host)) if listed.as_str() == version => {
                    (&mut done, host, change.value.is_some())
                }
                _ => continue,
            };
            if is_in {
                set.insert(host)
            } else {
                set.remove(&host)
            };
        }
        let mut now: BTreeMap<String, usize> = BTreeMap::new();
        for host in enabled.difference(&done) {
            *now.entry(role_of(host).expect("a role").to_string()).or_default() += 1;
        }
        for (role, count) in now {
            let before = most.entry(role).or_insert(0);
            *before = count.max(*before);
        }
    }
    most
}

#[test]
fn ten_loops_at_once_keep_the_rules_and_upgrade_every_host() {
    let etcd = Etcd::single_real();
    let recorder = Recorder::start(&etcd);
    let store = etcd.store();
    store.put("/current_version", "1");
    let machines = ["a1", "a2", "a3", "b1", "b2"].map(|name| OldMachine::new(name, &etcd.endpoints()));
    for machine in &machines {
        assert_eq!(machine.cron_of(SCRIPT).code, 0);
    }
    let mut ops = Host::new("ops1", &[etcd.endpoint(0)]);
    ops.set_environment("ORCHESTRATE_TIMEOUT", "60s");
    let rules = r#"{"rolling_rules":{"global":"2","roles":{"b":1}}}"#;
    let is_over = AtomicBool::new(false);
    let wrong = std::thread::scope(|scope| {
        let machine_loops = machines.iter().map(|machine| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    machine.cron_of(SCRIPT);
                }
                Vec::new()
            })
        });
        let upgrade_loops = (0..10).map(|_| {
            scope.spawn(|| {
                let mut wrong = Vec::new();
                while !is_over.load(Ordering::Relaxed) {
                    let result = upgrade(&ops, &["upgrade", "2", "--instructions", rules]);
                    wrong.extend((result.code != 0).then_some(result));
                }
                wrong
            })
        });
        let loops: Vec<_> = machine_loops.collect::<Vec<_>>().into_iter().chain(upgrade_loops).collect();
        let listed = || store.list("/running_version/2/").len();
        let limit = std::time::Instant::now() + LONG;
        let all = || (listed() == machines.len() || std::time::Instant::now() > limit).then_some(());
        wait::until_within(2 * LONG, "every host is upgraded", all, String::new);
        is_over.store(true, Ordering::Relaxed);
        loops.into_iter().flat_map(|running| running.join().expect("no panic")).collect::<Vec<_>>()
    });
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(store.list("/running_version/2/").len(), machines.len(), "{:?}", store.list("/"));
    let most = most_at_once(&recorder, &store, "2");
    assert!((1..=2).contains(&most["a"]) && most["b"] == 1, "{most:?}");
    let result = upgrade(&ops, &["status"]);
    let expected = "{\"pending\":[],\"upgraded\":[\"a1\",\"a2\",\"a3\",\"b1\",\"b2\"],\"upgrading\":[]}\n";
    assert_eq!(result.out, expected);
    let events = store.list("/orchestrate/events/");
    let triggers = events.values().filter(|event| event.contains(r#""what":"/current_version""#)).count();
    assert_eq!(triggers, 1, "of ten loops one triggers: {events:?}");
}

/// Lists hosts under a version by the old verb, as scripts do.
fn list(ops: &Host, names: &[&str], version: &str) {
    for name in names {
        let result = ops.command(&["update_own_info", "--hostname", name, "--version", version], "");
        assert_eq!(result.code, 0, "{result:?}");
    }
}

#[test]
fn a_pause_outlives_every_verb_of_the_upgrade() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let ops = Host::new("ops1", &etcd.endpoints());
    let run = |line: &str, code: i32| -> String {
        let result = ops.command(&line.split(' ').collect::<Vec<_>>(), "");
        assert_eq!(result.code, code, "{line}: {result:?}");
        result.out
    };
    store.put("/current_version", "1");
    list(&ops, &["a1", "a2", "b1", "c1"], "1");
    run("enable_puppet False host -n a1", 0);
    // As somebody may write who knows the keys of the upgrade.
    store.put("/config_state/enable_puppet/role/b", "False");
    assert_eq!(run("rolling_upgrade upgrade 2", 0), "2 triggered\na2 enabled\nc1 enabled\n");
    run("check_puppet -n a1", 9);
    run("check_puppet -n b1", 9);
    run("check_puppet -n a2", 0);
    list(&ops, &["a2", "c1"], "2");
    // No host is in the middle, so every key of the upgrade goes; a host of its own pause stays.
    assert_eq!(
        run("rolling_upgrade upgrade 3 --noop", 0),
        "3 would be triggered\na2 would be enabled\nc1 would be enabled\n"
    );
    assert_eq!(store.get("/current_version").as_deref(), Some("2"));
    run("rolling_upgrade upgrade 3", 0);
    run("rolling_upgrade global_disable_puppet", 0);
    let kept = store.list("/config_state/");
    let kept: Vec<(&str, &str)> = kept.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let expected = [
        ("/config_state/enable_puppet/global", "False"),
        ("/config_state/enable_puppet/role/b", "False"),
        ("/config_state/host/a1/enable_puppet", "False"),
    ];
    assert_eq!(kept, expected);
    run("check_puppet -n a2", 9);
    // The pause ends when the operator says so.
    run("enable_puppet False host -n a1 -a delete", 0);
    assert_eq!(run("rolling_upgrade upgrade 3", 0), "a1 enabled\na2 enabled\nc1 enabled\n");
}

#[test]
fn a_loop_ends_by_a_signal_and_when_no_host_is_left() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let ops = Host::new("ops1", &etcd.endpoints());
    store.put("/current_version", "1");
    list(&ops, &["a1"], "1");
    let held = r#"{"rolling_rules":{"global":1,"roles":{"a":0}}}"#;
    for signal in [Signal::INT, Signal::TERM] {
        ops.remove("loop.log");
        let arguments = ["rolling_upgrade", "upgrade", "2", "-r", "--instructions", held];
        let mut running = ops.start_command(&arguments, "loop.log");
        let waits = || ops.read("loop.log").contains("role a: 0 of at most 0").then_some(());
        wait::until("it waits", waits, || ops.read("loop.log"));
        let revision = store.revision();
        running.signal(signal);
        let code = wait::until("it ends", || running.ended(), || ops.read("loop.log"));
        assert_eq!(code, Some(1), "{}", ops.read("loop.log"));
        assert_eq!(store.revision(), revision);
    }
    list(&ops, &["a1"], "2");
    let result = upgrade(&ops, &["upgrade", "2", "--retry"]);
    let expected = "a1 enabled\nNo hosts left to upgrade\n";
    assert_eq!((result.code, result.out.as_str()), (0, expected), "an upgraded host may run: {result:?}");
    // A file of rules is read, and what is wrong there is named.
    let path = ops.path("rules.json").display().to_string();
    let mut ops = ops;
    ops.set_environment("ORCHESTRATE_UPGRADE_FILE", &path);
    ops.write("rules.json", held);
    list(&ops, &["a1", "b1"], "2");
    assert_eq!(upgrade(&ops, &["upgrade", "3"]).out, "3 triggered\nb1 enabled\n");
    ops.write("rules.json", r#"{"rolling-rules":{}}"#);
    let result = upgrade(&ops, &["upgrade", "3"]);
    assert_eq!(result.code, 64);
    assert!(result.err.contains(&format!("{path}: \"rolling-rules\": unknown key")), "{result:?}");
}

#[test]
fn old_scripts_keep_to_a_policy_and_to_check_puppet_with_and_without_an_agent() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut machines = ["s1", "s2", "s3"].map(|name| OldMachine::new(name, &etcd.endpoints()));
    let agent = &mut machines[0];
    agent.start_agent_beside();
    wait::until("the agent lives", || store.get("/orchestrate/live/s1"), String::new);
    store.put("/current_version", "1");
    for machine in &machines {
        assert_eq!(machine.cron_of(SCRIPT).code, 0);
        assert_eq!(machine.ran(), ["validate", "config 1", "validate"]);
    }
    let ops = &machines[1].host;
    let run = |line: &str| {
        let result = ops.command(&line.split(' ').collect::<Vec<_>>(), "");
        assert_eq!(result.code, 0, "{line}: {result:?}");
    };
    for name in ["s1", "s2", "s3"] {
        run(&format!("hosts add {name} --role script"));
    }
    ops.write("policy.toml", "[[limit]]\nby = \"role\"\nmax = 1\n");
    run(&format!("policy set {}", ops.path("policy.toml").display()));
    run("enable_puppet False host -n s3");
    // With each as the first one, the other is held back while it works.
    for (version, first, second) in [("2", 0, 1), ("3", 1, 0)] {
        store.put("/current_version", version);
        machines[first].host.write("hold-config", "");
        std::thread::scope(|scope| {
            let working = scope.spawn(|| machines[first].cron_of(SCRIPT));
            let begun =
                || machines[first].host.read("log").contains(&format!("config {version}")).then_some(());
            wait::until("the configuration run begins", begun, || machines[first].host.read("log"));
            let held = machines[second].cron_of(SCRIPT);
            assert!(held.out.contains("Held back: 1 of at most 1 hosts"), "{held:?}");
            assert_eq!(machines[second].ran(), ["validate", "validate"], "it only validates");
            assert_eq!(store.list("/orchestrate/claims/").len(), 1);
            machines[first].host.remove("hold-config");
            assert_eq!(working.join().expect("no panic").code, 0);
        });
        assert!(store.list("/orchestrate/claims/").is_empty());
        assert_eq!(machines[second].cron_of(SCRIPT).code, 0);
        assert!(machines[second].ran().contains(&format!("config {version}")));
        let paused = machines[2].cron_of(SCRIPT);
        assert_eq!(paused.code, 9, "{paused:?}");
        assert_eq!(machines[2].ran(), ["validate"]);
        machines[first].ran();
    }
    run("enable_puppet True host -n s3");
    assert_eq!(machines[2].cron_of(SCRIPT).code, 0);
    assert!(machines[2].ran().contains(&"config 3".to_owned()));
}
