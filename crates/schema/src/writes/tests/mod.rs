//! The transactions, applied to a store that is a map.

use super::claim::ClaimWrite;
use super::host::{ExpectedKeys, FailureChange, HostWrite, Listing, Outcome, StartGuard};
use super::services::{OneShotServices, ServiceChange, ServiceWrite};
use super::{Fence, HostStatus, WriteRefusal};
use crate::codec;
use crate::freeze::FreezeScope;
use crate::health::Health;
use crate::keys::{self, Key, StatusState};
use crate::names::{HostName, ServiceName, StatusType, Token, Version};
use crate::records::{Report, RosterEntry, StatusRecord};
use crate::snapshot::{Entry, KeySnapshot};
use crate::time::EpochSeconds;
use crate::transaction::{Compare, Operation, Transaction};
use proptest::prelude::*;

mod claims;
mod failures;
mod listing;
mod respell;
mod roster;
mod stages;

/// A store without leases: a lease is only a number on a key.
#[derive(Default)]
struct Store(KeySnapshot);

impl Store {
    fn put(&mut self, key: &Key, value: &[u8], lease: i64) {
        self.0.revision += 1;
        self.write(key, value, lease);
    }

    fn remove(&mut self, key: &Key) {
        self.0.revision += 1;
        self.0.entries.remove(&key.to_string());
    }

    fn write(&mut self, key: &Key, value: &[u8], lease: i64) {
        let revision = self.0.revision;
        let create_revision = self.0.get(key).map_or(revision, |entry| entry.create_revision);
        let entry =
            Entry { value: value.to_vec(), create_revision, mod_revision: revision, lease, version: 1 };
        self.0.entries.insert(key.to_string(), entry);
    }

    /// Applies a transaction as etcd does. Returns false if a comparison did not hold.
    fn apply(&mut self, transaction: &Transaction) -> bool {
        assert_eq!(transaction.check(), Ok(()), "{transaction:?}");
        let holds = |compare: &Compare| match compare {
            Compare::Revision(key, revision) => self.0.revision_of(key) == *revision,
            Compare::Value(key, value) => self.0.get(key).is_some_and(|entry| entry.value == *value),
            Compare::Lease(key, lease) => self.0.get(key).is_some_and(|entry| entry.lease == *lease),
            Compare::NoneIn(prefix) => self.keys(&prefix.to_string()).is_empty(),
            Compare::NoneNewer(prefix, revision) => {
                let prefix = prefix.to_string();
                let newer = |(key, entry): (&String, &Entry)| {
                    key.starts_with(&prefix) && entry.mod_revision > *revision
                };
                !self.0.entries.iter().any(newer)
            }
            Compare::NoClaims { limit, from, below } => {
                let key = |number| Key::Claim(limit.clone(), number).to_string();
                self.0.entries.range(key(*from)..key(*below)).next().is_none()
            }
        };
        if !transaction.compares.iter().all(holds) {
            return false;
        }
        if !transaction.operations.is_empty() {
            self.0.revision += 1;
        }
        for operation in &transaction.operations {
            match operation {
                Operation::Put { key, value, lease } => self.write(key, value, *lease),
                Operation::PutIfAbsent { key, value } if self.0.get(key).is_none() => {
                    self.write(key, value, 0);
                }
                Operation::PutIfAbsent { .. } => {}
                Operation::Delete(key) => {
                    self.0.entries.remove(&key.to_string());
                }
                Operation::DeleteAll(range) => {
                    let range = range.to_string();
                    self.0.entries.retain(|key, _| !key.starts_with(&range));
                }
            }
        }
        true
    }

    fn keys(&self, kind: &str) -> Vec<&str> {
        self.0.entries.keys().map(String::as_str).filter(|key| key.starts_with(kind)).collect()
    }
}

const LEASE: i64 = 7;

fn host() -> HostName {
    HostName::new("h").unwrap()
}

fn version(text: &str) -> Version {
    Version::new(text).unwrap()
}

fn report(write_id: &str) -> Report {
    Report::idle(EpochSeconds(1), Token::new(write_id).unwrap())
}

fn claimed() -> (Store, Fence) {
    let mut store = Store::default();
    store.put(&Key::Store, b"{}", 0);
    store.put(&Key::Live(host()), b"{}", LEASE);
    store.put(&Key::CurrentVersion, b"v2", 0);
    let fence = Fence {
        live_revision: store.0.revision_of(&Key::Live(host())),
        live_lease: LEASE,
        store_revision: store.0.revision_of(&Key::Store),
    };
    (store, fence)
}

fn status(state: StatusState) -> HostStatus {
    let record = StatusRecord {
        at: EpochSeconds(1),
        version: None,
        code: Some(0),
        reason: String::new(),
        cause: None,
    };
    HostStatus { kind: StatusType::apply(), state, record }
}

/// Commits a write of a host that knows only its listing.
fn commit(store: &mut Store, write: &HostWrite<'_>, announced: Option<Vec<u8>>) -> Outcome {
    commit_expecting(store, write, ExpectedKeys { announced, ..ExpectedKeys::default() })
}

/// Commits a write as the session does: a refused one is judged, and repeated if it can be.
fn commit_expecting(store: &mut Store, write: &HostWrite<'_>, mut expected: ExpectedKeys) -> Outcome {
    for _ in 0..4 {
        if store.apply(&write.transaction(&expected)) {
            return Outcome::Applied(store.0.revision);
        }
        match write.refused(&expected, &store.0) {
            Outcome::Repeat(found) => expected = found,
            judged => return judged,
        }
    }
    panic!("{write:?} is repeated for ever")
}

fn write<'a>(host: &'a HostName, report: &'a Report, fence: Fence, listing: Listing) -> HostWrite<'a> {
    let (statuses, failure) = (Vec::new(), FailureChange::Keep);
    HostWrite {
        host,
        fence,
        start: None,
        listing,
        statuses,
        claims: None,
        failure,
        progress: None,
        report,
        rollout_reads: &[],
    }
}

#[test]
fn a_write_is_refused_by_what_changed_and_recognised_by_its_id() {
    let (host, ours) = (host(), report("ours"));
    let check = |change: &dyn Fn(&mut Store), expected: &Outcome| {
        let (mut store, fence) = claimed();
        let mut write = write(&host, &ours, fence, Listing::Remove);
        let target_revision = store.0.revision_of(&Key::CurrentVersion);
        write.start = Some(StartGuard {
            target_revision,
            target_value: b"v2".to_vec(),
            scopes: Vec::new(),
            roster_revision: 0,
            rollout: None,
        });
        change(&mut store);
        assert_eq!(&commit(&mut store, &write, None), expected);
        let written = store.keys("/orchestrate/reports/").len();
        assert_eq!(written == 1, matches!(expected, Outcome::Applied(_)), "{expected:?}");
    };
    check(&|_| {}, &Outcome::Applied(4));
    let touch = |key: Key| move |store: &mut Store| store.put(&key, b"{}", 0);
    check(&touch(Key::Live(host.clone())), &Outcome::Refused(WriteRefusal::Claim));
    check(&touch(Key::Store), &Outcome::Refused(WriteRefusal::Store));
    check(&touch(Key::CurrentVersion), &Outcome::Refused(WriteRefusal::Target));
    // Listed under a version that the host does not know of: repeated with the version found.
    check(&|store| store.put(&Key::Announced(host.clone()), b"v0", LEASE), &Outcome::Applied(5));
    // After a lost answer the report shows that the write was applied, also if the claim is gone.
    let (mut store, fence) = claimed();
    let write = write(&host, &ours, fence, Listing::Keep);
    assert!(store.apply(&write.transaction(&ExpectedKeys::default())));
    let at = store.0.revision;
    store.put(&Key::Live(host.clone()), b"{}", 8);
    assert_eq!(write.outcome(&ExpectedKeys::default(), &store.0), Outcome::Applied(at));
}

/// A request that its client gave up can still reach the store later, also after a time-out inside
/// of etcd.
#[test]
fn a_late_write_is_refused_after_a_newer_one() {
    let (mut store, fence) = claimed();
    let (host, first, second, third) = (host(), report("first"), report("second"), report("third"));
    let done = Listing::Set(version("v1"), EpochSeconds(1));
    let late = write(&host, &first, fence, done).transaction(&ExpectedKeys::default());
    // The start of the next version.
    let start = write(&host, &second, fence, Listing::Remove);
    assert!(matches!(commit(&mut store, &start, None), Outcome::Applied(_)));
    assert!(!store.apply(&late), "the host would be listed while it is updated");
    // Of two equal requests only one is applied.
    let report = write(&host, &third, fence, Listing::Keep);
    let expected = ExpectedKeys { report_revision: store.0.revision, ..ExpectedKeys::default() };
    assert!(store.apply(&report.transaction(&expected)));
    assert!(!store.apply(&report.transaction(&expected)));
}

/// A restored store counts its revisions from the backup on again.
#[test]
fn a_write_from_before_a_restore_is_refused_though_the_revisions_are_the_same() {
    let (host, report) = (host(), report("ours"));
    let (mut store, fence) = claimed();
    let target_revision = store.0.revision_of(&Key::CurrentVersion);
    let guard = |value: &str| {
        let target_value = value.as_bytes().to_vec();
        Some(StartGuard {
            target_revision,
            target_value,
            scopes: Vec::new(),
            roster_revision: 0,
            rollout: None,
        })
    };
    let check = |store: &mut Store, fence: Fence, value: &str, refusal: WriteRefusal| {
        let start = HostWrite { start: guard(value), ..write(&host, &report, fence, Listing::Remove) };
        assert_eq!(commit(store, &start, None), Outcome::Refused(refusal));
    };
    // Another agent has claimed the name, or another version is desired.
    check(&mut store, Fence { live_lease: LEASE + 1, ..fence }, "v2", WriteRefusal::Claim);
    check(&mut store, fence, "v3", WriteRefusal::Target);
    let start = HostWrite { start: guard("v2"), ..write(&host, &report, fence, Listing::Remove) };
    assert!(matches!(commit(&mut store, &start, None), Outcome::Applied(_)));
}

#[test]
fn a_start_is_refused_while_a_freeze_stands() {
    let (host, report) = (host(), report("ours"));
    let role = crate::names::Role::new("web").unwrap();
    let group = crate::names::Role::new("front").unwrap();
    let scopes = FreezeScope::of_host(&host, Some(&role), Some(&group));
    let matching = [
        FreezeScope::Fleet,
        FreezeScope::Pause,
        FreezeScope::Host(host.clone()),
        FreezeScope::Role(role.clone()),
        FreezeScope::Group(group),
    ];
    let others = [
        FreezeScope::Role(crate::names::Role::new("db").unwrap()),
        FreezeScope::Group(role.clone()),
        FreezeScope::Host(HostName::new("h2").unwrap()),
    ];
    let check = |frozen: &FreezeScope, holds: bool| {
        let (mut store, fence) = claimed();
        let key = Key::Freeze(frozen.clone(), Token::new("t").unwrap());
        store.put(&key, br#"{"by":"ann","reason":"moving","at":1}"#, 0);
        let guard = StartGuard {
            target_revision: store.0.revision_of(&Key::CurrentVersion),
            target_value: b"v2".to_vec(),
            scopes: scopes.clone(),
            roster_revision: 0,
            rollout: None,
        };
        let start = HostWrite { start: Some(guard), ..write(&host, &report, fence, Listing::Remove) };
        assert_eq!(matches!(commit(&mut store, &start, None), Outcome::Frozen(_)), holds, "{frozen}");
        // A freeze holds starts alone.
        let done = write(&host, &report, fence, Listing::Set(version("v1"), EpochSeconds(1)));
        assert!(matches!(commit(&mut store, &done, None), Outcome::Applied(_)), "{frozen}");
    };
    matching.iter().for_each(|scope| check(scope, true));
    others.iter().for_each(|scope| check(scope, false));
}

#[test]
fn services_of_an_agent_are_left_to_it() {
    let (mut store, fence) = claimed();
    let (host, web) = (host(), ServiceName::new("web").unwrap());
    let services = [web.clone(), ServiceName::new("db").unwrap()];
    let say = ServiceChange::Say { record: Some("{}".into()), health: Some(Health::Critical) };
    let changes = vec![(web, say)];
    let write = ServiceWrite { host: &host, fence, work_lease: 9, changes };
    assert!(store.apply(&write.transaction()));
    let one_shot = OneShotServices { host: &host, record: "{\"a\":1}", services: &services };
    assert!(store.apply(&one_shot.transaction(&store.0)));
    let record = |store: &Store, name| store.0.entries[&format!("/available_services/{name}/h")].lease;
    assert_eq!((record(&store, "web"), record(&store, "db")), (9, LEASE));
    store.put(&Key::Live(host.clone()), b"{}", 8);
    assert!(!store.apply(&write.transaction()));
    assert_eq!(write.refusal(&store.0), WriteRefusal::Claim);
}

proptest! {
    /// I1, I2: whatever a host writes in whatever order, and whatever it believes to be listed
    /// under, it is listed at most once and in at most one state for each type of result.
    #[test]
    fn a_host_is_listed_once_and_has_one_result(
        acts in prop::collection::vec((0usize..3, 1u8..4, 0usize..4, prop::option::of(0u8..4)), 1..30),
    ) {
        let (mut store, fence) = claimed();
        let host = host();
        for (n, (listing, version_number, state, believed)) in acts.into_iter().enumerate() {
            let listing = match listing {
                0 => Listing::Keep,
                1 => Listing::Remove,
                _ => Listing::Set(version(&format!("v{version_number}")), EpochSeconds(1)),
            };
            let report = report(&format!("w{n}"));
            let mut write = write(&host, &report, fence, listing.clone());
            write.statuses.extend(StatusState::ALL.get(state).map(|state| status(*state)));
            let believed = believed.map(|v| format!("v{v}").into_bytes());
            let applied = matches!(commit(&mut store, &write, believed), Outcome::Applied(_));
            prop_assert!(applied);
            prop_assert!(store.keys("/running_version/").len() <= 1);
            prop_assert!(store.keys("/status/").len() <= 1);
            let listed = store.keys("/running_version/");
            let announced = store.0.get(&Key::Announced(host.clone()));
            let announced = announced.map(|e| String::from_utf8_lossy(&e.value).into_owned());
            prop_assert_eq!(listed.is_empty(), announced.is_none());
            if let (Listing::Set(version, _), [listed]) = (&listing, &listed[..]) {
                prop_assert_eq!(*listed, format!("/running_version/{version}/h"));
                prop_assert_eq!(announced, Some(version.to_string()));
            }
        }
    }
}

#[test]
fn an_identity_is_created_once() {
    let mut store = Store::default();
    let identity = |lineage| crate::records::StoreIdentity::new(Token::new(lineage).unwrap(), 0);
    assert!(store.apply(&super::claim::create_identity(&identity("a"))));
    assert!(!store.apply(&super::claim::create_identity(&identity("b"))));
}

#[test]
fn the_instruction_in_force_is_the_one_that_hosts_act_on() {
    let check = |current_version: &str, identity: Option<&str>, expected: bool| {
        let mut store = Store::default();
        store.put(&Key::CurrentVersion, current_version.as_bytes(), 0);
        if let Some(identity) = identity {
            store.put(&Key::Store, identity.as_bytes(), 0);
        }
        let is_in_force = super::operator::is_in_force(&store.0, &version("v2"));
        assert_eq!(is_in_force, expected, "{current_version:?} {identity:?}");
    };
    check("v2", None, true);
    check("v2\n", None, true);
    check("v3", None, false);
    check("v2", Some(r#"{"lineage":"l","epoch":0}"#), true);
    // It was written before the store was accepted.
    check("v2", Some(r#"{"lineage":"l","epoch":1}"#), false);
    check("v2", Some("garbage"), false);
}
