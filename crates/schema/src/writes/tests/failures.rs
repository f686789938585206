//! Failures of hosts in a rollout, and its halt.

use super::claims::{ORDER, claims, start, time_out, vanished};
use super::*;
use crate::instruction::Instruction;
use crate::keys;
use crate::names::EventId;
use crate::order::InstructionOrder;
use crate::records::{FailedHost, FailureKind, Halt, HostClaims, Purpose, RolloutRecord, Trigger};
use crate::writes::act::Act;
use crate::writes::claims::FoundClaims;
use crate::writes::lost::end_claims;
use crate::writes::one_shot::OneShot;
use crate::writes::rollout::{add_rollback, halt, resume};

fn failed(kind: FailureKind) -> FailedHost {
    FailedHost {
        at: EpochSeconds(5),
        kind,
        reason: "it broke".into(),
        cause: None,
        healed: false,
        again: None,
    }
}

fn other() -> HostName {
    HostName::new("other").unwrap()
}

fn halts() -> Halt {
    Halt {
        at: EpochSeconds(6),
        by: "h2".into(),
        why: "1 host failed, 0 tolerated".into(),
        rolled_back_to: None,
    }
}

#[test]
fn a_start_is_held_back_by_a_halt_and_by_failures_that_were_not_counted() {
    let (host, report) = (host(), report("ours"));
    let check = |change: fn(&mut Store), is_applied: bool| {
        let (mut store, fence) = claimed();
        store.put(&Key::RolloutRecord(ORDER), b"{}", 0);
        store.put(&Key::Failed(ORDER, HostName::new("counted").unwrap()), b"{}", 0);
        let mut guard = start(&store, 0, 1);
        if let Some(rollout) = guard.as_mut().and_then(|guard| guard.rollout.as_mut()) {
            rollout.failures_read_at = Some(store.0.revision);
        }
        change(&mut store);
        let write = HostWrite {
            start: guard,
            claims: Some(claims(&[0])),
            ..write(&host, &report, fence, Listing::Remove)
        };
        let outcome = commit(&mut store, &write, None);
        assert_eq!(outcome == Outcome::HeldBack, !is_applied, "{outcome:?}");
    };
    check(|_| {}, true);
    check(|store| store.put(&Key::Halt(ORDER), b"garbage", 0), false);
    check(|store| store.put(&Key::Failed(ORDER, other()), b"{}", 0), false);
    // A failure that is written again, and one that is gone.
    check(|store| store.put(&Key::Failed(ORDER, HostName::new("counted").unwrap()), b"{}", 0), false);
    check(|store| store.remove(&Key::Failed(ORDER, HostName::new("counted").unwrap())), true);
}

#[test]
fn a_host_writes_its_failure_with_the_claims_that_it_releases() {
    let (host, report) = (host(), report("ours"));
    let (mut store, fence) = claimed();
    let key = Key::Failed(ORDER, host.clone());
    let put = FailureChange::Put(ORDER, failed(FailureKind::Attempt));
    for (change, is_there) in
        [(put, true), (FailureChange::Keep, true), (FailureChange::Delete(ORDER), false)]
    {
        let write = HostWrite { failure: change, ..write(&host, &report, fence, Listing::Keep) };
        let report_revision = store.0.revision_of(&Key::Report(host.clone()));
        let expected = ExpectedKeys { report_revision, ..ExpectedKeys::default() };
        assert!(store.apply(&write.transaction(&expected)));
        assert_eq!(store.0.get(&key).is_some(), is_there);
    }
}

#[test]
fn a_rollout_is_halted_once_and_resumed_as_it_was_seen() {
    let act = Act::new(EventId::of(1, &Token::new("e").unwrap()), "ann", "rollout resume");
    let record = RolloutRecord::new(version("v2"), EpochSeconds(1));
    let mut store = Store::default();
    store.put(&Key::RolloutRecord(ORDER), codec::write(&record).as_bytes(), 0);
    let record_revision = store.0.revision;
    assert!(!store.apply(&halt(ORDER, record_revision - 1, &halts())), "of another record");
    assert!(store.apply(&halt(ORDER, record_revision, &halts())));
    assert!(!store.apply(&halt(ORDER, record_revision, &halts())), "it is halted");
    let seen = KeySnapshot { entries: store.0.entries.clone(), ..store.0 };
    store.put(&Key::Failed(ORDER, other()), b"{}", 0);
    assert!(store.apply(&resume(ORDER, record.clone(), &seen, &act)));
    assert_eq!(store.0.get(&Key::Halt(ORDER)), None);
    let written = store.0.get(&Key::RolloutRecord(ORDER)).expect("a record");
    let written = keys::RolloutRecord::read(&written.value).expect("a value");
    assert_eq!(written, RolloutRecord { counted_from: seen.revision, ..record.clone() });
    let failed = store.0.get(&Key::Failed(ORDER, other())).expect("a failure");
    assert!(failed.create_revision > written.counted_from, "what came later counts");
    assert!(!store.apply(&resume(ORDER, record, &seen, &act)), "it was resumed");
}

#[test]
fn a_lost_host_counts_as_failed_if_it_was_being_updated() {
    let check = |purpose: Purpose, counts: bool| {
        let mut store = vanished(false);
        let found = FoundClaims::read(&host(), &store.0).claims.expect("claims");
        let claimed = HostClaims { purposes: [purpose].into(), ..found };
        let revision = store.0.revision_of(&Key::Claimed(host()));
        let entry = Entry {
            value: codec::write(&claimed).into_bytes(),
            create_revision: revision,
            mod_revision: revision,
            lease: 0,
            version: 1,
        };
        store.0.entries.insert(Key::Claimed(host()).to_string(), entry);
        time_out(&mut store);
        assert!(store.apply(&end_claims(&host(), &store.0).expect("claims that can be read")));
        let found = store.0.get(&Key::Failed(ORDER, host()));
        let found = found.map(|entry| keys::Failed::read(&entry.value).expect("a value"));
        assert_eq!(
            found.map(|failed| (failed.kind, failed.reason)),
            counts.then(|| { (FailureKind::Lost, "its agent did not run for 10m".to_owned()) })
        );
    };
    check(Purpose::Update, true);
    check(Purpose::Command(Token::new("c1").unwrap()), false);
}

#[test]
fn a_script_counts_its_failure_until_it_is_done() {
    let mut store = vanished(false);
    let shot = OneShot { host: host(), lease: 0, live_revision: None };
    let status = |state| {
        let record = StatusRecord {
            at: EpochSeconds(7),
            version: None,
            code: Some(1),
            reason: String::new(),
            cause: None,
        };
        shot.status(&HostStatus { kind: StatusType::validation(), state, record })
    };
    let mut fails = status(StatusState::Failed);
    shot.release(&mut fails, Some(&failed(FailureKind::Attempt)), EpochSeconds(1), &store.0);
    let claimed = store.0.get(&Key::Claimed(host())).cloned().expect("claims");
    assert!(store.apply(&fails));
    assert!(store.0.get(&Key::Failed(ORDER, host())).is_some());
    // It tries again, and is done.
    store.put(&Key::Claimed(host()), &claimed.value, 0);
    let held = FoundClaims::read(&host(), &store.0);
    let at = held.revision;
    for claim in held.held() {
        let entry = Entry { value: Vec::new(), create_revision: at, mod_revision: at, lease: 0, version: 1 };
        store.0.entries.insert(claim.key().to_string(), entry);
    }
    let mut ends = status(StatusState::Success);
    shot.release(&mut ends, None, EpochSeconds(2), &store.0);
    assert!(store.apply(&ends));
    assert_eq!(store.0.get(&Key::Failed(ORDER, host())), None);
}

/// Hosts go back from the version that failed, and from no other one.
#[test]
fn a_rollback_by_hosts_never_replaces_a_newer_version_and_never_follows_the_end() {
    let check = |change: &dyn Fn(&mut Store), applies: bool| {
        let (mut store, _) = claimed();
        let target = store.0.revision_of(&Key::CurrentVersion);
        let order = InstructionOrder { epoch: 0, revision: target };
        store.put(&Key::RolloutRecord(order), b"{}", 0);
        let record = store.0.revision_of(&Key::RolloutRecord(order));
        let rollout = Instruction { order, version: version("v2") };
        let mut rolls_back = halt(order, record, &halts());
        add_rollback(&mut rolls_back, &rollout, &version("v1"), &halts());
        change(&mut store);
        assert_eq!(store.apply(&rolls_back), applies);
        let desired = store.0.get(&Key::CurrentVersion).map(|entry| entry.value.clone());
        assert_eq!(desired == Some(b"v1".to_vec()), applies);
        let trigger = Trigger::find(&store.0);
        assert_eq!(
            trigger.map(|trigger| (trigger.rollback, trigger.from)),
            applies.then(|| (true, Some(version("v2"))))
        );
        let keys = store.keys("/orchestrate/rollouts/");
        assert_eq!(keys.iter().any(|key| key.ends_with("/halt")), applies);
    };
    check(&|_| {}, true);
    check(&|store| store.put(&Key::CurrentVersion, b"v3", 0), false);
    // The same version was triggered again.
    check(&|store| store.put(&Key::CurrentVersion, b"v2", 0), false);
    check(
        &|store| {
            let revision = store.0.revision_of(&Key::CurrentVersion);
            store.put(&Key::Ended(InstructionOrder { epoch: 0, revision }), b"{}", 0);
        },
        false,
    );
}
