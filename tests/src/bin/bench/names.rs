//! DNS compared with knot and unbound, which serve the same names in the same run.

use crate::measure::{cpu_seconds, percentile};
use crate::processes::{Agent, Etcd, Setup, load, wait};
use crate::report::Report;
use std::fmt::Write as _;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Name and number of instances of each service.
const SERVICES: [(&str, usize); 3] = [("one", 1), ("ten", 10), ("hundred", 100)];
/// Duration of a load in seconds; the load generator and the server share the cores.
const SECONDS: &str = "2";
const ROUNDS: usize = 5;
/// The question to which the others are compared.
const ONE: &str = "one.service.consul A";
/// Number of one-second blocks in which the answer time is measured; the median of their 99th
/// percentiles counts.
const BLOCKS: usize = 9;

/// A DNS server process.
struct Server {
    name: &'static str,
    child: Child,
    port: u16,
    _directory: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn address(instance: usize) -> String {
    format!("10.1.{}.{}", instance / 250, instance % 250 + 1)
}

/// Returns the records that all servers serve, as lines of a zone file.
fn records() -> Vec<String> {
    let mut lines: Vec<String> =
        (0..100).map(|n| format!("h{n:03}.node.consul. 5 IN A {}", address(n))).collect();
    for (service, count) in SERVICES {
        for n in 0..count {
            lines.push(format!("{service}.service.consul. 5 IN A {}", address(n)));
            lines.push(format!("{service}.service.consul. 5 IN SRV 1 1 80 h{n:03}.node.consul."));
        }
    }
    lines
}

fn start(
    name: &'static str,
    program: &str,
    arguments: &[&str],
    port: u16,
    directory: tempfile::TempDir,
) -> Server {
    let log = std::fs::File::create(directory.path().join("log")).expect("a log");
    let errors = log.try_clone().expect("the log");
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(log).stderr(errors);
    let child = command.spawn().unwrap_or_else(|e| panic!("{program}: {e}"));
    let server = Server { name, child, port, _directory: directory };
    wait(Duration::from_secs(20), || answers(server.port).then_some(()));
    server
}

/// True if the server knows the service with the most instances.
fn answers(port: u16) -> bool {
    let result = Command::new("dig")
        .args(["@127.0.0.1", "-p", &port.to_string(), "+tcp", "+tries=1", "+time=1", "+short"])
        .arg("hundred.service.consul")
        .output()
        .expect("dig");
    result.stdout.iter().filter(|byte| **byte == b'\n').count() == 100
}

fn written(path: &Path, text: &str) -> String {
    std::fs::write(path, text).expect("written");
    path.display().to_string()
}

fn knot() -> Server {
    let directory = tempfile::tempdir().expect("a directory");
    let [port] = tests::process::free_ports();
    let at = |name: &str| directory.path().join(name);
    let soa = "consul. 5 IN SOA ns.consul. hostmaster.consul. 1 3600 600 86400 5\nconsul. 5 IN NS ns.consul.\nns.consul. 5 IN A 127.0.0.1\n";
    written(&at("consul.zone"), &format!("{soa}{}\n", records().join("\n")));
    let here = directory.path().display();
    let text = format!(
        "server:\n    listen: 127.0.0.1@{port}\n    rundir: {here}\n    udp-workers: 2\n    tcp-workers: 1\n    \
         background-workers: 1\ndatabase:\n    storage: {here}\ntemplate:\n  - id: default\n    storage: {here}\n    \
         semantic-checks: off\nzone:\n  - domain: consul\n    file: consul.zone\n"
    );
    let settings = written(&at("knot.conf"), &text);
    start("knot", "/usr/sbin/knotd", &["--config", &settings], port, directory)
}

fn unbound() -> Server {
    let directory = tempfile::tempdir().expect("a directory");
    let [port] = tests::process::free_ports();
    let mut text = format!(
        "server:\n  directory: {here:?}\n  pidfile: \"\"\n  chroot: \"\"\n  username: \"\"\n  use-syslog: no\n  \
         do-daemonize: no\n  interface: 127.0.0.1\n  port: {port}\n  num-threads: 2\n  so-reuseport: yes\n  \
         module-config: \"iterator\"\n  rrset-roundrobin: yes\n  local-zone: \"consul.\" static\n",
        here = directory.path()
    );
    for record in records() {
        let _ = writeln!(text, "  local-data: \"{record}\"");
    }
    text.push_str("remote-control:\n  control-enable: no\n");
    let settings = written(&directory.path().join("unbound.conf"), &text);
    start("unbound", "/usr/sbin/unbound", &["-d", "-c", &settings], port, directory)
}

/// An agent and an etcd that holds the same records, in the form that hosts without agents write.
struct Ours {
    agent: Agent,
    port: u16,
    _etcd: Etcd,
}

fn ours() -> Ours {
    let etcd = Etcd::start();
    let store = tests::store::Store::connect(std::slice::from_ref(&etcd.endpoint));
    for (service, count) in SERVICES {
        for n in 0..count {
            let (host, ip) = (format!("h{n:03}"), address(n));
            let record = format!(
                r#"{{"format":1,"host":"{host}","interfaces":{{"eth0":["{ip}"]}},"addresses":["{ip}"],"port":80}}"#
            );
            store.put(&format!("/available_services/{service}/{host}"), &record);
        }
    }
    let [port] = tests::process::free_ports();
    let settings = |_: &Path| format!("[dns]\nlisten = [\"127.0.0.1:{port}\"]\n");
    let agent = Agent::start("dns", &etcd.endpoint, &Setup { settings: Some(&settings), ..Setup::default() });
    wait(Duration::from_secs(20), || answers(port).then_some(()));
    Ours { agent, port, _etcd: etcd }
}

/// Answers per second of the server's processor time, and per second of wall time.
#[derive(Clone, Copy)]
struct Speed {
    by_cpu: f64,
    by_wall: f64,
    /// Size of an answer, in bytes.
    size: f64,
}

fn speed(child: &Child, port: u16, question: &str, options: &[&str]) -> Speed {
    let directory = tempfile::tempdir().expect("a directory");
    let questions = written(&directory.path().join("questions"), &format!("{question}\n"));
    let before = cpu_seconds(child);
    let output = Command::new("dnsperf")
        .args(["-s", "127.0.0.1", "-p", &port.to_string(), "-d", &questions, "-l", SECONDS])
        .args(["-c", "16", "-T", "1", "-q", "200"])
        .args(options)
        .output()
        .expect("dnsperf");
    let cpu = cpu_seconds(child) - before;
    let text = String::from_utf8_lossy(&output.stdout);
    let number = |label: &str| -> f64 {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(label));
        let word = line.and_then(|rest| rest.split_whitespace().next());
        word.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no {label} in {text}"))
    };
    assert!(number("Queries lost:") < number("Queries sent:") / 100.0, "{text}");
    assert!(text.contains("NOERROR"), "{text}");
    let sizes = text.lines().find(|line| line.contains("Average packet size:"));
    let size = sizes.and_then(|line| line.rsplit(' ').next()?.parse().ok());
    Speed {
        by_cpu: number("Queries completed:") / cpu,
        by_wall: number("Queries per second:"),
        size: size.unwrap_or_else(|| panic!("no size in {text}")),
    }
}

fn median(mut speeds: Vec<Speed>) -> Speed {
    speeds.sort_by(|a, b| a.by_cpu.total_cmp(&b.by_cpu));
    speeds[speeds.len() / 2]
}

pub(crate) fn names(report: &mut Report) {
    let ours = ours();
    let peers = [knot(), unbound()];
    // The servers alternate, with all questions to one server in a row, because the machine does
    // not perform the same from minute to minute.
    let measure = |questions: &[(&str, &[&str])]| -> [Vec<Speed>; 3] {
        let servers = [
            (&ours.agent.child, ours.port),
            (&peers[0].child, peers[0].port),
            (&peers[1].child, peers[1].port),
        ];
        let mut found = [(); 3].map(|()| vec![Vec::new(); questions.len()]);
        for _ in 0..ROUNDS {
            for ((child, port), speeds) in servers.iter().zip(&mut found) {
                for ((question, options), speeds) in questions.iter().zip(speeds) {
                    speeds.push(speed(child, *port, question, options));
                }
            }
        }
        found.map(|speeds| speeds.into_iter().map(median).collect())
    };
    let thousands = |speed: f64| format!("{:.0}k/s", speed / 1000.0);
    let mut greatest = 0.0;
    for (question, what) in [
        (ONE, "one address"),
        ("ten.service.consul A", "ten addresses"),
        ("one.service.consul SRV", "one SRV"),
    ] {
        let [ours, knot, unbound] = measure(&[(question, &[])]).map(|speeds| speeds[0]);
        // As below: unbound's answer to SRV is shorter.
        let with_all = unbound.size >= ours.size * 0.95;
        let (best, peer) =
            if with_all && unbound.by_cpu > knot.by_cpu { (unbound, &peers[1]) } else { (knot, &peers[0]) };
        if question == ONE {
            greatest = ours.by_wall;
        }
        report.row(
            &format!("DNS, {what}: CPU for each answer"),
            thousands(ours.by_cpu),
            format!("{} {}", thousands(best.by_cpu), peer.name),
            best.by_cpu / ours.by_cpu,
            1.25,
        );
    }
    for (question, what, options) in [
        ("hundred.service.consul A", "a hundred addresses, EDNS", &["-e"][..]),
        ("ten.service.consul SRV", "ten SRV, EDNS", &["-e"]),
        ("hundred.service.consul SRV", "a hundred SRV, EDNS", &["-e"]),
        ("hundred.service.consul A", "a hundred addresses, TCP", &["-m", "tcp"]),
    ] {
        let [ours, knot, unbound] = measure(&[(ONE, options), (question, options)]);
        // A server that gives a shorter answer has not done the same work: unbound omits the
        // addresses of SRV targets.
        let comparable = [(knot, &peers[0]), (unbound, &peers[1])].into_iter();
        let comparable = comparable.filter(|(speeds, _)| speeds[1].size >= ours[1].size * 0.95);
        let best = comparable.max_by(|(a, _), (b, _)| a[1].by_cpu.total_cmp(&b[1].by_cpu));
        let (best, peer) = best.expect("somebody gives the same answer");
        let [loss, loss_of_best] = [&ours, &best].map(|speeds| speeds[0].by_cpu / speeds[1].by_cpu);
        report.row(
            &format!("DNS, {what}: CPU for each answer against that for one address"),
            format!("{loss:.2}, {}", thousands(ours[1].by_cpu)),
            format!("{loss_of_best:.2}, {} {}", thousands(best[1].by_cpu), peer.name),
            loss / loss_of_best,
            1.0,
        );
    }
    let rate = format!("{:.0}", greatest / 2.0);
    // The blocks are short and alternate, so that other load on the machine does not affect only
    // one server.
    let mut blocks: [Vec<f64>; 2] = Default::default();
    for _ in 0..BLOCKS {
        for (port, found) in [ours.port, peers[0].port].into_iter().zip(&mut blocks) {
            found.push(load(&["latency", &format!("127.0.0.1:{port}"), &rate, "1"])[0]);
        }
    }
    let [a, b] = blocks.map(|mut found| {
        found.sort_by(f64::total_cmp);
        percentile(&found, 50.0)
    });
    report.row(
        "DNS, one address at half the greatest rate: p99",
        format!("{a:.3} ms at {rate}/s"),
        format!("{b:.3} ms knot"),
        a,
        0.3,
    );
}

/// Returns a DNS query for the addresses of a service (RFC 1035, section 4.1).
fn packet(id: u16, service: &str) -> Vec<u8> {
    let mut packet = id.to_be_bytes().to_vec();
    packet.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in [service, "service", "consul"] {
        packet.push(label.len() as u8);
        packet.extend(label.bytes());
    }
    packet.extend([0, 0, 1, 0, 1]);
    packet
}

/// Sends queries at an even rate; returns the 99th percentile of the time to the answer, in
/// milliseconds.
pub(crate) fn latency(address: &str, rate: f64, seconds: f64) -> f64 {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.connect(address).expect("an address");
    socket.set_nonblocking(true).expect("a socket");
    let begin = Instant::now();
    let mut sent_at = vec![begin; 1 << 16];
    let (mut sent, mut delays, mut buffer) = (0u64, Vec::new(), [0; 512]);
    // Answers that are late by then count as lost.
    while begin.elapsed().as_secs_f64() < seconds + 0.5 {
        let now = begin.elapsed().as_secs_f64();
        if now < seconds && sent as f64 <= now * rate {
            let id = sent as u16;
            sent_at[usize::from(id)] = Instant::now();
            socket.send(&packet(id, "one")).expect("sent");
            sent += 1;
        }
        while let Ok(length) = socket.recv(&mut buffer) {
            assert!(length > 12, "an answer");
            let id = u16::from_be_bytes([buffer[0], buffer[1]]);
            delays.push(sent_at[usize::from(id)].elapsed().as_secs_f64() * 1000.0);
        }
    }
    // A lost answer counts as later than any other.
    delays.resize(sent as usize, f64::INFINITY);
    delays.sort_by(f64::total_cmp);
    percentile(&delays, 99.0)
}

/// Returns the number of addresses of a service; `None` without an answer or with a DNS error.
pub(crate) fn addresses_of(service: &str, port: u16) -> Option<usize> {
    let socket = UdpSocket::bind("127.0.0.1:0").ok()?;
    socket.connect(("127.0.0.1", port)).ok()?;
    socket.set_read_timeout(Some(Duration::from_millis(500))).ok()?;
    socket.send(&packet(1, service)).ok()?;
    let mut answer = [0; 512];
    socket.recv(&mut answer).ok()?;
    let known = matches!(answer[3] & 0x0f, 0 | 3);
    known.then(|| usize::from(u16::from_be_bytes([answer[6], answer[7]])))
}
