//! Names: `dig` and `kdig` query a real agent.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use tests::etcd::Etcd;
use tests::host::Host;
use tests::process::{binary, run};
use tests::store::Store;
use tests::wait;

/// Writes a record in the form of a host without an agent or of the original tool.
fn put_record(store: &Store, service: &str, host: &str, record: &str) {
    store.put(&format!("/available_services/{service}/{host}"), record);
}

fn query(host: &Host, program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(["@127.0.0.1", "-p", &host.dns_port().to_string()]);
    String::from_utf8_lossy(&run(command.args(arguments), "").stdout).into_owned()
}

#[test]
fn every_form_of_name_is_answered() {
    let etcd = Etcd::single();
    let store = etcd.store();
    put_record(&store, "old", "h9", r#"{"eth0": "10.9.0.9", "lo": "127.0.0.1"}"#);
    put_record(
        &store,
        "Mixed",
        "H8",
        r#"{"addresses": ["10.9.0.8", "fd00::8"], "port": 80, "tags": ["Blue"]}"#,
    );
    put_record(&store, "stolen", "h7", r#"{"host": "h6", "addresses": ["10.9.0.7"]}"#);
    let host = Host::new("h1", &etcd.endpoints());
    let services = host.path("services.d").display().to_string();
    let mut host = host.with(&format!(
        "[services]\ndirectories = [\"{services}\"]\naddresses = [\"10.9.0.1\", \"fd00::1\"]\n"
    ));
    host.write_switched_service("web", 8080);
    host.write("web-works", "");
    host.start();
    for (question, expected) in [
        (&["web.service.consul"][..], &["10.9.0.1"][..]),
        (&["WEB.Service.Consul", "AAAA"], &["fd00::1"]),
        (&["web.service.consul", "SRV"], &["1 1 8080 h1.node.consul."]),
        (&["t-8080.web.service.consul"], &["10.9.0.1"]),
        (&["_web._tcp.service.consul", "SRV"], &["1 1 8080 h1.node.consul."]),
        (&["_web._t-8080.service.consul", "SRV"], &["1 1 8080 h1.node.consul."]),
        (&["other.web.service.consul"], &[]),
        (&["h1.node.consul"], &["10.9.0.1"]),
        (&["-x", "10.9.0.1"], &["h1.node.consul."]),
        (&["-x", "fd00::1"], &["h1.node.consul."]),
        (&["old.service.consul"], &["10.9.0.9"]),
        (&["mixed.service.consul"], &["10.9.0.8"]),
        (&["blue.mixed.service.consul", "SRV"], &["1 1 80 h8.node.consul."]),
        (&["h8.node.consul", "AAAA"], &["fd00::8"]),
        (&["stolen.service.consul"], &[]),
        (&["consul", "NS"], &["ns.consul."]),
        (&["ns.consul"], &["10.9.0.1"]),
    ] {
        host.wait_for_name(question, expected);
    }
    for (question, expected) in [
        (&["web.service.consul", "SRV"][..], &["status: NOERROR", "flags: qr aa rd", "ADDITIONAL: 3"][..]),
        (&["none.service.consul"], &["status: NXDOMAIN", "SOA\tns.consul. hostmaster.consul."]),
        (&["web.service.consul", "TXT"], &["status: NOERROR", "ANSWER: 0", "SOA\tns.consul."]),
        (&["example.org"], &["status: REFUSED"]),
        (&["-x", "192.0.2.1"], &["status: REFUSED"]),
        (&["web.service.consul", "ANY", "+notcp"], &["HINFO\t\"RFC8482\""]),
        (&["consul", "AXFR"], &["Transfer failed"]),
        (&["web.service.consul", "+edns=1", "+noednsneg"], &["status: BADVERS"]),
        (&["web.service.consul", "+dnssec"], &["status: NOERROR", "flags: do; udp: 1232"]),
        (&["web.service.consul", "CH", "TXT"], &["status: REFUSED"]),
        (&[r"w\000b.service.consul"], &["status: NXDOMAIN", "SOA\tns.consul."]),
        (&["_tcp.service.consul"], &["status: NOERROR", "ANSWER: 0", "SOA\tns.consul."]),
        (&["1.0.9.10.in-addr.arpa", "A"], &["status: NOERROR", "arpa.", "SOA\tns.consul."]),
        (&["web.service.consul", "+opcode=STATUS"], &["status: NOTIMP"]),
    ] {
        let result = query(&host, "dig", question);
        for part in expected {
            assert!(result.contains(part), "{question:?}: no {part:?} in\n{result}");
        }
    }
    // Only a working instance has a name under `service`; the name of the host itself remains.
    host.remove("web-works");
    host.wait_for_name(&["web.service.consul"], &[]);
    host.wait_for_name(&["h1.node.consul"], &["10.9.0.1"]);
}

#[test]
fn a_host_without_a_service_has_a_name_while_it_lives() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let claim = |address: &str| {
        let identity = r#""instance":"0123456789abcdef","machine_id":"m","boot_id":"b""#;
        format!(r#"{{{identity},"addresses":["{address}","fd00::3","fe80::3"]}}"#)
    };
    store.put("/orchestrate/live/bare", &claim("10.9.0.3"));
    let host = Host::started("h1", &etcd.endpoints());
    for (question, expected) in [
        (&["bare.node.consul"][..], &["10.9.0.3"][..]),
        (&["BARE.node.Consul", "AAAA"], &["fd00::3"]),
        (&["bare.node.consul", "+tcp"], &["10.9.0.3"]),
    ] {
        host.wait_for_name(question, expected);
    }
    wait::until("h1 has claimed its name", || store.get("/orchestrate/live/h1"), || host.describe());
    for (question, expected) in [
        (&["bare.node.consul", "TXT"][..], &["status: NOERROR", "ANSWER: 0", "SOA\tns.consul."][..]),
        (&["nobody.node.consul"], &["status: NXDOMAIN", "SOA\tns.consul."]),
        (&["h1.node.consul"], &["status: NOERROR"]),
    ] {
        // The agent may remember for 5 s that nobody had claimed a name.
        let answered = || {
            let result = query(&host, "dig", question);
            expected.iter().all(|part| result.contains(part)).then_some(())
        };
        wait::until(&format!("{question:?}: {expected:?}"), answered, || query(&host, "dig", question));
    }
    let (code, body) = host.http_get("/v1/nodes/bare").expect("an answer");
    assert!(code == 200 && body.contains(r#"["10.9.0.3","fd00::3"]"#), "{code} {body}");
    assert_eq!(host.http_get("/v1/nodes/nobody").expect("an answer").0, 404);
    let result = host.command(&["dns", "bare.node.consul"], "");
    assert_eq!((result.code, result.out.as_str()), (0, "10.9.0.3\n"), "{result:?}");
    assert_eq!(host.command(&["dns", "nobody.node.consul"], "").code, 1);
    // The helper starts from the catalog that the agent wrote to disk.
    let is_written = || host.path("state/catalog.json").exists().then_some(());
    wait::until("the catalog is on disk", is_written, || host.describe());
    let mut helper = host.program(binary("orchestrate-hiera"));
    helper.args(["--file", &host.path("state/catalog.json").display().to_string()]);
    helper.args(["--socket", &host.path("agent.sock").display().to_string()]);
    let output = run(&mut helper, "{\"ask\": \"dns\", \"name\": \"bare.node.consul\"}\n");
    let result = String::from_utf8_lossy(&output.stdout);
    assert!(result.contains(r#"["10.9.0.3","fd00::3"]"#), "{output:?}");
    // The address is read again after a moment.
    store.put("/orchestrate/live/bare", &claim("10.9.0.4"));
    host.wait_for_name(&["bare.node.consul"], &["10.9.0.4"]);
    store.delete("/orchestrate/live/bare");
    let gone = || query(&host, "dig", &["bare.node.consul"]).contains("status: NXDOMAIN").then_some(());
    wait::until("it is gone", gone, || host.describe());
}

#[test]
fn a_hundred_instances_fit_by_tcp_and_are_cut_with_a_flag_by_udp() {
    let etcd = Etcd::single();
    let store = etcd.store();
    for number in 1..=100 {
        put_record(
            &store,
            "many",
            &format!("h{number}"),
            &format!(r#"{{"addresses": ["10.8.0.{number}"], "port": 80}}"#),
        );
    }
    let host = Host::started("h1", &etcd.endpoints());
    let all: Vec<String> = {
        let mut all: Vec<String> = (1..=100).map(|n| format!("10.8.0.{n}")).collect();
        all.sort();
        all
    };
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    // dig continues over TCP on its own when it sees the truncation flag.
    host.wait_for_name(&["many.service.consul"], &all);
    let count = |program: &str, arguments: &[&str]| {
        let result = query(&host, program, arguments);
        (result.matches("\t10.8.0.").count() + result.matches(" 10.8.0.").count(), result)
    };
    let (few, result) = count("dig", &["many.service.consul", "+noedns", "+ignore"]);
    assert!((20..=30).contains(&few) && result.contains("flags: qr aa tc"), "{few}\n{result}");
    let (more, result) = count("dig", &["many.service.consul", "+bufsize=4096", "+ignore"]);
    assert!(
        (60..=75).contains(&more) && result.contains(" tc ") && result.contains("EDNS: version: 0"),
        "{more}\n{result}"
    );
    let (every, result) = count("kdig", &["many.service.consul", "+tcp"]);
    assert_eq!(every, 100, "{result}");
    let (pipelined, _) = count("kdig", &["+tcp", "+keepopen", "many.service.consul", "many.service.consul"]);
    assert_eq!(pipelined, 200);
    // The first address is not the same in every answer.
    let firsts: std::collections::BTreeSet<String> = (0..40)
        .filter_map(|_| {
            let result = query(&host, "dig", &["many.service.consul", "+short", "+ignore"]);
            result.lines().next().map(str::to_owned)
        })
        .collect();
    assert!(firsts.len() > 5, "{firsts:?}");
}

/// Returns a DNS query for addresses, framed for TCP (RFC 1035, sections 4.1 and 4.2.2).
fn framed(id: u16, name: &str) -> Vec<u8> {
    let mut packet = [&id.to_be_bytes()[..], &[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]].concat();
    for label in name.split('.') {
        packet.push(u8::try_from(label.len()).expect("a short label"));
        packet.extend_from_slice(label.as_bytes());
    }
    packet.extend_from_slice(&[0, 0, 1, 0, 1]);
    [&u16::try_from(packet.len()).expect("a short packet").to_be_bytes()[..], &packet].concat()
}

#[test]
fn questions_that_come_at_once_by_tcp_are_answered_in_order_also_those_that_wait() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let cold = ["db1", "db2", "db3", "db4"];
    for service in ["web"].into_iter().chain(cold) {
        put_record(&store, service, "h2", r#"{"addresses": ["10.8.0.2"], "port": 80}"#);
    }
    let host = Host::started("h1", &etcd.endpoints());
    host.wait_for_name(&["web.service.consul"], &["10.8.0.2"]);
    let mut cold = cold.into_iter();
    let are_answered = || {
        let mut stream = TcpStream::connect(("127.0.0.1", host.dns_port())).expect("connected");
        stream.set_read_timeout(Some(std::time::Duration::from_secs(10))).expect("set");
        // The health of this service was never requested before, so its query has to wait.
        let name = format!("{}.service.consul", cold.next()?);
        let names = ["web.service.consul", &name, "example.org", "web.service.consul"];
        let questions: Vec<u8> = (0..).zip(names).flat_map(|(id, name)| framed(id, name)).collect();
        let (most, rest) = questions.split_at(questions.len() - 7);
        stream.write_all(most).expect("sent");
        let first: Vec<_> = (0..3).map(|_| next_answer(&mut stream)).collect();
        // It waits for 2 s at most, which is too short for a slow machine.
        if first[1] == (1, 2, 0) {
            return None;
        }
        assert_eq!(first, [(0, 0, 1), (1, 0, 1), (2, 5, 0)]);
        stream.write_all(rest).expect("sent");
        assert_eq!(next_answer(&mut stream), (3, 0, 1));
        Some(())
    };
    wait::until("the one that waits is answered too", are_answered, || host.describe());
}

#[test]
fn a_client_that_holds_connections_leaves_places_for_another() {
    let etcd = Etcd::single();
    put_record(&etcd.store(), "web", "h2", r#"{"addresses": ["10.8.0.2"], "port": 80}"#);
    let host = Host::started("h1", &etcd.endpoints());
    host.wait_for_name(&["web.service.consul"], &["10.8.0.2"]);
    let connections: Vec<_> =
        (0..300).map(|_| TcpStream::connect(("127.0.0.1", host.dns_port())).expect("connected")).collect();
    // After 10 s the agent closes the connections, and there is room in any case.
    let ask = |client: &str| {
        query(&host, "dig", &["web.service.consul", "+tcp", "+short", "+tries=1", "+time=8", "-b", client])
    };
    assert_eq!(ask("127.0.0.2"), "10.8.0.2\n", "{}", host.describe());
    drop(connections);
    let again = || (ask("127.0.0.1") == "10.8.0.2\n").then_some(());
    tests::wait::until("the first client has places again", again, || host.describe());
}

/// Returns the id of the next answer, its response code, and the number of its records.
fn next_answer(stream: &mut TcpStream) -> (u8, u8, u8) {
    let mut length = [0; 2];
    stream.read_exact(&mut length).expect("a length");
    let mut packet = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut packet).expect("an answer");
    (packet[1], packet[3] & 15, packet[7])
}

#[test]
fn while_the_store_is_away_names_are_answered_also_after_a_restart() {
    let mut etcd = Etcd::single();
    let store = etcd.store();
    let mut host = Host::new("h1", &etcd.endpoints());
    host.write_switched_service("web", 80);
    host.write("web-works", "");
    host.start();
    host.wait_for_name(&["web.service.consul"], &["127.0.0.1"]);
    let cached = || {
        let text = std::fs::read_to_string(host.state().join("catalog.json")).ok()?;
        text.contains("passing").then_some(())
    };
    tests::wait::until("what is answered is on disk", cached, || host.describe());
    drop(store);
    etcd.kill_member(0);
    assert_eq!(host.dig(&["web.service.consul"]), ["127.0.0.1"]);
    host.kill();
    host.start();
    host.wait_for_name(&["web.service.consul"], &["127.0.0.1"]);
    host.wait_for_name(&["h1.node.consul"], &["127.0.0.1"]);
    let (_, text) = host.http_get("/v1/services/web").expect("an answer");
    let answer: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(answer["instances"][0]["health"], "passing");
    assert!(answer["age_seconds"].is_u64(), "with its age: {answer}");
}
