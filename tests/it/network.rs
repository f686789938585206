//! Faults of the network and their effects.

use std::time::{Duration, Instant};
use tests::etcd::Etcd;
use tests::host::Host;
use tests::proxy::{Behaviour, Proxy};
use tests::wait;

/// Starts a host that reaches its store through a proxy, and waits until it runs version 1.
fn host_behind_proxy(etcd: &Etcd) -> (Host, Proxy) {
    let proxy = Proxy::start(&etcd.endpoint(0));
    let host = Host::started("h1", &[proxy.endpoint()]);
    let store = etcd.store();
    store.put("/current_version", "1");
    host.wait_for_listing(&store, "1");
    host.wait_for_verdict("ok");
    (host, proxy)
}

fn wait_until_disconnected(host: &Host, limit: Duration) {
    let cut = |s: &serde_json::Value| s["store"]["connected"] == false;
    wait::until_within(limit, "the cut is noticed", || host.status().filter(cut), || host.describe());
}

#[test]
fn a_member_that_is_down_or_restarts_changes_nothing_shown() {
    let mut etcd = Etcd::cluster();
    let store = etcd.store();
    let host = Host::started("h1", &etcd.endpoints());
    store.put("/current_version", "1");
    host.wait_for_listing(&store, "1");
    let leader = etcd.leader();
    for (number, index) in (0..3).filter(|i| *i != leader).enumerate() {
        etcd.kill_member(index);
        let version = format!("{}", number + 2);
        store.put("/current_version", &version);
        host.wait_for_listing(&store, &version);
        host.wait_for_verdict("ok");
        etcd.start_member(index);
        etcd.wait_until_serving();
    }
    assert!(!host.read("agent.log").contains("verdict=\"blocked\""));
}

#[test]
fn a_slow_store_slows_the_update_and_shows_nothing_else() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let (host, proxy) = host_behind_proxy(&etcd);
    proxy.set(Behaviour::Delay(Duration::from_millis(400)));
    let connections = proxy.accepted();
    store.put("/current_version", "2");
    wait::until_within(
        Duration::from_secs(60),
        "the update is through",
        || store.get("/running_version/2/h1"),
        || host.describe(),
    );
    assert!(proxy.accepted() < connections + 5, "no pile of connections: {}", proxy.accepted() - connections);
    let words = host.read("agent.log");
    assert!(!words.contains("verdict=\"blocked\"") && !words.contains("verdict=\"failed\""), "{words}");
}

#[test]
fn a_line_of_64_kbit_that_loses_a_third_of_the_packets_slows_the_update_and_shows_nothing_else() {
    let name = "network::a_line_of_64_kbit_that_loses_a_third_of_the_packets_slows_the_update_and_shows_nothing_else";
    if !tests::process::in_own_network(name) {
        return;
    }
    let etcd = Etcd::single();
    let store = etcd.store();
    let (host, proxy) = host_behind_proxy(&etcd);
    proxy.set(Behaviour::Narrow(8_000));
    let endpoint = proxy.endpoint();
    let port = endpoint.rsplit(':').next().expect("a port");
    for way in ["--dport", "--sport"] {
        let rule = ["-A", "INPUT", "-p", "tcp", way, port, "-m", "statistic", "--mode", "random"];
        let mut command = std::process::Command::new("iptables");
        command.args(rule).args(["--probability", "0.3", "-j", "DROP"]);
        assert!(tests::process::run(&mut command, "").status.success());
    }
    let live = store.get("/orchestrate/live/h1");
    store.put("/current_version", "2");
    wait::until_within(
        Duration::from_secs(120),
        "the update is through",
        || store.get("/running_version/2/h1"),
        || host.describe(),
    );
    assert_eq!(store.get("/orchestrate/live/h1"), live, "the claim stands");
    let words = host.read("agent.log");
    assert!(!words.contains("verdict=\"blocked\"") && !words.contains("verdict=\"failed\""), "{words}");
}

#[test]
fn an_answer_that_is_lost_is_read_back_and_nothing_is_written_twice() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let (host, proxy) = host_behind_proxy(&etcd);
    host.write("hold-check", "");
    store.put("/current_version", "2");
    host.wait_for_begin("check", "2");
    proxy.set_on(b"/running_version/2/h1", Behaviour::SwallowAnswers);
    host.remove("hold-check");
    // The done transaction is committed, but its answer is lost.
    host.wait_for_listing(&store, "2");
    let written = store.revision();
    proxy.set(Behaviour::Pass);
    let well = |s: &serde_json::Value| s["verdict"] == "ok" && s["store"]["connected"] == true;
    wait::until("it knows", || host.status().filter(well), || host.describe());
    wait::stays(
        "nothing is repeated",
        Duration::from_secs(2),
        || store.revision() <= written + 1,
        || host.describe(),
    );
}

#[test]
fn a_half_open_connection_is_noticed_within_twenty_seconds_and_nothing_is_missed() {
    for behaviour in [Behaviour::Swallow, Behaviour::SwallowAnswers] {
        let etcd = Etcd::single();
        let store = etcd.store();
        let (host, proxy) = host_behind_proxy(&etcd);
        proxy.set(behaviour);
        wait_until_disconnected(&host, Duration::from_secs(20));
        store.put("/current_version", "2");
        let before = host.runs("check", "1");
        wait::until(
            "validation goes on",
            || (host.runs("check", "1") > before).then_some(()),
            || host.describe(),
        );
        assert_eq!(host.begins("packages", "2"), 0, "{behaviour:?}");
        proxy.set(Behaviour::Pass);
        host.wait_for_listing(&store, "2");
    }
}

#[test]
fn a_connection_that_is_refused_is_tried_at_a_growing_distance() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let (host, proxy) = host_behind_proxy(&etcd);
    proxy.set(Behaviour::Refuse);
    wait_until_disconnected(&host, Duration::from_secs(20));
    let before = proxy.accepted();
    let begin = Instant::now();
    wait::stays("it runs", Duration::from_secs(6), || !host.is_dead(), || host.describe());
    let tries = proxy.accepted() - before;
    assert!(tries < 60, "{tries} connections in {:?}", begin.elapsed());
    store.put("/current_version", "2");
    proxy.set(Behaviour::Pass);
    wait::until_within(
        Duration::from_secs(60),
        "steady within a minute",
        || store.get("/running_version/2/h1"),
        || host.describe(),
    );
}

#[test]
fn garbage_from_the_store_drops_the_connection_and_nothing_else() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let (host, proxy) = host_behind_proxy(&etcd);
    proxy.set(Behaviour::Garbage);
    // The existing connection stays open, but its next request is answered with garbage, as are new
    // connections.
    let lease = host.status().expect("status")["claim"]["lease"].clone();
    wait_until_disconnected(&host, Duration::from_secs(25));
    assert!(!host.is_dead());
    proxy.set(Behaviour::Pass);
    store.put("/current_version", "2");
    host.wait_for_listing(&store, "2");
    assert!(lease.is_string());
}

#[test]
fn a_member_that_is_cut_off_from_its_peers_is_left_for_another() {
    let name = "network::a_member_that_is_cut_off_from_its_peers_is_left_for_another";
    if !tests::process::in_own_network(name) {
        return;
    }
    let etcd = Etcd::separable();
    let store = etcd.store();
    store.put("/current_version", "1");
    let isolated = (etcd.leader() + 1) % 3;
    let hosts: Vec<Host> = (0..4)
        .map(|n| {
            let mut host = Host::new(&format!("h{n}"), &etcd.endpoints());
            if n == 0 {
                // This host knows only the member that will be isolated.
                host.set_endpoints(&[etcd.endpoint(isolated)]);
            }
            host.start();
            host
        })
        .collect();
    hosts.iter().for_each(|h| h.wait_for_listing(&store, "1"));
    etcd.isolate(isolated);
    // The member cancels the host's watch because it has no leader, instead of leaving it silent.
    // The host makes no decision on old data.
    wait_until_disconnected(&hosts[0], Duration::from_secs(20));
    let majority =
        tests::store::Store::connect(&[etcd.endpoint((isolated + 1) % 3), etcd.endpoint((isolated + 2) % 3)]);
    majority.put("/current_version", "2");
    for host in &hosts[1..] {
        wait::until(
            "the others go on",
            || majority.get(&format!("/running_version/2/{}", host.name)),
            || host.describe(),
        );
    }
    assert_eq!(hosts[0].begins("packages", "2"), 0);
    let result = hosts[0].command(&["--timeout", "2s", "verify_hosts", "1", "h0"], "");
    assert_eq!(result.code, 2, "no answer from a member without a leader: {result:?}");
}
