//! The move of the keys of a host whose name was spelled with capitals.

use super::claims::{ORDER, claims};
use super::*;
use crate::freeze::FreezeScope;
use crate::host_config::{ConfigKind, ConfigScope};
use crate::keys::{self, Prefix};
use crate::limit::Place;
use crate::names::ConfigName;
use crate::records::{HostClaims, LimitClaim, Purpose, Ticket};
use crate::writes::claims::FoundClaims;
use crate::writes::respell::Respelling;

fn names() -> (HostName, HostName) {
    (HostName::new("WEB1").unwrap(), HostName::folded("WEB1").unwrap())
}

/// The keys of a host that an operator or its agent wrote for good.
fn kept(host: &HostName) -> Vec<Key> {
    let mut keys = vec![
        Key::Host(host.clone()),
        Key::Maintenance(host.clone()),
        Key::Status(StatusType::apply(), StatusState::Failed, host.clone()),
        Key::Reporting(StatusType::validation(), host.clone()),
        Key::Freeze(FreezeScope::Host(host.clone()), Token::new("t").unwrap()),
        Key::EnablePuppet(ConfigScope::Host(host.clone())),
    ];
    // More than one transaction moves.
    let config = |n| ConfigName::new(format!("value{n}")).unwrap();
    keys.extend(
        (0..50).map(|n| Key::HostConfig(ConfigKind::State, ConfigScope::Host(host.clone()), config(n))),
    );
    keys
}

/// The keys of a host that end with its agent, or that it writes again.
fn dropped(host: &HostName) -> Vec<Key> {
    vec![
        Key::Live(host.clone()),
        Key::Announced(host.clone()),
        Key::RunningVersion(version("v1"), host.clone()),
        Key::Report(host.clone()),
        Key::Retry(host.clone()),
        Key::LostMark(host.clone()),
    ]
}

/// A host that holds a number of a limit, and waits for its turn in another one.
fn claimed_by(host: &HostName, store: &mut Store) -> HostClaims {
    let held = claims(&[4]);
    let claim = LimitClaim {
        purposes: Purpose::only_update(),
        host: host.clone(),
        instance: held.instance.clone(),
        rollout: ORDER,
        since: EpochSeconds(1),
    };
    let limit = held.claims[0].limit.clone();
    let ticket = Ticket { rollout: ORDER, limit, place: Place(5), lease: LEASE };
    store.put(&held.claims[0].key(), codec::write(&claim).as_bytes(), 0);
    store.put(&ticket.key(host), b"", LEASE);
    let waiting = HostClaims { ticket: Some(ticket), ..held.clone() };
    store.put(&Key::Claimed(host.clone()), codec::write(&waiting).as_bytes(), 0);
    held
}

fn old_host() -> (Store, HostClaims) {
    let (former, _) = names();
    let mut store = Store::default();
    store.put(&Key::Store, b"{}", 0);
    for key in kept(&former) {
        store.put(&key, key.to_string().as_bytes(), 0);
    }
    for key in dropped(&former) {
        let value: &[u8] = if matches!(key, Key::Announced(_)) { b"v1" } else { b"{}" };
        store.put(&key, value, LEASE);
    }
    let held = claimed_by(&former, &mut store);
    (store, held)
}

fn moves(store: &Store) -> Vec<Transaction> {
    let (former, host) = names();
    let respelling = Respelling { former: &former, host: &host };
    // What the agent reads; a map has all keys.
    let (keys, ranges) = respelling.first_look();
    let is_read = |key: &String| {
        respelling.keys(&store.0).iter().chain(&keys).any(|read| read.to_string() == *key)
            || ranges.iter().any(|range: &Prefix| key.starts_with(&range.to_string()))
            || *key == Key::Store.to_string()
    };
    let mut found = store.0.clone();
    found.entries.retain(|key, _| is_read(key));
    respelling.moves(store.0.revision_of(&Key::Store), &found)
}

#[test]
fn the_keys_of_a_name_with_capitals_are_moved_or_deleted() {
    let (mut store, held) = old_host();
    let (former, host) = names();
    let transactions = moves(&store);
    assert!(transactions.iter().all(|transaction| store.apply(transaction)));
    for (before, after) in kept(&former).iter().zip(kept(&host)) {
        assert_eq!(store.0.get(&after).unwrap().value, before.to_string().into_bytes(), "{after}");
    }
    let left: Vec<_> = store.0.entries.keys().filter(|key| key.contains("WEB1")).collect();
    assert!(left.is_empty(), "{left:?}");
    let revision = store.0.revision_of(&Key::Claimed(host.clone()));
    assert_eq!(FoundClaims::read(&host, &store.0), FoundClaims { claims: Some(held.clone()), revision });
    let claim = store.0.get(&held.claims[0].key()).unwrap();
    assert_eq!((claim.mod_revision, keys::Claim::read(&claim.value).unwrap().host), (revision, host));
}

#[test]
fn a_move_that_was_interrupted_goes_on() {
    let (former, host) = names();
    for applied in 0..moves(&old_host().0).len() {
        let (mut store, _) = old_host();
        // The agent was gone for longer than its lease.
        dropped(&former).iter().for_each(|key| store.remove(key));
        store.remove(&Key::Claimed(former.clone()));
        moves(&store).iter().take(applied).for_each(|transaction| assert!(store.apply(transaction)));
        let first_look = Respelling { former: &former, host: &host }.first_look().0;
        assert!(first_look.iter().any(|key| store.0.get(key).is_some()), "{applied}: seen again");
        let rest = moves(&store);
        assert!(rest.iter().all(|transaction| store.apply(transaction)));
        assert!(kept(&host).iter().all(|key| store.0.get(key).is_some()), "{applied}");
        assert!(kept(&former).iter().all(|key| store.0.get(key).is_none()), "{applied}");
    }
}

#[test]
fn what_stands_under_the_name_in_lower_case_is_kept() {
    let (mut store, _) = old_host();
    let (_, host) = names();
    let maintenance = Key::Maintenance(host);
    store.put(&maintenance, b"ours", 0);
    let transactions = moves(&store);
    assert!(transactions.iter().all(|transaction| store.apply(transaction)));
    assert_eq!(store.0.get(&maintenance).unwrap().value, b"ours");
}

#[test]
fn a_host_has_one_result_of_a_type_after_the_move() {
    let (mut store, _) = old_host();
    let (former, host) = names();
    let [success, failed, _] = Key::statuses(&StatusType::apply(), &host);
    store.put(&success, b"{}", LEASE);
    let transactions = moves(&store);
    assert!(transactions.iter().all(|transaction| store.apply(transaction)));
    assert!(store.0.get(&success).is_some() && store.0.get(&failed).is_none());
    assert!(Key::statuses(&StatusType::apply(), &former).iter().all(|key| store.0.get(key).is_none()));

    // A script writes the first result while the agent moves the former one.
    let (mut store, _) = old_host();
    let transactions = moves(&store);
    store.put(&success, b"{}", LEASE);
    assert!(!transactions.iter().all(|transaction| store.apply(transaction)));
    assert!(store.0.get(&failed).is_none());
}

#[test]
fn a_move_is_refused_if_a_key_changed() {
    let (former, _) = names();
    for key in [Key::Live(former.clone()), Key::Maintenance(former.clone()), Key::Claimed(former), Key::Store]
    {
        let (mut store, _) = old_host();
        let transactions = moves(&store);
        store.put(&key, b"{}", 0);
        assert!(!transactions.iter().all(|transaction| store.apply(transaction)), "{key}");
    }
}
