//! The fleet that fills the store.

use super::rows::Row;
use etcd_client::{DeleteOptions, Txn, TxnOp};
use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::process::Command;
use tests::host::CommandOutput;
use tests::process::{binary, run};
use tests::store::Store;

/// The entries of a fleet with one of everything: from old tools (bare text) and from new ones
/// (JSON).
pub(crate) const FLEET: [(&str, &str); 33] = [
    // The value that `echo 43 | etcdctl put` writes.
    ("/current_version", "43\n"),
    ("/running_version/43/web-1", "1416300000"),
    ("/running_version/43/web-2", "1416300000.25"),
    ("/running_version/42/db-1", "1416300000"),
    ("/status/puppet/success/web-1", "1416300000"),
    ("/status/puppet/failed/db-1", "1416300000.25"),
    ("/status/puppet/pending/db-2", "1416300000\n"),
    (
        "/status/validation/success/web-1",
        r#"{"format":1,"at":1416300000,"version":"43","code":0,"reason":""}"#,
    ),
    (
        "/status/validation/failed/web-2",
        r#"{"format":1,"at":1416300000,"version":"43","code":1,"reason":"http does not answer"}"#,
    ),
    ("/status/provisioned/success/web-1", r#"{"format":1,"at":1416300000,"a_later_field":[1]}"#),
    ("/orchestrate/store", r#"{"format":1,"lineage":"abc","epoch":3}"#),
    (
        "/orchestrate/hosts/web-1",
        r#"{"format":1,"role":"web","group":"front","labels":{"rack":"r1"},"since":1416300000}"#,
    ),
    ("/orchestrate/hosts/web-2", r#"{"format":1,"role":"web","since":1416300000}"#),
    ("/orchestrate/hosts/db-1", r#"{"since":1416300000}"#),
    ("/orchestrate/hosts/lost-1", r#"{"format":1,"since":1416300000}"#),
    ("/orchestrate/hosts/gone-1", r#"{"format":1,"since":1416300000,"decommissioned":1416300060}"#),
    ("/orchestrate/announced/db-1", "42"),
    ("/orchestrate/reporting/validation/db-1", "1416300000"),
    ("/orchestrate/reporting/validation/web-1", "1416300000"),
    (
        "/orchestrate/reports/lost-1",
        r#"{"format":1,"at":1416300000,"write_id":"w1","phase":"apply","verdict":{"verdict":"running","version":"43"},
            "target":{"version":"43","revision":2},"installed":"42",
            "plan":{"phase":"apply","actions":[],"because":{"reason":"attempt_under_way"}},
            "store":{"lineage":"abc","epoch":3},"log":["apply: first","apply: second"]}"#,
    ),
    ("/config_state/global/a", "of all"),
    ("/config_state/global/b", "of all"),
    ("/config_state/global/c", "of all\n"),
    ("/config_state/role/cp/b", "of the role"),
    ("/config_state/role/cp/enable_puppet", "False"),
    ("/config_state/host/cp1/a", "of the host"),
    ("/config_state/host/cp2/enable_puppet", "True"),
    ("/config_state/enable_puppet/role/oc", "False"),
    ("/config_state/enable_puppet/host/oc2", "True"),
    ("/orchestrate/config/gate", "go"),
    ("/orchestrate/config/motd", "hello\nthere\nworld\n"),
    ("/orchestrate/config/steering", "a\u{1b}[2J"),
    ("/elsewhere/than/ours", "nothing to us"),
];

/// Writes the entries; up to 128 of them are one transaction, so that all keys have the same
/// revision.
pub(crate) fn fill(store: &Store, facts: &[(&str, &str)]) {
    fill_bytes(store, facts.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec())));
}

pub(super) fn fill_bytes(store: &Store, facts: impl Iterator<Item = (Vec<u8>, Vec<u8>)>) {
    let (runtime, mut client) = store.parts();
    let puts: Vec<TxnOp> = facts.map(|(key, value)| TxnOp::put(key, value, None)).collect();
    for some in puts.chunks(128) {
        runtime.block_on(client.txn(Txn::new().and_then(some))).expect("filled");
    }
}

pub(super) fn clear(store: &Store) {
    let (runtime, mut client) = store.parts();
    let all = DeleteOptions::new().with_prefix();
    runtime.block_on(client.delete("", Some(all))).expect("cleared");
}

/// Starts a discovery service that answers every request with a new token.
pub(super) fn discovery_service() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            // The buffer is large enough for the head of a GET request.
            let _ = client.read(&mut [0; 4096]);
            let body = "https://discovery.etcd.io/3e86b59982e49066c5d813af1c2e2579cbf573de\n";
            let _ = write!(
                client,
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
        }
    });
    format!("http://{address}")
}

/// Returns the verbs that the program's help lists.
pub(super) fn verbs() -> BTreeSet<String> {
    let result: CommandOutput = run(Command::new(binary("orchestrate")).arg("--help"), "").into();
    let groups = result.out.split("\nOptions:\n").next().expect("verbs in groups");
    let names = groups.lines().filter(|l| l.starts_with("  ") && !l.starts_with("   "));
    names.filter_map(|l| l.split_whitespace().next()).map(str::to_owned).collect()
}

pub(super) fn assert_every_verb(rows: &[&[Row]]) {
    let covered: BTreeSet<String> =
        rows.iter().flat_map(|rows| rows.iter()).map(|row| row.verb().to_owned()).collect();
    assert_eq!(covered, verbs());
}
