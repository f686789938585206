//! What ends the listing of a host, besides the host.

use super::super::act::Act;
use super::super::operator::accept_store;
use super::*;
use crate::names::EventId;
use crate::records::StoreIdentity;

#[test]
fn a_claim_under_a_new_lease_ends_the_old_listing_and_a_resumed_one_writes_nothing() {
    let host = host();
    let claim = r#"{"instance":"i","machine_id":"m","boot_id":"b","addresses":[]}"#;
    let claim = keys::Live::read(claim.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
    let roster = RosterEntry::default();
    let write = |lease, resumed| ClaimWrite {
        host: &host,
        claim: &claim,
        roster: &roster,
        lease,
        resumed,
        store_revision: 0,
    };
    let mut store = Store::default();
    store.put(&Key::Announced(host.clone()), b"v1", 1);
    store.put(&Key::RunningVersion(version("v1"), host.clone()), b"1", 1);
    assert!(store.apply(&write(2, false).transaction(&store.0)));
    assert_eq!(store.keys("/running_version/"), [""; 0]);
    assert_eq!(store.keys("/orchestrate/"), ["/orchestrate/hosts/h", "/orchestrate/live/h"]);
    let resumed = write(2, true).transaction(&store.0);
    assert!(resumed.operations.is_empty());
    assert!(store.apply(&resumed));
    // A claim under another lease is not the one that is resumed.
    assert!(!store.apply(&write(3, true).transaction(&store.0)));
    store.put(&Key::Store, b"{}", 0);
    assert!(!store.apply(&write(2, true).transaction(&store.0)), "the store was accepted meanwhile");
}

/// A backup may list a host that is in the middle of an update.
#[test]
fn accepting_a_store_ends_every_listing() {
    let (mut store, _) = claimed();
    store.put(&Key::Announced(host()), b"v1", LEASE);
    store.put(&Key::RunningVersion(version("v1"), host()), b"1", LEASE);
    let identity = StoreIdentity::new(Token::new("abc").unwrap(), 2);
    let act = Act::new(EventId::of(1000, &Token::new("e").unwrap()), "ann", "store accept");
    let accept = accept_store(&identity, &version("v1"), EpochSeconds(1), &store.0, &act);
    assert!(store.apply(&accept));
    assert_eq!(store.keys("/running_version/"), [""; 0]);
    assert_eq!(store.keys("/orchestrate/announced/"), [""; 0]);
}
