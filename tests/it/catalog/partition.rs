//! Hosts in their own network namespaces that are cut off, alone or all together.

use std::time::{Duration, Instant};
use tests::etcd::Etcd;
use tests::host::Host;
use tests::network::{HostNetwork, Network};
use tests::store::Store;
use tests::{process, wait};

/// A short work lease; the outage lasts more than five of them, so that keys under the lease expire
/// in the store meanwhile.
const WORK_LEASE: Duration = Duration::from_secs(8);
const OUTAGE: Duration = Duration::from_secs(45);
const WEBS: u8 = 4;

struct Fleet {
    network: Network,
    store: Store,
    places: Vec<HostNetwork>,
    /// The hosts with the service `web`; the last host is a balancer.
    hosts: Vec<Host>,
    _etcd: Etcd,
}

impl Fleet {
    fn new() -> Self {
        let (network, etcd) = (Network::new(), Etcd::single_real());
        let endpoints = [network.endpoint(&etcd.endpoint(0))];
        let places: Vec<HostNetwork> = (1..=WEBS + 1).map(|number| network.place(number)).collect();
        let lease = format!("work_lease = \"{}s\"", WORK_LEASE.as_secs());
        let hosts = places.iter().zip(1..).map(|(place, number)| {
            let is_balancer = number > WEBS;
            let host = Host::new(&format!("{}{number}", if is_balancer { "lb" } else { "web" }), &endpoints);
            let at = |name: &str| host.path(name).display().to_string();
            let mut settings = format!(
                "[services]\ndirectories = [{:?}]\naddresses = [{:?}]\n{lease}\n",
                at("services.d"),
                place.address
            );
            if is_balancer {
                settings += &format!(
                    "[catalog]\nhiera_file = {:?}\n[[template]]\nsource = {:?}\ntarget = {:?}\non_change = [{:?}]\n",
                    at("services.yaml"),
                    at("backends.j2"),
                    at("backends"),
                    at("reload")
                );
                host.write("backends.j2", "{% for i in service(\"web\") %}{{ i.host }} {% endfor %}.\n");
                let log = at("reloads");
                host.write_executable("reload", &format!("#!/bin/sh\ncat \"$ORCHESTRATE_FILE\" >> {log}\n"));
            }
            let mut host = host.at(place).with(&settings);
            if !is_balancer {
                host.write_switched_service("web", 80);
                host.write("web-works", "");
            }
            host.start();
            host
        });
        let hosts = hosts.collect();
        let store = etcd.store();
        let fleet = Self { network, store, places, hosts, _etcd: etcd };
        fleet.wait_for_all();
        fleet
    }

    fn balancer(&self) -> &Host {
        &self.hosts[usize::from(WEBS)]
    }

    fn addresses(&self) -> Vec<&str> {
        self.places[..usize::from(WEBS)].iter().map(|place| place.address.as_str()).collect()
    }

    fn describe(&self) -> String {
        self.hosts.iter().map(Host::describe).collect::<Vec<_>>().join("\n")
    }

    fn wait_for_all(&self) {
        for host in &self.hosts {
            host.wait_for_name(&["web.service.consul"], &self.addresses());
        }
        let is = || (self.balancer().read("backends") == self.all_backends()).then_some(());
        wait::until("the balancer has all", is, || self.describe());
    }

    fn all_backends(&self) -> String {
        let names: Vec<String> = (1..=WEBS).map(|number| format!("web{number} ")).collect();
        format!("{}.\n", names.concat())
    }

    /// Asserts that every host answers with every address.
    fn ask_everybody(&self) {
        for host in &self.hosts {
            assert_eq!(host.dig(&["web.service.consul"]), self.addresses(), "{}", self.describe());
        }
    }

    fn published(&self) -> usize {
        self.store.list("/available_services/web/").len()
    }
}

#[test]
fn an_outage_of_five_work_leases_changes_no_file_restarts_nothing_and_fails_no_question() {
    let name = "catalog::partition::an_outage_of_five_work_leases_changes_no_file_restarts_nothing_and_fails_no_question";
    if !process::in_own_network(name) {
        return;
    }
    let fleet = Fleet::new();
    let balancer = fleet.balancer();
    let files = ["backends", "services.yaml", "reloads"];
    let seen = || {
        files.map(|file| {
            let written = std::fs::metadata(balancer.path(file)).and_then(|m| m.modified()).expect("a file");
            (balancer.read(file), written)
        })
    };
    let hiera = || balancer.read("services.yaml").contains(&fleet.addresses().join(", "));
    let is_reloaded = || balancer.read("reloads").ends_with(&fleet.all_backends());
    wait::until("all is written", || (hiera() && is_reloaded()).then_some(()), || fleet.describe());
    let before = seen();
    let pids: Vec<i32> = fleet.hosts.iter().map(Host::pid).collect();
    fleet.network.cut(None);
    let begin = Instant::now();
    while begin.elapsed() < OUTAGE {
        fleet.ask_everybody();
    }
    let gone = || (fleet.published() == 0).then_some(());
    wait::until("the leases are over", gone, || fleet.describe());
    // Half of all round trips are lost while the connection returns. If that lasted, a host might need
    // longer than the minute for which it is retained, so it ends with the first host that is back.
    fleet.network.lose(0.3);
    fleet.network.heal(None);
    let first = || {
        fleet.ask_everybody();
        (fleet.published() > 0).then_some(())
    };
    wait::until_within(Duration::from_secs(60), "the first publishes again", first, || fleet.describe());
    fleet.network.lose_no_more(0.3);
    let back = || {
        fleet.ask_everybody();
        let health = fleet.store.list("/orchestrate/health/web/");
        (fleet.published() == usize::from(WEBS) && health.len() == usize::from(WEBS)).then_some(())
    };
    wait::until_within(Duration::from_secs(180), "all publish again", back, || fleet.describe());
    let calm = || {
        fleet.ask_everybody();
        seen() == before
    };
    wait::stays("nothing was written", Duration::from_secs(5), calm, || format!("{:?}", seen()));
    assert_eq!(fleet.hosts.iter().map(Host::pid).collect::<Vec<_>>(), pids);
    assert!(fleet.hosts.iter().all(|host| !host.is_dead()));
}

#[test]
fn one_host_that_is_cut_off_leaves_the_names_and_knows_them_itself_and_comes_back() {
    let name =
        "catalog::partition::one_host_that_is_cut_off_leaves_the_names_and_knows_them_itself_and_comes_back";
    if !process::in_own_network(name) {
        return;
    }
    let fleet = Fleet::new();
    let (cut, rest) = (&fleet.hosts[0], &fleet.addresses()[1..]);
    fleet.network.cut(Some(&fleet.places[0]));
    for host in &fleet.hosts[1..] {
        let gone = || (host.dig(&["web.service.consul"]) == rest).then_some(());
        wait::until_within(Duration::from_secs(90), "it is gone from the names", gone, || host.describe());
    }
    let gone = || (!fleet.balancer().read("backends").contains("web1 ")).then_some(());
    wait::until("the balancer follows", gone, || fleet.describe());
    // The host that is cut off serves its last known state, and reports its age.
    assert_eq!(cut.dig(&["web.service.consul"]), fleet.addresses(), "{}", cut.describe());
    let alone = |s: &serde_json::Value| s["store"]["connected"] == false && s["catalog"]["age_seconds"] != 0;
    let knows = || cut.status().filter(alone);
    wait::until_within(Duration::from_secs(60), "it knows that it is cut off", knows, || cut.describe());
    assert_eq!(cut.dig(&["web.service.consul"]), fleet.addresses(), "{}", cut.describe());
    fleet.network.heal(Some(&fleet.places[0]));
    fleet.wait_for_all();
}
