//! Metrics of this process from the kernel, under the names that every Prometheus library uses.
//! `etcdctl check datascale` reads the memory from them.

use rustix::process::{Resource, getrlimit};
use std::path::Path;

/// Clock ticks per second in `/proc`; the same on every machine on which this program runs.
const TICKS: f64 = 100.0;
/// Fields of `/proc/self/stat` after the program name, counted from 0. proc_pid_stat(5) counts from
/// 1 and includes the two fields before.
const USER_TICKS: usize = 11;
const SYSTEM_TICKS: usize = 12;
const START_TICKS: usize = 19;

/// Whether a figure only rises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FigureKind {
    /// The value rises, from the start of the process.
    Counter,
    /// The value rises and falls.
    Gauge,
}

/// One figure about this process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figure {
    /// The name of its metric.
    pub name: &'static str,
    pub help: &'static str,
    /// Whether it only rises.
    pub kind: FigureKind,
    /// Its value, in the unit that the name ends with.
    pub value: f64,
}

/// Returns the figures about this process, without those that cannot be read.
pub fn figures() -> Vec<Figure> {
    let read = |name: &str| std::fs::read_to_string(Path::new("/proc").join(name)).unwrap_or_default();
    let mut found = figures_from(&read("self/stat"), &read("self/status"), &read("stat"));
    // One of the entries is the directory itself, which is open while it is read.
    let open = std::fs::read_dir("/proc/self/fd").map(|entries| entries.count().saturating_sub(1));
    let gauge = |name, help, value| Figure { name, help, kind: FigureKind::Gauge, value };
    found.extend(open.ok().map(|open| gauge("process_open_fds", "Open file descriptors", open as f64)));
    let most = |resource| getrlimit(resource).current.map_or(f64::INFINITY, |most| most as f64);
    let help = "Largest number of open file descriptors";
    found.push(gauge("process_max_fds", help, most(Resource::Nofile)));
    found.push(gauge("process_virtual_memory_max_bytes", "Largest virtual memory", most(Resource::As)));
    found
}

/// Extracts figures from the texts of `/proc/self/stat`, `/proc/self/status` and `/proc/stat`.
fn figures_from(stat: &str, status: &str, machine: &str) -> Vec<Figure> {
    // The program name may contain spaces and brackets.
    let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
    let fields: Vec<f64> = behind.split_whitespace().map(|field| field.parse().unwrap_or(f64::NAN)).collect();
    let seconds = |field: usize| fields.get(field).filter(|ticks| !ticks.is_nan()).map(|ticks| ticks / TICKS);
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok()? * 1024.0)
    };
    let booted = machine.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse::<f64>().ok());
    let used = seconds(USER_TICKS).zip(seconds(SYSTEM_TICKS)).map(|(user, system)| user + system);
    let started = booted.zip(seconds(START_TICKS)).map(|(booted, after)| booted + after);
    let (counter, gauge) = (FigureKind::Counter, FigureKind::Gauge);
    let found = [
        ("process_cpu_seconds_total", "Processor time used", counter, used),
        ("process_start_time_seconds", "When the process started, in seconds since 1970", gauge, started),
        ("process_resident_memory_bytes", "Resident memory", gauge, bytes("VmRSS")),
        ("process_virtual_memory_bytes", "Virtual memory", gauge, bytes("VmSize")),
    ];
    let figure = |(name, help, kind, value)| Some(Figure { name, help, kind, value: value? });
    found.into_iter().filter_map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_tells_is_read_and_what_it_does_not_tell_is_left_out() {
        let stat = "7 (solo) etcd) S 1 7 7 0 -1 4194560 1 2 3 4 150 50 0 0 20 0 4 0 2500 1048576 256 1";
        let status = "Name:\tsolo-etcd\nVmSize:\t    1024 kB\nVmRSS:\t     512 kB\n";
        let check = |stat: &str, status: &str, machine: &str, expected: &[(&str, f64)]| {
            let found: Vec<_> = figures_from(stat, status, machine)
                .into_iter()
                .map(|figure| (figure.name, figure.value))
                .collect();
            assert_eq!(found, expected, "{stat:?}");
        };
        check(
            stat,
            status,
            "cpu 1 2\nbtime 1000\n",
            &[
                ("process_cpu_seconds_total", 2.0),
                ("process_start_time_seconds", 1025.0),
                ("process_resident_memory_bytes", 524_288.0),
                ("process_virtual_memory_bytes", 1_048_576.0),
            ],
        );
        check(stat, "", "", &[("process_cpu_seconds_total", 2.0)]);
        check("", "", "", &[]);
    }
}
