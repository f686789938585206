//! A lasting fault costs almost nothing: no wake-up without progress, no flood of log lines.

use crate::machine::SmallDisk;
use std::time::Duration;
use tests::etcd::Etcd;
use tests::host::Host;
use tests::wait;

/// Time for which the agent is watched during a fault.
const LOOK: Duration = Duration::from_secs(4);
/// Upper bound on passes in this time; above what validation every second needs, with its step, its
/// journal and its watch.
const PASSES_MAX: u64 = 120;
/// Upper bound on log lines in this time, above what validation every second writes. DEBUG lines
/// are not counted, because they are only enabled in tests.
const LINES_MAX: usize = 40;

fn passes(host: &Host) -> u64 {
    let (_, metrics) = host.http_get("/metrics").expect("metrics");
    let line = metrics.lines().find_map(|line| line.strip_prefix("orchestrate_agent_passes_total "));
    line.and_then(|value| value.trim().parse::<f64>().ok()).expect("a number of passes") as u64
}

fn lines(host: &Host) -> usize {
    host.read("agent.log").lines().filter(|line| !line.contains(" DEBUG ")).count()
}

/// Asserts that the agent rarely wakes and logs little for a while.
fn stays_quiet(fault: &str, host: &Host) {
    let (passes_before, lines_before) = (passes(host), lines(host));
    let is_quiet = || passes(host) - passes_before <= PASSES_MAX && lines(host) - lines_before <= LINES_MAX;
    wait::stays(fault, LOOK, is_quiet, || {
        let (passes, lines) = (passes(host) - passes_before, lines(host) - lines_before);
        format!("{passes} passes, {lines} lines\n{}", host.describe())
    });
}

fn revoke_lease(host: &Host, etcd: &Etcd) {
    let lease = host.status().expect("status")["claim"]["lease"].as_str().expect("a lease").to_owned();
    etcd.etcdctl(&["lease", "revoke", &lease], "");
}

#[test]
fn a_fault_that_lasts_makes_no_agent_spin_or_flood_its_log() {
    let mut etcd = Etcd::single();
    let store = etcd.store();
    let mut host = Host::new("h1", &etcd.endpoints()).with("[validation]\nevery = \"1s\"\n");
    let Some(disk) = SmallDisk::mount(&host) else {
        tests::skip("quiet::a_fault_that_lasts_makes_no_agent_spin_or_flood_its_log", "mounting needs root");
        return;
    };
    host.start();
    store.put("/current_version", "1");
    let is_well = |host: &Host| {
        host.wait_for_verdict("ok");
        host.wait_for_listing(&etcd.store(), "1");
    };
    is_well(&host);

    disk.fill();
    host.wait_for_verdict("blocked");
    stays_quiet("the disk is full", &host);
    revoke_lease(&host, &etcd);
    stays_quiet("the disk is full, and the lease was lost meanwhile", &host);
    disk.empty();
    is_well(&host);

    disk.remount("ro");
    host.wait_for_verdict("blocked");
    revoke_lease(&host, &etcd);
    stays_quiet("the disk is read-only, and the lease was lost meanwhile", &host);
    disk.remount("rw");
    is_well(&host);

    revoke_lease(&host, &etcd);
    etcd.kill_member(0);
    stays_quiet("the store is away, and the lease was lost before", &host);
    etcd.start_member(0);
    host.wait_for_verdict("ok");
    host.wait_for_listing(&etcd.store(), "1");
}

#[test]
fn a_name_that_another_agent_holds_makes_no_agent_spin() {
    let etcd = Etcd::single();
    let first = Host::started("h1", &etcd.endpoints());
    etcd.store().put("/current_version", "1");
    first.wait_for_listing(&etcd.store(), "1");
    let second = Host::started("h1", &etcd.endpoints());
    second.wait_for_verdict("blocked");
    stays_quiet("another agent holds the name", &second);
}

#[test]
fn an_agent_whose_view_of_the_store_has_ended_ends_and_says_so() {
    let etcd = Etcd::single();
    let mut host = Host::new("h1", &etcd.endpoints());
    // The fault happens at the start, because the file exists.
    host.set_environment("ORCHESTRATE_FAILPOINT", "task-returns:mirror:/dev/null");
    host.start();
    let ended = wait::until("the agent ends", || host.ended(), String::new);
    assert_eq!(ended, Some(70));
    let result = host.read("agent.log");
    assert!(result.contains("the task mirror has ended"), "{result}");
    assert!(lines(&host) <= LINES_MAX, "{result}");
}
