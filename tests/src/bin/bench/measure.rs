//! Wall time, processor time and memory of a child process: from start to exit, or so far.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use wait4::Wait4;

/// Cost of one run of a child process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
    pub(crate) peak_mebibytes: f64,
    pub(crate) code: i32,
}

/// Runs a command once and measures it.
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

/// Returns the medians of several runs of two commands. The runs alternate, so that both commands
/// see the same state of the machine.
pub(crate) fn in_turn(rounds: usize, one: &dyn Fn() -> Command, other: &dyn Fn() -> Command) -> (Cost, Cost) {
    let [one, other] = all_in_turn(rounds, [one, other]);
    (one, other)
}

/// Same as [`in_turn`] for any number of commands.
pub(crate) fn all_in_turn<const N: usize>(rounds: usize, commands: [&dyn Fn() -> Command; N]) -> [Cost; N] {
    // The first run of each command only warms the caches.
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

/// Returns a percentile of a sorted distribution.
pub(crate) fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let index = ((sorted.len() as f64 - 1.0) * percent / 100.0).round() as usize;
    sorted[index.min(sorted.len() - 1)]
}

/// Returns the user and system time so far, in seconds: of a process, and of its children that
/// ended. A clock tick is a hundredth of a second on every Linux that etcd supports.
fn cpu_times(process: &str) -> [f64; 2] {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("the process lives");
    let fields: Vec<&str> = stat[stat.rfind(')').expect("a name") + 2..].split(' ').collect();
    let seconds = |index: usize| fields[index].parse::<f64>().expect("ticks") / 100.0;
    [seconds(11) + seconds(12), seconds(13) + seconds(14)]
}

/// Returns the CPU seconds that a child has used so far.
pub(crate) fn cpu_seconds(child: &Child) -> f64 {
    cpu_times(&child.id().to_string())[0]
}

/// Returns the CPU seconds that the threads of a child have used so far, in nanoseconds rather than clock ticks. A
/// thread that has ended does not count any more.
pub(crate) fn cpu_seconds_of_threads(child: &Child) -> f64 {
    let threads = std::fs::read_dir(format!("/proc/{}/task", child.id())).expect("the child lives");
    let nanoseconds = |thread: std::io::Result<std::fs::DirEntry>| {
        let stat =
            std::fs::read_to_string(thread.expect("a thread").path().join("schedstat")).expect("schedstat");
        stat.split(' ').next().and_then(|spent| spent.parse::<f64>().ok()).expect("nanoseconds")
    };
    threads.map(nanoseconds).sum::<f64>() / 1e9
}

/// Returns the CPU seconds that a child and its own ended children have used so far.
pub(crate) fn cpu_seconds_with_children(child: &Child) -> f64 {
    cpu_times(&child.id().to_string()).iter().sum()
}

/// Returns the CPU seconds that this process and its ended children have used so far.
pub(crate) fn own_cpu_seconds() -> f64 {
    cpu_times("self").iter().sum()
}

pub(crate) fn resident_mebibytes(child: &Child) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("the child lives");
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).expect("VmRSS");
    line.trim().trim_end_matches(" kB").parse::<f64>().expect("kB") / 1024.0
}
