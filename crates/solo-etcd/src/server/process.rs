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

/// Returns the text for `/metrics`, without the values that cannot be read.
pub(super) fn metrics() -> String {
    let read = |name: &str| std::fs::read_to_string(Path::new("/proc").join(name)).unwrap_or_default();
    let mut found = metrics_from(&read("self/stat"), &read("self/status"), &read("stat"));
    // One of the entries is the directory itself, which is open while it is read.
    let open = std::fs::read_dir("/proc/self/fd").map(|entries| entries.count().saturating_sub(1));
    found.extend(open.ok().map(|open| ("process_open_fds", "gauge", open as f64)));
    let most = |resource| getrlimit(resource).current.map_or(f64::INFINITY, |most| most as f64);
    found.push(("process_max_fds", "gauge", most(Resource::Nofile)));
    found.push(("process_virtual_memory_max_bytes", "gauge", most(Resource::As)));
    let lines = found.into_iter().map(|(name, kind, value)| {
        let value = if value == f64::INFINITY { "+Inf".to_owned() } else { value.to_string() };
        format!("# TYPE {name} {kind}\n{name} {value}\n")
    });
    lines.collect()
}

type Metric = (&'static str, &'static str, f64);

/// Extracts metrics from the texts of `/proc/self/stat`, `/proc/self/status` and `/proc/stat`.
fn metrics_from(stat: &str, status: &str, machine: &str) -> Vec<Metric> {
    // The program name may contain spaces and brackets.
    let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
    let fields: Vec<f64> = behind.split_whitespace().map(|field| field.parse().unwrap_or(f64::NAN)).collect();
    let seconds = |field: usize| fields.get(field).filter(|ticks| !ticks.is_nan()).map(|ticks| ticks / TICKS);
    let kibibytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok()
    };
    let booted = machine.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse::<f64>().ok());
    let used = seconds(USER_TICKS).zip(seconds(SYSTEM_TICKS)).map(|(user, system)| user + system);
    let started = booted.zip(seconds(START_TICKS)).map(|(booted, after)| booted + after);
    let found = [
        ("process_cpu_seconds_total", "counter", used),
        ("process_start_time_seconds", "gauge", started),
        ("process_resident_memory_bytes", "gauge", kibibytes("VmRSS").map(|n| n * 1024.0)),
        ("process_virtual_memory_bytes", "gauge", kibibytes("VmSize").map(|n| n * 1024.0)),
    ];
    found.into_iter().filter_map(|(name, kind, value)| Some((name, kind, value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_tells_is_read_and_what_it_does_not_tell_is_left_out() {
        let stat = "7 (solo) etcd) S 1 7 7 0 -1 4194560 1 2 3 4 150 50 0 0 20 0 4 0 2500 1048576 256 1";
        let status = "Name:\tsolo-etcd\nVmSize:\t    1024 kB\nVmRSS:\t     512 kB\n";
        let check = |stat: &str, status: &str, machine: &str, expected: &[(&str, f64)]| {
            let found: Vec<_> = metrics_from(stat, status, machine)
                .into_iter()
                .map(|(name, _, value)| (name, value))
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
