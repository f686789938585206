//! The observer against real stores and beside the command.
//!
//! This file is long because each test starts an observer and a store of its own and asks all of its answers.

use crate::contract::fleet::{FLEET, fill};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tests::etcd::Etcd;
use tests::host::Host;
use tests::observer::Observer;
use tests::wait;

/// What the observer shows, and the command that shows the same.
const SAME: [(&str, &str); 16] = [
    ("/v1/status", "status"),
    ("/v1/hosts", "hosts list"),
    ("/v1/hosts?all=true&sort=verdict", "hosts list --all --sort verdict"),
    ("/v1/hosts?role=web&label=rack%3Dr1", "hosts list --role web --label rack=r1"),
    ("/v1/hosts?verdict=failed&verdict=lost", "hosts list --verdict failed --verdict lost"),
    ("/v1/hosts/web-1", "why web-1"),
    ("/v1/hosts/LOST-1", "why lost-1"),
    ("/v1/waits", "why"),
    ("/v1/failures", "get_failures --group --show_warnings"),
    ("/v1/unaccounted", "unaccounted"),
    ("/v1/unaccounted?role=web", "unaccounted --role web"),
    ("/v1/services", "services list"),
    ("/v1/services/web", "services show web"),
    ("/v1/services/web?checks=1", "services show web --checks"),
    ("/v1/events", "events"),
    ("/v1/events?host=web-1", "events web-1"),
];

/// Returns what the command answers.
fn command(operator: &Host, arguments: &str) -> Value {
    let mut words: Vec<&str> = arguments.split(' ').collect();
    words.extend(["-o", "json"]);
    let result = operator.command(&words, "");
    serde_json::from_str(&result.out).unwrap_or_else(|error| panic!("{arguments}: {error}: {result:?}"))
}

/// Asserts that both show the same at the same revision.
fn assert_same(observer: &Observer, operator: &Host, (path, arguments): (&str, &str)) {
    let expected = command(operator, arguments);
    let is_at_it = |shown: &Value| shown["revision"] == expected["revision"];
    let shown = observer.wait_for(path, "the observer is at the revision", is_at_it);
    assert_eq!(shown, expected, "{path}");
}

#[test]
fn the_observer_shows_what_the_command_shows() {
    let etcd = Etcd::single();
    let store = etcd.store();
    fill(&store, &FLEET);
    store.put(
        "/available_services/web/web-1",
        r#"{"format":1,"host":"web-1","addresses":["10.0.0.1"],"port":80}"#,
    );
    store.put("/orchestrate/health/web/web-1", "passing");
    store.put("/available_services/web/web-2", r#"{"format":1,"host":"web-2","addresses":["10.0.0.2"]}"#);
    let operator = Host::new("operator", &etcd.endpoints());
    let observer = Observer::of(&etcd.endpoints());
    for same in SAME {
        assert_same(&observer, &operator, same);
    }
    // The store changes: a host is decommissioned, another one is frozen, a version is triggered.
    for arguments in [
        "hosts decommission lost-1",
        "freeze --hostname web-1 --reason test",
        "drain web-2 --reason disk",
        "trigger_update 44 --reason kernel",
    ] {
        let words: Vec<&str> = arguments.split(' ').collect();
        let result = operator.command(&words, "");
        assert_eq!(result.code, 0, "{arguments}: {result:?}");
        for same in SAME.iter().filter(|(path, _)| *path != "/v1/hosts/LOST-1") {
            assert_same(&observer, &operator, *same);
        }
    }
    let gone = observer.get("/v1/hosts/lost-1");
    assert_eq!((gone.code, gone.body.as_str()), (404, "host lost-1 was decommissioned\n"));
    let none = observer.get("/v1/rollout");
    assert_eq!(none.code, 404, "{none:?}");
    assert!(none.body.starts_with("no rollout policy governs 44"), "{none:?}");
    for (path, code) in [
        ("/v1/hosts/nobody", 404),
        ("/v1/services/none", 404),
        ("/v1/hosts?rol=web", 400),
        ("/v1/status?x", 400),
        ("/v1/events?since=soon", 400),
        ("/v1/schema/none.json", 404),
        ("/nothing", 404),
    ] {
        assert_eq!(observer.get(path).code, code, "{path}");
    }
}

#[test]
fn a_rollout_is_shown_as_the_command_shows_it() {
    let etcd = Etcd::single();
    let mut host = Host::new("h1", &etcd.endpoints());
    host.start();
    host.wait_for_verdict("waiting");
    let observer = Observer::of(&etcd.endpoints());
    let operator = Host::new("operator", &etcd.endpoints());
    operator.write(
        "policy.toml",
        "failure_budget = 1\n[[limit]]\nby = \"fleet\"\nmax = 1\n[[stage]]\nname = \"all\"\n",
    );
    let file = operator.path("policy.toml");
    let result = operator.command(&["policy", "set", file.to_str().expect("text")], "");
    assert_eq!(result.code, 0, "{result:?}");
    let result = operator.command(&["trigger_update", "1", "--reason", "first"], "");
    assert_eq!(result.code, 0, "{result:?}");
    host.wait_for_verdict("ok");
    observer.wait_for("/v1/rollout", "the rollout has ended", |shown| shown["state"] == "ended");
    assert_same(&observer, &operator, ("/v1/rollout", "rollout status"));
    assert_same(&observer, &operator, ("/v1/hosts/h1", "why h1"));
    let metrics = observer.get("/metrics").body;
    for line in [
        "orchestrate_fleet_hosts{role=\"\",verdict=\"ok\"} 1",
        "orchestrate_fleet_rollout_state{state=\"ended\"} 1",
        "orchestrate_fleet_rollout_hosts{stage=\"all\",state=\"proven\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    // Each metric is documented, and each documented one is shown.
    let shown =
        metrics.lines().filter_map(|line| line.strip_prefix("# TYPE orchestrate_")?.split(' ').next());
    let shown: BTreeSet<&str> = shown.collect();
    let manual = include_str!("../../docs/observer.md");
    let rows = manual.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let documented = rows.filter(|name| name.starts_with("fleet_") || name.starts_with("observer_"));
    let without = [
        "fleet_earliest_certificate_end_timestamp_seconds",
        "fleet_oldest_freeze_timestamp_seconds",
        "fleet_service_instances",
        "observer_certificate_end_timestamp_seconds",
        "observer_notifications_total",
        "observer_notifications_waiting",
        "observer_recorded_revision",
        "observer_recording_bytes",
        "observer_recording_failures_total",
        "observer_recording_gaps_total",
        "observer_recording_waiting_bytes",
    ];
    let documented: BTreeSet<&str> = documented.filter(|name| !without.contains(name)).collect();
    let shown: BTreeSet<&str> = shown.into_iter().filter(|name| !without.contains(name)).collect();
    assert_eq!(shown, documented);
}

#[test]
fn old_data_never_looks_fresh() {
    let mut etcd = Etcd::single();
    etcd.store().put("/current_version", "1");
    let observer = Observer::of(&etcd.endpoints());
    etcd.signal_member(0, Signal::STOP);
    let stopped = Instant::now();
    // An answer counts whole seconds, and the last read may have begun just before the member was stopped.
    let lowest = || stopped.elapsed().saturating_sub(Duration::from_secs(1));
    let is_old = || {
        let lowest = lowest();
        let age = Duration::from_secs(observer.get("/v1/status").age()?);
        assert!(age + Duration::from_secs(1) >= lowest, "{age:?} after {lowest:?}");
        (age >= Duration::from_secs(5)).then_some(())
    };
    wait::until("the age grows", is_old, || observer.log());
    etcd.signal_member(0, Signal::CONT);
    etcd.store().put("/current_version", "2");
    let shown = |json: &Value| json["desired"]["version"] == "2";
    observer.wait_for("/v1/status", "the observer follows again", shown);
    // The member is gone, and comes back.
    etcd.kill_member(0);
    let health = observer.wait_for_health("stale");
    assert!(health["age_seconds"].as_f64() >= Some(30.0), "{health}");
    assert!(health["problem"].is_string(), "{health}");
    let status = observer.get("/v1/status");
    assert!(status.code == 200 && status.age() >= Some(30), "{status:?}");
    etcd.start_member(0);
    etcd.wait_until_serving();
    observer.wait_for_health("fresh");
    // A feed may connect later than the read that proves it.
    observer.wait_for("/v1/health", "no problem is left", |health| health["problem"].is_null());
}

#[test]
fn a_restored_store_is_read_again_from_its_beginning() {
    let mut etcd = Etcd::single_real();
    let store = etcd.store();
    store.put("/current_version", "1");
    let observer = Observer::of(&etcd.endpoints());
    let snapshot = etcd.save_snapshot();
    for version in 2..20 {
        store.put("/current_version", &version.to_string());
    }
    let shows = |version: &'static str| move |json: &Value| json["desired"]["version"] == version;
    observer.wait_for("/v1/status", "it follows", shows("19"));
    etcd.restore_snapshot(&snapshot);
    observer.wait_for("/v1/status", "the old version is shown", shows("1"));
    observer.wait_for_health("fresh");
    assert!(observer.log().contains("it was restored"), "{}", observer.log());
    etcd.store().put("/current_version", "5");
    observer.wait_for("/v1/status", "it follows the restored store", shows("5"));
}

/// What a restored store says was true when its backup was made, also while it answers.
#[test]
fn a_restored_store_is_not_shown_as_the_present_until_it_is_accepted() {
    let mut etcd = Etcd::single_real();
    let store = etcd.store();
    let operator = Host::new("operator", &etcd.endpoints());
    std::fs::create_dir_all(operator.state()).expect("a directory");
    let accept = || operator.command(&["store", "accept", "--version", "1"], "").code;
    assert_eq!(accept(), 0);
    let claim = r#"{"instance":"0123456789abcdef","machine_id":"m","boot_id":"b"}"#;
    for (key, value) in [
        ("/orchestrate/hosts/h1", r#"{"format":1,"since":1}"#),
        ("/orchestrate/live/h1", claim),
        ("/orchestrate/announced/h1", "1"),
        ("/running_version/1/h1", "1"),
    ] {
        store.put(key, value);
    }
    let observer = Observer::of(&etcd.endpoints());
    observer.wait_for_health("fresh");
    let snapshot = etcd.save_snapshot();
    for number in 0..20 {
        store.put("/other", &number.to_string());
    }
    observer
        .wait_for("/v1/status", "it follows", |shown| shown["revision"].as_i64() == Some(store.revision()));
    assert_eq!(operator.command(&["hosts"], "").code, 0);
    etcd.restore_snapshot(&snapshot);
    let health = observer.wait_for_health("stale");
    assert!(health.to_string().contains("the store went back"), "{health}");
    observer.wait_for("/v1/status", "the restored store is read", |shown| shown["fleet"] == "unknown");
    assert_eq!(operator.command(&["hosts"], "").code, 2, "as the command says");
    let page = observer.get("/").body;
    assert!(page.contains("Unknown: the store went back"), "{page}");
    assert_eq!(accept(), 0);
    observer.wait_for_health("fresh");
}

/// While the observer does not run, the store is restored and goes on beyond the revision that the observer knows. Only the
/// identity that `store accept` writes shows that.
#[test]
fn a_restored_store_that_has_passed_the_old_revision_is_read_again_when_it_is_accepted() {
    let mut etcd = Etcd::single_real();
    let store = etcd.store();
    let identity = |epoch: u32| format!(r#"{{"format":1,"lineage":"abc","epoch":{epoch}}}"#);
    let host = r#"{"format":1,"since":1}"#;
    store.put("/orchestrate/store", &identity(1));
    store.put("/orchestrate/hosts/kept", host);
    let observer = Observer::of(&etcd.endpoints());
    let snapshot = etcd.save_snapshot();
    store.put("/orchestrate/hosts/ghost", host);
    let names = |shown: &Value| -> Vec<String> {
        let hosts = shown["hosts"].as_array().cloned().unwrap_or_default();
        hosts.iter().map(|host| host["host"].as_str().unwrap_or_default().to_owned()).collect()
    };
    observer.wait_for("/v1/hosts", "it follows", |shown| names(shown) == ["ghost", "kept"]);
    observer.signal(Signal::STOP);
    etcd.restore_snapshot(&snapshot);
    let store = etcd.store();
    for version in 1..50 {
        store.put("/current_version", &version.to_string());
    }
    store.put("/orchestrate/store", &identity(2));
    observer.signal(Signal::CONT);
    observer.wait_for("/v1/hosts", "the lost host is gone", |shown| names(shown) == ["kept"]);
    observer.wait_for_health("fresh");
}

/// The etcd of the distribution may be older than the fix of its progress notifications, so this shows that progress is
/// confirmed there.
#[test]
fn a_real_etcd_that_is_compacted_under_load_is_followed() {
    let etcd = Etcd::single_real();
    let store = etcd.store();
    fill(&store, &FLEET);
    let observer = Observer::of(&etcd.endpoints());
    for round in 0..30 {
        let host = format!("load-{}", round % 7);
        store.put(&format!("/orchestrate/hosts/{host}"), r#"{"format":1,"since":1416300000}"#);
        store.put(&format!("/running_version/43/{host}"), "");
        let revision = store.put(&format!("/status/validation/success/{host}"), "1416300000");
        store.delete(&format!("/running_version/43/{host}"));
        if round % 5 == 0 {
            store.compact(revision);
        }
    }
    let operator = Host::new("operator", &etcd.endpoints());
    for same in SAME.iter().filter(|(path, _)| !path.starts_with("/v1/services/")) {
        assert_same(&observer, &operator, *same);
    }
}

#[test]
fn only_who_has_the_token_may_look_and_only_by_an_own_name() {
    let etcd = Etcd::single();
    let mut observer = Observer::of(&etcd.endpoints());
    let (address, token) = (observer.address(), observer.token());
    let bearer = format!("Bearer {token}");
    let own = ("Host", address.as_str());
    let right = ("Authorization", bearer.as_str());
    for (headers, code) in [
        (&[own, right][..], 200),
        (&[own], 401),
        (&[own, ("Authorization", "Bearer 0123456789abcdef0123456789abcdef")], 401),
        // The request is one of HTTP/1.0, which needs no name.
        (&[right], 200),
        (&[], 401),
        (&[("Host", "evil.example"), right], 421),
        (&[own, right, ("Origin", "http://evil.example")], 403),
        (&[own, right, ("Sec-Fetch-Site", "cross-site")], 403),
    ] {
        for path in ["/v1/status", "/v1/health", "/metrics", "/v1/openapi.json", "/nothing"] {
            let answer = observer.ask(path, headers);
            let expected = if code == 200 && path == "/nothing" { 404 } else { code };
            assert_eq!(answer.code, expected, "{path} {headers:?}");
            assert_eq!(answer.headers["x-content-type-options"], "nosniff", "{path}");
            assert!(answer.headers["content-security-policy"].contains("default-src 'none'"), "{path}");
        }
    }
    // A token in a query is not one.
    assert_eq!(observer.ask(&format!("/v1/status?token={token}"), &[own]).code, 401);
    // Another token takes effect without a restart, and so does that there is none.
    let code =
        |token: &str| observer.ask("/v1/status", &[own, ("Authorization", &format!("Bearer {token}"))]).code;
    let other = "f".repeat(40);
    std::fs::write(observer.path("token"), &other).expect("written");
    wait::until("the new token opens", || (code(&other) == 200).then_some(()), || observer.log());
    assert_eq!(code(&token), 401);
    std::fs::remove_file(observer.path("token")).expect("removed");
    wait::until("no token opens", || (code(&other) == 401).then_some(()), || observer.log());
    assert!(!observer.log().contains(&token) && !observer.log().contains(&other), "{}", observer.log());
    // It ends when it is told to, and makes a new token at its next start.
    observer.signal(Signal::TERM);
    let ended = wait::until("it ends", || observer.ended(), || "it runs".into());
    assert_eq!(ended, Some(0));
    let observer = observer.again();
    observer.wait_for_health("fresh");
    assert_ne!(observer.token(), token);
}

#[test]
fn the_observer_writes_nothing() {
    let etcd = Etcd::single();
    let store = etcd.store();
    fill(&store, &FLEET);
    let before = store.revision();
    let observer = Observer::of(&etcd.endpoints());
    for (path, _) in SAME {
        assert_ne!(observer.get(path).code, 500, "{path}");
    }
    assert_eq!(store.revision(), before);
}

#[test]
fn an_observer_makes_its_directories_and_shows_incidents_as_soon_as_the_fleet() {
    let etcd = Etcd::single();
    let directory = tempfile::tempdir().expect("a directory");
    let (state, token) = (directory.path().join("a/state"), directory.path().join("b/token"));
    let [port] = tests::process::free_ports();
    let file = directory.path().join("observer.toml");
    let text = format!(
        "state_directory = {state:?}\nhttp.listen = \"127.0.0.1:{port}\"\nhttp.token_file = {token:?}\nstore.endpoints = {:?}\n",
        etcd.endpoints()
    );
    std::fs::write(&file, text).expect("written");
    let mut command = std::process::Command::new(tests::process::binary("orchestrate-observer"));
    let log = directory.path().join("log");
    let _running = tests::process::Running::start(command.arg("--config").arg(&file), &log);
    let read = || std::fs::read_to_string(&log).unwrap_or_default();
    let (address, word) = (format!("127.0.0.1:{port}"), || std::fs::read_to_string(&token).ok());
    let word = wait::until("a token", word, read);
    let bearer = format!("Bearer {}", word.trim());
    let is_shown = |path: &str| {
        let headers = [("Host", address.as_str()), ("Authorization", bearer.as_str())];
        tests::observer::ask(&address, path, &headers).is_ok_and(|answer| answer.code == 200).then_some(())
    };
    wait::until("the fleet", || is_shown("/v1/status"), read);
    wait::until_within(Duration::from_secs(2), "the incidents", || is_shown("/v1/incidents"), read);
}

#[test]
fn incidents_are_the_same_in_every_observer_outlive_a_restart_and_end() {
    let etcd = Etcd::single();
    let store = etcd.store();
    fill(&store, &FLEET);
    let start = || {
        let observer = Observer::start_with(
            &format!("endpoints = {:?}", etcd.endpoints()),
            "[incidents]\nhold_for = \"1s\"\nclear_for = \"1s\"\n",
        );
        observer.wait_for_health("fresh");
        observer
    };
    let (observer, other) = (start(), start());
    let is_open = |shown: &Value, kind: &str| {
        shown["incidents"].as_array().is_some_and(|all| all.iter().any(|open| open["kind"] == kind))
    };
    let has_all = |shown: &Value| is_open(shown, "lost") && is_open(shown, "failed");
    let shown = observer.wait_for("/v1/incidents", "the incidents open", has_all);
    let the_same = other.wait_for("/v1/incidents", "they open in the other observer", has_all);
    let ids = |shown: &Value| -> BTreeSet<String> {
        shown["incidents"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|open| open["incident_id"].to_string())
            .collect()
    };
    assert_eq!(ids(&shown), ids(&the_same));
    let lost = shown["incidents"].as_array().and_then(|all| all.iter().find(|open| open["kind"] == "lost"));
    let lost = lost.expect("an incident");
    assert_eq!((&lost["hosts"][0], &lost["severity"]), (&"lost-1".into(), &"ticket".into()), "{lost}");
    let metric = "orchestrate_fleet_incidents{kind=\"lost\",severity=\"ticket\"} 1";
    assert!(observer.get("/metrics").body.contains(metric));
    assert!(observer.log().contains("incident opened"), "{}", observer.log());
    // After a restart they are open at once, and since the same time.
    let observer = observer.again();
    let again = observer.wait_for("/v1/incidents", "they are open", has_all);
    assert_eq!(again["incidents"], shown["incidents"]);
    // The host is taken out of the fleet.
    store.delete("/orchestrate/hosts/lost-1");
    store.delete("/orchestrate/reports/lost-1");
    observer.wait_for("/v1/incidents", "the host is forgotten", |shown| !is_open(shown, "lost"));
    assert!(observer.log().contains("incident resolved"), "{}", observer.log());
}
