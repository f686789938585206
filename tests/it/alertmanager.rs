//! Incidents by a real Alertmanager.

use crate::alerts::has;
use crate::contract::fleet::{FLEET, fill};
use crate::notify::{forget_the_lost, observe, wait_for_none_waiting};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use tests::etcd::Etcd;
use tests::observer::{Observer, http_get};
use tests::process::{Running, free_ports};
use tests::receiver::{HttpReceiver, Received};
use tests::wait;

/// A real Alertmanager, which notifies a receiver of ours.
struct Alertmanager {
    running: Option<Running>,
    directory: tempfile::TempDir,
    address: String,
}

impl Alertmanager {
    fn start(port: u16, notified: &HttpReceiver) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let settings = format!(
            "route:\n  receiver: test\n  group_by: [incident_id]\n  group_wait: 2s\n  group_interval: 1s\nreceivers:\n\
             \x20 - name: test\n    webhook_configs:\n      - url: {:?}\n",
            notified.url("/notified")
        );
        let file = directory.path().join("alertmanager.yml");
        std::fs::write(&file, settings).expect("written");
        Self { running: None, directory, address: format!("127.0.0.1:{port}") }.again()
    }

    /// Ends it in order, if it runs, and starts it with the same files.
    fn again(mut self) -> Self {
        if let Some(mut running) = self.running.take() {
            running.signal(Signal::TERM);
            wait::until("Alertmanager ends", || running.ended(), || self.log());
        }
        let path = |name: &str| self.directory.path().join(name);
        let mut command = Command::new("prometheus-alertmanager");
        command.arg(format!("--config.file={}", path("alertmanager.yml").display()));
        command.arg(format!("--storage.path={}", path("data").display()));
        command.arg(format!("--web.listen-address={}", self.address)).arg("--cluster.listen-address=");
        self.running = Some(Running::start(&mut command, &path("log")));
        self
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Waits until it has noted that its notifications arrived. One that ends before sends them again.
    fn wait_until_noted(&self, notified: &HttpReceiver) {
        let count = |line: &str| line.rsplit(' ').next()?.parse::<f64>().ok();
        let sent = || {
            let metrics = http_get(&self.address, "/metrics")?;
            let of_webhook = "alertmanager_notifications_total{integration=\"webhook\"";
            metrics.lines().find(|line| line.starts_with(of_webhook)).and_then(count)
        };
        let has_all = || (sent()? >= notified.received().len() as f64).then_some(());
        wait::until("Alertmanager has noted its notifications", has_all, || self.log());
    }

    /// Returns the kinds of the alerts that it has.
    fn kinds(&self) -> Option<Vec<String>> {
        let json: Value = serde_json::from_str(&http_get(&self.address, "/api/v2/alerts")?).ok()?;
        let kind = |alert: &Value| alert["labels"]["kind"].as_str().unwrap_or("?").to_owned();
        Some(json.as_array()?.iter().map(kind).collect())
    }
}

/// The notifications of Alertmanager about incidents of a kind.
fn notifications(receiver: &HttpReceiver, kind: &str) -> Vec<Value> {
    let all = receiver.received().into_iter().map(|received| received.json());
    all.filter(|json| json["groupLabels"]["incident_id"].is_string() && json["commonLabels"]["kind"] == kind)
        .collect()
}

#[test]
fn an_alertmanager_makes_one_notification_of_what_two_observers_send() {
    if !has(
        "alertmanager::an_alertmanager_makes_one_notification_of_what_two_observers_send",
        "prometheus-alertmanager",
    ) {
        return;
    }
    let etcd = Etcd::single();
    let store = etcd.store();
    fill(&store, &FLEET);
    let [port] = free_ports();
    let notify = format!("[notify.alertmanagers.main]\nurl = \"http://127.0.0.1:{port}/\"\n");
    let (observer, other) = (observe(&etcd, &notify), observe(&etcd, &notify));
    // It is away at first.
    for one in [&observer, &other] {
        let failed = || one.log().contains("was not delivered").then_some(());
        wait::until("a message is not delivered", failed, || one.log());
    }
    let notified = HttpReceiver::start();
    let alertmanager = Alertmanager::start(port, &notified);
    let log = || format!("{}\n{}\n{}", alertmanager.log(), observer.log(), other.log());
    let lost = |count: usize| {
        let found = || Some(notifications(&notified, "lost")).filter(|all| all.len() >= count);
        wait::until_within(wait::DEADLINE * 2, "Alertmanager notifies", found, log)
    };
    let first = lost(1);
    assert_eq!(
        (&first[0]["status"], first[0]["alerts"].as_array().map(Vec::len)),
        (&"firing".into(), Some(1))
    );
    let alert = &first[0]["alerts"][0];
    assert_eq!(
        (&alert["annotations"]["hosts"], &alert["labels"]["severity"]),
        (&"lost-1".into(), &"ticket".into())
    );
    assert_eq!(alert["annotations"]["summary"], "1 host lost");
    let has_failed = |kinds: &Vec<String>| kinds.iter().any(|kind| kind == "failed");
    wait::until("other kinds arrive", || alertmanager.kinds().filter(has_failed), log);
    // Both observers have delivered everything, before one of them tells of the end.
    [&observer, &other].into_iter().for_each(wait_for_none_waiting);
    forget_the_lost(&store);
    let all = lost(2);
    let states: Vec<&str> = all.iter().map(|one| one["status"].as_str().unwrap_or("?")).collect();
    assert_eq!(states, ["firing", "resolved"]);
}

#[test]
fn a_hundred_hosts_with_one_cause_are_one_notification_also_after_a_restart() {
    const TEST: &str =
        "alertmanager::a_hundred_hosts_with_one_cause_are_one_notification_also_after_a_restart";
    if !has(TEST, "prometheus-alertmanager") {
        return;
    }
    let etcd = Etcd::single();
    let store = etcd.store();
    store.put("/current_version", "43");
    let [port] = free_ports();
    let tables = format!(
        "[incidents]\nhold_for = \"2s\"\nclear_for = \"0\"\n\
         [notify.alertmanagers.main]\nurl = \"http://127.0.0.1:{port}/\"\n"
    );
    let start = || Observer::start_with(&format!("endpoints = {:?}", etcd.endpoints()), &tables);
    let (observer, other) = (start(), start());
    [&observer, &other].into_iter().for_each(|one| _ = one.wait_for_health("fresh"));
    let notified = HttpReceiver::start();
    let alertmanager = Alertmanager::start(port, &notified);
    let failed = json!({
        "format": 1, "at": 1_416_300_000, "version": "43", "code": 1, "reason": "apt failed",
        "cause": {"fingerprint": "f1-00000000000a", "line": "E: unable to locate package"},
    });
    // The observers see all hosts fail at once, however slowly this is written.
    let names: Vec<String> = (0..100).map(|n| format!("h{n:03}")).collect();
    let entries = |names: &[String], below: &str, value: &str| -> Vec<(String, String)> {
        names.iter().map(|name| (format!("{below}{name}"), value.to_owned())).collect()
    };
    for names in names.chunks(50) {
        let hosts = entries(names, "/orchestrate/hosts/", r#"{"format":1,"since":1416300000}"#);
        store.put_all(&[hosts, entries(names, "/orchestrate/live/", "1")].concat());
    }
    store.put_all(&entries(&names, "/status/validation/failed/", &failed.to_string()));
    let of_kind = |kind: &'static str, log: &dyn Fn() -> String| {
        let found = || Some(notifications(&notified, kind)).filter(|all| !all.is_empty());
        wait::until_within(wait::DEADLINE * 2, "Alertmanager notifies", found, log)
    };
    let messages = of_kind("failed", &|| format!("{}\n{}", alertmanager.log(), observer.log()));
    assert_eq!(messages[0]["alerts"].as_array().map(Vec::len), Some(1));
    let annotations = &messages[0]["alerts"][0]["annotations"];
    assert_eq!(annotations["host_count"], "100");
    assert!(
        annotations["hosts"].as_str().is_some_and(|hosts| hosts.ends_with(" and 80 more")),
        "{annotations}"
    );
    // One that has been restarted hears of everything with the next message, and tells only of that.
    alertmanager.wait_until_noted(&notified);
    let alertmanager = alertmanager.again();
    store.delete("/orchestrate/live/h007");
    store.delete("/status/validation/failed/h007");
    of_kind("lost", &|| format!("{}\n{}", alertmanager.log(), observer.log()));
    let has_both =
        |kinds: &Vec<String>| ["failed", "lost"].iter().all(|kind| kinds.iter().any(|one| one == kind));
    wait::until("it has both again", || alertmanager.kinds().filter(has_both), || alertmanager.log());
    [&observer, &other].into_iter().for_each(wait_for_none_waiting);
    for kind in ["failed", "lost"] {
        let all = notifications(&notified, kind);
        assert_eq!(all.len(), 1, "{all:#?}\n{}\n{}", alertmanager.log(), observer.log());
    }
}

#[test]
fn an_alertmanager_behind_a_password_gets_alerts() {
    let etcd = Etcd::single();
    fill(&etcd.store(), &FLEET);
    let directory = tempfile::tempdir().expect("a directory");
    let password = directory.path().join("password");
    let write = |text: &str| {
        std::fs::write(&password, text).expect("written");
        std::fs::set_permissions(&password, PermissionsExt::from_mode(0o640)).expect("its mode");
    };
    write("first\n");
    // A proxy that asks for a password stands for the Alertmanager.
    let receiver = HttpReceiver::start();
    let notify = format!(
        "[notify.alertmanagers.main]\nurl = \"{}\"\nuser = \"ops\"\npassword_file = {password:?}\n",
        receiver.url("")
    );
    receiver.answer_next(&[401]);
    let observer = observe(&etcd, &notify);
    let has = |header: &'static str| {
        move |received: &Received| {
            received.line == "POST /api/v2/alerts"
                && received.headers.get("authorization").is_some_and(|value| value == header)
        }
    };
    // The words are `ops:first` and `ops:second` in base64.
    receiver.wait_for("the password", 1, has("Basic b3BzOmZpcnN0"), || observer.log());
    write("second\n");
    // The end of an incident is said at once.
    forget_the_lost(&etcd.store());
    receiver.wait_for("the changed password", 1, has("Basic b3BzOnNlY29uZA=="), || observer.log());
    wait_for_none_waiting(&observer);
}
