//! The observer of a large fleet: how soon it shows it, what it needs, and how soon it shows a change.

use crate::measure::{cpu_seconds, cpu_seconds_of_threads, percentile, resident_mebibytes};
use crate::processes::{bench, beside, load, millis, wait};
use crate::report::Report;
use crate::solo::Server;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) const HOSTS: &str = "10000";
/// What readers ask for, in turn.
const PAGES: [&str; 8] = [
    "/",
    "/v1/status",
    "/v1/hosts",
    "/rollouts",
    "/v1/failures",
    "/v1/services",
    "/hosts?verdict=lost",
    "/v1/hosts/h000001",
];
const PAGES_EACH_SECOND: u32 = 100;
/// How many clients follow the stream.
const OPEN_PAGES: usize = 100;
const CHANGES_EACH_SECOND: u32 = 50;
/// How often each mirror is measured.
const MIRROR_ROUNDS: usize = 9;
/// How long changes and readers come.
const LOAD_TIME: Duration = Duration::from_secs(20);

/// A process that ends when this is dropped.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a request to an observer that is open to local users; returns the body if the answer is a success.
pub(crate) fn get(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    head.contains(" 200 ").then(|| body.to_owned())
}

/// What a process needed to hold everything in the store.
struct Mirrored {
    keys: String,
    took: Duration,
    cpu: f64,
    mebibytes: f64,
}

/// Runs a program that mirrors a store until it has everything.
fn mirror(words: &[&str]) -> Mirrored {
    let began = Instant::now();
    let mut process = Process(bench(words).stdout(Stdio::piped()).spawn().expect("bench"));
    let mut keys = String::new();
    BufReader::new(process.0.stdout.take().expect("piped")).read_line(&mut keys).expect("ready");
    Mirrored {
        keys,
        took: began.elapsed(),
        cpu: cpu_seconds_of_threads(&process.0),
        mebibytes: resident_mebibytes(&process.0),
    }
}

/// Returns the medians of a bare mirror and of the observer's, which run in turn.
fn mirrors(store: &Server) -> [Mirrored; 2] {
    let mut runs = [Vec::new(), Vec::new()];
    for round in 0..=MIRROR_ROUNDS {
        let measured = [["bare", "mirror"], ["load", "assembly"]]
            .map(|[kind, name]| mirror(&[kind, name, &store.endpoint]));
        // The first round only warms the caches.
        if round > 0 {
            runs.iter_mut().zip(measured).for_each(|(runs, run)| runs.push(run));
        }
    }
    runs.map(|mut runs| {
        let middle = |runs: &mut Vec<Mirrored>, figure: fn(&Mirrored) -> f64| {
            runs.sort_by(|a, b| figure(a).total_cmp(&figure(b)));
            figure(&runs[runs.len() / 2])
        };
        Mirrored {
            cpu: middle(&mut runs, |run| run.cpu),
            mebibytes: middle(&mut runs, |run| run.mebibytes),
            took: Duration::from_secs_f64(middle(&mut runs, |run| run.took.as_secs_f64())),
            keys: runs.remove(0).keys,
        }
    })
}

/// Returns the revision that an observer shows.
pub(crate) fn shown_revision(address: &str) -> i64 {
    let health = get(address, "/v1/health").unwrap_or_default();
    let health: serde_json::Value = serde_json::from_str(&health).unwrap_or_default();
    health["revision"].as_i64().unwrap_or_default()
}

pub(crate) fn observer(report: &mut Report) {
    // Not the etcd of the distribution, whose progress the observer may have to confirm by reads.
    let store = Server::solo();
    load(&["fill", &store.endpoint, HOSTS]);
    load(&["reports", &store.endpoint, HOSTS]);
    load(&["services", &store.endpoint, "20", "1000"]);
    verdicts(report, &store);
    let [bare, ours] = mirrors(&store);
    let keys = bare.keys.trim();
    assert_eq!(keys, ours.keys.trim());
    let (a, b) = (ours.mebibytes, bare.mebibytes);
    let what = format!("observer's mirror, {keys}: memory");
    report.row(&what, format!("{a:.0} MiB"), format!("{b:.0} MiB bare mirror"), a / b, 1.5);
    let (a, b) = (ours.cpu, bare.cpu);
    let what = format!("observer's mirror, {keys}: CPU time");
    report.row(
        &what,
        format!("{:.0} ms", a * 1000.0),
        format!("{:.0} ms bare mirror", b * 1000.0),
        a / b,
        1.5,
    );

    let directory = tempfile::tempdir().expect("a directory");
    let began = Instant::now();
    let (observer, address) = start(&store, directory.path(), "");
    wait(Duration::from_secs(60), || get(&address, "/v1/health"));
    let took = began.elapsed();
    let memory = resident_mebibytes(&observer.0);
    let first = ["/v1/status", "/", "/services"].map(|path| {
        let began = Instant::now();
        get(&address, path).expect("a view");
        (path, millis(began.elapsed()))
    });
    let what = format!("observer, {HOSTS} hosts: start to fresh");
    let yardstick = format!("{:.0} ms bare mirror", millis(bare.took));
    report.row(&what, format!("{:.0} ms", millis(took)), yardstick, millis(took), 3000.0);
    for (path, took) in first {
        let what = format!("observer, {HOSTS} hosts: {path} for the first time after that");
        report.row(&what, format!("{took:.0} ms"), "-".into(), took, 1000.0);
    }
    let what = format!("observer, {keys}: memory once it is fresh, MiB");
    report.row(
        &what,
        format!("{memory:.0} MiB"),
        format!("{:.0} MiB bare mirror", bare.mebibytes),
        memory,
        200.0,
    );
    under_load(report, &store, &address, &observer);
}

/// Starts an observer that is open to local users, with its state in a directory. Returns its address.
pub(crate) fn start(store: &Server, directory: &Path, tables: &str) -> (Process, String) {
    let [port] = tests::process::free_ports();
    let address = format!("127.0.0.1:{port}");
    let settings = directory.join("observer.toml");
    let text = format!(
        "state_directory = {directory:?}\n[store]\nendpoints = [{:?}]\n[http]\nlisten = {address:?}\nopen_to_local_users = true\n[log]\nlevel = \"warn\"\n{tables}",
        store.endpoint
    );
    std::fs::write(&settings, text).expect("written");
    let mut command = Command::new(beside("orchestrate-observer"));
    (Process(command.arg("--config").arg(&settings).spawn().expect("the observer")), address)
}

/// Compares the verdicts after one change with those of the whole fleet.
fn verdicts(report: &mut Report, server: &Server) {
    let measured = mirror(&["load", "verdicts", &server.endpoint]).keys;
    let numbers: Vec<f64> =
        measured.split_whitespace().map(|number| number.parse().expect("a number")).collect();
    let [whole, one] = numbers[..] else { panic!("{measured}") };
    let what = format!("verdicts of {HOSTS} hosts after one change, percent");
    report.row(&what, format!("{one:.3} ms"), format!("{whole:.0} ms for all"), one / whole * 100.0, 1.0);
}

/// Follows the stream as a page does; returns the number of bytes that came before the end.
fn follow_stream(address: &str, end: Instant) -> usize {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a time limit");
    write!(stream, "GET /v1/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").expect("sent");
    let (mut buffer, mut count) = ([0; 4096], 0);
    while Instant::now() < end {
        let read = stream.read(&mut buffer).expect("an event");
        assert!(read > 0, "the stream ended: {}", String::from_utf8_lossy(&buffer));
        count += read;
    }
    count
}

/// Measures while changes and readers come, and open pages follow the stream.
fn under_load(report: &mut Report, server: &Server, address: &str, observer: &Process) {
    let end = Instant::now() + LOAD_TIME;
    let reads = {
        let address = address.to_owned();
        std::thread::spawn(move || {
            let each = Duration::from_secs(1) / PAGES_EACH_SECOND;
            let begin = Instant::now();
            let mut count = 0u32;
            while Instant::now() < end {
                get(&address, PAGES[count as usize % PAGES.len()]).expect("a page");
                count += 1;
                std::thread::sleep((begin + each * count).saturating_duration_since(Instant::now()));
            }
            count
        })
    };
    let pages: Vec<_> = (0..OPEN_PAGES)
        .map(|_| {
            let address = address.to_owned();
            std::thread::spawn(move || follow_stream(&address, end))
        })
        .collect();
    let began = (Instant::now(), cpu_seconds(&observer.0));
    let store = tests::store::Store::connect(std::slice::from_ref(&server.endpoint));
    let (mut times, mut count) = (Vec::new(), 0u32);
    let each = Duration::from_secs(1) / CHANGES_EACH_SECOND;
    // The changes whose revision the observer has not shown yet.
    let mut waiting: Vec<(i64, Instant)> = Vec::new();
    while Instant::now() < end || !waiting.is_empty() {
        let now = Instant::now();
        if now < end && now >= began.0 + each * count {
            let host = format!("h{:06}", count % 10_000);
            let value = format!(r#"{{"format":1,"at":{count},"version":"1","code":0,"reason":""}}"#);
            waiting.push((store.put(&format!("/status/validation/success/{host}"), &value), Instant::now()));
            count += 1;
        }
        let shown = shown_revision(address);
        let seen = Instant::now();
        waiting.retain(|(revision, written)| {
            if *revision > shown {
                return true;
            }
            times.push(seen.duration_since(*written).as_secs_f64() * 1000.0);
            false
        });
        std::thread::sleep(Duration::from_millis(5));
    }
    let (wall, used) = (began.0.elapsed().as_secs_f64(), cpu_seconds(&observer.0) - began.1);
    let bytes: Vec<usize> = pages.into_iter().map(|page| page.join().expect("a page")).collect();
    assert!(bytes.iter().all(|bytes| *bytes > 1000), "{bytes:?}");
    let reads = reads.join().expect("the readers");
    times.sort_by(f64::total_cmp);
    let rates = format!(
        "{:.0} changes and {:.0} requests a second, {OPEN_PAGES} open pages",
        f64::from(count) / LOAD_TIME.as_secs_f64(),
        f64::from(reads) / LOAD_TIME.as_secs_f64()
    );
    for (percent, bound) in [(50.0, 300.0), (99.0, 1000.0)] {
        let time = percentile(&times, percent);
        let what = format!("observer, {HOSTS} hosts: change to its view, p{percent:.0}");
        report.row(&what, format!("{time:.0} ms"), rates.clone(), time, bound);
    }
    let share = used / wall * 100.0;
    let what = format!("observer, {HOSTS} hosts: share of a core, percent");
    report.row(&what, format!("{share:.1} %"), rates.clone(), share, 10.0);
    let memory = resident_mebibytes(&observer.0);
    let what = format!("observer, {HOSTS} hosts: memory, MiB");
    report.row(&what, format!("{memory:.0} MiB"), rates, memory, 200.0);
}
