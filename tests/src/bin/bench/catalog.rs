//! The catalog: full renders, small changes, and the cost of holding and checking it.

use crate::measure::{all_in_turn, cpu_seconds, cpu_seconds_with_children, percentile, resident_mebibytes};
use crate::names::addresses_of;
use crate::processes::{Agent, Etcd, Setup, bench, load, millis, orchestrate, wait};
use crate::report::Report;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Number of services of a big catalog; its entries are distributed evenly among them.
const SERVICES: usize = 100;
const CHANGES: usize = 10;
const BLOCKS: usize = 5;
/// Number of changes in each block, for each of the two ways to observe them.
const FLIPS: usize = 50;
const SETTLED_AFTER: Duration = Duration::from_millis(300);
const CHECKS: usize = 1000;
const CHECK_SECONDS: u64 = 60;

pub(crate) fn catalog(report: &mut Report) {
    for entries in [10_000, 100_000] {
        let etcd = Etcd::start();
        load(&["services", &etcd.endpoint, &SERVICES.to_string(), &(entries / SERVICES).to_string()]);
        let bare = render(report, &etcd, entries);
        if entries == 10_000 {
            first_answer(report, &etcd, bare);
        } else {
            one_change(report, &etcd);
        }
    }
}

/// Measures a program that starts, writes the whole catalog into a file and ends; returns the
/// milliseconds of the first yardstick.
fn render(report: &mut Report, etcd: &Etcd, entries: usize) -> f64 {
    let directory = tempfile::tempdir().expect("a directory");
    let [ours_file, bare_file, second_file] =
        ["ours.yaml", "bare.yaml", "second.yaml"].map(|name| directory.path().join(name));
    let ours = || {
        // The file does not exist the first time.
        let _ = std::fs::remove_file(&ours_file);
        let mut command = orchestrate(&etcd.endpoint, &["cache_services"]);
        command.env("ORCHESTRATE_HIERA_FILE", &ours_file);
        command
    };
    let yardstick =
        |name: &str, file: &Path| bench(&["bare", name, &etcd.endpoint, file.to_str().expect("text")]);
    let bare = || yardstick("render", &bare_file);
    let second = || yardstick("render-again", &second_file);
    // A run of 30 ms needs more rounds than a run of half a second.
    let rounds = if entries > 10_000 { 15 } else { 61 };
    let [ours, bare, second] = all_in_turn(rounds, [&ours, &bare, &second]);
    let written = |file: &Path| std::fs::read(file).expect("written");
    assert_eq!(written(&ours_file), written(&bare_file));
    assert_eq!(written(&ours_file), written(&second_file));
    for (against, program, theirs) in [
        ("", "bare range, parse, dump, fsync, rename", bare),
        (", against a second bare program", "the same by a second bare program", second),
    ] {
        for (of, ours, theirs) in [("wall", ours.wall, theirs.wall), ("CPU", ours.cpu, theirs.cpu)] {
            let (ours, theirs) = (millis(ours), millis(theirs));
            report.row(
                &format!("cache_services, {entries} entries: {of}{against}"),
                format!("{ours:.1} ms"),
                format!("{theirs:.1} ms {program}"),
                ours / theirs,
                1.2,
            );
        }
    }
    millis(bare.wall)
}

fn with_names(port: u16, rest: &str) -> String {
    format!("[dns]\nlisten = [\"127.0.0.1:{port}\"]\n{rest}")
}

/// Measures the time from the start of an agent without a cache to its first answer. The bound
/// corresponds to 80 ms on a machine where the yardstick takes 34 ms.
fn first_answer(report: &mut Report, etcd: &Etcd, bare: f64) {
    let mut times: Vec<f64> = (0..7)
        .map(|n| {
            let [port] = tests::process::free_ports();
            let settings = |_: &Path| with_names(port, "");
            let setup = Setup { settings: Some(&settings), ..Setup::default() };
            let agent = Agent::start(&format!("n{n}"), &etcd.endpoint, &setup);
            wait(Duration::from_secs(20), || (addresses_of("s007", port)? > 0).then_some(()));
            millis(agent.started.elapsed())
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let middle = times[times.len() / 2];
    report.row(
        "agent with 10000 entries, start to first DNS answer",
        format!("{middle:.1} ms"),
        format!("{bare:.1} ms bare range, parse, dump, fsync, rename"),
        middle / bare,
        2.35,
    );
}

/// Measures the cost of holding 100,000 entries, and of following a change of one of them.
fn one_change(report: &mut Report, etcd: &Etcd) {
    let [port] = tests::process::free_ports();
    let settings = |directory: &Path| {
        with_names(port, &format!("[catalog]\nhiera_file = {:?}\n", directory.join("services.yaml")))
    };
    let setup = Setup { settings: Some(&settings), ..Setup::default() };
    let agent = Agent::start("holder", &etcd.endpoint, &setup);
    let file = agent.directory.path().join("services.yaml");
    wait(Duration::from_secs(60), || std::fs::read_to_string(&file).ok()?.contains("s099").then_some(()));
    wait(Duration::from_secs(20), || (addresses_of("s007", port)? > 0).then_some(()));
    std::thread::sleep(Duration::from_secs(2));
    let store = tests::store::Store::connect(std::slice::from_ref(&etcd.endpoint));
    let before = cpu_seconds(&agent.child);
    for round in 0..CHANGES {
        let ip = format!("10.200.0.{}", round + 1);
        store.put("/available_services/s007/h00003", &record("h00003", &ip));
        wait(Duration::from_secs(20), || std::fs::read_to_string(&file).ok()?.contains(&ip).then_some(()));
        // The other file is written after this one.
        std::thread::sleep(Duration::from_secs(1));
    }
    let ours = (cpu_seconds(&agent.child) - before) * 1000.0 / CHANGES as f64;
    let bare = load(&["dumps", &etcd.endpoint, &CHANGES.to_string()])[0];
    report.row(
        "agent with 100000 entries, one of them changes: CPU",
        format!("{ours:.1} ms"),
        format!("{bare:.1} ms bare dump, fsync, rename"),
        ours / bare,
        1.0,
    );
    let resident = resident_mebibytes(&agent.child);
    report.row(
        "agent with 100000 entries, resident",
        format!("{resident:.1} MiB"),
        "a thousand bytes each".into(),
        resident,
        80.0,
    );
}

/// Returns the record of a host without an agent.
pub(crate) fn record(host: &str, ip: &str) -> String {
    format!(
        r#"{{"format":1,"host":"{host}","interfaces":{{"eth0":["{ip}"],"lo":["127.0.0.1"]}},"addresses":["{ip}"],"port":80}}"#
    )
}

/// Sends the agent a result of one of its checks.
fn tell(socket: &Path, result: &str, check: &str) {
    let mut stream = UnixStream::connect(socket).expect("the agent's socket");
    write!(stream, "PUT /v1/agent/check/{result}/{check} HTTP/1.0\r\nHost: agent\r\n\r\n").expect("told");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.contains(" 200 "), "{answer}");
}

/// Measures the time from the failure of a check on one host to the names and files of another.
pub(crate) fn failing_check(report: &mut Report) {
    let etcd = Etcd::start();
    let [port] = tests::process::free_ports();
    let publisher = |directory: &Path| {
        let services = directory.join("services.d");
        std::fs::create_dir_all(&services).expect("a directory");
        let file =
            r#"{"service": {"name": "db", "port": 5432, "check": {"ttl": "600s", "status": "passing"}}}"#;
        std::fs::write(services.join("db.json"), file).expect("written");
        format!("[services]\ndirectories = [{services:?}]\naddresses = [\"127.0.0.1\"]\n")
    };
    let follower = |directory: &Path| {
        let (source, target) = (directory.join("backends.template"), directory.join("backends"));
        std::fs::write(&source, "{% for i in service('db') %}{{ i.host }} {% endfor %}.\n").expect("written");
        let template = format!("[[template]]\nsource = {source:?}\ntarget = {target:?}\ndebounce = \"0s\"\n");
        with_names(port, &template)
    };
    let setup = Setup { settings: Some(&publisher), ..Setup::default() };
    let publisher = Agent::start("db1", &etcd.endpoint, &setup);
    let setup = Setup { settings: Some(&follower), ..Setup::default() };
    let follower = Agent::start("lb1", &etcd.endpoint, &setup);
    let socket = publisher.directory.path().join("socket");
    let target = follower.directory.path().join("backends");
    let named = |count: usize| (addresses_of("db", port)? == count).then_some(());
    let rendered = |text: &str| (std::fs::read_to_string(&target).ok()? == text).then_some(());
    // The measurement runs in blocks, because the store's disk does not perform the same from
    // minute to minute. The result is the median of the 99th percentiles of the blocks.
    let mut blocks: [Vec<f64>; 3] = Default::default();
    for _ in 0..BLOCKS {
        let mut delays: [Vec<f64>; 3] = Default::default();
        for flip in 0..2 * FLIPS {
            wait(Duration::from_secs(20), || socket.exists().then_some(()));
            tell(&socket, "pass", "service:db");
            wait(Duration::from_secs(20), || named(1));
            wait(Duration::from_secs(20), || rendered("db1 .\n"));
            // Effects of the previous change are on disk by then.
            std::thread::sleep(SETTLED_AFTER);
            let begin = Instant::now();
            tell(&socket, "fail", "service:db");
            // The two alternate, because polling one would delay the other.
            if flip % 2 == 0 {
                spin(|| named(0));
            } else {
                spin(|| rendered(".\n"));
            }
            delays[flip % 2].push(millis(begin.elapsed()));
        }
        let (rounds, pause) = (FLIPS.to_string(), SETTLED_AFTER.as_millis().to_string());
        delays[2] = load(&["propagation", &etcd.endpoint, "1", "bare", &rounds, &pause])[1..].to_vec();
        for (delays, block) in delays.iter_mut().zip(&mut blocks) {
            delays.sort_by(f64::total_cmp);
            block.push(percentile(delays, 99.0));
        }
    }
    let [dns, file, bare] = blocks.map(|mut block| {
        block.sort_by(f64::total_cmp);
        percentile(&block, 50.0)
    });
    for (ours, what) in [(dns, "gone from DNS"), (file, "out of a rendered file")] {
        report.row(
            &format!("a check fails on one host until it is {what} on another, p99: ms over the yardstick"),
            format!("{ours:.1} ms"),
            format!("{bare:.1} ms bare watch delivery"),
            (ours - bare).max(0.0),
            5.0,
        );
    }
}

/// Polls with a pause that is too short to matter.
fn spin(mut look: impl FnMut() -> Option<()>) {
    let begin = Instant::now();
    while look().is_none() {
        assert!(begin.elapsed() < Duration::from_secs(20), "not within 20 s");
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Measures many checks on one agent, and at the same time a loop that runs the same commands,
/// because the cost of starting a process is not the same from minute to minute.
pub(crate) fn checks(report: &mut Report) {
    let etcd = Etcd::start();
    let settings = |directory: &Path| {
        let services = directory.join("services.d");
        std::fs::create_dir_all(&services).expect("a directory");
        let mut file = String::from("{\"services\": [\n");
        for n in 0..CHECKS {
            let separator = if n == 0 { "" } else { ",\n" };
            let check = r#"{"args": ["/bin/true"], "interval": "10s"}"#;
            let _ = write!(file, r#"{separator}{{"name": "c{n:04}", "port": 80, "check": {check}}}"#);
        }
        file.push_str("\n]}\n");
        std::fs::write(services.join("many.json"), file).expect("written");
        format!("[services]\ndirectories = [{services:?}]\naddresses = [\"127.0.0.1\"]\n")
    };
    let setup = Setup { settings: Some(&settings), ..Setup::default() };
    let agent = Agent::start("checker", &etcd.endpoint, &setup);
    let store = tests::store::Store::connect(std::slice::from_ref(&etcd.endpoint));
    let all_pass =
        || store.list("/orchestrate/health/").values().filter(|v| *v == "passing").count() == CHECKS;
    wait(Duration::from_secs(60), || all_pass().then_some(()));
    let before = cpu_seconds_with_children(&agent.child);
    let bare = load(&["commands", &(CHECKS / 10).to_string(), &CHECK_SECONDS.to_string()])[0];
    let ours = cpu_seconds_with_children(&agent.child) - before;
    let percent = |seconds: f64| seconds / CHECK_SECONDS as f64 * 100.0;
    report.row(
        "1000 checks every 10 s: per cent of a core beyond the commands",
        format!("{:.1} % with them", percent(ours)),
        format!("{:.1} % a bare loop with the same commands", percent(bare)),
        percent(ours - bare).max(0.0),
        2.0,
    );
}
