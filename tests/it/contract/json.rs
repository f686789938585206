//! The form of JSON answers.

use super::empty::{TOKEN, reads_of_an_empty_store, writes_to_an_empty_store};
use super::filled::{reads_of_a_filled_store, writes_to_a_filled_store};
use super::fleet::{FLEET, clear, discovery_service, fill};
use super::rows::{NOWHERE, Out, Row, SHORT, World, check_all, check_writes, row};
use serde_json::{Value, json};
use tests::etcd::Etcd;

pub(super) fn differs(text: &str, wanted: &Value) -> Option<String> {
    let mut found: Value = serde_json::from_str(text).expect("checked");
    // Only the presence of a revision is compared, not its value.
    if let Some(revision) = found.get_mut("revision").filter(|revision| revision.is_i64()) {
        *revision = json!("any");
    }
    (found != *wanted).then(|| format!("wanted {wanted:#}"))
}

#[test]
fn json_is_one_value_in_one_form() {
    let etcd = Etcd::single_real();
    let store = etcd.store();
    let world = World { discovery: discovery_service(), ..World::new(&etcd.endpoint(0)) };
    // Every answer in text is also an answer in JSON, with the same exit code. Commands
    // without an answer only print an error, so their rows are left out.
    let as_json = |rows: Vec<Row>| -> Vec<Row> {
        let has_json = |row: &Row| {
            let script = ["completion", "enroll"].contains(&row.verb());
            let failed = matches!(row.code, 1..=3)
                && matches!(&row.out, Out::Exactly(text) if text.is_empty())
                && !row.err.iter().any(|part| part.starts_with("not at"));
            let health = row.verb() == "local_health";
            !script && (!failed || health) && !row.err.contains(&"nothing was changed")
        };
        let json_row = |row: Row| {
            let arguments = [row.arguments.clone(), vec!["-o".into(), "json".into()]].concat();
            Row { arguments, out: Out::AnyJson, err: Vec::new(), ..row }
        };
        rows.into_iter().filter(has_json).map(json_row).collect()
    };
    check_all(&world, &as_json(reads_of_an_empty_store()));
    check_writes(&world, &store, &[], &as_json(writes_to_an_empty_store()));
    check_writes(&world, &store, &FLEET, &as_json(writes_to_a_filled_store()));
    clear(&store);
    fill(&store, &FLEET);
    check_all(&world, &as_json(reads_of_a_filled_store()));
    let problem = |host: &str, check: &str, of: Value| {
        let mut value = json!({ "host": host, "check": check, "at": null, "version": null, "exit_code": null, "reason": null, "fingerprint": null, "cause": null, "bundle": null, "bundle_host": null });
        value.as_object_mut().expect("an object").extend(of.as_object().expect("an object").clone());
        value
    };
    let at = "2014-11-18T08:40:00Z";
    let failures = json!([
        problem("db-1", "puppet", json!({ "at": at })),
        problem("db-1", "validation (stale)", json!({})),
        problem("lost-1", "liveness", json!({})),
        problem(
            "web-2",
            "validation",
            json!({ "at": at, "version": "43", "exit_code": 1, "reason": "http does not answer" })
        ),
    ]);
    let warnings = json!([problem("db-2", "puppet", json!({ "at": at }))]);
    let json_row = |line: &str, code: i32, value: Value| row("exact JSON", line, code, "").json(value);
    let rows = [
        json_row("-o json current_version", 0, json!({ "version": "43", "revision": "any", "from_store": true })),
        json_row("ping -w json", 0, json!({ "connected": true, "members": ["m0"] })),
        json_row(
            "pending_update --output json",
            0,
            json!({ "is_pending": true, "desired_version": "43", "installed": "42", "agent_drives": false, "frozen_by": null, "held_back_by": null }),
        )
        .installed("42"),
        json_row("local_version -o=json", 0, json!({ "version": null })),
        json_row(
            "running_versions -o json",
            0,
            json!({ "versions": [{ "version": "42", "host_count": 1 }, { "version": "43", "host_count": 2 }], "revision": "any" }),
        ),
        json_row(
            "verify_hosts -o json 43 web-1 db-1",
            1,
            json!({
                "version": "43", "wanted_count": 2, "present_count": 1, "missing": ["db-1"], "unconfirmed_hosts": ["web-1"],
                "causes": null, "ended_by": null, "revision": "any",
            }),
        ),
        json_row(
            "check_single_version -o json 42",
            1,
            json!({
                "version": "42", "wanted_found": true, "unwanted": ["43"], "revision": "any",
                "versions": [{ "version": "42", "host_count": 1 }, { "version": "43", "host_count": 2 }],
            }),
        ),
        json_row(
            "get_failures -o json --show_warnings",
            1,
            json!({ "failures": failures, "warnings": warnings, "groups": null, "revision": "any" }),
        ),
        json_row("get_failures -o json", 1, json!({ "failures": failures, "warnings": [], "groups": null, "revision": "any" })),
        json_row("hosts_at_version -o json 9", 0, json!({ "version": "9", "hosts": [], "revision": "any" })),
        json_row(
            "local_health -o json",
            1,
            json!({ "host": "web-2", "known": true, "failing": [{ "check": "validation", "output": "http does not answer" }] }),
        )
        .with("ORCHESTRATE_HOSTNAME", "web-2"),
        json_row(
            "logs -o json lost-1",
            0,
            json!({
                "host": "lost-1", "phase": null, "step": null, "log": ["apply: first", "apply: second"],
                "reported_at": at, "bundle": null, "bundle_host": null,
            }),
        ),
        json_row(
            "unaccounted -o json",
            1,
            json!({
                "unaccounted": [{
                    "host": "lost-1", "how": "lost", "reason": "neither live nor listed under a version", "reported_at": at,
                }],
                "revision": "any",
            }),
        ),
        json_row("new_discovery_token -o json --endpoint @DISCOVERY/", 0, json!({ "token": TOKEN.trim() })),
    ];
    check_all(&world, &rows);
    let away = [
        json_row(
            "current_version -o json",
            0,
            json!({ "version": "43", "revision": null, "from_store": false }),
        )
        .remembered("43"),
        json_row("ping -o json", 1, json!({ "connected": false, "members": [] })),
        json_row(
            "pending_update -o json",
            3,
            json!({ "is_pending": null, "desired_version": null, "installed": null, "agent_drives": false, "frozen_by": null, "held_back_by": null }),
        ),
        json_row("local_health -o json", 0, json!({ "host": "web-1", "known": false, "failing": [] })),
    ];
    check_all(&World::new(NOWHERE).within(SHORT), &away);
}
