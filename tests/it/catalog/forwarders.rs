//! Other names than those of the catalog: the agent asks real servers, of which some fail.

use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant};
use tests::etcd::Etcd;
use tests::host::Host;
use tests::process::{Running, in_own_network, run};
use tests::wait;

fn say(command: &mut Command) -> String {
    String::from_utf8_lossy(&run(command, "").stdout).into_owned()
}

#[test]
fn other_names_are_found_while_one_forwarder_works() {
    if !in_own_network("catalog::forwarders::other_names_are_found_while_one_forwarder_works") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let log = |name: &str| directory.path().join(name);
    let dnsmasq = |address: &str, rest: &[&str]| {
        let mut command = Command::new("dnsmasq");
        command.args(["-k", "-C", "/dev/null", "--no-resolv", "--no-hosts", "--user=root"]);
        command.args(["--bind-interfaces", "--except-interface=lo0", "--edns-packet-max=1232"]);
        // Two that start at once do not share a file of their numbers.
        command.arg(format!("--pid-file={}", log(&format!("{address}.pid")).display()));
        command.arg(format!("--listen-address={address}")).args(rest);
        Running::start(&mut command, &log(address))
    };
    // One has no server to ask and refuses, one cannot reach its server, and one is silent.
    let _refuses = dnsmasq("127.0.1.1", &[]);
    let conf = directory.path().join("unbound.conf");
    let text = "server:\n    interface: 127.0.1.2\n    username: \"\"\n    chroot: \"\"\n    pidfile: \"\"\n    \
        use-syslog: no\n    do-not-query-localhost: no\n    module-config: \"iterator\"\n\
        forward-zone:\n    name: \".\"\n    forward-addr: 127.0.1.9\n";
    std::fs::write(&conf, text).expect("written");
    let _fails = Running::start(Command::new("unbound").arg("-d").arg("-c").arg(&conf), &log("unbound"));
    let silent = UdpSocket::bind("127.0.1.3:53").expect("bound");
    let large = format!("--txt-record=large.example.org{}", format!(",{}", "x".repeat(200)).repeat(12));
    let _works = dnsmasq("127.0.1.4", &["--address=/www.example.org/192.0.2.7", &large]);
    let expect = |server: &str, status: &str| {
        let answer = || say(Command::new("dig").args([server, "+tries=1", "+time=2", "www.example.org"]));
        let is = || answer().contains(&format!("status: {status}")).then_some(());
        wait::until(&format!("{server} says {status}"), is, answer);
    };
    expect("@127.0.1.1", "REFUSED");
    expect("@127.0.1.2", "SERVFAIL");
    expect("@127.0.1.4", "NOERROR");

    let etcd = Etcd::single();
    let forwarders = r#"["127.0.1.1:53", "127.0.1.2:53", "127.0.1.3:53", "127.0.1.4:53"]"#;
    let mut host = Host::new("h1", &etcd.endpoints())
        .with(&format!("[dns]\nlisten = [\"127.0.0.2:53\"]\nforwarders = {forwarders}\n"));
    host.start();
    let dig = |arguments: &[&str]| {
        say(Command::new("dig").args(["@127.0.0.2", "+tries=1", "+time=5"]).args(arguments))
    };
    let is_found = || dig(&["www.example.org", "+short"]).contains("192.0.2.7").then_some(());
    wait::until("the agent forwards", is_found, || host.describe());

    // Nobody waits for the silent one a second time, but it is asked from time to time.
    let mut times = Vec::new();
    for _ in 0..20 {
        let began = Instant::now();
        let answer = dig(&["www.example.org", "+short"]);
        times.push(began.elapsed());
        assert_eq!(answer, "192.0.2.7\n", "{}", host.describe());
    }
    times.sort();
    assert!(times[15] < Duration::from_millis(500), "{times:?}");
    silent.set_nonblocking(true).expect("set");
    let mut buffer = [0; 512];
    let received = || silent.recv(&mut buffer).ok();
    wait::until("the silent forwarder was asked", received, || host.describe());

    for arguments in [&["+notcp"][..], &["+tcp"]] {
        let mut kdig = Command::new("kdig");
        let answer = say(kdig.args(["@127.0.0.2", "www.example.org"]).args(arguments));
        assert!(answer.contains("192.0.2.7"), "{answer}\n{}", host.describe());
    }
    // What does not fit by UDP is asked by TCP.
    let answer = dig(&["large.example.org", "TXT", "+ignore"]);
    assert!(answer.contains("flags: qr") && answer.contains(" tc"), "{answer}");
    let answer = dig(&["large.example.org", "TXT"]);
    assert_eq!(answer.matches('x').count(), 2400 + answer.matches("example").count(), "{answer}");
    // A name that does not exist is an answer, and names of the catalog are not forwarded.
    let answer = dig(&["none.service.consul"]);
    assert!(answer.contains("status: NXDOMAIN") && answer.contains("SOA\tns.consul."), "{answer}");
}
