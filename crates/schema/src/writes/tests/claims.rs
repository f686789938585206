//! Claims of limits in the transactions of hosts.

use super::*;
use crate::limit::{Limit, LimitBy, Place};
use crate::names::{EventId, LimitValue};
use crate::order::InstructionOrder;
use crate::records::{HeldClaim, HostClaims, LimitClaim, LostMark, Purpose, RolloutRecord, Ticket};
use crate::writes::act::Act;
use crate::writes::claims::{ClaimsChange, FoundClaims, RolloutGuard};
use crate::writes::lost::{end_claims, mark_lost, move_claim, time_lost};
use crate::writes::rollout::{release_claims, write_record};

pub(super) const ORDER: InstructionOrder = InstructionOrder { epoch: 0, revision: 3 };

fn web() -> Limit {
    Limit { by: LimitBy::Role, value: LimitValue::new("web").unwrap() }
}

pub(super) fn claims(numbers: &[u32]) -> HostClaims {
    let held = |number: &u32| HeldClaim { limit: web(), number: *number, keep_failed: false };
    let none = HostClaims::none(Token::new("i").unwrap(), ORDER, EpochSeconds(1));
    HostClaims { claims: numbers.iter().map(held).collect(), ..none }
}

fn all_keys(store: &Store) -> impl Iterator<Item = Key> {
    store.0.entries.keys().filter_map(|key| Key::parse(key).ok())
}

/// The numbers of all claims.
fn claims_in(store: &Store) -> Vec<u32> {
    let number = |key| if let Key::Claim(_, number) = key { Some(number) } else { None };
    all_keys(store).filter_map(number).collect()
}

fn tickets_in(store: &Store) -> Vec<Key> {
    all_keys(store).filter(|key| matches!(key, Key::Ticket(..))).collect()
}

/// Commits a write of a host that knows its claims.
fn commit_knowing(store: &mut Store, write: &HostWrite<'_>) -> Outcome {
    let claims = FoundClaims::read(write.host, &store.0);
    commit_expecting(store, write, ExpectedKeys { claims, ..ExpectedKeys::default() })
}

fn claim_of_other(store: &mut Store, number: u32) {
    let value = LimitClaim {
        purposes: Purpose::only_update(),
        host: HostName::new("other").unwrap(),
        instance: Token::new("o").unwrap(),
        rollout: ORDER,
        since: EpochSeconds(1),
    };
    store.put(&Key::Claim(web(), number), codec::write(&value).as_bytes(), 0);
}

/// A start of a host that takes a number of a limit of 2, with the record at this revision.
pub(super) fn start(store: &Store, number: u32, max: u32) -> Option<StartGuard> {
    assert!(number < max);
    Some(StartGuard {
        target_revision: store.0.revision_of(&Key::CurrentVersion),
        target_value: b"v2".to_vec(),
        scopes: vec![FreezeScope::Fleet],
        roster_revision: 0,
        rollout: Some(RolloutGuard {
            order: ORDER,
            record_revision: store.0.revision_of(&Key::RolloutRecord(ORDER)),
            policy_revision: store.0.revision_of(&Key::RolloutPolicy),
            limits: vec![(web(), max)],
            checks_halt: true,
            failures_read_at: None,
            stage: None,
        }),
    })
}

#[test]
fn a_start_takes_a_number_that_nobody_holds_below_the_limit() {
    let (host, report) = (host(), report("ours"));
    let check = |others: &[u32], is_applied: bool| {
        let (mut store, fence) = claimed();
        store.put(&Key::RolloutRecord(ORDER), b"{}", 0);
        let write = HostWrite {
            start: start(&store, 1, 2),
            claims: Some(claims(&[1])),
            ..write(&host, &report, fence, Listing::Remove)
        };
        others.iter().for_each(|number| claim_of_other(&mut store, *number));
        let outcome = commit(&mut store, &write, None);
        let expected = if is_applied { Outcome::Applied(store.0.revision) } else { Outcome::HeldBack };
        assert_eq!(outcome, expected, "others hold {others:?}");
        let at = store.0.revision_of(&Key::Claimed(host.clone()));
        assert_eq!(at != 0, is_applied);
        let found = FoundClaims::read(&host, &store.0);
        assert_eq!(found.held().len(), usize::from(is_applied));
        if is_applied {
            assert_eq!(store.0.revision_of(&Key::Claim(web(), 1)), at, "all have one revision");
        }
    };
    check(&[], true);
    check(&[0], true);
    check(&[1], false);
    // A lowered limit lets nobody in until use is below it.
    check(&[2], false);
    check(&[0, 99_998], false);
}

#[test]
fn a_start_is_held_back_if_policy_or_record_are_not_as_known() {
    let (host, report) = (host(), report("ours"));
    let check = |key: Key, before: bool, after: bool, is_applied: bool| {
        let (mut store, fence) = claimed();
        if before {
            store.put(&key, b"{}", 0);
        }
        let write = HostWrite {
            start: start(&store, 0, 1),
            claims: Some(claims(&[0])),
            ..write(&host, &report, fence, Listing::Remove)
        };
        if after {
            store.put(&key, b"{}", 0);
        }
        let outcome = commit(&mut store, &write, None);
        assert_eq!(outcome == Outcome::HeldBack, !is_applied, "{key} {before} {after}");
    };
    for key in [Key::RolloutPolicy, Key::RolloutRecord(ORDER)] {
        check(key.clone(), false, false, true);
        check(key.clone(), false, true, false);
        check(key.clone(), true, true, false);
    }
}

/// The claims of a host change as a whole, and only if they are as it knows them.
#[test]
fn claims_are_released_moved_and_lost() {
    let (host, ours) = (host(), report("ours"));
    let (mut store, fence) = claimed();
    let taken = HostWrite { claims: Some(claims(&[1])), ..write(&host, &ours, fence, Listing::Keep) };
    assert!(matches!(commit(&mut store, &taken, None), Outcome::Applied(_)));
    let (moves, ends) = (report("moves"), report("ends"));
    // What the host wants follows from what it believed to have, so nothing is written on a wrong belief.
    let moved = HostWrite { claims: Some(claims(&[0])), ..write(&host, &moves, fence, Listing::Keep) };
    assert_eq!(commit(&mut store, &moved, None), Outcome::Refused(WriteRefusal::Limits));
    assert!(matches!(commit_knowing(&mut store, &moved), Outcome::Applied(_)));
    assert_eq!(claims_in(&store), [0]);
    // Somebody else got the number, and its claim stays.
    claim_of_other(&mut store, 0);
    let released = HostWrite { claims: Some(claims(&[])), ..write(&host, &ends, fence, Listing::Keep) };
    assert!(matches!(commit_knowing(&mut store, &released), Outcome::Applied(_)));
    assert_eq!(claims_in(&store), [0]);
    assert_eq!(store.0.revision_of(&Key::Claimed(host.clone())), 0);
}

/// A store in which a host holds claims, and its agent does not run.
pub(super) fn vanished(keep_failed: bool) -> Store {
    let (mut store, _) = claimed();
    store.remove(&Key::Live(host()));
    let mut claims = claims(&[1]);
    claims.claims[0].keep_failed = keep_failed;
    let old = FoundClaims::default();
    let mut transaction = Transaction::idempotent("test");
    ClaimsChange { host: &host(), new: &claims, old: &old }.add_to(&mut transaction);
    assert!(store.apply(&transaction));
    store
}

pub(super) fn mark() -> LostMark {
    let (at, claimed_since) = (EpochSeconds(5), EpochSeconds(1));
    LostMark { by: "h2".into(), at, claimed_since, rollout: ORDER, timed: false }
}

/// Marks the host, and lets the timer of the mark end.
pub(super) fn time_out(store: &mut Store) {
    assert!(store.apply(&mark_lost(&host(), &mark(), &store.0.clone())));
    assert!(store.apply(&time_lost(&host(), mark(), LEASE, &store.0.clone())));
    store.remove(&Key::LostTimer(host()));
}

/// Claims of a host that vanished end when its timer has ended, unless it came back.
#[test]
fn claims_of_a_lost_host_end_unless_something_changed() {
    let check = |change: Option<Key>, keep_failed: bool, is_applied: bool| {
        let mut store = vanished(keep_failed);
        time_out(&mut store);
        let ends = end_claims(&host(), &store.0).expect("claims that can be read");
        change.iter().for_each(|key| store.put(key, b"{}", 0));
        assert_eq!(store.apply(&ends), is_applied, "{change:?}");
        if is_applied {
            let found = FoundClaims::read(&host(), &store.0);
            assert_eq!(found.claims.is_some_and(|left| left.lost), keep_failed);
            assert_eq!(claims_in(&store).len(), usize::from(keep_failed));
            assert_eq!(store.0.get(&Key::LostMark(host())), None);
        }
    };
    check(None, false, true);
    check(None, true, true);
    for key in [Key::Live, Key::LostTimer, Key::LostMark, Key::Claimed].map(|make| make(host())) {
        check(Some(key), false, false);
    }
    check(Some(Key::Claim(web(), 1)), false, false);
}

#[test]
fn a_host_is_marked_only_while_its_agent_does_not_run() {
    let mut store = vanished(false);
    let marks = mark_lost(&host(), &mark(), &store.0.clone());
    store.put(&Key::Live(host()), b"{}", 0);
    assert!(!store.apply(&marks));
}

/// The timer was granted for the time after this mark: the host came back and vanished again meanwhile.
#[test]
fn the_timer_of_an_earlier_mark_is_refused() {
    let check = |is_marked_again: bool| {
        let mut store = vanished(false);
        assert!(store.apply(&mark_lost(&host(), &mark(), &store.0.clone())));
        let starts = time_lost(&host(), mark(), LEASE, &store.0.clone());
        store.remove(&Key::LostMark(host()));
        if is_marked_again {
            assert!(store.apply(&mark_lost(&host(), &mark(), &store.0.clone())));
        }
        assert!(!store.apply(&starts));
    };
    check(false);
    check(true);
}

#[test]
fn a_claim_moves_to_a_number_that_nobody_holds() {
    let check = |taken: bool| {
        let mut store = vanished(false);
        let moves = move_claim(&host(), &web(), 1, 0, &store.0).expect("a claim");
        assert_eq!(move_claim(&host(), &web(), 7, 0, &store.0), None, "it has no such claim");
        if taken {
            claim_of_other(&mut store, 0);
        }
        assert_eq!(store.apply(&moves), !taken);
        assert_eq!(claims_in(&store), if taken { vec![0, 1] } else { vec![0] });
    };
    check(false);
    check(true);
}

/// A put with a lease that has ended fails, and nobody could end the claims of a host that vanished.
#[test]
fn a_claim_moves_without_the_ticket_of_a_lease_that_has_ended() {
    let check = |live_lease: Option<i64>, keeps_ticket: bool| {
        let (mut store, _) = claimed();
        store.remove(&Key::Live(host()));
        let ticket = Ticket { rollout: ORDER, limit: web(), place: Place(10), lease: LEASE };
        let waits = HostClaims { ticket: Some(ticket), ..claims(&[1]) };
        let mut transaction = Transaction::idempotent("test");
        ClaimsChange { host: &host(), new: &waits, old: &FoundClaims::default() }.add_to(&mut transaction);
        assert!(store.apply(&transaction));
        if let Some(lease) = live_lease {
            store.put(&Key::Live(host()), b"{}", lease);
        }
        let moves = move_claim(&host(), &web(), 1, 0, &store.0).expect("a claim");
        assert!(store.apply(&moves));
        assert_eq!(claims_in(&store), [0]);
        assert_eq!(tickets_in(&store).len(), usize::from(keeps_ticket), "{live_lease:?}");
        let left = FoundClaims::read(&host(), &store.0).ticket().is_some();
        assert_eq!(left, keeps_ticket, "{live_lease:?}");
    };
    check(Some(LEASE), true);
    check(Some(LEASE + 1), false);
    check(None, false);
}

#[test]
fn a_host_whose_claims_an_operator_released_is_told_so() {
    let check = |may_return: bool| {
        let mut store = vanished(true);
        let act = Act::new(EventId::of(1, &Token::new("e").unwrap()), "ann", "claims release");
        assert!(store.apply(&release_claims(&host(), may_return, &store.0.clone(), &act)));
        assert_eq!(claims_in(&store), [0u32; 0]);
        let found = FoundClaims::read(&host(), &store.0);
        assert_eq!(found.claims.is_some_and(|claims| claims.released), may_return);
    };
    check(true);
    check(false);
}

#[test]
fn a_ticket_moves_with_its_queue_and_ends_with_the_lease() {
    let (host, first, second) = (host(), report("first"), report("second"));
    let (mut store, fence) = claimed();
    let ticket = |by| {
        let limit = Limit { by, ..web() };
        let ticket = Ticket { rollout: ORDER, limit, place: Place(10), lease: LEASE };
        HostClaims { ticket: Some(ticket), ..claims(&[]) }
    };
    let waits =
        HostWrite { claims: Some(ticket(LimitBy::Role)), ..write(&host, &first, fence, Listing::Keep) };
    assert!(matches!(commit(&mut store, &waits, None), Outcome::Applied(_)));
    let key = |by| Key::Ticket(ORDER, Limit { by, ..web() }, Place(10), host.clone());
    assert_eq!(tickets_in(&store), [key(LimitBy::Role)]);
    let moves =
        HostWrite { claims: Some(ticket(LimitBy::Group)), ..write(&host, &second, fence, Listing::Keep) };
    assert!(matches!(commit_knowing(&mut store, &moves), Outcome::Applied(_)));
    assert_eq!(tickets_in(&store), [key(LimitBy::Group)]);
    assert_eq!(store.0.get(&key(LimitBy::Group)).map(|entry| entry.lease), Some(LEASE));
}

#[test]
fn a_new_record_is_written_once_and_deletes_some_of_the_oldest() {
    let check = |old: i64, deleted: usize| {
        let (mut store, _) = claimed();
        let order = |revision| InstructionOrder { epoch: 0, revision };
        (1..=old).for_each(|revision| store.put(&Key::RolloutRecord(order(revision)), b"{}", 0));
        let record = RolloutRecord::new(version("v2"), EpochSeconds(1));
        let found = KeySnapshot { entries: store.0.entries.clone(), ..store.0 };
        let keys = || found.entries.keys().map(String::as_str);
        let transaction = write_record(order(old + 1), &record, &found, keys());
        assert!(store.apply(&transaction));
        let left: Vec<i64> = all_keys(&store)
            .filter_map(|key| if let Key::RolloutRecord(order) = key { Some(order.revision) } else { None })
            .collect();
        let first = i64::try_from(deleted).unwrap() + 1;
        assert_eq!(left, (first..=old + 1).collect::<Vec<_>>(), "{old} old ones");
        assert!(!store.apply(&transaction), "there is one already");
    };
    check(0, 0);
    check(99, 0);
    check(100, 1);
    check(105, 6);
    check(150, 10);
}

/// A start has about 12 operations, and 3 for each limit; etcd allows 128.
#[test]
fn the_largest_start_is_small_enough() {
    let (host, report) = (host(), report("ours"));
    let (store, fence) = claimed();
    let label = |n: usize| Limit {
        by: LimitBy::Label(crate::names::LabelName::new(format!("l{n}")).unwrap()),
        ..web()
    };
    let held = |n| HeldClaim { limit: label(n), number: 0, keep_failed: false };
    let all = HostClaims { claims: (0..16).map(held).collect(), ..claims(&[]) };
    let mut guard = start(&store, 0, 1).unwrap();
    guard.scopes = FreezeScope::of_host(&host, None, None);
    guard.rollout.as_mut().unwrap().limits = (0..16).map(|n| (label(n), 1)).collect();
    let write = HostWrite {
        start: Some(guard),
        claims: Some(all.clone()),
        ..write(&host, &report, fence, Listing::Remove)
    };
    // Every number that the host holds moves.
    let moved = |claim: HeldClaim| HeldClaim { number: 1, ..claim };
    let old = HostClaims { claims: all.claims.into_iter().map(moved).collect(), ..claims(&[]) };
    let expected = ExpectedKeys {
        announced: Some(b"v1".to_vec()),
        report_revision: 1,
        claims: FoundClaims { claims: Some(old), revision: 1 },
    };
    assert_eq!(write.transaction(&expected).check(), Ok(()));
}
