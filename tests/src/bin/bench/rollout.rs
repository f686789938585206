//! Measurements of rollouts: what a limit costs, a plan, and a simulated rollout.

use crate::fleet::{Updated, updated};
use crate::measure::{in_turn, once};
use crate::processes::{Etcd, bench, load, millis, orchestrate};
use crate::report::Report;
use schema::names::Version;
use simulator::{Act, FleetFact, Script, run_script};
use std::process::ExitCode;

/// How many hosts are updated at once.
const AT_ONCE: &str = "[[limit]]\nby = \"fleet\"\nmax = 10\n";
const STAGED: &str = "failure_budget = 3\n[[limit]]\nby = \"fleet\"\nmax = \"1%\"\n
[[stage]]\nname = \"canary\"\ncount = 1\nsoak = \"10m\"\n";

/// Measures what a limit of 10 hosts costs beyond an update of all at once.
pub(crate) fn limited(report: &mut Report) {
    for hosts in [100, 1000] {
        let free = updated(hosts, None);
        let Updated { operations, events, seconds } = updated(hosts, Some(AT_ONCE));
        let what = format!("update of {hosts}, 10 at a time");
        report.row(
            &format!("{what}: more store operations per host"),
            format!("{operations:.1}"),
            format!("{:.1} without a limit", free.operations),
            operations - free.operations,
            10.0,
        );
        report.row(
            &format!("{what}: more watch events per host"),
            format!("{events:.1}; the fleet took {seconds:.1} s"),
            format!("{:.1} without a limit", free.events),
            events - free.events,
            12.0,
        );
    }
}

/// Measures a plan for 10,000 hosts, and the simulation of a rollout of 1,000.
pub(crate) fn plan(report: &mut Report) {
    let etcd = Etcd::start();
    load(&["fill", &etcd.endpoint, "10000"]);
    load(&["reports", &etcd.endpoint, "10000"]);
    let directory = tempfile::tempdir().expect("a directory");
    let policy = directory.path().join("policy.toml");
    std::fs::write(&policy, STAGED).expect("written");
    let policy = policy.display().to_string();
    let plan = || orchestrate(&etcd.endpoint, &["plan", "2", "--policy", &policy]);
    let status = || orchestrate(&etcd.endpoint, &["status"]);
    let (plan, status) = in_turn(7, &plan, &status);
    assert_eq!(plan.code, 0, "the rollout would end");
    let seconds = plan.wall.as_secs_f64();
    let beside = format!("{:.0} ms, {:.0} MiB `status`", millis(status.wall), status.peak_mebibytes);
    report.row("plan, 10000 hosts: seconds", format!("{seconds:.2} s"), beside.clone(), seconds, 2.0);
    let memory = plan.peak_mebibytes;
    report.row("plan, 10000 hosts: peak memory, MiB", format!("{memory:.0} MiB"), beside, memory, 300.0);
    let simulated = once(&|| bench(&["simulate", "1000"]));
    assert_eq!(simulated.code, 0);
    let seconds = simulated.cpu.as_secs_f64();
    let (ours, beside) = (format!("{seconds:.1} s of a core"), "10 at a time".to_owned());
    report.row("simulated rollout of 1000 hosts: seconds", ours, beside, seconds, 5.0);
}

/// Simulates a rollout of so many hosts, 10 at a time, whose steps take no time.
pub(crate) fn simulate(hosts: &str) -> ExitCode {
    let hosts: usize = hosts.parse().expect("a number");
    let policy = planning::rollout::read_policy("policy.toml", AT_ONCE).expect("a policy");
    let version = Version::new("v2").expect("a version");
    let acts = vec![(0, Act::Trigger(version))];
    let script = Script { policy: Some(policy), acts, step_millis: 20, ..Script::of_hosts(hosts) };
    let history = run_script(&script, None).expect("the laws hold");
    ExitCode::from(u8::from(history.time_of(&FleetFact::Ended).is_none()))
}
