//! The stages of a rollout.

use super::claims::{ORDER, claims, start};
use super::*;
use crate::records::{Ended, StageOpening};
use crate::writes::rollout::end;
use crate::writes::stage::{RolloutStage, begin_soak, end_soak, open_stages, time_soak};

const FIRST: RolloutStage = RolloutStage { order: ORDER, stage: 0 };

fn opening() -> StageOpening {
    StageOpening { at: EpochSeconds(5), by: "h2".into(), hosts: 3 }
}

/// A rollout whose first stage is open, and was observed.
fn observed() -> Store {
    let (mut store, _) = claimed();
    store.put(&Key::RolloutRecord(ORDER), b"{}", 0);
    store.put(&Key::Soak(ORDER, 0), b"{}", 0);
    store
}

#[test]
fn a_stage_opens_only_if_nothing_changed_since_it_was_read() {
    let other = || HostName::new("other").unwrap();
    let check = |name: &str, change: &dyn Fn(&mut Store), is_applied: bool| {
        let mut store = observed();
        let found = store.0.clone();
        change(&mut store);
        let transactions = [
            open_stages(FIRST, 1..=2, &opening(), &found),
            begin_soak(FIRST, &opening(), &found),
            end_soak(FIRST, &found),
        ];
        for transaction in transactions {
            assert_eq!(transaction.check(), Ok(()));
            let mut store = Store(store.0.clone());
            assert_eq!(store.apply(&transaction), is_applied, "{name}: {}", transaction.name);
        }
    };
    check("nothing changed", &|_| {}, true);
    check("a host failed", &|store| store.put(&Key::Failed(ORDER, other()), b"{}", 0), false);
    check("a host got further", &|store| store.put(&Key::Progress(ORDER, other()), b"{}", 0), false);
    check("a host joined", &|store| store.put(&Key::Host(other()), b"{}", 0), false);
    check("a host came back", &|store| store.put(&Key::Live(other()), b"{}", 0), false);
    check("the rollout was halted", &|store| store.put(&Key::Halt(ORDER), b"{}", 0), false);
    check("it has ended", &|store| store.put(&Key::Ended(ORDER), b"{}", 0), false);
    check("the record changed", &|store| store.put(&Key::RolloutRecord(ORDER), b"{}", 0), false);
    check("another version is desired", &|store| store.put(&Key::CurrentVersion, b"v3", 0), false);
    check("somebody opened it", &|store| store.put(&Key::StageOpened(ORDER, 1), b"{}", 0), false);
    check("the soak began again", &|store| store.put(&Key::Soak(ORDER, 0), b"{}", 0), false);
}

#[test]
fn a_rollout_ends_only_if_nothing_changed_since_it_was_read() {
    let other = || HostName::new("other").unwrap();
    let check = |name: &str, change: &dyn Fn(&mut Store), is_applied: bool| {
        let mut store = observed();
        let ended = Ended { at: EpochSeconds(5), by: "h2".into() };
        let end = end(ORDER, &ended, &store.0.clone());
        assert_eq!(end.check(), Ok(()));
        change(&mut store);
        assert_eq!(store.apply(&end), is_applied, "{name}");
    };
    check("nothing changed", &|_| {}, true);
    check("a host failed", &|store| store.put(&Key::Failed(ORDER, other()), b"{}", 0), false);
    check("a host got further", &|store| store.put(&Key::Progress(ORDER, other()), b"{}", 0), false);
    check("a host joined", &|store| store.put(&Key::Host(other()), b"{}", 0), false);
    check("a host came back", &|store| store.put(&Key::Live(other()), b"{}", 0), false);
    check("the rollout was halted", &|store| store.put(&Key::Halt(ORDER), b"{}", 0), false);
    check("the record changed", &|store| store.put(&Key::RolloutRecord(ORDER), b"{}", 0), false);
    check("another version is desired", &|store| store.put(&Key::CurrentVersion, b"v3", 0), false);
}

#[test]
fn the_timer_of_a_soak_starts_whatever_hosts_do() {
    let other = || HostName::new("other").unwrap();
    let check = |name: &str, change: &dyn Fn(&mut Store), is_applied: bool| {
        let mut store = observed();
        let timer = time_soak(FIRST, LEASE, &opening(), &store.0.clone());
        change(&mut store);
        assert_eq!(store.apply(&timer), is_applied, "{name}");
    };
    check("nothing changed", &|_| {}, true);
    check("a host came back", &|store| store.put(&Key::Live(other()), b"{}", 0), true);
    check("a host failed", &|store| store.put(&Key::Failed(ORDER, other()), b"{}", 0), true);
    check("the rollout was halted", &|store| store.put(&Key::Halt(ORDER), b"{}", 0), false);
    check("the record changed", &|store| store.put(&Key::RolloutRecord(ORDER), b"{}", 0), false);
    check("another version is desired", &|store| store.put(&Key::CurrentVersion, b"v3", 0), false);
    check("the soak began again", &|store| store.put(&Key::Soak(ORDER, 0), b"{}", 0), false);
}

#[test]
fn a_stage_does_not_open_while_its_timer_runs() {
    let mut store = observed();
    store.put(&Key::SoakTimer(ORDER, 0), b"h2", LEASE);
    let open = open_stages(FIRST, 1..=1, &opening(), &store.0.clone());
    assert!(!store.apply(&open));
    store.remove(&Key::SoakTimer(ORDER, 0));
    assert!(store.apply(&open));
    assert_eq!(store.keys("/orchestrate/rollouts/").len(), 3, "record, soak, opened");
}

#[test]
fn a_start_compares_that_its_stage_is_open() {
    let (host, report) = (host(), report("ours"));
    let check = |change: fn(&mut Store), is_applied: bool| {
        let (mut store, fence) = claimed();
        store.put(&Key::RolloutRecord(ORDER), b"{}", 0);
        store.put(&Key::StageOpened(ORDER, 1), b"{}", 0);
        let opened = store.0.revision;
        let mut guard = start(&store, 0, 1);
        if let Some(rollout) = guard.as_mut().and_then(|guard| guard.rollout.as_mut()) {
            rollout.stage = Some((Key::StageOpened(ORDER, 1), opened));
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
    check(|store| store.put(&Key::StageOpened(ORDER, 2), b"{}", 0), true);
    check(|store| store.remove(&Key::StageOpened(ORDER, 1)), false);
    check(|store| store.put(&Key::StageOpened(ORDER, 1), b"{}", 0), false);
}
