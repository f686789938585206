//! The laws about failures: R3, that a version that fails everywhere reaches few hosts, and R2 for halts.
//! Both are checked against what hosts do, and not against what they write about failures.

use crate::store::{Change, Store};
use crate::violation::{Violation, broken};
use schema::keys::{self, Key, Prefix};
use schema::limit::{Limit, LimitBy};
use schema::names::{HostName, LimitValue};
use schema::order::InstructionOrder;
use schema::records::{FailedHost, FailureKind};
use schema::snapshot::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// What the store says when a start reaches it.
#[derive(Debug, Clone)]
pub(crate) struct StartUnderBudget {
    order: InstructionOrder,
    is_halted: bool,
    /// How many hosts may be between their start and their proof: those that may be unavailable, and those
    /// that may fail. `None` without a budget.
    most: Option<u32>,
    /// True if more hosts have failed than the rollout tolerates.
    is_over: bool,
    /// The hosts that had failed when an operator resumed the rollout. Their failures do not count, and they may
    /// fail again.
    excused: BTreeSet<HostName>,
}

/// A host that fails.
#[derive(Debug, Clone)]
struct Failing {
    /// The revision at which it failed: before that it had not failed, or it was healed.
    since: i64,
    written_at: i64,
    kind: FailureKind,
}

/// State of the laws about failures.
#[derive(Debug, Clone, Default)]
pub(crate) struct BudgetLaws {
    /// The hosts that started in a rollout and were not proven since.
    unproven: BTreeMap<InstructionOrder, BTreeSet<HostName>>,
    /// The revision up to which failures do not count, by rollout.
    resumed: BTreeMap<InstructionOrder, i64>,
    /// The hosts that fail in a rollout.
    failing: BTreeMap<InstructionOrder, BTreeMap<HostName, Failing>>,
    pub(crate) halts: u64,
}

impl BudgetLaws {
    /// Returns what counts when a start reaches the store.
    pub(crate) fn expect(&self, store: &Store, order: InstructionOrder) -> StartUnderBudget {
        let record = store.entry(&Key::RolloutRecord(order).to_string());
        let record = record.and_then(|entry| keys::RolloutRecord::read(&entry.value).ok());
        let all = LimitValue::new("all").unwrap_or_else(|_| unreachable!("a value"));
        let fleet = Limit { by: LimitBy::Fleet, value: all };
        let budget = record.as_ref().and_then(|record| record.budget);
        let counted_from = record.as_ref().map_or(0, |record| record.counted_from);
        let ended = store.entry(&Key::Ended(order).to_string()).map_or(i64::MAX, |entry| entry.mod_revision);
        let failing = || self.failing.get(&order).into_iter().flatten();
        let excused = failing().filter(|(_, failing)| failing.since <= counted_from);
        let excused = excused.map(|(host, _)| host.clone()).collect();
        // What a host does after the end is no fault of the version.
        let counts = |failing: &Failing| {
            let is_over = failing.kind == FailureKind::Withdrawal && failing.written_at > ended;
            failing.since > counted_from && !is_over
        };
        let failed = failing().filter(|(_, failing)| counts(failing)).count();
        let is_over = budget.is_some_and(|budget| failed > budget as usize);
        let most = record.and_then(|record| Some(budget? + record.max_of(&fleet)?));
        let is_halted = store.entry(&Key::Halt(order).to_string()).is_some();
        StartUnderBudget { order, is_halted, most, is_over, excused }
    }

    /// A host has started. `counts` is false if it was disturbed before, never proven, or repairs itself.
    pub(crate) fn started(
        &mut self,
        host: &HostName,
        start: &StartUnderBudget,
        counts: bool,
    ) -> Result<(), Violation> {
        if start.is_halted {
            return broken("R2", format!("{host} starts, and its rollout is halted"));
        }
        if !counts {
            return Ok(());
        }
        let Some(most) = start.most else { return Ok(()) };
        if start.is_over {
            return broken("R3", format!("{host} starts, and more hosts failed than the rollout tolerates"));
        }
        let unproven = self.unproven.entry(start.order).or_default();
        unproven.insert(host.clone());
        unproven.retain(|host| !start.excused.contains(host));
        if unproven.len() <= most as usize {
            return Ok(());
        }
        broken("R3", format!("{host} starts, and {unproven:?} are not proven; at most {most} may be"))
    }

    /// A host is proven, or an operator released its claims.
    pub(crate) fn forget(&mut self, host: &HostName) {
        for unproven in self.unproven.values_mut() {
            unproven.remove(host);
        }
    }

    /// A key of a rollout was written or deleted.
    pub(crate) fn note(&mut self, key: &Key, entry: Option<&Entry>) {
        match (key, entry) {
            (Key::Halt(_), Some(_)) => self.halts += 1,
            (Key::RolloutRecord(order), Some(entry)) => {
                let record = keys::RolloutRecord::read(&entry.value).ok();
                let counted_from = record.map_or(0, |record| record.counted_from);
                // What failed before does not count any more.
                if self.resumed.insert(*order, counted_from).unwrap_or(0) < counted_from {
                    self.unproven.remove(order);
                }
            }
            (Key::Failed(order, host), entry) => {
                let revision = entry.map_or(0, |entry| entry.mod_revision);
                self.note_failure(*order, host, entry, revision);
            }
            _ => {}
        }
    }

    /// A failure is written, healed or deleted. `since` is the revision from which on it counts, if it is new.
    fn note_failure(&mut self, order: InstructionOrder, host: &HostName, entry: Option<&Entry>, since: i64) {
        let failing = self.failing.entry(order).or_default();
        let failed = entry.and_then(|entry| Some((keys::Failed::read(&entry.value).ok()?, entry)));
        match failed.filter(|(failed, _)| !failed.healed) {
            Some((FailedHost { kind, .. }, entry)) => {
                let written_at = entry.mod_revision;
                let before = failing.get(host).map(|failing| failing.since);
                let since = before.unwrap_or(since);
                failing.insert(host.clone(), Failing { since, written_at, kind });
            }
            None => drop(failing.remove(host)),
        }
    }

    /// The store went back.
    pub(crate) fn restored(&mut self, store: &Store) {
        let halts = self.halts;
        *self = Self { halts, ..Self::default() };
        for (key, entry) in store.list(&Prefix::Rollouts).entries {
            if let Ok(Key::Failed(order, host)) = Key::parse(&key) {
                self.note_failure(order, &host, Some(&entry), entry.create_revision);
            }
        }
    }
}

/// True if a host fails by these changes.
pub(crate) fn has_failed(changes: &[Change]) -> bool {
    changes.iter().any(|change| {
        let failed =
            if matches!(Key::parse(&change.key), Ok(Key::Failed(..))) { change.entry.as_ref() } else { None };
        failed.is_some_and(|entry| keys::Failed::read(&entry.value).is_ok_and(|failed| !failed.healed))
    })
}
