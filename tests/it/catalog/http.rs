//! The agent's local HTTP with clients that use too much of it.

use etcd_client::{Txn, TxnOp};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tests::etcd::Etcd;
use tests::host::Host;
use tests::store::Store;
use tests::wait;

const CLIENTS: usize = 600;
const INSTANCES: usize = 5000;
/// Number of requests that may wait for a change; see docs/discovery.md.
const WAITING: usize = 64;
/// Upper bound in MiB on the memory that clients can make the agent hold; see docs/discovery.md.
const ADDED_MAX_MIB: usize = 100;
const BIG: &str = "/v1/services/big?level=addressable";

fn fill(store: &Store) {
    let (runtime, client) = store.parts();
    let about = "x".repeat(400);
    let hosts: Vec<usize> = (0..INSTANCES).collect();
    for hosts in hosts.chunks(100) {
        let put = |host: &usize| {
            let (key, address) = (format!("/available_services/big/h{host}"), host % 250);
            let record = format!(
                r#"{{"addresses": ["10.7.0.{address}"], "port": 80, "meta": {{"about": "{about}"}}}}"#
            );
            TxnOp::put(key, record, None)
        };
        let txn = Txn::new().and_then(hosts.iter().map(put).collect::<Vec<_>>());
        runtime.block_on(client.clone().txn(txn)).expect("written");
    }
}

fn memory_mib(host: &Host) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", host.pid())).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("its memory");
    line.split_whitespace().nth(1).expect("a number").parse::<usize>().expect("a number") / 1024
}

fn ask(host: &Host, path: &str) -> TcpStream {
    let mut stream = host.connect_http();
    // A small receive buffer keeps the system from storing the unread answer.
    rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 4096).expect("set");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
    stream
}

fn first_line(mut stream: &TcpStream) -> String {
    let mut line = [0; 12];
    stream.read_exact(&mut line).expect("an answer");
    String::from_utf8_lossy(&line).into_owned()
}

/// True if the answer of a client has begun to arrive.
fn is_answered(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("set");
    let seen = stream.peek(&mut [0]);
    stream.set_nonblocking(false).expect("set");
    seen.is_ok_and(|length| length > 0)
}

#[test]
fn clients_that_do_not_read_take_neither_the_memory_nor_the_places_of_others() {
    let etcd = Etcd::single();
    fill(&etcd.store());
    let host = Host::started("h1", &etcd.endpoints());
    let patience = Duration::from_secs(20);
    let count = || host.http_get_within(patience, BIG).map(|(_, body)| body.matches("10.7.0.").count());
    let all = || count().filter(|count| *count == INSTANCES);
    wait::until_within(wait::DEADLINE * 2, "all instances are known", all, || host.describe());
    let before = memory_mib(&host);
    let connections: Vec<_> = (0..CLIENTS).map(|_| ask(&host, BIG)).collect();
    // After 30 s the agent closes the connection of a client that does not read, in any case.
    let within = Duration::from_secs(25);
    wait::until_within(within, "somebody else is answered", all, || host.describe());
    let after = memory_mib(&host);
    assert!(after < before + ADDED_MAX_MIB, "{before} MiB, with {CLIENTS} clients {after} MiB");
    // The agent closes the connection of a client that does not read; the connection then
    // disappears from the system's table.
    let (client, begun) = (connections.last().expect("one"), Instant::now());
    client.set_read_timeout(Some(Duration::from_secs(5))).expect("set");
    let is_let_go = || {
        let port = client.local_addr().expect("an address").port();
        let table = std::fs::read_to_string("/proc/net/tcp").expect("a table");
        let theirs = format!(":{:04X} 0100007F:{port:04X} 01", host.http_port());
        (!table.contains(&theirs)).then_some(())
    };
    wait::until_within(Duration::from_secs(45), "it is let go", is_let_go, || {
        format!("{:?}", begun.elapsed())
    });
}

#[test]
fn questions_that_wait_keep_nobody_else_from_being_answered() {
    let etcd = Etcd::single();
    etcd.store().put("/available_services/web/w1", r#"{"addresses": ["10.7.0.1"], "port": 80}"#);
    let host = Host::started("h1", &etcd.endpoints());
    let web = || host.http_get("/v1/services/web").filter(|(code, _)| *code == 200);
    wait::until("the service is known", web, || host.describe());
    let index_of = |(_, body): (u16, String)| {
        let answer: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        answer["index"].as_u64().expect("a number")
    };
    // The first request makes the agent follow the health of the service as well; the resulting
    // change would answer a request that should wait.
    let settled = || {
        let now = index_of(web()?);
        let later = host.http_get(&format!("/v1/services/web?index={now}&wait=500ms"))?;
        (index_of(later) == now).then_some(now)
    };
    let index = wait::until("nothing more comes", settled, || host.describe());
    let path = format!("/v1/services/web?index={index}&wait=300s");
    let mut connections: Vec<_> = (0..CLIENTS).map(|_| ask(&host, &path)).collect();
    let live = || host.http_get("/live");
    wait::until_within(Duration::from_secs(10), "somebody else is answered", live, || host.describe());
    // A waiting request beyond the limit is told when to retry; the others are answered when
    // something changes.
    let last = connections.pop().expect("one");
    assert_eq!(first_line(&last), "HTTP/1.1 503");
    let mut rest = [0; 400];
    let length = (&last).read(&mut rest).expect("the rest");
    let rest = String::from_utf8_lossy(&rest[..length]).to_lowercase();
    assert!(rest.contains("retry-after: ") && rest.contains("wait already"), "{rest}");
    // One that the agent reads only after the change does not wait.
    let refused = || connections.iter().filter(|connection| is_answered(connection)).count();
    let all = || (refused() + WAITING == connections.len()).then_some(());
    wait::until("all others are refused", all, || format!("{} are", refused()));
    etcd.store().put("/available_services/web/w2", r#"{"addresses": ["10.7.0.2"], "port": 80}"#);
    let lines: Vec<String> = connections.iter().map(first_line).collect();
    let answered = lines.iter().filter(|line| *line == "HTTP/1.1 200").count();
    assert_eq!(answered, WAITING, "{lines:?}");
}

#[test]
fn prometheus_may_ask_by_a_name_that_the_settings_allow() {
    let etcd = Etcd::single();
    let mut host = Host::new("h1", &etcd.endpoints());
    std::fs::create_dir(host.path("agent.d")).expect("a directory");
    host.write("agent.d/names.toml", "[http]\nnames = [\"web1.example.org\"]\n");
    host.write_switched_service("web", 8080);
    host.write("web-works", "");
    host.start();
    host.wait_for_name(&["web.service.consul"], &["127.0.0.1"]);
    let code = |name: &str| {
        let mut stream = host.connect_http();
        write!(stream, "GET /metrics HTTP/1.0\r\nHost: {name}\r\n\r\n").expect("sent");
        first_line(&stream)
    };
    for name in ["web1.example.org", "web1.example.org:8580", "h1", "localhost"] {
        assert!(code(name).ends_with(" 200"), "{name}");
    }
    assert!(code("web2.example.org").ends_with(" 403"));
    let (_, targets) = host.http_get("/v1/http_sd?service=web").expect("an answer");
    let targets: serde_json::Value = serde_json::from_str(&targets).expect("JSON");
    assert_eq!(targets[0]["targets"], serde_json::json!(["127.0.0.1:8080"]), "{targets}");
}

#[test]
fn what_a_check_printed_is_shown_on_the_socket_alone_and_without_secrets() {
    let etcd = Etcd::single();
    let mut host = Host::new("h1", &etcd.endpoints())
        .with("[environment]\nDATABASE_URL = \"pg://app:canary1@db/x\"\nSHORT_TOKEN = \"e\"");
    host.write_executable("say", "#!/bin/sh\necho 'one canary1 GET /x?token=canary2 http://u:canary3@h/'\n");
    let file = serde_json::json!({"service": {"name": "web", "check":
        {"args": [host.path("say")], "interval": "200ms"}}});
    host.write_service("web.json", &file.to_string());
    host.start();
    let output = "one *** GET /x?token=*** http://u:***@h/";
    let has_output = || host.socket_answer("GET", "/v1/checks", "").filter(|answer| answer.contains(output));
    wait::until("the socket shows it", has_output, || {
        format!("{:?}\n{}", host.socket_answer("GET", "/v1/checks", ""), host.describe())
    });
    let (_, open) = host.http_get("/v1/checks").expect("an answer");
    assert!(open.contains("service:web") && open.contains("passing"), "{open}");
    assert!(!open.contains("output") && !open.contains("GET /x"), "{open}");
    for path in ["/status", "/metrics", "/v1/services/web"] {
        let (_, text) = host.http_get(path).expect("an answer");
        assert!(!text.contains("canary"), "{path}: {text}");
    }
    assert!(host.read("agent.log").contains("the secret SHORT_TOKEN is shorter than 4 bytes"));
    // No step runs, so nothing but the reload tells of the pattern.
    host.write("agent.toml", &format!("secret_patterns = ['one']\n{}", host.read("agent.toml")));
    host.signal(rustix::process::Signal::HUP);
    let output = "*** *** GET /x";
    let has_output = || host.socket_answer("GET", "/v1/checks", "").filter(|answer| answer.contains(output));
    wait::until("a new pattern counts at once", has_output, || host.describe());
}

#[test]
fn results_are_told_by_root_the_agents_user_and_the_group_of_the_socket_however_wide_it_is_open() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let set_mode = |path: std::path::PathBuf, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("set");
    };
    let etcd = Etcd::single();
    let mut host = Host::new("h1", &etcd.endpoints());
    std::fs::create_dir(host.path("agent.d")).expect("made");
    host.write("agent.d/group.toml", "[http]\nsocket_group = \"54321\"\n");
    host.write_service("web.json", r#"{"service": {"name": "web", "check": {"ttl": "600s"}}}"#);
    host.start();
    let socket = host.path("agent.sock");
    wait::until("it listens", || std::fs::metadata(&socket).ok(), || host.describe());
    wait::until("it answers", || host.socket_answer("GET", "/live", ""), || host.describe());
    let metadata = std::fs::metadata(&socket).expect("there");
    assert_eq!((metadata.mode() & 0o777, metadata.gid()), (0o660, 54321));
    set_mode(host.path(""), 0o711);
    // Somebody opens the socket to all users.
    set_mode(socket.clone(), 0o666);
    let ask = |who: &[&str], method: &str, path: &str| {
        let mut command = std::process::Command::new("setpriv");
        command.args(who).args(["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-X", method]);
        let socket = socket.display().to_string();
        command.args(["--unix-socket", &socket, &format!("http://localhost{path}")]);
        String::from_utf8_lossy(&tests::process::run(&mut command, "").stdout).into_owned()
    };
    let root: &[&str] = &["--clear-groups"];
    let nobody: &[&str] = &["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let member: &[&str] = &["--reuid", "65534", "--regid", "65534", "--groups", "54321"];
    let own_group: &[&str] = &["--reuid", "65534", "--regid", "54321", "--clear-groups"];
    for (who, expected) in [(root, "200"), (nobody, "403"), (member, "200"), (own_group, "200")] {
        for verb in ["pass", "warn", "fail", "update"] {
            let path = format!("/v1/agent/check/{verb}/service:web");
            // An update without a body is refused because of the missing body.
            let expected = if verb == "update" && expected == "200" { "400" } else { expected };
            assert_eq!(ask(who, "PUT", &path), expected, "{who:?} {verb}");
        }
        assert_eq!(ask(who, "GET", "/v1/agent/check/pass/service:web"), expected, "{who:?}");
        assert_eq!(ask(who, "GET", "/live"), "200", "{who:?}");
    }
}
