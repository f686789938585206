//! What receivers hear of incidents: webhooks, commands, the heartbeat.

use crate::contract::fleet::{FLEET, fill};
use serde_json::Value;
use standardwebhooks::Webhook;
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tests::authority::Authority;
use tests::etcd::Etcd;
use tests::observer::Observer;
use tests::process::{Running, binary, free_ports, run};
use tests::proxy::{Behaviour, Proxy};
use tests::receiver::{HttpReceiver, Received};
use tests::store::Store;
use tests::wait;

const AT_ONCE: &str = "[incidents]\nhold_for = \"0\"\nclear_for = \"0\"\n";
const KEYS: [&str; 2] =
    ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYqrTwjU", "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"];

/// Writes the keys of a webhook, and returns their files as TOML.
fn key_files(directory: &Path) -> String {
    let files: Vec<PathBuf> = (0..KEYS.len()).map(|n| directory.join(format!("key-{n}"))).collect();
    for (file, key) in files.iter().zip(KEYS) {
        std::fs::write(file, format!("{key}\n")).expect("written");
        std::fs::set_permissions(file, PermissionsExt::from_mode(0o640)).expect("its mode");
    }
    format!("{files:?}")
}

/// Starts an observer of a fleet with one of everything that can be wrong.
pub(crate) fn observe(etcd: &Etcd, notify: &str) -> Observer {
    Observer::start_with(&format!("endpoints = {:?}", etcd.endpoints()), &format!("{AT_ONCE}{notify}"))
}

fn is(kind: &'static str, of: &'static str) -> impl Fn(&Received) -> bool {
    move |received| {
        let json = received.json();
        json["type"] == format!("incident.{kind}") && json["data"]["kind"] == of
    }
}

/// Returns the number of messages that wait for receivers.
fn waiting(observer: &Observer) -> f64 {
    let metrics = observer.get("/metrics").body;
    let of_waiting = |line: &str| {
        line.strip_prefix("orchestrate_observer_notifications_waiting")?
            .rsplit(' ')
            .next()?
            .parse::<f64>()
            .ok()
    };
    metrics.lines().filter_map(of_waiting).sum()
}

pub(crate) fn wait_for_none_waiting(observer: &Observer) {
    let has_none = || (waiting(observer) == 0.0).then_some(());
    wait::until_within(wait::DEADLINE * 2, "no message waits", has_none, || observer.log());
}

/// Takes the lost host out of the fleet.
pub(crate) fn forget_the_lost(store: &Store) {
    store.delete("/orchestrate/hosts/lost-1");
    store.delete("/orchestrate/reports/lost-1");
}

/// Asserts that a message is signed with a key, by the reference implementation.
fn assert_signed(received: &Received, key: &str) {
    let headers = received.headers.iter().filter(|(name, _)| name.starts_with("webhook-"));
    let headers: http::HeaderMap = headers
        .map(|(name, value)| {
            (name.parse::<http::HeaderName>().expect("a name"), value.parse().expect("a value"))
        })
        .collect();
    let webhook = Webhook::new(key).expect("a key");
    webhook
        .verify(received.body.as_bytes(), &headers)
        .unwrap_or_else(|error| panic!("{error}: {received:?}"));
    assert!(webhook.verify(b"{}", &headers).is_err(), "another body has another signature");
}

#[test]
fn a_webhook_hears_of_each_opening_and_each_end_and_knows_who_sent_it() {
    let etcd = Etcd::single();
    let store = etcd.store();
    fill(&store, &FLEET);
    let (chat, pager) = (HttpReceiver::start(), HttpReceiver::start());
    // Neither an error nor a redirect is a success.
    chat.answer_next(&[500, 302]);
    let directory = tempfile::tempdir().expect("a directory");
    let files = key_files(directory.path());
    let notify = format!(
        "[notify.webhooks.chat]\nurl = {:?}\nsecret_files = {files}\n\
         [notify.webhooks.pager]\nurl = {:?}\nsecret_files = {files}\nmin_severity = \"page\"\n",
        chat.url("/hook?room=1"),
        pager.url("/")
    );
    let (observer, other) = (observe(&etcd, &notify), observe(&etcd, &notify));
    let log = || format!("{}\n{}", observer.log(), other.log());
    let opened = chat.wait_for("both observers tell of the lost host", 2, is("opened", "lost"), log);
    for received in &opened {
        KEYS.iter().for_each(|key| assert_signed(received, key));
        assert_eq!(received.line, "POST /hook?room=1");
        assert_eq!(received.headers["content-type"], "application/json");
        let data = &received.json()["data"];
        assert_eq!(
            (&data["format"], &data["host_count"], &data["hosts"][0]),
            (&1.into(), &1.into(), &"lost-1".into())
        );
        assert_eq!((&data["severity"], &data["lineage"]), (&"ticket".into(), &"abc".into()));
    }
    let ids =
        |field: fn(&Received) -> Value| opened.iter().map(|r| field(r).to_string()).collect::<BTreeSet<_>>();
    assert_eq!(ids(|received| received.json()["data"]["incident_id"].clone()).len(), 1, "{opened:?}");
    // What failed was sent again as the same message, which those of the other observer are not.
    let first = chat.received()[0].clone();
    let is_first = |received: &Received| received.headers["webhook-id"] == first.headers["webhook-id"];
    let same = chat.wait_for("the first message is sent again", 2, is_first, log);
    assert_eq!(same[0].body, same[1].body);
    assert!(chat.received().iter().all(|received| received.line != "GET /elsewhere"));
    forget_the_lost(&store);
    chat.wait_for("both tell of the end", 2, is("resolved", "lost"), log);
    assert_eq!(
        pager.received().iter().map(|r| r.json()["data"]["severity"].clone()).find(|s| s != "page"),
        None
    );
    wait_for_none_waiting(&observer);
    let metrics = observer.get("/metrics").body;
    let sent = "orchestrate_observer_notifications_total{receiver=\"webhook/chat\",result=\"sent\"}";
    assert!(metrics.contains(sent), "{metrics}");
    let shown = format!("{}{}", log(), metrics);
    assert!(!shown.contains("room=1") && !shown.contains(&KEYS[0][6..20]), "a secret is in {shown}");
}

#[test]
fn a_receiver_that_was_away_hears_what_it_missed() {
    let etcd = Etcd::single();
    let store = etcd.store();
    fill(&store, &FLEET);
    let [port] = free_ports();
    let directory = tempfile::tempdir().expect("a directory");
    let files = key_files(directory.path());
    let url = format!("http://127.0.0.1:{port}/");
    let observer =
        observe(&etcd, &format!("[notify.webhooks.chat]\nurl = {url:?}\nsecret_files = {files}\n"));
    wait::until("messages wait", || (waiting(&observer) > 0.0).then_some(()), || observer.log());
    wait::until(
        "the failure is in the log",
        || observer.log().contains("was not delivered").then_some(()),
        || observer.log(),
    );
    // Neither its end nor that of the incident loses a message.
    let observer = observer.again();
    observer.wait_for_health("fresh");
    forget_the_lost(&store);
    let has_ended = |shown: &Value| {
        shown["incidents"].as_array().is_some_and(|all| all.iter().all(|open| open["kind"] != "lost"))
    };
    observer.wait_for("/v1/incidents", "the incident has ended", has_ended);
    let chat = HttpReceiver::start_at(port);
    let log = || observer.log();
    chat.wait_for("it hears of the end", 1, is("resolved", "lost"), log);
    let of_lost: Vec<Value> = chat
        .received()
        .iter()
        .map(Received::json)
        .filter(|json| json["data"]["kind"] == "lost")
        .map(|json| json["type"].clone())
        .collect();
    assert_eq!(of_lost, ["incident.opened", "incident.resolved"]);
}

#[test]
fn an_incident_that_opens_again_and_again_is_told_once_more_and_then_not() {
    let etcd = Etcd::single();
    let store = etcd.store();
    fill(&store, &FLEET);
    let chat = HttpReceiver::start();
    let directory = tempfile::tempdir().expect("a directory");
    let files = key_files(directory.path());
    let notify = format!("[notify.webhooks.chat]\nurl = {:?}\nsecret_files = {files}\n", chat.url("/"));
    let observer = observe(&etcd, &notify);
    let is_open = |wanted: bool| {
        let holds = |shown: &Value| {
            let all = shown["incidents"].as_array().expect("incidents");
            all.iter().any(|open| open["kind"] == "lost") == wanted
        };
        observer.wait_for("/v1/incidents", "the incident opens or ends", holds);
    };
    for _ in 0..4 {
        store.put("/orchestrate/hosts/lost-1", r#"{"format":1,"since":1416300000}"#);
        is_open(true);
        forget_the_lost(&store);
        is_open(false);
    }
    wait_for_none_waiting(&observer);
    let messages = chat.received().into_iter().map(|received| received.json());
    let messages: Vec<Value> =
        messages.filter(|json| json["data"]["kind"] == "lost").map(|json| json["type"].clone()).collect();
    let pair = ["incident.opened", "incident.resolved"];
    assert_eq!(messages, [&pair[..], &pair, &["incident.flapping"]].concat());
}

#[test]
fn a_list_after_a_cut_loses_no_host() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let host = |n: usize| format!("h{n:03}");
    let join = |n: usize| {
        store.put(&format!("/orchestrate/hosts/{}", host(n)), r#"{"format":1,"since":1416300000}"#);
        store.put(&format!("/orchestrate/live/{}", host(n)), "1")
    };
    store.put("/current_version", "43");
    (0..100).for_each(|n| _ = join(n));
    let proxy = Proxy::start(&etcd.endpoint(0));
    let chat = HttpReceiver::start();
    let directory = tempfile::tempdir().expect("a directory");
    let files = key_files(directory.path());
    let notify =
        format!("{AT_ONCE}[notify.webhooks.chat]\nurl = {:?}\nsecret_files = {files}\n", chat.url("/"));
    let observer = Observer::start_with(&format!("endpoints = [{:?}]", proxy.endpoint()), &notify);
    observer.wait_for_health("fresh");
    for round in 1..4 {
        proxy.set(Behaviour::Refuse);
        // What happens meanwhile is no longer in the history of the store.
        let newest = (0..10).map(|n| join(100 * round + n)).max().expect("some");
        store.compact(newest);
        proxy.set(Behaviour::Pass);
        let shows = |health: &Value| health["revision"].as_i64() >= Some(newest);
        observer.wait_for("/v1/health", "it reads the store again", shows);
    }
    store.delete("/orchestrate/live/h007");
    let messages = chat.wait_for("a host is lost", 1, is("opened", "lost"), || observer.log());
    assert_eq!(messages[0].json()["data"]["hosts"], serde_json::json!(["h007"]));
    let mut all: BTreeSet<String> =
        chat.received().iter().map(|r| r.json()["data"]["kind"].to_string()).collect();
    // That the store was away is true, and may be seen.
    all.remove("\"store_away\"");
    assert_eq!(all.len(), 1, "{all:?}");
}

#[test]
fn a_command_reads_the_message_and_is_run_again_until_it_succeeds() {
    let etcd = Etcd::single();
    fill(&etcd.store(), &FLEET);
    let directory = tempfile::tempdir().expect("a directory");
    let (program, output) = (directory.path().join("page"), directory.path().join("heard"));
    let script = format!(
        "#!/bin/sh\nset -eu\n[ -e {0:?} ] || {{ touch {0:?}; echo the line is busy >&2; exit 1; }}\ncat >>{1:?}; echo \"$@\" >>{1:?}\n",
        directory.path().join("tried"),
        output
    );
    std::fs::write(&program, script).expect("written");
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("its mode");
    let observer = observe(&etcd, &format!("[notify.commands.pager]\nrun = [{program:?}, \"--now\"]\n"));
    let heard = || {
        let text = std::fs::read_to_string(&output).unwrap_or_default();
        let line = text.lines().find(|line| line.contains("\"kind\":\"lost\""))?.to_owned();
        Some((line, text))
    };
    let (line, text) = wait::until("the command has the message", heard, || observer.log());
    let json: Value = serde_json::from_str(line.trim_end_matches(" --now").trim_end_matches("--now"))
        .unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(json["data"]["hosts"], serde_json::json!(["lost-1"]));
    assert!(observer.log().contains("exited with code 1: the line is busy"), "{}", observer.log());
}

#[test]
fn what_a_receiver_needs_is_checked_at_the_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("open.key"), KEYS[0]).expect("written");
    std::fs::set_permissions(path("open.key"), PermissionsExt::from_mode(0o644)).expect("its mode");
    std::fs::write(path("short.key"), "whsec_AAAA").expect("written");
    std::fs::set_permissions(path("short.key"), PermissionsExt::from_mode(0o600)).expect("its mode");
    std::fs::write(path("page"), "#!/bin/sh\n").expect("written");
    std::fs::set_permissions(path("page"), PermissionsExt::from_mode(0o777)).expect("its mode");
    let webhook = |key: &str| {
        format!("[notify.webhooks.a]\nurl = \"http://127.0.0.1:1/\"\nsecret_files = [{:?}]\n", path(key))
    };
    for (notify, expected) in [
        (webhook("open.key"), "open.key: every user may read it"),
        (webhook("short.key"), "short.key: it must hold whsec_ and 24 to 64 bytes in base64"),
        (webhook("no.key"), "no.key: No such file or directory"),
        (format!("[notify.commands.a]\nrun = [{:?}]\n", path("page")), "page is writable by others"),
        (
            format!("[notify]\nheartbeat_url = \"https://a.example/\"\ncacert = {:?}\n", path("no.crt")),
            "no.crt: No such file or directory",
        ),
        (
            format!("[notify]\nheartbeat_url = \"https://a.example/\"\ncacert = {:?}\n", path("page")),
            "page: there is none",
        ),
    ] {
        let file = path("observer.toml");
        let text =
            format!("state_directory = {:?}\n[http]\nlisten = \"127.0.0.1:0\"\n{notify}", directory.path());
        std::fs::write(&file, text).expect("written");
        let output = run(Command::new(binary("orchestrate-observer")).arg("--config").arg(&file), "");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains(expected), "{expected}: {message}");
    }
}

/// A proxy that ends TLS in front of a receiver.
fn tls_proxy(authority: &Authority, receiver: &HttpReceiver) -> (Running, u16) {
    let [port] = free_ports();
    let tls = authority.server();
    let pem = [&tls.cert, &tls.key].map(|path| std::fs::read_to_string(path).expect("readable")).concat();
    std::fs::write(authority.path("server.pem"), pem).expect("written");
    let settings = format!(
        "defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 10s\n  timeout server 10s\nfrontend f\n  \
         bind 127.0.0.1:{port} ssl crt {}\n  default_backend b\nbackend b\n  server s 127.0.0.1:{}\n",
        authority.path("server.pem").display(),
        receiver.port()
    );
    std::fs::write(authority.path("haproxy.cfg"), settings).expect("written");
    let mut command = Command::new("haproxy");
    command.arg("-f").arg(authority.path("haproxy.cfg"));
    (Running::start(&mut command, &authority.path("haproxy.log")), port)
}

#[test]
fn the_heartbeat_goes_to_a_receiver_with_a_known_certificate_while_data_is_fresh() {
    let etcd = Etcd::single();
    etcd.store().put("/current_version", "1");
    let authority = Authority::new();
    let watchdog = HttpReceiver::start();
    let (_proxy, port) = tls_proxy(&authority, &watchdog);
    let notify = |path: &str, authority: &Authority| {
        let (url, cacert) = (format!("https://127.0.0.1:{port}/{path}/secret"), authority.path("ca.crt"));
        format!("[notify]\nheartbeat_url = {url:?}\ncacert = {cacert:?}\n")
    };
    let observer = observe(&etcd, &notify("known", &authority));
    watchdog.wait_for("it beats", 1, |r| r.line == "GET /known/secret", || observer.log());
    let refused = observe(&etcd, &notify("refused", &Authority::new()));
    let is_refused = || {
        refused.log().lines().find(|line| line.contains("the heartbeat was not delivered")).map(str::to_owned)
    };
    let line = wait::until("the certificate is refused", is_refused, || refused.log());
    assert!(!line.contains("secret"), "{line}");
    // An observer that has not read the store has no heartbeat.
    etcd.signal_member(0, rustix::process::Signal::STOP);
    let blind = observe(&etcd, &notify("blind", &authority));
    blind.wait_for_health("starting");
    let is_silent = || watchdog.received().iter().all(|received| received.line == "GET /known/secret");
    wait::stays("there is no other heartbeat", Duration::from_secs(3), is_silent, || blind.log());
}
