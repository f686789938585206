//! What is wrong on one host, as the fleet sees it.

use rustix::process::Signal;
use std::time::Duration;
use tests::etcd::Etcd;
use tests::host::Host;
use tests::wait;

fn status(host: &Host) -> serde_json::Value {
    let answer = host.command(&["-o", "json", "status"], "");
    serde_json::from_str(&answer.out).expect(&answer.err)
}

fn wait_for_problem(host: &Host, kind: &str, part: &str) {
    let has = |problem: &serde_json::Value| {
        problem["kind"] == kind && problem["reason"].as_str().is_some_and(|reason| reason.contains(part))
    };
    let found = || status(host)["problems"].as_array().expect("a list").iter().any(has).then_some(());
    wait::until(&format!("{kind}: {part}"), found, || status(host).to_string());
}

fn wait_for_none(host: &Host) {
    let none = || (status(host)["problems"] == serde_json::json!([])).then_some(());
    wait::until("no problem is left", none, || status(host).to_string());
}

#[test]
fn files_that_cannot_be_used_are_shown_until_they_are_mended() {
    let etcd = Etcd::single();
    let mut host = Host::new("web1", &etcd.endpoints());
    host.write_service("web.json", r#"{"service": {"name": "web", "port": 80}}"#);
    host.start();
    etcd.store().put("/current_version", "1");
    host.wait_for_listing(&etcd.store(), "1");
    host.write_service("web.json", r#"{"service": {"name": "web", "prot": 80}}"#);
    wait_for_problem(&host, "service_file", "web.json");
    assert!(host.command(&["status"], "").out.contains("\nPROBLEM       HOST  REASON\nservice file  web1  "));
    assert!(host.command(&["why", "web1"], "").out.contains("\nproblem:      service file: "));

    let settings = host.read("agent.toml");
    host.write("agent.toml", &format!("{settings}\nunknown_setting = 1\n"));
    host.signal(Signal::HUP);
    wait_for_problem(&host, "settings", "unknown_setting");

    host.write("agent.toml", &settings);
    host.signal(Signal::HUP);
    host.write_service("web.json", r#"{"service": {"name": "web", "port": 80}}"#);
    wait_for_none(&host);
    assert_eq!(status(&host)["fleet"], "settled");

    // Steps get the role of the settings, and limits count that of the roster.
    host.write("agent.toml", &format!("role = \"web\"\n{settings}"));
    host.signal(Signal::HUP);
    let add = |role: &str| host.command(&["hosts", "add", "web1", "--role", role], "");
    assert_eq!(add("db").out, "web1: role db\n");
    wait_for_problem(&host, "settings", "the role in the settings is web, the role on the roster is db");
    assert_eq!(add("web").code, 0);
    wait_for_none(&host);
}

#[test]
fn two_machines_with_one_name_are_seen_by_the_fleet() {
    let etcd = Etcd::single();
    let first = Host::started("web1", &etcd.endpoints());
    etcd.store().put("/current_version", "1");
    first.wait_for_listing(&etcd.store(), "1");
    let mut second = Host::new("web1", &etcd.endpoints());
    second.start();
    wait_for_problem(&first, "host_name", "two machines have this name: instance ");
    let warns = || {
        let log = second.read("agent.log");
        let machine = first.read("machine-id");
        log.lines().find(|line| line.contains(" WARN ") && line.contains(machine.trim())).map(str::to_owned)
    };
    let warning = wait::until("the second agent warns", warns, || second.read("agent.log"));
    assert!(warning.contains("another agent lives under this host name"), "{warning}");
    let answer = first.command(&["status"], "");
    assert_eq!((answer.code, answer.out.lines().next()), (1, Some("fleet: failing")), "{answer:?}");
    let machine = second.read("machine-id");
    assert!(answer.out.contains(machine.trim()), "the machine that is refused is named: {answer:?}");
    assert!(first.command(&["why", "web1"], "").out.contains("\nproblem:      host name: two machines "));
    second.stop();
    // What it said lasts as long as its lease, 30 s after it was last kept alive.
    let none = || (status(&first)["problems"] == serde_json::json!([])).then_some(());
    wait::until_within(Duration::from_secs(60), "no problem is left", none, || status(&first).to_string());
    assert_eq!(status(&first)["fleet"], "settled");
}

#[test]
fn a_step_that_runs_for_some_time_is_shown_with_its_name_and_its_limit() {
    let etcd = Etcd::single();
    let host = Host::started("web1", &etcd.endpoints());
    host.write("hold-packages", "");
    etcd.store().put("/current_version", "1");
    let part = "on its way to 1: apply step packages runs";
    let shown = || host.command(&["status"], "").out.contains(part).then_some(());
    wait::until("the step is shown", shown, || host.command(&["status"], "").out);
    let why = host.command(&["why", "web1"], "").out;
    let line =
        why.lines().find(|line| line.starts_with("running step: apply step packages, for ")).expect(&why);
    assert!(line.contains(" s; its limit is "), "{line}");
    host.remove("hold-packages");
    host.wait_for_listing(&etcd.store(), "1");
}
#[test]
fn checks_that_stand_for_results_are_fed_by_an_agent_that_applies_versions() {
    let etcd = Etcd::single();
    let mut host = Host::new("web1", &etcd.endpoints());
    let service = |name: &str| format!(r#"{{"service": {{"name": "{name}", "check": {{"ttl": "1h"}}}}}}"#);
    host.write_service("puppet.json", &service("puppet"));
    host.write_service("validation.json", &service("validation"));
    host.start();
    etcd.store().put("/current_version", "1");
    host.wait_for_listing(&etcd.store(), "1");
    let settled = || (status(&host)["fleet"] == "settled").then_some(());
    wait::until("the fleet is settled", settled, || status(&host).to_string());
    // The service and the result have one cause.
    host.write("code-check", "1\n");
    let failed = || {
        let answer = host.command(&["-o", "json", "get_failures"], "");
        let answer: serde_json::Value = serde_json::from_str(&answer.out).expect(&answer.err);
        let checks: Vec<_> =
            answer["failures"].as_array()?.iter().map(|found| found["check"].clone()).collect();
        (checks == ["validation"]).then_some(())
    };
    wait::until("the validation fails once", failed, || status(&host).to_string());
    let health = || (etcd.store().get("/orchestrate/health/validation/web1")? == "critical").then_some(());
    wait::until("the service is critical", health, || status(&host).to_string());
    assert_eq!(host.command(&["local_health"], "").code, 1);
}
