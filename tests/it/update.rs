//! The main job: a version is triggered, and every host decides, applies, proves and reports it.

use schema::names::HostName;
use std::collections::BTreeMap;
use std::time::Duration;
use tests::etcd::Etcd;
use tests::host::Host;
use tests::recorder::Recorder;
use tests::{checker, wait};

fn check_history(etcd: &Etcd, recorder: &Recorder, hosts: &[&Host]) {
    let changes = recorder.up_to(etcd.store().revision());
    let steps: BTreeMap<HostName, _> = hosts.iter().map(|h| (h.name.clone(), h.steps())).collect();
    checker::check(&changes, &steps);
}

#[test]
fn several_hosts_install_a_version_and_then_the_next() {
    let etcd = Etcd::single();
    let recorder = Recorder::start(&etcd);
    let store = etcd.store();
    let hosts: Vec<Host> =
        ["a1", "b1", "c1"].iter().map(|name| Host::started(name, &etcd.endpoints())).collect();
    for version in ["1", "2"] {
        store.put("/current_version", version);
        for host in &hosts {
            host.wait_for_listing(&store, version);
            host.wait_for_verdict("ok");
            assert_eq!(host.read("current_version"), version);
            assert_eq!(host.read("installed").trim(), version);
        }
    }
    assert_eq!(store.list("/running_version/1/"), BTreeMap::new(), "nobody is listed twice");
    check_history(&etcd, &recorder, &hosts.iter().collect::<Vec<_>>());
}

#[test]
fn the_version_that_runs_already_settles_at_once_also_after_a_value_that_is_no_version() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let host = Host::started("h1", &etcd.endpoints());
    store.put("/current_version", "1");
    host.wait_for_listing(&store, "1");
    let status = || host.command(&["status"], "");
    for values in [&["1"][..], &["no version!", "1"]] {
        for value in values {
            let revision = store.put("/current_version", value);
            let decided = || host.command(&["why", "h1"], "").out.contains(&format!("(revision {revision})"));
            if *value == "1" {
                // A report that takes its time would leave the fleet updating for half a minute.
                let limit = Duration::from_secs(10);
                wait::until_within(limit, "it decided", || decided().then_some(()), || host.describe());
            } else {
                host.wait_for_verdict("blocked");
            }
        }
        let settled = || (status().code == 0).then_some(());
        wait::until_within(Duration::from_secs(10), "the fleet is settled", settled, || host.describe());
    }
    assert_eq!(host.runs("packages", "1"), 1);
}

#[test]
fn a_raw_put_with_a_newline_triggers_like_the_command() {
    let etcd = Etcd::single();
    let host = Host::started("h1", &etcd.endpoints());
    etcd.etcdctl(&["put", "/current_version"], "v43\n");
    host.wait_for_listing(&etcd.store(), "v43");
    assert_eq!(host.read("current_version"), "v43");
}

#[test]
fn what_the_agent_read_is_what_the_command_says_while_the_store_is_away() {
    let mut etcd = Etcd::single();
    let host = Host::started("h1", &etcd.endpoints());
    let store = etcd.store();
    store.put("/current_version", "7");
    host.wait_for_listing(&store, "7");
    etcd.kill_member(0);
    let result = host.command(&["--timeout", "1s", "current_version"], "");
    assert_eq!((result.code, result.out.as_str()), (0, "7\n"), "{result:?}");
    assert!(!result.err.is_empty(), "with a warning");
}

#[test]
fn garbage_in_the_store_is_ignored_and_said() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let host = Host::started("h1", &etcd.endpoints());
    store.put("/current_version", "1");
    host.wait_for_listing(&store, "1");
    let long = "x".repeat(1_000_000);
    for garbage in [
        &b""[..],
        b"\n",
        b"a b",
        b"a\0b",
        b"../../etc",
        b"/",
        b"\xff\xfe",
        "v\u{e9}".as_bytes(),
        long.as_bytes(),
    ] {
        store.try_put("/current_version", garbage).expect("etcd takes anything");
        let status = host.wait_for_verdict("blocked");
        assert!(
            status["detail"].as_str().expect("text").contains("/current_version is not a version"),
            "{status}"
        );
        assert!(store.get("/running_version/1/h1").is_some(), "it stays at what is proven");
        store.put("/current_version", "1");
        host.wait_for_verdict("ok");
    }
    assert_eq!(host.begins("packages", "1"), 1, "nothing was applied again");
}

#[test]
fn a_failing_apply_says_failed_with_the_reason_and_the_log_and_is_not_listed() {
    let etcd = Etcd::single();
    let recorder = Recorder::start(&etcd);
    let store = etcd.store();
    let host = Host::started("h1", &etcd.endpoints());
    store.put("/current_version", "1");
    host.wait_for_listing(&store, "1");
    host.write("code-packages-2", "4\n");
    store.put("/current_version", "2");
    let record = host.wait_for_status(&store, "puppet", "failed");
    assert_eq!((record["version"].as_str(), record["code"].as_i64()), (Some("2"), Some(4)));
    assert!(store.list("/running_version/").is_empty());
    host.wait_for_verdict("suspect");
    let report = || store.get("/orchestrate/reports/h1").filter(|r| r.contains("packages of 2, attempt"));
    wait::until("the report has the last lines", report, || host.describe());
    assert_eq!(host.begins("packages", "2"), 3, "three attempts, then suspect");
    assert_eq!(host.begins("configuration", "2"), 0, "a failed step holds the later ones");
    assert_eq!(host.read("current_version"), "1");
    store.put("/current_version", "1");
    host.wait_for_listing(&store, "1");
    host.wait_for_verdict("ok");
    assert_eq!(store.list("/status/puppet/").into_keys().collect::<Vec<_>>(), ["/status/puppet/success/h1"]);
    check_history(&etcd, &recorder, &[&host]);
}

#[test]
fn a_failing_validation_is_failed_and_heals_without_a_second_apply() {
    let etcd = Etcd::single();
    let recorder = Recorder::start(&etcd);
    let store = etcd.store();
    let host = Host::started("h1", &etcd.endpoints());
    host.write("code-check-1", "1\n");
    store.put("/current_version", "1");
    host.wait_for_status(&store, "validation", "failed");
    host.wait_for_verdict("failed");
    assert!(store.list("/running_version/").is_empty());
    host.remove("code-check-1");
    host.wait_for_listing(&store, "1");
    assert_eq!(host.begins("packages", "1"), 1);
    check_history(&etcd, &recorder, &[&host]);
}

#[test]
fn a_shared_service_breaks_every_validation_and_nothing_is_applied_again() {
    let etcd = Etcd::single();
    let recorder = Recorder::start(&etcd);
    let store = etcd.store();
    let hosts: Vec<Host> =
        ["a1", "b1", "c1"].iter().map(|name| Host::started(name, &etcd.endpoints())).collect();
    store.put("/current_version", "1");
    hosts.iter().for_each(|h| h.wait_for_listing(&store, "1"));
    hosts.iter().for_each(|h| h.write("code-check", "2\n"));
    wait::until(
        "everybody is off the list",
        || store.list("/running_version/").is_empty().then_some(()),
        || hosts.iter().map(Host::describe).collect(),
    );
    for host in &hosts {
        host.wait_for_verdict("failed");
        let before = host.runs("check", "1");
        wait::until(
            "validation goes on",
            || (host.runs("check", "1") > before + 2).then_some(()),
            || host.describe(),
        );
        assert!(host.runs("render", "1") >= 2, "converge ran");
    }
    hosts.iter().for_each(|h| h.remove("code-check"));
    for host in &hosts {
        host.wait_for_listing(&store, "1");
        host.wait_for_verdict("ok");
        assert_eq!(host.begins("packages", "1"), 1, "nothing was applied again");
    }
    check_history(&etcd, &recorder, &hosts.iter().collect::<Vec<_>>());
}

#[test]
fn not_yet_is_waiting_and_neither_failed_nor_done() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let host = Host::started("h1", &etcd.endpoints());
    for step in ["fetch", "configuration", "check"] {
        let version = format!("for-{step}");
        host.write(&format!("code-{step}"), "75\n");
        store.put("/current_version", &version);
        let says = |s: &serde_json::Value| {
            s["verdict"] == "waiting" && s["detail"].as_str().is_some_and(|d| d.contains(step))
        };
        wait::until(&format!("waits for {step}"), || host.status().filter(says), || host.describe());
        assert!(store.list("/status/puppet/failed/").is_empty());
        assert!(store.list("/status/validation/failed/").is_empty());
        host.remove(&format!("code-{step}"));
        host.wait_for_listing(&store, &version);
    }
}

#[test]
fn v1_v2_v1_within_a_second_ends_at_v1_and_the_last_trigger_wins_in_the_middle() {
    let etcd = Etcd::single();
    let recorder = Recorder::start(&etcd);
    let store = etcd.store();
    let host = Host::started("h1", &etcd.endpoints());
    store.put("/current_version", "v1");
    host.wait_for_listing(&store, "v1");
    // The version changes back before the start: nothing is disrupted, so nothing is applied.
    host.write("hold-fetch", "");
    store.put("/current_version", "v2");
    store.put("/current_version", "v1");
    host.remove("hold-fetch");
    host.wait_for_verdict("ok");
    host.wait_for_listing(&store, "v1");
    assert_eq!((host.begins("packages", "v1"), host.begins("packages", "v2")), (1, 0));
    // The version changes during apply: the newer one supersedes it at the next safe point.
    host.write("hold-packages", "");
    store.put("/current_version", "v3");
    host.wait_for_begin("packages", "v3");
    assert!(store.list("/running_version/").is_empty(), "the start took the host off its old version");
    store.put("/current_version", "v4");
    let seen = |s: &serde_json::Value| s["target"]["version"] == "v4";
    wait::until("the host has seen it", || host.status().filter(seen), || host.describe());
    host.remove("hold-packages");
    host.wait_for_listing(&store, "v4");
    assert_eq!(host.begins("configuration", "v3"), 0, "v3 was left after its running step");
    check_history(&etcd, &recorder, &[&host]);
}

#[test]
fn the_agent_serves_its_state_on_loopback() {
    let etcd = Etcd::single();
    let host = Host::started("h1", &etcd.endpoints());
    wait::until("ready", || host.http_get("/ready").filter(|(code, _)| *code == 200), || host.describe());
    assert_eq!(host.http_get("/live").expect("an answer").0, 200);
    assert_eq!(host.http_get("/nothing").expect("an answer").0, 404);
}

#[test]
fn an_agent_without_a_store_starts_and_is_not_ready() {
    let mut host = Host::new("h1", &["http://127.0.0.1:1".into()]);
    host.start();
    let (code, _) = wait::until("an answer", || host.http_get("/ready"), || host.describe());
    assert_eq!(code, 503);
    assert_eq!(host.http_get("/live").expect("an answer").0, 200);
    wait::stays(
        "it runs",
        Duration::from_millis(500),
        || host.http_get("/live").is_some(),
        || host.describe(),
    );
    assert!(host.steps().is_empty());
    host.stop();
}

#[test]
fn after_a_reboot_a_host_validates_first_and_then_announces() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut host = Host::started("h1", &etcd.endpoints());
    store.put("/current_version", "1");
    host.wait_for_listing(&store, "1");
    host.write("code-check", "1\n");
    host.reboot("boot-2");
    host.start();
    host.wait_for_verdict("failed");
    wait::until(
        "off the list",
        || store.list("/running_version/").is_empty().then_some(()),
        || host.describe(),
    );
    host.remove("code-check");
    host.wait_for_listing(&store, "1");
    assert_eq!(host.begins("packages", "1"), 1);
}
