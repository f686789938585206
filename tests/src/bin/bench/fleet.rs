//! The measurements.

use crate::measure::{cpu_seconds, in_turn, once, resident_mebibytes};
use crate::report::Report;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A single etcd on disk, ended with this value.
pub(crate) struct Etcd {
    /// There until it is taken out.
    child: Option<Child>,
    endpoint: String,
    directory: Option<tempfile::TempDir>,
}

impl Etcd {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let [client, peer] = tests::process::free_ports();
        let endpoint = format!("http://127.0.0.1:{client}");
        let log = std::fs::File::create(directory.path().join("log")).expect("a log");
        let child = Command::new("etcd")
            .arg("--data-dir")
            .arg(directory.path().join("data"))
            .args(["--listen-client-urls", &endpoint, "--advertise-client-urls", &endpoint])
            .args(["--listen-peer-urls", &format!("http://127.0.0.1:{peer}"), "--log-level", "error"])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("etcd");
        let etcd = Self { child: Some(child), endpoint, directory: Some(directory) };
        wait(Duration::from_secs(30), || etcd.metrics().is_some().then_some(()));
        etcd
    }

    /// The process, its endpoint and its directory; whoever takes them ends them.
    pub(crate) fn into_parts(mut self) -> (Child, String, tempfile::TempDir) {
        let (child, directory) = (self.child.take(), self.directory.take());
        (child.expect("it runs"), self.endpoint.clone(), directory.expect("its directory"))
    }

    fn metrics(&self) -> Option<String> {
        http_get(self.endpoint.trim_start_matches("http://"), "/metrics")
    }

    /// Requests answered so far, by etcd's own count.
    fn requests(&self) -> f64 {
        let text = self.metrics().expect("metrics");
        let handled = text.lines().filter(|l| l.starts_with("grpc_server_handled_total"));
        let unary = |l: &&str| {
            l.contains("etcdserverpb.KV") || l.contains("LeaseGrant") || l.contains("LeaseKeepAlive")
        };
        handled.filter(unary).filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn http_get(address: &str, path: &str) -> Option<String> {
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.starts_with("HTTP/1.0 200").then_some(()).or(text.starts_with("HTTP/1.1 200").then_some(()))?;
    Some(text.split_once("\r\n\r\n")?.1.to_owned())
}

pub(crate) fn wait<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {limit:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn beside(name: &str) -> PathBuf {
    std::env::current_exe().expect("this program").with_file_name(name)
}

fn orchestrate(endpoint: &str, words: &[&str]) -> Command {
    let mut command = Command::new(beside("orchestrate"));
    command.args(words).env_clear().env("ORCHESTRATE_ENDPOINTS", endpoint).env("ORCHESTRATE_TIMEOUT", "60s");
    command.stdin(Stdio::null());
    command
}

fn bench(words: &[&str]) -> Command {
    let mut command = Command::new(beside("bench"));
    command.args(words).stdin(Stdio::null());
    command
}

pub(crate) fn load(words: &[&str]) -> Vec<f64> {
    let output = bench(&[&["load"], words].concat()).stderr(Stdio::inherit()).output().expect("the load");
    assert!(output.status.success(), "{words:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().filter_map(|w| w.parse().ok()).collect()
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn with_input(mut command: Command, file: &Path) -> Command {
    command.stdin(std::fs::File::open(file).expect("the list"));
    command
}

pub(crate) fn commands(report: &mut Report) {
    let directory = tempfile::tempdir().expect("a directory");
    for (hosts, rounds) in [(1_000, 101), (10_000, 31), (100_000, 5)] {
        let etcd = Etcd::start();
        load(&["fill", &etcd.endpoint, &hosts.to_string()]);
        let list = directory.path().join("hosts");
        let names: String = (0..hosts).map(|n| format!("h{n:06}\n")).collect();
        std::fs::write(&list, names).expect("written");
        let ours = || with_input(orchestrate(&etcd.endpoint, &["verify_hosts", "1"]), &list);
        let bare = || with_input(bench(&["bare", "verify", &etcd.endpoint, "1"]), &list);
        let (ours, bare) = in_turn(rounds, &ours, &bare);
        assert_eq!((ours.code, bare.code), (0, 0));
        let what = format!("verify_hosts, {hosts} hosts");
        let pair = |a: f64, b: f64, unit: &str| {
            (format!("{a:.1} {unit}"), format!("{b:.1} {unit} bare range and comparison"), a / b)
        };
        for (kind, (a, b, ratio)) in [
            ("wall", pair(millis(ours.wall), millis(bare.wall), "ms")),
            ("CPU", pair(millis(ours.cpu), millis(bare.cpu), "ms")),
            ("peak memory", pair(ours.peak_mebibytes, bare.peak_mebibytes, "MiB")),
        ] {
            report.row(&format!("{what}: {kind}"), a, b, ratio, 1.2);
        }
        if hosts == 100_000 {
            let short = directory.path().join("short");
            std::fs::write(&short, "h000001\nh050000\nh099999\n").expect("written");
            let ours = || with_input(orchestrate(&etcd.endpoint, &["verify_hosts", "1"]), &short);
            let ping = || orchestrate(&etcd.endpoint, &["ping"]);
            let (ours, ping) = in_turn(11, &ours, &ping);
            let (a, b) = (millis(ours.wall), millis(ping.wall));
            report.row(
                "verify_hosts, 3 of 100000 hosts: wall",
                format!("{a:.1} ms"),
                format!("{b:.1} ms `ping`"),
                a / b,
                2.0,
            );
        }
        if hosts >= 10_000 {
            let ours = || orchestrate(&etcd.endpoint, &["get_failures"]);
            let bare = || bench(&["bare", "failures", &etcd.endpoint]);
            let (ours, bare) = in_turn(rounds, &ours, &bare);
            assert_eq!(ours.code, 1);
            let (a, b) = (millis(ours.wall), millis(bare.wall));
            let what = format!("get_failures, 1 % of {hosts} failing: wall");
            report.row(&what, format!("{a:.1} ms"), format!("{b:.1} ms bare ranges and counts"), a / b, 1.5);
        }
    }
    start_up(report);
}

/// Process start to exit of the smallest questions.
fn start_up(report: &mut Report) {
    let etcd = Etcd::start();
    load(&["fill", &etcd.endpoint, "10"]);
    for (verb, yardstick) in [("ping", "ping"), ("pending_update", "pending")] {
        let ours = || orchestrate(&etcd.endpoint, &[verb]);
        let bare = || bench(&["bare", yardstick, &etcd.endpoint]);
        let (ours, bare) = in_turn(41, &ours, &bare);
        let (a, b) = (millis(ours.wall), millis(bare.wall));
        report.row(
            &format!("{verb}, start to exit"),
            format!("{a:.1} ms"),
            format!("{b:.1} ms bare client"),
            a / b,
            2.0,
        );
        let etcdctl = || {
            let mut command = Command::new("etcdctl");
            command.env("ETCDCTL_API", "3").args(["--endpoints", &etcd.endpoint, "endpoint", "health"]);
            command
        };
        let ours = || orchestrate(&etcd.endpoint, &[verb]);
        let (ours, theirs) = in_turn(21, &ours, &etcdctl);
        let (a, b) = (millis(ours.wall), millis(theirs.wall));
        report.row(
            &format!("{verb}, start to exit"),
            format!("{a:.1} ms"),
            format!("{b:.1} ms `etcdctl endpoint health`"),
            a / b,
            1.0,
        );
    }
}

pub(crate) fn propagation(report: &mut Report) {
    let etcd = Etcd::start();
    let watchers = "1000";
    // In turn, twice each; the better of both counts, for both.
    let mut best = [f64::MAX; 2];
    for _ in 0..2 {
        for (index, kind) in ["mirrors", "bare"].iter().enumerate() {
            best[index] = best[index].min(load(&["propagation", &etcd.endpoint, watchers, kind])[0]);
        }
    }
    let (a, b) = (format!("{:.1} ms", best[0]), format!("{:.1} ms bare watchers", best[1]));
    report.row("one write to 1000 mirrors, p99", a, b, best[0] / best[1], 1.3);
}

/// An agent of its own, with one trivial step.
struct Agent {
    child: Child,
    address: String,
    directory: tempfile::TempDir,
    started: Instant,
}

impl Agent {
    fn start(name: &str, endpoint: &str, every: &str, crowd: bool) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        // Of a thousand ports chosen beforehand some are taken by the time; a crowd is not asked anything.
        let [port] = if crowd { [0] } else { tests::process::free_ports() };
        let address = format!("127.0.0.1:{port}");
        std::fs::write(at("machine-id"), directory.path().display().to_string()).expect("written");
        let settings = format!(
            "host = \"{name}\"\nstate_directory = {:?}\nversion_file = {:?}\n[identity]\nmachine_id_file = {:?}\n\
             [http]\nlisten = \"{address}\"\n[dns]\nlisten = []\n[store]\nendpoints = [\"{endpoint}\"]\n[validation]\nevery = \"{every}\"\n\
             [[apply]]\nname = \"a\"\ncommand = [\"/usr/bin/touch\", {:?}]\n[[validate]]\nname = \"v\"\ncommand = [\"/bin/true\"]\n",
            at("state"),
            at("version"),
            at("machine-id"),
            at("applied")
        );
        std::fs::write(at("agent.toml"), settings).expect("written");
        let log = std::fs::File::create(at("log")).expect("a log");
        let started = Instant::now();
        let child = Command::new(beside("orchestrate-agent"))
            .env_clear()
            .arg("--config")
            .arg(at("agent.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("an agent");
        Self { child, address, directory, started }
    }

    fn is_ready(&self) -> Option<()> {
        http_get(&self.address, "/ready").map(|_| ())
    }

    fn installed(&self, version: &str) -> Option<()> {
        (std::fs::read_to_string(self.directory.path().join("version")).ok()? == version).then_some(())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn agent(report: &mut Report) {
    let etcd = Etcd::start();
    let mut ready: Vec<f64> = (0..7)
        .map(|n| {
            let agent = Agent::start(&format!("r{n}"), &etcd.endpoint, "60s", false);
            wait(Duration::from_secs(20), || agent.is_ready());
            millis(agent.started.elapsed())
        })
        .collect();
    ready.sort_by(f64::total_cmp);
    report.row(
        "agent, start to ready",
        format!("{:.1} ms", ready[3]),
        "a running etcd".into(),
        ready[3],
        50.0,
    );

    let agent = Agent::start("idle", &etcd.endpoint, "60s", false);
    let put = |version: &str| {
        let cost = once(&|| orchestrate(&etcd.endpoint, &["trigger_update", version]));
        assert_eq!(cost.code, 0);
    };
    put("1");
    wait(Duration::from_secs(20), || agent.installed("1"));
    first_step(report, &etcd, &agent);
    let before = cpu_seconds(&agent.child);
    let begin = Instant::now();
    std::thread::sleep(Duration::from_secs(100));
    let percent = (cpu_seconds(&agent.child) - before) / begin.elapsed().as_secs_f64() * 100.0;
    report.row("agent idle, processor", format!("{percent:.3} % of a core"), "100 s".into(), percent, 0.1);
    let resident = resident_mebibytes(&agent.child);
    report.row(
        "agent idle, resident",
        format!("{resident:.1} MiB"),
        "a Consul agent elsewhere: 51 MiB".into(),
        resident,
        15.0,
    );
}

/// From a trigger to the first effect of the first step, over bare watch delivery.
fn first_step(report: &mut Report, etcd: &Etcd, agent: &Agent) {
    let watch = load(&["propagation", &etcd.endpoint, "1", "bare"])[0];
    wait(Duration::from_secs(20), || agent.installed("19"));
    let applied = agent.directory.path().join("applied");
    let store = tests::store::Store::connect(std::slice::from_ref(&etcd.endpoint));
    let mut delays = Vec::new();
    for round in 100..111 {
        let version = round.to_string();
        // It may not be there.
        let _ = std::fs::remove_file(&applied);
        // From just before the put, as for the bare watch.
        let begin = Instant::now();
        store.put("/current_version", &version);
        wait(Duration::from_secs(20), || applied.exists().then_some(()));
        delays.push(millis(begin.elapsed()));
        wait(Duration::from_secs(20), || agent.installed(&version));
    }
    delays.sort_by(f64::total_cmp);
    let over = delays[5] - watch;
    report.row(
        "trigger to first step done",
        format!("{:.1} ms", delays[5]),
        format!("{watch:.1} ms bare watch delivery"),
        over.max(0.0),
        20.0,
    );
}

pub(crate) fn update(report: &mut Report) {
    for hosts in [10usize, 100, 1000] {
        let etcd = Etcd::start();
        let agents: Vec<Agent> = (0..hosts)
            .map(|n| {
                let agent = Agent::start(&format!("u{n}"), &etcd.endpoint, "1h", true);
                if n % 20 == 19 {
                    let journal = agent.directory.path().join("state/journal");
                    wait(Duration::from_secs(60), || journal.exists().then_some(()));
                }
                agent
            })
            .collect();
        let trigger = |version: &str| {
            assert_eq!(once(&|| orchestrate(&etcd.endpoint, &["trigger_update", version])).code, 0)
        };
        trigger("1");
        agents.iter().for_each(|a| wait(Duration::from_secs(300), || a.installed("1")));
        // Everything that the first version set off is answered when the listing is complete.
        let complete = |version: &str| {
            let names: Vec<String> = (0..hosts).map(|n| format!("u{n}")).collect();
            let mut words = vec!["verify_hosts", version];
            words.extend(names.iter().map(String::as_str));
            (once(&|| orchestrate(&etcd.endpoint, &words)).code == 0).then_some(())
        };
        wait(Duration::from_secs(60), || complete("1"));
        // Keep-alives and backstop reads go on during the update; their rate without one is taken off.
        let (idle, pause) = (etcd.requests(), Duration::from_secs(20));
        std::thread::sleep(pause);
        let rate = (etcd.requests() - idle) / pause.as_secs_f64();
        let before = etcd.requests();
        let begin = Instant::now();
        trigger("2");
        agents.iter().for_each(|a| wait(Duration::from_secs(300), || a.installed("2")));
        std::thread::sleep(Duration::from_millis(200));
        let took = begin.elapsed().as_secs_f64();
        let each = (etcd.requests() - before - rate * took) / hosts as f64;
        report.row(
            &format!("store operations per host, update of {hosts}"),
            format!("{each:.1}"),
            format!("the fleet took {took:.1} s"),
            each,
            12.0,
        );
    }
}

pub(crate) fn storm(report: &mut Report) {
    let etcd = Etcd::start();
    let numbers = load(&["storm", &etcd.endpoint, "2000"]);
    let (there, last, first, troubles) = (numbers[0], numbers[1], numbers[2], numbers[3]);
    let what = "2000 agents start at once: seconds until all hold their names";
    report.row(
        what,
        format!("{last:.1} s, the first after {first:.1} s"),
        format!("{there} are there"),
        last,
        60.0,
    );
    report.row(
        "2000 agents start at once: errors that surfaced",
        format!("{troubles}"),
        "2000 agents".into(),
        troubles + 2000.0 - there,
        0.0,
    );
}
