//! Hosts whose claims end without their doing: they vanish, take too long, or the store is an old one.

use super::{orchestrate, set_policy, started};
use std::time::Duration;
use tests::etcd::Etcd;
use tests::host::Host;
use tests::wait;

#[test]
fn a_host_that_vanished_is_lost_after_a_time_and_takes_its_claims_again_when_it_is_back() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut hosts = started(&["a1", "a2", "a3"], &etcd);
    store.put("/current_version", "1");
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "1"));
    let policy = "lost_after = \"5s\"\n[[limit]]\nby = \"fleet\"\nmax = 1\nkeep_failed = false\n";
    set_policy(&hosts[0], policy);
    hosts.iter().for_each(|host| host.write("hold-packages", ""));
    store.put("/current_version", "2");
    let begun = |hosts: &[Host]| -> Vec<usize> {
        (0..hosts.len()).filter(|number| hosts[*number].begins("packages", "2") > 0).collect()
    };
    let describe = |hosts: &[Host]| hosts.iter().map(Host::describe).collect::<String>();
    let first = wait::until("one begins", || begun(&hosts).first().copied(), || describe(&hosts));
    hosts[first].kill();
    let second = wait::until_within(
        Duration::from_secs(120),
        "the first is lost, and another begins",
        || begun(&hosts).into_iter().find(|number| *number != first),
        || format!("{}{:?}", describe(&hosts), store.list("/orchestrate/lost/")),
    );
    let third = 3 - first - second;
    hosts[first].start();
    let claims = || store.list("/orchestrate/claims/fleet/all/");
    let numbers = || claims().keys().map(|key| key[key.len() - 5..].parse().unwrap()).collect::<Vec<u32>>();
    wait::until(
        "the first takes its claim again",
        || matches!(numbers().as_slice(), [0, again] if *again >= 49_999).then_some(()),
        || format!("{:?}\n{}", claims(), describe(&hosts)),
    );
    assert!(store.list("/orchestrate/lost/mark/").is_empty(), "the mark is gone");
    // Its claim moves down when the number is free, and the third waits for it.
    hosts[second].remove("hold-packages");
    hosts[second].wait_for_listing(&store, "2");
    wait::until_within(
        Duration::from_secs(60),
        "the claim of the first moves down",
        || (numbers() == [0]).then_some(()),
        || format!("{:?}\n{}", claims(), describe(&hosts)),
    );
    assert_eq!(hosts[third].begins("packages", "2"), 0, "the third waits");
    hosts.iter().for_each(|host| host.remove("hold-packages"));
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "2"));
}

/// A store that was accepted may be an old one, which lacks claims and has some that ended.
#[test]
fn an_accepted_store_is_frozen_until_the_claims_in_it_are_asserted() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut hosts = started(&["a1", "a2", "a3"], &etcd);
    store.put("/current_version", "1");
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "1"));
    set_policy(&hosts[0], "[[limit]]\nby = \"fleet\"\nmax = 2\nkeep_failed = false\n");
    hosts.iter().for_each(|host| host.write("hold-packages", ""));
    store.put("/current_version", "2");
    let begun = |hosts: &[Host]| -> Vec<usize> {
        (0..3).filter(|number| hosts[*number].begins("packages", "2") > 0).collect()
    };
    let two = || (begun(&hosts).len() == 2).then(|| begun(&hosts));
    let holders = wait::until("two begin", two, || hosts.iter().map(Host::describe).collect());
    let third = 3 - holders[0] - holders[1];
    let gone = holders.into_iter().find(|number| *number != 0).expect("one of two");
    let ops = Host::new("ops", &etcd.endpoints());
    // Nobody starts while the claims are missing.
    orchestrate(&ops, "rollout pause", 0);
    // The claim of one ends in a way that it does not know, and the other's agent does not run.
    hosts[gone].kill();
    let kept = 3 - gone - third;
    let claim_of = |host: &Host| {
        let claims = store.list("/orchestrate/claims/");
        let of_host = format!(r#""host":"{}""#, host.name);
        claims.into_iter().find(|(_, value)| value.contains(&of_host)).map(|(key, _)| key)
    };
    store.delete(&claim_of(&hosts[kept]).expect("a claim"));
    store.delete(&format!("/orchestrate/claimed/{}", hosts[kept].name));
    let accepted = orchestrate(&ops, "store accept --version 2", 0);
    assert!(accepted.contains("the fleet is frozen"), "{accepted}");
    wait::until(
        "the host takes its claim again",
        || claim_of(&hosts[kept]).filter(|key| key.as_str() > "/orchestrate/claims/fleet/all/49998"),
        || format!("{:?}", store.list("/orchestrate/claims/")),
    );
    let stale = || orchestrate(&ops, "claims --stale", 1);
    let (gone_name, kept_name) = (hosts[gone].name.to_string(), hosts[kept].name.to_string());
    wait::until(
        "only the claim of the other is stale",
        || (stale().contains(&gone_name) && !stale().contains(&kept_name)).then_some(()),
        stale,
    );
    let refused = orchestrate(&ops, "unfreeze", 3);
    assert!(refused.contains("since the store was accepted: 1."), "{refused}");
    hosts[gone].start();
    let is_asserted = || ops.command(&["claims", "--stale"], "").code == 0;
    wait::until("it asserts its claim", || is_asserted().then_some(()), || orchestrate(&ops, "claims", 1));
    assert_eq!(hosts[third].begins("packages", "2"), 0);
    orchestrate(&ops, "unfreeze", 0);
    orchestrate(&ops, "rollout resume", 0);
    hosts.iter().for_each(|host| host.remove("hold-packages"));
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "2"));
}

#[test]
fn a_host_that_takes_too_long_gives_up_and_lets_others_go() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let hosts = started(&["a1", "a2"], &etcd);
    let ops = &hosts[0];
    store.put("/current_version", "1");
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "1"));
    hosts[0].write("code-packages-2", "75\n");
    let policy = "progress_deadline = \"5s\"\n[[limit]]\nby = \"fleet\"\nmax = 1\nkeep_failed = false\n";
    set_policy(ops, policy);
    store.put("/current_version", "2");
    hosts[1].wait_for_listing(&store, "2");
    let why = || orchestrate(ops, "why a1", 0);
    let expected = "apply step packages had not succeeded 5s after the start";
    wait::until("it gives up", || why().contains(expected).then_some(()), why);
    assert!(why().contains("suspect"), "{}", why());
    assert!(store.list("/orchestrate/claims/").is_empty());
    // It tries again when it is told to.
    hosts[0].remove("code-packages-2");
    orchestrate(ops, "retry a1", 0);
    hosts[0].wait_for_listing(&store, "2");
}
