//! Faults of the store and their effects.

use schema::names::HostName;
use std::collections::BTreeMap;
use std::time::Duration;
use tests::etcd::Etcd;
use tests::host::Host;
use tests::recorder::Recorder;
use tests::{checker, wait};

#[test]
fn the_leader_is_killed_during_an_update() {
    let mut etcd = Etcd::cluster();
    let recorder = Recorder::start(&etcd);
    let store = etcd.store();
    let hosts: Vec<Host> = ["a1", "b1"].iter().map(|name| Host::started(name, &etcd.endpoints())).collect();
    store.put("/current_version", "1");
    hosts.iter().for_each(|h| h.wait_for_listing(&store, "1"));
    hosts.iter().for_each(|h| h.write("hold-packages", ""));
    store.put("/current_version", "2");
    hosts.iter().for_each(|h| h.wait_for_begin("packages", "2"));
    let leader = etcd.leader();
    etcd.kill_member(leader);
    hosts.iter().for_each(|h| h.remove("hold-packages"));
    for host in &hosts {
        host.wait_for_listing(&store, "2");
    }
    etcd.start_member(leader);
    let changes = recorder.up_to(store.revision());
    let steps: BTreeMap<HostName, _> = hosts.iter().map(|h| (h.name.clone(), h.steps())).collect();
    checker::check(&changes, &steps);
}

#[test]
fn quorum_is_lost_and_comes_back_what_has_begun_finishes_and_nothing_starts() {
    let mut etcd = Etcd::cluster();
    let store = etcd.store();
    let host = Host::started("h1", &etcd.endpoints());
    store.put("/current_version", "1");
    host.wait_for_listing(&store, "1");
    host.write("hold-packages", "");
    store.put("/current_version", "2");
    host.wait_for_begin("packages", "2");
    etcd.kill_member(0);
    etcd.kill_member(1);
    host.remove("hold-packages");
    wait::until(
        "what has begun finishes",
        || (host.read("current_version") == "2").then_some(()),
        || host.describe(),
    );
    wait::until(
        "the loss is seen",
        || host.status().filter(|s| s["store"]["connected"] == false),
        || host.describe(),
    );
    etcd.start_member(0);
    etcd.start_member(1);
    host.wait_for_listing(&store, "2");
    host.wait_for_verdict("ok");
}

#[test]
fn history_is_compacted_while_the_agent_is_cut_off() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let host = Host::started("h1", &etcd.endpoints());
    store.put("/current_version", "1");
    host.wait_for_listing(&store, "1");
    host.signal(rustix::process::Signal::STOP);
    store.put("/current_version", "2");
    for number in 0..50 {
        store.put("/elsewhere", &number.to_string());
    }
    store.compact(store.revision());
    host.signal(rustix::process::Signal::CONT);
    host.wait_for_listing(&store, "2");
}

#[test]
fn a_restored_snapshot_is_recognised_and_nothing_starts_until_it_is_accepted() {
    let mut etcd = Etcd::single_real();
    let store = etcd.store();
    let host = Host::started("h1", &etcd.endpoints());
    store.put("/current_version", "1");
    host.wait_for_listing(&store, "1");
    let snapshot = etcd.save_snapshot();
    store.put("/current_version", "2");
    host.wait_for_listing(&store, "2");
    etcd.restore_snapshot(&snapshot);
    let store = etcd.store();
    let status = host.wait_for_verdict("blocked");
    assert!(status["detail"].as_str().expect("text").contains("store accept"), "{status}");
    // New writes pass the old revision within seconds; the restore stays recognised.
    for number in 0..100 {
        store.put("/elsewhere", &number.to_string());
    }
    store.put("/current_version", "3");
    wait::stays(
        "nothing starts",
        Duration::from_secs(2),
        || host.begins("packages", "3") == 0 && host.begins("packages", "1") == 1,
        || host.describe(),
    );
    assert_eq!(host.read("current_version"), "2", "it does not go back by itself");
    let result = host.command(&["store", "accept", "--version", "4"], "");
    assert_eq!(result.code, 0, "{result:?}");
    host.wait_for_listing(&store, "4");
    host.wait_for_verdict("ok");
}

#[test]
fn a_wiped_store_is_recognised_and_accepted() {
    let mut etcd = Etcd::single();
    let store = etcd.store();
    let host = Host::started("h1", &etcd.endpoints());
    store.put("/current_version", "1");
    host.wait_for_listing(&store, "1");
    etcd.wipe();
    let store = etcd.store();
    let status = host.wait_for_verdict("blocked");
    assert!(status["detail"].as_str().expect("text").contains("identity"), "{status}");
    assert_eq!(store.get("/orchestrate/store"), None, "an agent with a memory claims no store");
    wait::until("it says that it is blocked", || store.get("/orchestrate/reports/h1"), || host.describe());
    let result = host.command(&["store", "accept", "--version", "1"], "");
    assert_eq!(result.code, 0, "{result:?}");
    host.wait_for_listing(&store, "1");
    host.wait_for_verdict("ok");
    store.put("/current_version", "2");
    host.wait_for_listing(&store, "2");
    host.wait_for_verdict("ok");
    assert_eq!(host.begins("packages", "1"), 1, "what is proven is not applied again");
}

#[test]
fn another_fleets_store_is_refused_naming_both_and_nothing_is_written_to_it() {
    let etcd = Etcd::single();
    let mut host = Host::started("h1", &etcd.endpoints());
    etcd.store().put("/current_version", "1");
    host.wait_for_listing(&etcd.store(), "1");
    let other = Etcd::single();
    let other_store = other.store();
    let stranger = Host::started("x9", &other.endpoints());
    other_store.put("/current_version", "7");
    stranger.wait_for_listing(&other_store, "7");
    host.stop();
    host.set_endpoints(&other.endpoints());
    host.start();
    let status = host.wait_for_verdict("blocked");
    let detail = status["detail"].as_str().expect("text");
    let lineage = |store: &tests::store::Store| {
        let identity: serde_json::Value =
            serde_json::from_str(&store.get("/orchestrate/store").expect("an identity")).expect("JSON");
        identity["lineage"].as_str().expect("text").to_owned()
    };
    assert!(detail.contains(&lineage(&etcd.store())) && detail.contains(&lineage(&other_store)), "{detail}");
    assert!(other_store.list("/").keys().all(|k| !k.contains("h1")), "{:?}", other_store.list("/"));
    assert_eq!(host.begins("packages", "7"), 0);
    assert!(
        !host
            .command(&["--endpoints", "http://127.0.0.1:1", "--timeout", "1s", "current_version"], "")
            .out
            .contains('7')
    );
    // The endpoints are corrected.
    host.stop();
    host.set_endpoints(&etcd.endpoints());
    host.start();
    let store = etcd.store();
    store.put("/current_version", "2");
    host.wait_for_listing(&store, "2");
    host.wait_for_verdict("ok");
}

#[test]
fn an_identity_that_cannot_be_read_blocks_until_it_can() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let host = Host::started("h1", &etcd.endpoints());
    store.put("/current_version", "1");
    host.wait_for_listing(&store, "1");
    let identity = store.get("/orchestrate/store").expect("an identity");
    store.put("/orchestrate/store", &identity.replace("\"format\":1", "\"format\":9"));
    let status = host.wait_for_verdict("blocked");
    assert!(status["detail"].as_str().expect("text").contains("format 9"), "{status}");
    store.put("/orchestrate/store", &identity);
    host.wait_for_verdict("ok");
    store.put("/current_version", "2");
    host.wait_for_listing(&store, "2");
}
