//! The observer of a large fleet: how soon it shows it, what it needs, and how soon it shows a change.

use crate::measure::{cpu_seconds, percentile, resident_mebibytes};
use crate::processes::{bench, beside, load, millis, wait};
use crate::report::Report;
use crate::solo::Server;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const HOSTS: &str = "10000";
/// What readers ask for, in turn.
const PAGES: [&str; 5] = ["/v1/status", "/v1/hosts", "/v1/failures", "/v1/services", "/v1/hosts/h000001"];
const PAGES_EACH_SECOND: u32 = 100;
const CHANGES_EACH_SECOND: u32 = 50;
/// How long changes and readers come.
const LOAD_TIME: Duration = Duration::from_secs(20);

/// A process that ends when this is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a request to an observer that is open to local users; returns the body if the answer is a success.
fn get(address: &str, path: &str) -> Option<String> {
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
        cpu: cpu_seconds(&process.0),
        mebibytes: resident_mebibytes(&process.0),
    }
}

/// Returns the revision that an observer shows.
fn shown_revision(address: &str) -> i64 {
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
    let bare = mirror(&["bare", "mirror", &store.endpoint]);
    let ours = mirror(&["load", "assembly", &store.endpoint]);
    let keys = bare.keys.trim();
    assert_eq!(keys, ours.keys.trim());
    let (a, b) = (ours.mebibytes, bare.mebibytes);
    let what = format!("observer's mirror, {keys}: memory");
    report.row(&what, format!("{a:.0} MiB"), format!("{b:.0} MiB bare mirror"), a / b, 1.5);
    let (a, b) = (ours.cpu, bare.cpu);
    let what = format!("observer's mirror, {keys}: CPU time");
    report.row(&what, format!("{a:.2} s"), format!("{b:.2} s bare mirror"), a / b, 1.5);

    let directory = tempfile::tempdir().expect("a directory");
    let [port] = tests::process::free_ports();
    let address = format!("127.0.0.1:{port}");
    let settings = directory.path().join("observer.toml");
    let text = format!(
        "state_directory = {:?}\n[store]\nendpoints = [{:?}]\n[http]\nlisten = {address:?}\nopen_to_local_users = true\n[log]\nlevel = \"warn\"\n",
        directory.path(),
        store.endpoint
    );
    std::fs::write(&settings, text).expect("written");
    let mut command = Command::new(beside("orchestrate-observer"));
    let began = Instant::now();
    let observer = Process(command.arg("--config").arg(&settings).spawn().expect("the observer"));
    wait(Duration::from_secs(60), || get(&address, "/v1/health"));
    let took = began.elapsed();
    let memory = resident_mebibytes(&observer.0);
    let viewed = Instant::now();
    get(&address, "/v1/status").expect("a view");
    let first_view = viewed.elapsed();
    let what = format!("observer, {HOSTS} hosts: start to fresh");
    let yardstick = format!("{:.0} ms bare mirror", millis(bare.took));
    report.row(&what, format!("{:.0} ms", millis(took)), yardstick, millis(took), 3000.0);
    let what = format!("observer, {HOSTS} hosts: first view after that");
    report.row(&what, format!("{:.0} ms", millis(first_view)), "-".into(), millis(first_view), 1000.0);
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

/// Compares the verdicts after one change with those of the whole fleet anew.
fn verdicts(report: &mut Report, server: &Server) {
    let measured = mirror(&["load", "verdicts", &server.endpoint]).keys;
    let numbers: Vec<f64> =
        measured.split_whitespace().map(|number| number.parse().expect("a number")).collect();
    let [whole, one] = numbers[..] else { panic!("{measured}") };
    let what = format!("verdicts of {HOSTS} hosts after one change, percent");
    report.row(&what, format!("{one:.3} ms"), format!("{whole:.0} ms anew"), one / whole * 100.0, 1.0);
}

/// Measures while changes and readers come.
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
    let pages = reads.join().expect("the readers");
    times.sort_by(f64::total_cmp);
    let rates = format!(
        "{:.0} changes and {:.0} pages a second",
        f64::from(count) / LOAD_TIME.as_secs_f64(),
        f64::from(pages) / LOAD_TIME.as_secs_f64()
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
