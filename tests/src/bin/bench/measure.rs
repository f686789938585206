//! Wall time, processor time and memory of a child: from start to exit, or so far.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use wait4::Wait4;

/// What a child cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
    pub(crate) peak_mebibytes: f64,
    pub(crate) code: i32,
}

/// Runs a command once.
pub(crate) fn once(make: &dyn Fn() -> Command) -> Cost {
    let mut command = make();
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let begin = Instant::now();
    let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let used = child.wait4().expect("its use of resources");
    Cost {
        wall: begin.elapsed(),
        cpu: used.rusage.utime + used.rusage.stime,
        peak_mebibytes: used.rusage.maxrss as f64 / (1024.0 * 1024.0),
        code: used.status.code().unwrap_or(-1),
    }
}

/// The median of several runs of two commands in turn, so that both meet the same machine.
pub(crate) fn in_turn(rounds: usize, one: &dyn Fn() -> Command, other: &dyn Fn() -> Command) -> (Cost, Cost) {
    let [one, other] = all_in_turn(rounds, [one, other]);
    (one, other)
}

/// The same of any number of commands.
pub(crate) fn all_in_turn<const N: usize>(rounds: usize, commands: [&dyn Fn() -> Command; N]) -> [Cost; N] {
    // Once each for the caches.
    for command in commands {
        once(command);
    }
    let mut costs = [const { Vec::new() }; N];
    for _ in 0..rounds {
        for (command, costs) in commands.iter().zip(&mut costs) {
            costs.push(once(*command));
        }
    }
    costs.map(median)
}

fn median(mut costs: Vec<Cost>) -> Cost {
    let middle = costs.len() / 2;
    costs.sort_by_key(|c| c.wall);
    let wall = costs[middle].wall;
    let code = costs[middle].code;
    costs.sort_by_key(|c| c.cpu);
    let cpu = costs[middle].cpu;
    costs.sort_by(|a, b| a.peak_mebibytes.total_cmp(&b.peak_mebibytes));
    Cost { wall, cpu, peak_mebibytes: costs[middle].peak_mebibytes, code }
}

/// A point of a sorted distribution.
pub(crate) fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let index = ((sorted.len() as f64 - 1.0) * percent / 100.0).round() as usize;
    sorted[index.min(sorted.len() - 1)]
}

/// User and system time so far, of a process and of its children that ended; clock ticks are hundredths on every
/// Linux that etcd runs on.
fn cpu_times(process: &str) -> [f64; 2] {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("the process lives");
    let fields: Vec<&str> = stat[stat.rfind(')').expect("a name") + 2..].split(' ').collect();
    let seconds = |index: usize| fields[index].parse::<f64>().expect("ticks") / 100.0;
    [seconds(11) + seconds(12), seconds(13) + seconds(14)]
}

/// What a child has used so far.
pub(crate) fn cpu_seconds(child: &Child) -> f64 {
    cpu_times(&child.id().to_string())[0]
}

/// What a child and its own children have used so far.
pub(crate) fn cpu_seconds_with_children(child: &Child) -> f64 {
    cpu_times(&child.id().to_string()).iter().sum()
}

/// What this process and its children have used so far.
pub(crate) fn own_cpu_seconds() -> f64 {
    cpu_times("self").iter().sum()
}

pub(crate) fn resident_mebibytes(child: &Child) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("the child lives");
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).expect("VmRSS");
    line.trim().trim_end_matches(" kB").parse::<f64>().expect("kB") / 1024.0
}
