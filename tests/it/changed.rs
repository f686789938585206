//! Whether a command changed something, for tools that run it repeatedly.

use tests::etcd::Etcd;
use tests::host::{CommandOutput, Host};

fn json(host: &Host, arguments: &str) -> serde_json::Value {
    let words: Vec<&str> = arguments.split(' ').chain(["-o", "json"]).collect();
    let CommandOutput { code, out, err } = host.command(&words, "");
    assert_eq!(code, 0, "{arguments}: {out}{err}");
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{arguments}: {error}: {out}"))
}

#[test]
fn a_command_that_writes_says_whether_anything_changed_and_writes_nothing_that_stands() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let host = Host::new("operator", &etcd.endpoints());
    for (arguments, changed, writes) in [
        ("trigger_update 1 --if-different", true, true),
        ("trigger_update 1 --if-different", false, false),
        // A trigger without the option makes failed hosts try again, so it always writes.
        ("trigger_update 1", true, true),
        ("trigger_update 2 --if-different", true, true),
        ("store accept --version 2", true, true),
        ("trigger_update 2 --if-different", false, false),
        ("hosts add h1 --role web --label rack=1", true, true),
        ("hosts add h1 --role web", false, false),
        ("hosts add h1", false, false),
        ("hosts add h1 --label rack=2", true, true),
        ("retry h1", true, true),
        ("retry h1", true, true),
        ("hosts decommission h1", true, true),
        ("hosts decommission h1", false, false),
        ("hosts add h1", true, true),
    ] {
        let before = store.revision();
        let result = json(&host, arguments);
        let is_told = if arguments.starts_with("store") { true } else { result["changed"] == changed };
        assert!(is_told, "{arguments}: {result}");
        assert_eq!(store.revision() > before, writes, "{arguments}");
        if !writes {
            assert!(
                result["revision"].as_i64().is_some_and(|revision| revision <= before),
                "{arguments}: {result}"
            );
        }
    }
}

#[test]
fn an_instruction_of_before_an_acceptance_does_not_count_and_is_written_again() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let host = Host::new("operator", &etcd.endpoints());
    json(&host, "trigger_update 1");
    json(&host, "store accept --version 1");
    // The identity is written again, so that it is newer than the instruction.
    let identity = store.get("/orchestrate/store").expect("an identity");
    assert!(identity.contains("\"epoch\":"), "{identity}");
    store.put("/orchestrate/store", &identity);
    let epoch: serde_json::Value = serde_json::from_str(&identity).expect("JSON");
    assert!(epoch["epoch"].as_u64().is_some_and(|epoch| epoch > 0), "{identity}");
    let before = store.revision();
    assert_eq!(json(&host, "trigger_update 1 --if-different")["changed"], true);
    assert!(store.revision() > before);
    assert_eq!(json(&host, "trigger_update 1 --if-different")["changed"], false);
    // An unreadable identity does not prove that the instruction counts, so it is written again.
    store.put("/orchestrate/store", "?");
    assert_eq!(json(&host, "trigger_update 1 --if-different")["changed"], true);
}

#[test]
fn a_roster_with_keys_that_are_no_hosts_says_once_how_many() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let host = Host::new("operator", &etcd.endpoints());
    for key in ["h1", "a b", "c/d", "-"] {
        store.put(&format!("/orchestrate/hosts/{key}"), r#"{"since":1}"#);
    }
    let result = host.command(&["hosts", "list"], "");
    assert!(result.code == 0 && result.out.contains("h1"), "{result:?}");
    assert_eq!(result.err, "warning: 3 keys hold names that are not valid and were passed over\n");
}
