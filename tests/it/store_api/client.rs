//! etcd's own command drives the embedded store.

use std::process::Command;
use std::time::Duration;
use tests::process::{Running, run};
use tests::solo::Solo;
use tests::wait;

fn etcdctl(solo: &Solo, arguments: &[&str]) -> Command {
    let mut command = Command::new("etcdctl");
    // Without the scheme: see docs/solo-etcd.md.
    let endpoint = solo.endpoint();
    let endpoint = endpoint.trim_start_matches("http://");
    command.env("ETCDCTL_API", "3").args(["--endpoints", endpoint]).args(arguments);
    command
}

/// What it said; it must have succeeded.
fn said(solo: &Solo, arguments: &[&str], input: &str) -> String {
    let output = run(&mut etcdctl(solo, arguments), input);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn the_everyday_verbs_work() {
    let solo = Solo::on_disk();
    for (arguments, input, expected) in [
        (&["put", "a", "1"][..], "", "OK"),
        (&["put", "b", "2"], "", "OK"),
        (&["get", "a"], "", "a\n1"),
        (&["get", "--prefix", "", "--keys-only"], "", "a\n\nb"),
        (&["txn"], "value(\"a\") = \"1\"\n\nput c 3\nget a\n\nput d 4\n\n", "SUCCESS\n\nOK\n\na\n1"),
        (&["del", "b", "--prev-kv"], "", "1\nb\n2"),
        (&["compaction", "4"], "", "compacted revision 4"),
        (&["alarm", "list"], "", ""),
        (&["user", "list"], "", ""),
    ] {
        assert_eq!(said(&solo, arguments, input), expected, "{arguments:?}");
    }
    assert!(said(&solo, &["endpoint", "status"], "").contains("3.4.23"));
    assert!(said(&solo, &["member", "list"], "").contains("started, solo"));
    assert!(said(&solo, &["defrag"], "").contains("Finished"));
    let output = run(&mut etcdctl(&solo, &["endpoint", "health"]), "");
    assert!(String::from_utf8_lossy(&output.stderr).contains("is healthy"), "{output:?}");
    let output = run(&mut etcdctl(&solo, &["get", "a", "--rev", "2"]), "");
    assert!(String::from_utf8_lossy(&output.stderr).contains("has been compacted"), "{output:?}");
}

#[test]
fn a_lease_is_granted_kept_alive_listed_and_revoked() {
    let solo = Solo::in_memory();
    let granted = said(&solo, &["lease", "grant", "60"], "");
    let id = granted.split_whitespace().nth(1).expect("an id").to_owned();
    said(&solo, &["put", "--lease", &id, "k", "v"], "");
    assert!(said(&solo, &["lease", "keep-alive", "--once", &id], "").contains("keepalived with TTL(60)"));
    assert!(said(&solo, &["lease", "timetolive", &id, "--keys"], "").contains("attached keys([k])"));
    assert!(said(&solo, &["lease", "list"], "").contains(&id));
    said(&solo, &["lease", "revoke", &id], "");
    assert_eq!(said(&solo, &["get", "k"], ""), "");
}

#[test]
fn a_watch_sees_puts_and_deletions() {
    let solo = Solo::in_memory();
    let log = solo.directory().join("watch.log");
    let _watch = Running::start(&mut etcdctl(&solo, &["watch", "--prefix", "k"]), &log);
    let text = || std::fs::read_to_string(&log).unwrap_or_default();
    // Until it watches nothing is seen; a put that it has not seen is repeated.
    let seen = || {
        said(&solo, &["put", "k1", "v"], "");
        text().contains("PUT\nk1\nv\n").then_some(())
    };
    wait::until("the put is seen", seen, text);
    said(&solo, &["del", "k1"], "");
    wait::until("the deletion is seen", || text().contains("DELETE\nk1\n").then_some(()), text);
}

#[test]
fn one_at_a_time_holds_a_lock_or_an_election() {
    let solo = Solo::in_memory();
    for (first, second) in
        [(["lock", "l"].as_slice(), ["lock", "l"].as_slice()), (&["elect", "e", "a"], &["elect", "e", "b"])]
    {
        let log = |name: &str| solo.directory().join(format!("{}-{name}.log", first[0]));
        let has = |name: &str| std::fs::read_to_string(log(name)).is_ok_and(|text| !text.is_empty());
        let mut holder = Running::start(&mut etcdctl(&solo, first), &log("first"));
        wait::until("the first has it", || has("first").then_some(()), String::new);
        let _waiter = Running::start(&mut etcdctl(&solo, second), &log("second"));
        wait::stays("the second waits", Duration::from_millis(700), || !has("second"), String::new);
        holder.signal(rustix::process::Signal::INT);
        wait::until("the second has it", || has("second").then_some(()), String::new);
        holder.kill();
    }
}
