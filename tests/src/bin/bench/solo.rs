//! The embedded store compared with a single etcd, on the same disk, one after the other.

use crate::measure::{cpu_seconds, resident_mebibytes};
use crate::processes::{Etcd, beside, load, wait};
use crate::report::Report;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// One of the two stores, as a process.
pub(crate) struct Server {
    child: Child,
    pub(crate) endpoint: String,
    _directory: tempfile::TempDir,
}

impl Server {
    fn etcd() -> Self {
        let (child, endpoint, directory) = Etcd::start().into_parts();
        Self { child, endpoint, _directory: directory }
    }

    pub(crate) fn solo() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let [port] = tests::process::free_ports();
        let address = format!("127.0.0.1:{port}");
        let child = Command::new(beside("solo-etcd"))
            .args(["--listen", &address, "--data-dir"])
            .arg(directory.path().join("data"))
            .stdout(Stdio::null())
            .spawn()
            .expect("solo-etcd");
        wait(Duration::from_secs(20), || std::net::TcpStream::connect(&address).ok());
        Self { child, endpoint: format!("http://{address}"), _directory: directory }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Measures both stores; returns the results of solo-etcd and of etcd.
fn on_both<T>(measure: impl Fn(&Server) -> T) -> (T, T) {
    let theirs = measure(&Server::etcd());
    (measure(&Server::solo()), theirs)
}

/// Returns the operations per second, the 99th percentile in milliseconds, and the store's CPU time
/// for each operation in microseconds.
fn throughput(server: &Server, kind: &str, clients: usize) -> [f64; 3] {
    let before = cpu_seconds(&server.child);
    let numbers = load(&["writes", &server.endpoint, kind, &clients.to_string(), "4"]);
    [numbers[0], numbers[1], (cpu_seconds(&server.child) - before) * 1e6 / numbers[2]]
}

pub(crate) fn solo(report: &mut Report) {
    for (kind, clients) in [("put", 1), ("put", 16), ("put", 100), ("txn", 16)] {
        let (ours, theirs) = on_both(|server| throughput(server, kind, clients));
        let what = match kind {
            "put" => format!("puts by {clients} clients"),
            _ => format!("transactions (compare, put, 2 deletes) by {clients} clients"),
        };
        let row = |report: &mut Report, of: &str, unit: &str, index: usize, ratio: f64| {
            report.row(
                &format!("solo-etcd, {what}: {of}"),
                format!("{:.1} {unit}", ours[index]),
                format!("{:.1} {unit} etcd", theirs[index]),
                ratio,
                1.0,
            );
        };
        row(report, "time for each", "/s", 0, theirs[0] / ours[0]);
        row(report, "p99", "ms", 1, ours[1] / theirs[1]);
        row(report, "CPU of the store for each", "µs", 2, ours[2] / theirs[2]);
    }
    let (ours, theirs) = on_both(|server| {
        let idle = resident_mebibytes(&server.child);
        load(&["keys", &server.endpoint, "100000"]);
        let before = cpu_seconds(&server.child);
        load(&["list", &server.endpoint, "10"]);
        // In milliseconds for each of ten lists.
        let list = (cpu_seconds(&server.child) - before) * 100.0;
        [idle, resident_mebibytes(&server.child), list]
    });
    for (index, what, unit, bound) in [
        (0, "idle, resident", "MiB", 0.5),
        (1, "with 100000 keys, resident", "MiB", 0.5),
        (2, "keys-only range of 100000 keys: CPU of the store", "ms", 1.0),
    ] {
        let (a, b) = (ours[index], theirs[index]);
        report.row(
            &format!("solo-etcd, {what}"),
            format!("{a:.1} {unit}"),
            format!("{b:.1} {unit} etcd"),
            a / b,
            bound,
        );
    }
    let (ours, theirs) =
        on_both(|server| load(&["propagation", &server.endpoint, "1000", "bare", "20", "0"])[0]);
    report.row(
        "solo-etcd, one event to 1000 watchers, p99",
        format!("{ours:.1} ms"),
        format!("{theirs:.1} ms etcd"),
        ours / theirs,
        1.0,
    );
    first_put(report);
}

/// Measures the time from the start of the process to the first put that is answered.
fn first_put(report: &mut Report) {
    let median = |start: &dyn Fn() -> Server| {
        let mut times: Vec<f64> = (0..7)
            .map(|_| {
                let begin = Instant::now();
                let server = start();
                let store = tests::store::Store::connect(std::slice::from_ref(&server.endpoint));
                store.put("k", "v");
                begin.elapsed().as_secs_f64() * 1000.0
            })
            .collect();
        times.sort_by(f64::total_cmp);
        times[3]
    };
    let (ours, theirs) = (median(&Server::solo), median(&Server::etcd));
    report.row(
        "solo-etcd, process start to first put",
        format!("{ours:.1} ms"),
        format!("{theirs:.1} ms etcd"),
        ours,
        15.0,
    );
}
