//! The HTTP API of the agent, against its manual.

use serde_json::Value;
use std::collections::BTreeSet;
use tests::etcd::Etcd;
use tests::host::Host;
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
