//! The HTTP APIs of the agent and of the observer, against their manuals.

use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;
use tests::etcd::Etcd;
use tests::host::Host;
use tests::observer::Observer;
use tests::process::run;
use tests::wait;

fn read(path: &str) -> String {
    let path = format!("{}/../{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns a column of the table under a heading of the manual.
fn documented(heading: &str, column: usize) -> BTreeSet<String> {
    let text = read("docs/http-api.md");
    let part = text.split("\n## ").find(|part| part.starts_with(heading)).expect("the heading");
    let rows = part.lines().filter(|line| line.starts_with('|') && !line.contains("---")).skip(1);
    let cell = |line: &str| Some(line.split('|').nth(column)?.trim().trim_matches('`').to_owned());
    rows.filter_map(cell).collect()
}

/// Adds the names of the fields of an object, and of the objects in it that have fields of their own.
fn add_fields(value: &Value, prefix: &str, names: &mut BTreeSet<String>) {
    for (name, field) in value.as_object().expect("an object") {
        match name.as_str() {
            "claim" | "store" | "catalog" | "services" if prefix.is_empty() => {
                add_fields(field, &format!("{name}."), names);
            }
            _ => drop(names.insert(format!("{prefix}{name}"))),
        }
    }
}

#[test]
fn every_route_of_the_agent_is_in_its_manual() {
    let source = read("agent/src/http/mod.rs");
    let routes = source.split(".route(\"").skip(1).filter_map(|rest| rest.split('"').next());
    assert_eq!(documented("Requests", 2), routes.map(str::to_owned).collect());
}

#[test]
fn every_field_of_the_status_is_in_the_manual() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let host = Host::started("h1", &etcd.endpoints());
    store.put("/current_version", "1");
    host.wait_for_verdict("ok");
    let status = wait::until("it answers", || host.status(), || host.describe());
    let mut names = BTreeSet::new();
    add_fields(&status, "", &mut names);
    assert_eq!(names, documented("The answer of `/status`", 1));
}

/// Returns the shell examples of a manual that send requests.
fn examples(manual: &str) -> Vec<String> {
    let text = read(manual);
    let blocks = text.split("\n```sh\n").skip(1).filter_map(|rest| rest.split("\n```").next());
    blocks.filter(|block| block.contains("curl ")).map(str::to_owned).collect()
}

/// Runs an example with other addresses and files; each of its requests must succeed. Returns what it prints.
fn run_example(example: &str, replaced: &[(&str, &str)]) -> String {
    let script = replaced.iter().fold(example.to_owned(), |script, (from, to)| script.replace(from, to));
    assert!(replaced.iter().any(|(from, _)| example.contains(from)), "{example}");
    let script = script.replace("curl ", "curl --fail --silent --show-error --max-time 20 ");
    let output = run(Command::new("sh").args(["-euc", &script]), "");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let problem = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && problem.is_empty(), "{script}\n{printed}\n{problem}");
    printed
}

#[test]
fn every_example_of_the_manual_of_the_agent_succeeds() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let host = Host::started("h1", &etcd.endpoints());
    host.write_service("web.json", r#"{"service": {"name": "web", "port": 80, "check": {"ttl": "600s"}}}"#);
    store.put("/current_version", "1");
    host.wait_for_verdict("ok");
    let has_service = || host.http_get("/v1/services/web").filter(|(code, _)| *code == 200);
    wait::until("the service is known", has_service, || host.describe());
    let (address, socket) = (format!("127.0.0.1:{}", host.http_port()), host.path("agent.sock"));
    let replaced = [
        ("127.0.0.1:8580", address.as_str()),
        ("/run/orchestrate/agent.sock", socket.to_str().expect("text")),
    ];
    let mut all = examples("docs/http-api.md");
    assert_eq!(all.len(), 4);
    all.extend(examples("docs/discovery.md"));
    let printed: Vec<String> = all.iter().map(|example| run_example(example, &replaced)).collect();
    assert!(printed[0].contains(r#""verdict":"ok""#), "{printed:?}");
    assert!(printed[1].contains(r#""targets":"#), "{printed:?}");
    assert!(printed[2].contains(r#""index":"#), "{printed:?}");
    let health = host.http_get("/v1/checks").expect("the checks").1;
    assert!(health.contains(r#""status":"passing""#), "{health}");
}

#[test]
fn every_example_of_the_manual_of_the_observer_succeeds() {
    let etcd = Etcd::single();
    crate::contract::fleet::fill(&etcd.store(), &crate::contract::fleet::FLEET);
    let service = r#"{"format":1,"host":"web-1","addresses":["10.0.0.1"]}"#;
    etcd.store().put("/available_services/web/web-1", service);
    let observer = Observer::of(&etcd.endpoints());
    let (address, token) = (observer.address(), observer.path("token"));
    let replaced = [
        ("127.0.0.1:8590", address.as_str()),
        ("/var/lib/orchestrate-observer/token", token.to_str().expect("text")),
    ];
    let has_service = || Some(()).filter(|()| observer.get("/v1/services/web").code == 200);
    wait::until("the service is known", has_service, || observer.log());
    observer.wait_for("/v1/incidents", "it has looked for incidents", |_| true);
    let all = examples("docs/observer.md");
    assert_eq!(all.len(), 2);
    let printed: Vec<String> = all.iter().map(|example| run_example(example, &replaced)).collect();
    assert!(printed[0].contains(r#""revision":"#), "{printed:?}");
    assert!(printed[1].contains(r#""web-2""#) && printed[1].contains(r#""incidents":"#), "{printed:?}");
}
