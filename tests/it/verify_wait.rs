//! `verify_hosts --wait` with hosts that do not come through.

use rustix::process::Signal;
use std::time::{Duration, Instant};
use tests::etcd::Etcd;
use tests::host::{CommandOutput, Host};
use tests::store::Store;
use tests::wait;

/// A fleet with a host that runs version 1, and one on the roster that never came.
fn with_a_ghost() -> (Etcd, Host) {
    let etcd = Etcd::single();
    let host = Host::started("h1", &etcd.endpoints());
    assert_eq!(host.command(&["trigger_update", "1"], "").code, 0);
    host.wait_for_listing(&etcd.store(), "1");
    assert_eq!(host.command(&["hosts", "add", "ghost"], "").code, 0);
    (etcd, host)
}

fn verify(host: &Host, arguments: &[&str]) -> (CommandOutput, Duration) {
    let begin = Instant::now();
    let result = host.command(&[&["verify_hosts"], arguments].concat(), "");
    (result, begin.elapsed())
}

const GHOST: &str = "ghost: lost: on the roster, but never seen\n";

#[test]
fn the_wait_ends_early_when_a_host_cannot_come_through() {
    let (_etcd, host) = with_a_ghost();
    let (result, took) = verify(&host, &["1", "h1", "ghost", "--wait", "10m", "-o", "json"]);
    assert_eq!(result.code, 1, "{result:?}");
    assert!(took < Duration::from_secs(300), "{took:?}");
    assert!(result.err.contains("not at 1 (1): ghost\n"), "{result:?}");
    assert!(result.err.contains(GHOST) && result.err.contains("the wait ends early"), "{result:?}");
    assert!(result.out.contains(r#""ended_by": "stuck""#), "{result:?}");

    // The old way: to the end, and with the reason.
    let (result, took) = verify(&host, &["1", "h1", "ghost", "--wait", "25s", "--wait-anyway"]);
    assert_eq!(result.code, 1, "{result:?}");
    assert!(took >= Duration::from_secs(25), "{took:?}");
    assert!(result.err.contains(GHOST) && !result.err.contains("early"), "{result:?}");
}

#[test]
fn the_wait_goes_on_while_a_host_may_come_through() {
    let (etcd, host) = with_a_ghost();
    let store: Store = etcd.store();
    // It says "not yet", and tries again. Another version than the desired one says nothing about hosts.
    host.write("code-packages-2", "75\n");
    assert_eq!(host.command(&["trigger_update", "2"], "").code, 0);
    host.wait_for_verdict("waiting");
    let mut of_failing = host.start_command(&["verify_hosts", "2", "h1", "--wait", "5m"], "failing.log");
    let mut of_other = host.start_command(&["verify_hosts", "1", "ghost", "--wait", "5m"], "other.log");
    let (result, _) = verify(&host, &["2", "h1", "--wait", "1s"]);
    assert!(
        result.err.contains("h1: waiting: waits for apply step packages, which said \"not yet\""),
        "{result:?}"
    );
    // Two looks are ten seconds apart.
    let (result, _) = verify(&host, &["2", "ghost", "--wait", "5m"]);
    assert!(result.err.contains("the wait ends early"), "{result:?}");
    assert_eq!((of_failing.ended(), of_other.ended()), (None, None));
    host.remove("code-packages-2");
    host.wait_for_listing(&store, "2");
    let ended = || of_failing.ended();
    assert_eq!(wait::until("the answer is yes", ended, || host.read("failing.log")), Some(0));
    of_other.kill();
}

#[test]
fn an_interrupted_wait_says_who_is_missing() {
    let (_etcd, host) = with_a_ghost();
    let mut command = host.start_command(&["verify_hosts", "1", "h1", "ghost", "--wait", "5m"], "wait.log");
    let status = format!("/proc/{}/status", command.pid().as_raw_nonzero());
    let catches = || {
        let text = std::fs::read_to_string(&status).ok()?;
        let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:"))?.trim().to_owned();
        (u64::from_str_radix(&mask, 16).ok()? & 2 != 0).then_some(())
    };
    wait::until("it listens for the signal", catches, || host.read("wait.log"));
    command.signal(Signal::INT);
    let ended = || command.ended();
    assert_eq!(wait::until("it ends", ended, || host.read("wait.log")), Some(130));
    assert!(
        host.read("wait.log").contains("not at 1 (1): ghost\ninterrupted\n"),
        "{}",
        host.read("wait.log")
    );
}
