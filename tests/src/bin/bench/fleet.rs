//! Measurements of a fleet: the command, propagation, the agent, a start of many agents, an outage
//! of the store, and updates.

use crate::measure::{cpu_seconds, in_turn, once, percentile, resident_mebibytes};
use crate::processes::{Agent, Etcd, Setup, bench, load, millis, orchestrate, wait};
use crate::report::Report;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

fn with_input(mut command: Command, file: &Path) -> Command {
    command.stdin(std::fs::File::open(file).expect("the list"));
    command
}

pub(crate) fn commands(report: &mut Report) {
    let directory = tempfile::tempdir().expect("a directory");
    for (hosts, rounds) in [(1_000, 101), (10_000, 31), (100_000, 15)] {
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
            // The range of a large fleet is read in parts side by side, which the yardstick does not do.
            let bound = if kind == "wall" && hosts == 100_000 { 0.8 } else { 1.2 };
            report.row(&format!("{what}: {kind}"), a, b, ratio, bound);
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

/// Measures `status` of a large fleet.
pub(crate) fn status(report: &mut Report) {
    let etcd = Etcd::start();
    load(&["fill", &etcd.endpoint, "10000"]);
    load(&["reports", &etcd.endpoint, "10000"]);
    let ours = || orchestrate(&etcd.endpoint, &["status"]);
    let bare = || bench(&["bare", "status", &etcd.endpoint]);
    let (ours, bare) = in_turn(15, &ours, &bare);
    assert_eq!((ours.code, bare.code), (0, 1), "all hosts are ok");
    let (a, b) = (millis(ours.wall), millis(bare.wall));
    let (beside, what) = (format!("{b:.0} ms bare reads"), "status, 10000 hosts: wall");
    report.row(what, format!("{a:.0} ms"), beside, a / b, 1.5);
    let etcd = Etcd::start();
    load(&["results", &etcd.endpoint, "100000"]);
    let ours = once(&|| orchestrate(&etcd.endpoint, &["status"]));
    assert_eq!(ours.code, 1, "hosts fail");
    let memory = ours.peak_mebibytes;
    let what = "status, 100000 results: peak memory, MiB";
    report.row(what, format!("{memory:.0} MiB"), "-".into(), memory, 120.0);
}

/// Measures the smallest requests from process start to exit.
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
    // Each kind runs twice, alternating; the better run of each counts.
    let mut best = [f64::MAX; 2];
    for _ in 0..2 {
        for (index, kind) in ["mirrors", "bare"].iter().enumerate() {
            best[index] =
                best[index].min(load(&["propagation", &etcd.endpoint, watchers, kind, "20", "0"])[0]);
        }
    }
    let (a, b) = (format!("{:.1} ms", best[0]), format!("{:.1} ms bare watchers", best[1]));
    report.row("one write to 1000 mirrors, p99", a, b, best[0] / best[1], 1.3);
}

pub(crate) fn agent(report: &mut Report) {
    let etcd = Etcd::start();
    let mut ready: Vec<f64> = (0..7)
        .map(|n| {
            let agent = Agent::start(&format!("r{n}"), &etcd.endpoint, &Setup::default());
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

    let agent = Agent::start("idle", &etcd.endpoint, &Setup::default());
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

/// Measures the time from a trigger to the first effect of the first step, minus that of bare watch
/// delivery.
fn first_step(report: &mut Report, etcd: &Etcd, agent: &Agent) {
    let watch = load(&["propagation", &etcd.endpoint, "1", "bare", "20", "0"])[0];
    wait(Duration::from_secs(20), || agent.installed("19"));
    let applied = agent.directory.path().join("applied");
    let store = tests::store::Store::connect(std::slice::from_ref(&etcd.endpoint));
    let mut delays = Vec::new();
    for round in 100..111 {
        let version = round.to_string();
        // The file may not exist.
        let _ = std::fs::remove_file(&applied);
        // The clock starts just before the put, as for the bare watch.
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

/// What an update of real agents cost.
pub(crate) struct Updated {
    /// Requests to the store, for each host.
    pub(crate) operations: f64,
    /// Events that the store delivered to watches, for each host.
    pub(crate) events: f64,
    pub(crate) seconds: f64,
}

/// Agents whose steps take no time, and their store. All have version 1.
pub(crate) struct Fleet {
    pub(crate) etcd: Etcd,
    agents: Vec<Agent>,
}

impl Fleet {
    /// Starts so many agents. `top` returns settings of each.
    pub(crate) fn start(hosts: usize, top: &dyn Fn(usize) -> String) -> Self {
        let etcd = Etcd::start();
        let start = |n: usize| {
            let top = top(n);
            let setup = Setup { validates_every: Some("1h"), in_crowd: true, top: &top, settings: None };
            let agent = Agent::start(&format!("u{n}"), &etcd.endpoint, &setup);
            if n % 20 == 19 {
                let journal = agent.directory.path().join("state/journal");
                wait(Duration::from_secs(60), || journal.exists().then_some(()));
            }
            agent
        };
        let agents = (0..hosts).map(start).collect();
        let fleet = Self { etcd, agents };
        fleet.trigger("1");
        fleet.agents.iter().for_each(|a| wait(Duration::from_secs(300), || a.installed("1")));
        // When the listing is complete, all requests that the first version caused are answered.
        wait(Duration::from_secs(60), || fleet.is_listed("1"));
        fleet
    }

    fn trigger(&self, version: &str) {
        assert_eq!(once(&|| orchestrate(&self.etcd.endpoint, &["trigger_update", version])).code, 0);
    }

    fn is_listed(&self, version: &str) -> Option<()> {
        let names: Vec<String> = (0..self.agents.len()).map(|n| format!("u{n}")).collect();
        let mut words = vec!["verify_hosts", version];
        words.extend(names.iter().map(String::as_str));
        (once(&|| orchestrate(&self.etcd.endpoint, &words)).code == 0).then_some(())
    }

    /// Updates all to version 2, under a rollout policy if one is given. Keep-alives and backstop reads continue
    /// during the update; their idle rate is subtracted.
    pub(crate) fn update(&mut self, policy: Option<&str>) -> Updated {
        let etcd = &self.etcd;
        if let Some(policy) = policy {
            let file = self.agents[0].directory.path().join("policy.toml");
            std::fs::write(&file, policy).expect("written");
            let file = file.display().to_string();
            assert_eq!(once(&|| orchestrate(&etcd.endpoint, &["policy", "set", &file])).code, 0);
        }
        let (idle, pause) = (etcd.requests(), Duration::from_secs(20));
        std::thread::sleep(pause);
        let rate = (etcd.requests() - idle) / pause.as_secs_f64();
        let (requests, events) = (etcd.requests(), etcd.events());
        let begin = Instant::now();
        self.trigger("2");
        self.agents.iter().for_each(|a| wait(Duration::from_secs(1800), || a.installed("2")));
        std::thread::sleep(Duration::from_millis(200));
        let seconds = begin.elapsed().as_secs_f64();
        let each = |sum: f64| sum / self.agents.len() as f64;
        Updated {
            operations: each(etcd.requests() - requests - rate * seconds),
            events: each(etcd.events() - events),
            seconds,
        }
    }

    /// Returns when the first step of a host was done last.
    pub(crate) fn first_step_of(&self, host: &str) -> SystemTime {
        let number: usize = host.trim_start_matches('u').parse().expect("a number");
        let applied = self.agents[number].directory.path().join("applied");
        applied.metadata().and_then(|data| data.modified()).expect("a time")
    }
}

pub(crate) fn update(report: &mut Report) {
    for hosts in [10usize, 100, 1000] {
        let Updated { operations, seconds, .. } = Fleet::start(hosts, &|_| String::new()).update(None);
        report.row(
            &format!("store operations per host, update of {hosts}"),
            format!("{operations:.1}"),
            format!("the fleet took {seconds:.1} s"),
            operations,
            12.0,
        );
    }
}

pub(crate) fn storm(report: &mut Report) {
    let etcd = Etcd::start();
    load(&["services", &etcd.endpoint, "100", "10"]);
    let numbers = load(&["storm", &etcd.endpoint, "2000"]);
    let (there, last, first, troubles) = (numbers[0], numbers[1], numbers[2], numbers[3]);
    let what = "2000 agents start at once: seconds until all hold their names and the catalog";
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

/// Number of agents that follow the catalog while the store is stopped for a minute.
const CUT_OFF: usize = 1000;
const AWAY: Duration = Duration::from_secs(60);

/// Cuts all agents off and reconnects all of them at once: they must return spread over time, and
/// the store must stay usable meanwhile.
pub(crate) fn heal(report: &mut Report) {
    let mut etcd = Etcd::start();
    load(&["services", &etcd.endpoint, "100", "10"]);
    let endpoint = etcd.endpoint.clone();
    let agents = std::thread::spawn(move || load(&["heal", &endpoint, &CUT_OFF.to_string()]));
    let store = tests::store::Store::connect(std::slice::from_ref(&etcd.endpoint));
    let all = || (store.list("/orchestrate/live/").len() == CUT_OFF).then_some(());
    wait(Duration::from_secs(120), all);
    let write = || {
        let begin = Instant::now();
        store.put("/by/somebody", "else");
        // Writes are evenly paced.
        std::thread::sleep(Duration::from_millis(20));
        millis(begin.elapsed()) - 20.0
    };
    let mut before: Vec<f64> = (0..500).map(|_| write()).collect();
    etcd.be_away(AWAY);
    // The client of the bench must reconnect as well.
    wait(Duration::from_secs(30), || store.try_put("/by/somebody", b"else").ok());
    let mut during = Vec::new();
    while !agents.is_finished() {
        during.push(write());
    }
    let numbers = agents.join().expect("the agents");
    let (there, seconds, busiest) = (numbers[0], numbers[1], numbers[2]);
    report.row(
        "1000 agents, the store away for a minute: 30 s against the time over which they come back",
        format!("over {seconds:.0} s"),
        "30 s".into(),
        30.0 / seconds,
        1.0,
    );
    report.row(
        "1000 agents, the store away for a minute: the greatest part that is back within one second",
        format!("{:.1} %", busiest * 100.0),
        format!("{there} are back"),
        // Agents that send requests while the store starts are answered together.
        busiest + (CUT_OFF as f64 - there),
        0.2,
    );
    let p99 = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        percentile(times, 99.0)
    };
    let (before, during) = (p99(&mut before), p99(&mut during));
    report.row(
        "1000 agents come back: a write of somebody else, p99: ms over the yardstick",
        format!("{during:.1} ms"),
        format!("{before:.1} ms before they were cut off"),
        (during - before).max(0.0),
        100.0,
    );
}
