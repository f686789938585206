//! A trigger whose answer is lost.

use super::fleet::{FLEET, clear, fill};
use super::rows::{World, check, report, row};
use std::time::Duration;
use tests::etcd::Etcd;
use tests::proxy::{Behaviour, Proxy};
use tests::store::Store;
use tests::wait;

/// Triggers `v44-new` while the proxy applies this behaviour to the request; the proxy forwards
/// everything again as soon as `seen` holds.
fn trigger_with_trouble(behaviour: Behaviour, seen: impl Fn(&Store, &Proxy) -> bool) {
    let etcd = Etcd::single();
    let store = etcd.store();
    fill(&store, &FLEET);
    let proxy = Proxy::start(&etcd.endpoint(0));
    // The requests before the write do not contain this version.
    proxy.set_on(b"v44-new", behaviour);
    let world = World::new(&proxy.endpoint());
    std::thread::scope(|scope| {
        let command = scope.spawn(|| check(&world, None, &row("a trigger", "trigger_update v44-new", 0, "")));
        wait::until("the trouble", || seen(&store, &proxy).then_some(()), String::new);
        proxy.set(Behaviour::Pass);
        report(&Vec::from_iter(command.join().expect("joined").err()));
    });
    assert_eq!(store.get("/current_version").as_deref(), Some("v44-new"));
}

#[test]
fn a_trigger_whose_answer_is_lost_reads_back_and_finds_it() {
    trigger_with_trouble(Behaviour::SwallowAnswers, |store, proxy| {
        proxy.lost() > 0 && store.get("/current_version").as_deref() == Some("v44-new")
    });
}

#[test]
fn a_trigger_that_is_lost_is_sent_again() {
    trigger_with_trouble(Behaviour::Swallow, |_, proxy| proxy.lost() > 0);
}

#[test]
fn a_trigger_that_is_cut_off_is_sent_again() {
    // The first connection is that of the earlier requests; a later one is refused.
    trigger_with_trouble(Behaviour::Refuse, |_, proxy| proxy.accepted() > 1);
}

#[test]
fn a_trigger_whose_answer_is_lost_never_overwrites_a_newer_one() {
    let etcd = Etcd::single();
    let store = etcd.store();
    fill(&store, &FLEET);
    let proxy = Proxy::start(&etcd.endpoint(0));
    proxy.set_on(b"v44-new", Behaviour::SwallowAnswers);
    let world = World::new(&proxy.endpoint());
    let trigger = row("a trigger", "trigger_update v44-new", 2, "").says("another instruction stands there");
    std::thread::scope(|scope| {
        let command = scope.spawn(|| check(&world, None, &trigger));
        let stands = || store.get("/current_version").filter(|v| v == "v44-new");
        wait::until("it was applied", stands, String::new);
        store.put("/current_version", "v45");
        proxy.set(Behaviour::Pass);
        report(&Vec::from_iter(command.join().expect("joined").err()));
    });
    assert_eq!(store.get("/current_version").as_deref(), Some("v45"));
}

#[test]
fn a_trigger_whose_answer_stays_lost_cannot_be_told() {
    let etcd = Etcd::single();
    let store = etcd.store();
    for behaviour in [Behaviour::SwallowAnswers, Behaviour::Swallow, Behaviour::Refuse, Behaviour::Garbage] {
        clear(&store);
        fill(&store, &FLEET);
        let proxy = Proxy::start(&etcd.endpoint(0));
        proxy.set_on(b"v44-new", behaviour);
        let world = World::new(&proxy.endpoint()).within(Duration::from_millis(1500));
        report(&Vec::from_iter(
            check(&world, None, &row("a trigger", "trigger_update v44-new", 2, "")).err(),
        ));
        let stands = store.get("/current_version").expect("something");
        assert_eq!(stands == "v44-new", behaviour == Behaviour::SwallowAnswers, "{behaviour:?}");
    }
}
