//! The alerts of a fleet, by Prometheus' own tools and by a real Prometheus.

use crate::contract::fleet::{FLEET, fill};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use tests::etcd::Etcd;
use tests::host::Host;
use tests::observer::{Observer, http_get};
use tests::process::{Running, free_ports, run};
use tests::store::Store;
use tests::wait;

fn packaged(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../packaging/prometheus").join(name)
}

/// True if a program can be started; else records that the test was skipped.
pub(crate) fn has(test: &str, program: &str) -> bool {
    let is_there = Command::new(program).arg("--version").output().is_ok();
    if !is_there {
        tests::skip(test, &format!("no {program} on the PATH"));
    }
    is_there
}

#[test]
fn the_rules_fire_when_the_manual_says_and_fall_silent() {
    if !has("alerts::the_rules_fire_when_the_manual_says_and_fall_silent", "promtool") {
        return;
    }
    for arguments in [["check", "rules", "orchestrate.rules.yml"], ["test", "rules", "rules_test.yml"]] {
        let mut command = Command::new("promtool");
        let output = run(command.args(arguments).current_dir(packaged("")), "");
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {text}");
    }
    // The manual has the same alerts, with the same severity.
    let rules = rules();
    let alerts = rules.split("- alert: ").skip(1);
    let alert = |text: &str| {
        let severity = text.split("severity: ").nth(1)?.lines().next()?;
        Some((text.lines().next()?.to_owned(), severity.to_owned()))
    };
    let rules: BTreeMap<String, String> = alerts.map(|text| alert(text).expect("a severity")).collect();
    let manual = include_str!("../../docs/observer.md");
    let rows = manual.lines().filter_map(|line| line.strip_prefix("| `Orchestrate"));
    let cells = rows.map(|row| row.split('|').map(|cell| cell.trim().trim_matches('`').to_owned()));
    let documented = cells.map(|mut row| (row.next().expect("a name"), row.next().expect("a severity")));
    let documented: BTreeMap<_, _> =
        documented.map(|(name, severity)| (format!("Orchestrate{name}"), severity)).collect();
    assert_eq!(rules, documented);
}

/// A real Prometheus, which asks an observer each second.
struct Prometheus {
    _running: Running,
    directory: tempfile::TempDir,
    address: String,
}

impl Prometheus {
    /// Starts it with these rules.
    fn start(observer: &Observer, rules: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("rules.yml"), rules).expect("written");
        let [port] = free_ports();
        let settings = format!(
            "global:\n  scrape_interval: 1s\n  evaluation_interval: 1s\nrule_files: [{:?}]\nscrape_configs:\n\
             \x20 - job_name: observer\n    authorization:\n      credentials_file: {:?}\n    static_configs:\n\
             \x20     - targets: [{:?}]\n",
            directory.path().join("rules.yml"),
            observer.path("token"),
            observer.address(),
        );
        let file = directory.path().join("prometheus.yml");
        std::fs::write(&file, settings).expect("written");
        let address = format!("127.0.0.1:{port}");
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", file.display()));
        command.arg(format!("--storage.tsdb.path={}", directory.path().join("data").display()));
        command.arg(format!("--web.listen-address={address}"));
        let running = Running::start(&mut command, &directory.path().join("log"));
        Self { _running: running, directory, address }
    }

    /// Returns the alerts, each with its name, its role and its state; `None` if Prometheus does not answer.
    fn alerts(&self) -> Option<Vec<String>> {
        let answer = http_get(&self.address, "/api/v1/alerts")?;
        let json: Value = serde_json::from_str(&answer).ok()?;
        let alerts = json["data"]["alerts"].as_array()?.clone();
        let text = |alert: &Value| {
            let labels = &alert["labels"];
            let role = labels["role"].as_str().map(|role| format!(" {role}")).unwrap_or_default();
            let words = [&labels["alertname"], &alert["state"]].map(|word| word.as_str().unwrap_or("?"));
            format!("{}{role} {}", words[0], words[1])
        };
        Some(alerts.iter().map(text).collect())
    }

    /// Returns the number of series that a query has.
    fn series(&self, query: &str) -> Option<usize> {
        let bytes = query.bytes().map(|byte| match byte {
            byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        });
        let answer = http_get(&self.address, &format!("/api/v1/query?query={}", bytes.collect::<String>()))?;
        let json: Value = serde_json::from_str(&answer).ok()?;
        json["data"]["result"].as_array().map(Vec::len)
    }

    fn wait_for(&self, what: &str, holds: impl Fn(&[String]) -> bool) {
        let state = || {
            let log = std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
            format!("{:?}\n{log}", self.alerts())
        };
        wait::until(what, || self.alerts().filter(|alerts| holds(alerts)), state);
    }
}

fn begin_rollout(operator: &Host) {
    operator.write(
        "policy.toml",
        "failure_budget = 9\n[[limit]]\nby = \"fleet\"\nmax = 9\n[[stage]]\nname = \"all\"\n",
    );
    let file = operator.path("policy.toml");
    for arguments in [&["policy", "set", file.to_str().expect("text")][..], &["trigger_update", "44"]] {
        let result = operator.command(arguments, "");
        assert_eq!(result.code, 0, "{result:?}");
    }
}

/// Asserts that each query of the dashboard returns data, in a fleet with a rollout and a service.
fn every_panel_has_data(prometheus: &Prometheus, store: &Store, operator: &Host) {
    store.put("/available_services/web/web-1", r#"{"format":1,"host":"web-1","addresses":["10.0.0.1"]}"#);
    begin_rollout(operator);
    let text = std::fs::read_to_string(packaged("orchestrate.dashboard.json")).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    assert_eq!(panels.len(), 6);
    for target in panels.iter().flat_map(|panel| panel["targets"].as_array().expect("queries")) {
        let query = target["expr"].as_str().expect("a query");
        let has_data = || prometheus.series(query).filter(|series| *series > 0);
        wait::until(query, has_data, || format!("{:?}", prometheus.series(query)));
    }
}

/// Returns the packaged rules.
fn rules() -> String {
    std::fs::read_to_string(packaged("orchestrate.rules.yml")).expect("the rules")
}

/// Returns the packaged rules with shorter times: a condition holds for a second, and data is old after five.
fn quick_rules() -> String {
    let quick = |line: &str| match line.trim_start().strip_prefix("for: ") {
        Some(_) => "        for: 1s".to_owned(),
        None => line.replace("> 120", "> 5").replace("<= 120", "<= 5").replace("< 120", "< 5"),
    };
    rules().lines().map(quick).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_real_prometheus_takes_the_metrics_and_the_dashboard_shows_them() {
    if !has("alerts::a_real_prometheus_takes_the_metrics_and_the_dashboard_shows_them", "prometheus") {
        return;
    }
    let etcd = Etcd::single();
    let store = etcd.store();
    fill(&store, &FLEET);
    let endpoints = format!("endpoints = {:?}", etcd.endpoints());
    let observer = Observer::start_with(&endpoints, "[incidents]\nhold_for = \"0\"\n");
    observer.wait_for_health("fresh");
    let prometheus = Prometheus::start(&observer, &rules());
    for alert in ["Watchdog firing", "HostLost pending", "HostFailing web pending"] {
        let alert = format!("Orchestrate{alert}");
        prometheus.wait_for(&alert, |alerts| alerts.contains(&alert));
    }
    every_panel_has_data(&prometheus, &store, &Host::new("operator", &etcd.endpoints()));
}

#[test]
fn every_alert_of_a_fleet_fires_and_falls_silent() {
    if !has("alerts::every_alert_of_a_fleet_fires_and_falls_silent", "prometheus") {
        return;
    }
    let mut etcd = Etcd::single();
    let store = etcd.store();
    fill(&store, &FLEET);
    store.put("/orchestrate/hosts/new-1", r#"{"format":1,"since":1416300000}"#);
    let observer = Observer::of(&etcd.endpoints());
    let prometheus = Prometheus::start(&observer, &quick_rules());
    let fires = |alert: &str| {
        let firing = format!("Orchestrate{alert} firing");
        prometheus.wait_for(&firing, |alerts| alerts.contains(&firing));
    };
    let falls_silent = |alert: &str| {
        let name = format!("Orchestrate{alert} ");
        prometheus
            .wait_for(&format!("{name}is silent"), |alerts| !alerts.iter().any(|one| one.starts_with(&name)));
    };
    ["Watchdog", "HostLost", "ManyHostsLost", "HostFailing web"].into_iter().for_each(fires);

    let operator = Host::new("operator", &etcd.endpoints());
    let orchestrate = |arguments: &[&str]| {
        let result = operator.command(arguments, "");
        assert_eq!(result.code, 0, "{arguments:?}: {result:?}");
    };
    begin_rollout(&operator);
    let records = store.list("/orchestrate/rollouts/").into_keys().filter(|key| key.ends_with("/record"));
    let newest = records.max().expect("a rollout");
    let halt = r#"{"format":1,"at":1416300000,"by":"web-2","why":"2 hosts failed, 1 may"}"#;
    store.put(&newest.replace("/record", "/halt"), halt);
    fires("RolloutHalted");
    orchestrate(&["rollout", "resume"]);
    falls_silent("RolloutHalted");

    orchestrate(&["freeze", "--role", "web", "--reason", "migration"]);
    let (freeze, value) = store.list("/orchestrate/freezes/").into_iter().next().expect("a freeze");
    let mut old: Value = serde_json::from_str(&value).expect("JSON");
    old["at"] = 1_416_300_000.into();
    store.put(&freeze, &old.to_string());
    fires("FrozenForLong");
    store.delete(&freeze);
    falls_silent("FrozenForLong");

    let (key, value) = store.list("/orchestrate/reports/").into_iter().next().expect("a report");
    let mut report: Value = serde_json::from_str(&value).expect("JSON");
    let in_seconds = |seconds: u64| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        now.as_secs() + seconds
    };
    for (end, expected) in [(in_seconds(86_400), true), (in_seconds(90 * 86_400), false)] {
        report["facts"]["certificates"] = serde_json::json!({"/etc/orchestrate/host.crt": end});
        store.put(&key, &report.to_string());
        if expected { fires("CertificateEnds") } else { falls_silent("CertificateEnds") }
    }

    // An observer without the store says nothing about hosts.
    drop(store);
    etcd.kill_member(0);
    fires("StoreAway");
    falls_silent("HostFailing");
    etcd.start_member(0);
    falls_silent("StoreAway");
    fires("HostFailing web");

    observer.signal(Signal::KILL);
    fires("ObserverGone");
    let _observer = observer.again();
    falls_silent("ObserverGone");

    let store = etcd.store();
    for range in ["/orchestrate/", "/status/", "/running_version/"] {
        let all = store.list(range).into_keys().filter(|key| key != "/orchestrate/store");
        all.for_each(|key| store.delete(&key));
    }
    ["HostLost", "ManyHostsLost", "HostFailing"].into_iter().for_each(falls_silent);
}
