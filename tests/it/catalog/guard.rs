//! Instances that stop reporting together stay in the catalog (invariant I15).

use etcd_client::PutOptions;
use std::time::Duration;
use tests::etcd::Etcd;
use tests::host::Host;
use tests::store::Store;
use tests::wait;

/// Publishes instances of `web` for hosts without a real agent, under two leases like those of
/// agents; returns the live lease and the work lease.
fn publish(store: &Store, count: usize) -> (i64, i64) {
    let (runtime, mut client) = store.parts();
    runtime.block_on(async {
        let live = client.lease_grant(3600, None).await.unwrap().id();
        let work = client.lease_grant(3600, None).await.unwrap().id();
        for number in 1..=count {
            let record = format!(r#"{{"addresses": ["10.6.0.{number}"], "port": 80}}"#);
            let under = |lease| Some(PutOptions::new().with_lease(lease));
            client.put(format!("/available_services/web/w{number}"), record, under(work)).await.unwrap();
            client.put(format!("/orchestrate/health/web/w{number}"), "passing", under(live)).await.unwrap();
        }
        (live, work)
    })
}

fn revoke(store: &Store, lease: i64) {
    let (runtime, mut client) = store.parts();
    runtime.block_on(client.lease_revoke(lease)).unwrap();
}

fn wait_for_count(host: &Host, count: usize) {
    let dig = || host.dig(&["web.service.consul"]).len();
    wait::until(&format!("{count} names"), || (dig() == count).then_some(()), || host.describe());
}

fn retained(host: &Host) -> usize {
    let status = host.status().unwrap_or_default();
    status["catalog"]["retained"][0]["hosts"].as_array().map_or(0, Vec::len)
}

#[test]
fn many_that_go_silent_together_are_served_until_an_operator_lets_them_go() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let (live, _) = publish(&store, 5);
    let host = Host::started("h1", &etcd.endpoints());
    wait_for_count(&host, 5);
    revoke(&store, live);
    let all_retained = || (retained(&host) == 5).then_some(());
    wait::until("all five are held back", all_retained, || host.describe());
    let all = || host.dig(&["web.service.consul"]).len() == 5;
    wait::stays("they are served on", Duration::from_secs(2), all, || host.describe());
    let result = host.command(&["status"], "");
    assert!(result.out.contains("5 of 5; their last known state is served"), "{}", result.out);
    // An explicit health value takes effect at once.
    store.put("/orchestrate/health/web/w1", "critical");
    wait_for_count(&host, 4);
    let result = host.command(&["drop-stale"], "");
    assert_eq!(result.code, 0, "{result:?}");
    wait_for_count(&host, 0);
    assert_eq!(retained(&host), 0);
}

#[test]
fn thousands_of_keys_in_one_revision_are_one_change_of_a_file() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let lease = {
        let (runtime, mut client) = store.parts();
        runtime.block_on(async {
            let lease = client.lease_grant(3600, None).await.unwrap().id();
            for number in 0..3000 {
                let record = format!(r#"{{"addresses": ["10.3.{}.{}"]}}"#, number / 250, number % 250);
                let key = format!("/available_services/many/w{number}");
                client.put(key, record, Some(PutOptions::new().with_lease(lease))).await.unwrap();
            }
            lease
        })
    };
    let host = Host::new("h1", &etcd.endpoints());
    let at = |name: &str| host.path(name).display().to_string();
    let text = format!(
        "[catalog]\nguard_linger = \"1s\"\n[[template]]\nsource = \"{}\"\ntarget = \"{}\"\non_change = [\"{}\"]\n",
        at("count.j2"),
        at("count"),
        at("changed")
    );
    let mut host = host.with(&text);
    host.write("count.j2", "{{ service(\"many\", level=\"addressable\") | length }}\n");
    let log = host.path("changes").display().to_string();
    host.write_executable("changed", &format!("#!/bin/sh\ncat \"$ORCHESTRATE_FILE\" >> {log}\n"));
    host.start();
    let says = |expected: &str| (host.read("changes") == expected).then_some(());
    wait::until("all are counted", || says("3000\n"), || host.describe());
    revoke(&store, lease);
    wait::until("all are gone, in one change", || says("3000\n0\n"), || host.describe());
}

#[test]
fn when_the_work_lease_goes_too_they_are_let_go() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let (live, work) = publish(&store, 4);
    let mut host = Host::new("h1", &etcd.endpoints()).with("[catalog]\nguard_linger = \"2s\"\n");
    host.start();
    wait_for_count(&host, 4);
    revoke(&store, live);
    let all_retained = || (retained(&host) == 4).then_some(());
    wait::until("all are held back", all_retained, || host.describe());
    revoke(&store, work);
    wait_for_count(&host, 0);
}

#[test]
fn one_word_of_the_only_instance_passes_at_once() {
    let etcd = Etcd::single();
    let store = etcd.store();
    publish(&store, 1);
    let host = Host::started("h1", &etcd.endpoints());
    wait_for_count(&host, 1);
    store.put("/orchestrate/health/web/w1", "draining");
    wait_for_count(&host, 0);
    store.put("/orchestrate/health/web/w1", "warning");
    wait_for_count(&host, 1);
    // The deletion of its health key counts too: one instance is too few to suspect a fault.
    store.delete("/orchestrate/health/web/w1");
    wait_for_count(&host, 0);
}

#[test]
fn more_entries_than_the_limit_are_refused_loudly_and_what_was_served_stays() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let key = |number: usize| format!("/available_services/web/w{number}");
    let put = |numbers: std::ops::Range<usize>| {
        for number in numbers {
            store.put(&key(number), &format!(r#"{{"addresses": ["10.6.1.{number}"], "port": 80}}"#));
        }
    };
    put(0..40);
    let mut host = Host::new("h1", &etcd.endpoints()).with("[catalog]\nentries_max = 50\n");
    host.start();
    wait_for_count(&host, 40);
    let is_over = |host: &Host, over: bool| {
        let is = || host.status().filter(|s| s["catalog"]["over_the_limit"] == over);
        wait::until_within(Duration::from_secs(60), &format!("over: {over}"), is, || host.describe());
    };
    is_over(&host, false);
    let cached = || host.state().join("catalog.json").exists().then_some(());
    wait::until("the catalog is on disk", cached, || host.describe());
    put(40..60);
    is_over(&host, true);
    assert!(host.read("agent.log").contains("catalog.entries_max"), "{}", host.describe());
    let served = host.dig(&["web.service.consul"]).len();
    assert!((40..=60).contains(&served), "{served}");
    // After a restart the limit applies to the first list, so its excess entries are refused at
    // once.
    host.kill();
    host.start();
    is_over(&host, true);
    let served = host.dig(&["web.service.consul"]).len();
    assert!((40..=51).contains(&served), "what is on disk: {served}\n{}", host.describe());
    (30..60).for_each(|number| store.delete(&key(number)));
    is_over(&host, false);
    wait_for_count(&host, 30);
}
