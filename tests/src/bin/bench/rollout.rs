//! Measurements of a plan, and of a simulated rollout.

use crate::measure::{in_turn, once};
use crate::processes::{Etcd, bench, load, millis, orchestrate};
use crate::report::Report;
use schema::names::Version;
use simulator::{Act, FleetFact, Script, run_script};
use std::process::ExitCode;

/// How many hosts are updated at once.
pub(crate) const AT_ONCE: &str = "[[limit]]\nby = \"fleet\"\nmax = 10\n";
const STAGED: &str = "failure_budget = 3\n[[limit]]\nby = \"fleet\"\nmax = \"1%\"\n
[[stage]]\nname = \"canary\"\ncount = 1\nsoak = \"10m\"\n";

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
