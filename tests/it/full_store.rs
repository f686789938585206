//! A store that accepts no writes and keeps leases alive: nothing says yes about a host that knows better.

use crate::alerts::has;
use crate::stolen_host::filter;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};
use tests::etcd::Etcd;
use tests::host::Host;
use tests::observer::Observer;
use tests::process::Running;
use tests::store::Store;
use tests::wait;

/// Time within which a statement that a host knows to be untrue is gone: the live lease, and what it takes to see it.
const LEASE: Duration = Duration::from_secs(30);

/// What a question for both services is answered with.
const BOTH: [&str; 2] = ["1 1 80 web-1.node.consul.", "1 1 80 web-2.node.consul."];

/// Fills the store until it raises the alarm NOSPACE.
fn fill(store: &Store) {
    let block = "x".repeat(200_000);
    let full = || store.try_put("/filler", block.as_bytes()).err().filter(|e| e.contains("space exceeded"));
    wait::until("the alarm is raised", full, String::new);
}

fn make_room(etcd: &Etcd, store: &Store) {
    store.delete("/filler");
    store.compact(store.revision());
    etcd.etcdctl(&["defrag"], "");
    etcd.etcdctl(&["alarm", "disarm"], "");
}

fn hosts_at_one_version(etcd: &Etcd, store: &Store) -> (Host, Host) {
    let mut hosts = ["web-1", "web-2"].map(|name| {
        let host = Host::new(name, &etcd.endpoints());
        for (service, port) in [("web", 80), ("db", 5432)] {
            host.write_switched_service(service, port);
            host.write(&format!("{service}-works"), "");
        }
        host
    });
    hosts.iter_mut().for_each(Host::start);
    store.put("/current_version", "1");
    hosts.iter().for_each(|host| host.wait_for_listing(store, "1"));
    let [web_1, web_2] = hosts;
    web_1.wait_for_name(&["web.service.consul", "SRV"], &BOTH);
    let settled = || (web_1.command(&["status"], "").code == 0).then_some(());
    wait::until("the fleet is settled", settled, || web_1.describe());
    (web_1, web_2)
}

#[test]
fn a_full_store_ends_every_yes_about_a_host_that_knows_better() {
    let etcd = Etcd::with_quota(2 * 1024 * 1024);
    let store = etcd.store();
    let (web_1, web_2) = hosts_at_one_version(&etcd, &store);
    let endpoints = format!("endpoints = {:?}", etcd.endpoints());
    let observer = Observer::start_with(&endpoints, "[incidents]\nhold_for = \"0\"\nclear_for = \"0\"\n");
    observer.wait_for("/v1/status", "settled", |view| view["fleet"] == "settled");
    let yes = web_1.command(&["verify_hosts", "1"], "web-1\nweb-2\n");
    assert_eq!(yes.code, 0, "{yes:?}");

    fill(&store);
    web_1.write("code-check", "1\n");
    web_2.remove("web-works");
    let began = Instant::now();
    // What hosts say cannot be told any more; what operators wrote can.
    for question in [
        &["status"][..],
        &["verify_hosts", "1", "web-1", "web-2"],
        &["verify_hosts", "--strict", "1", "web-1", "web-2"],
        &["verify_hosts", "--wait", "1s", "1", "web-2"],
        &["check_single_version", "1"],
        &["hosts_at_version", "1"],
        &["running_versions"],
        &["get_failures", "--hosts"],
        &["hosts"],
        &["why", "web-2"],
        &["unaccounted"],
        &["services", "list"],
        &["wait_for", "web", "--timeout", "1s"],
    ] {
        let answer = web_1.command(question, "");
        assert_eq!(answer.code, 2, "{question:?}: {answer:?}");
        assert!(answer.err.contains("NOSPACE"), "{question:?}: {answer:?}");
    }
    let freezes = web_1.command(&["freezes"], "");
    assert_eq!(freezes.code, 0, "{freezes:?}");
    // Names and lists follow the hosts, not the last words that the store took from them.
    let unlisted = || store.get("/running_version/1/web-1").is_none().then_some(());
    wait::until("web-1 is listed no more", unlisted, || web_1.describe());
    assert!(began.elapsed() < LEASE, "{:?}", began.elapsed());
    web_1.wait_for_name(&["web.service.consul", "SRV"], &BOTH[..1]);
    assert!(store.get("/running_version/1/web-2").is_some(), "what is true stays");
    let live = ["/orchestrate/live/web-1", "/orchestrate/live/web-2"];
    assert!(live.iter().all(|key| store.get(key).is_some()), "both hosts live");
    observer.wait_for("/v1/status", "unknown", |view| view["fleet"] == "unknown");
    let named = |view: &serde_json::Value| view.to_string().contains("store_alarm");
    observer.wait_for("/v1/incidents", "the incident", named);
    let page = observer.get("/").body;
    assert!(page.contains("Unknown: the store raised the alarm NOSPACE"), "{page}");

    make_room(&etcd, &store);
    web_1.remove("code-check");
    web_2.write("web-works", "");
    web_1.wait_for_listing(&store, "1");
    web_1.wait_for_name(&["web.service.consul", "SRV"], &BOTH);
    let settled = || (web_1.command(&["status"], "").code == 0).then_some(());
    wait::until_within(Duration::from_secs(60), "the fleet is settled again", settled, || web_1.describe());
    let gone = |view: &serde_json::Value| !view.to_string().contains("store_alarm");
    observer.wait_for("/v1/incidents", "no incident", gone);
}

/// The delays between refused writes grow to half a minute, and the live lease is revoked after ten seconds.
#[test]
fn a_store_that_stays_full_takes_back_at_once_what_becomes_untrue_later() {
    let etcd = Etcd::with_quota(2 * 1024 * 1024);
    let store = etcd.store();
    let hosts = hosts_at_one_version(&etcd, &store);
    let (web_1, web_2) = &hosts;
    let describe = || format!("{}\n{}", web_1.describe(), web_2.describe());
    fill(&store);
    [web_1, web_2].iter().for_each(|host| host.remove("db-works"));
    let refused = |host: &Host| host.read("agent.log").matches("the store could not be written").count();
    let many = || (refused(web_1).min(refused(web_2)) >= 8).then_some(());
    wait::until_within(Duration::from_secs(120), "the delays are long", many, describe);

    web_1.remove("web-works");
    web_2.write("code-check", "1\n");
    let later = Instant::now();
    let unlisted = || store.get("/running_version/1/web-2").is_none().then_some(());
    wait::until("web-2 is listed no more", unlisted, describe);
    web_1.wait_for_name(&["web.service.consul", "SRV"], &BOTH[1..]);
    let revoked = || (later.elapsed() > LEASE / 2).then_some(());
    wait::until("a lease that stood for what is untrue was revoked", revoked, describe);
    for host in [web_1, web_2] {
        assert!(store.get(&format!("/orchestrate/live/{}", host.name)).is_some(), "{}", host.describe());
    }
}

/// A gRPC answer of the code INTERNAL in the language of nginx.
const INTERNAL: &str = "default_type application/grpc; add_header grpc-status 13; return 200; ";

#[test]
fn a_store_that_does_not_say_its_alarms_settles_nothing() {
    if !has("full_store::a_store_that_does_not_say_its_alarms_settles_nothing", "nginx") {
        return;
    }
    let etcd = Etcd::single();
    let store = etcd.store();
    let (web_1, _web_2) = hosts_at_one_version(&etcd, &store);
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    let port = filter(directory.path(), &etcd);
    // Everything is answered but the question for the alarms.
    let text = fs::read_to_string(at("nginx.conf")).expect("the filter");
    let status = "location = /etcdserverpb.Maintenance/Status { ";
    assert!(text.contains(status), "{text}");
    fs::write(at("nginx.conf"), text.replace(status, &format!("{status}{INTERNAL}"))).expect("written");
    let _nginx = Running::start(Command::new("nginx").arg("-c").arg(at("nginx.conf")), &at("log"));

    let through = format!("http://127.0.0.1:{port}");
    let why = "the store did not say whether it has an alarm: ";
    let answer = web_1.command(&["--endpoints", &through, "--timeout", "3s", "-o", "json", "status"], "");
    assert_eq!(answer.code, 2, "{answer:?}");
    assert!(answer.err.contains(why), "{answer:?}");
    let view: serde_json::Value = serde_json::from_str(&answer.out).expect("the status");
    assert_eq!((&view["fleet"], &view["alarms"]), (&"unknown".into(), &serde_json::Value::Null), "{view}");

    let observer = Observer::start(&format!("endpoints = [{through:?}]"));
    observer.wait_for("/v1/status", "unknown", |view| view["fleet"] == "unknown" && view["alarms"].is_null());
    let page = observer.get("/").body;
    assert!(page.contains(&format!("Unknown: {why}")), "{page}");
}
