//! The failure budget of a rollout: how many hosts may fail before no other one starts.
use schema::keys::{self, Key, Prefix};
use schema::names::HostName;
use schema::order::InstructionOrder;
use schema::records::{FailedHost, FailureKind, Halt, RolloutRecord};
use schema::snapshot::KeySnapshot;
use schema::why_not::over_budget;

/// How many failed hosts are tolerated, and which count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Budget {
    hosts: u32,
    /// Failures that were first written up to this revision do not count.
    counted_from: i64,
}

impl Budget {
    pub(super) fn of_record(record: &RolloutRecord) -> Option<Self> {
        record.budget.map(|hosts| Self { hosts, counted_from: record.counted_from })
    }

    /// Returns how many failed hosts are tolerated.
    pub(super) fn hosts(&self) -> u32 {
        self.hosts
    }

    /// True if so many failed hosts are too many.
    pub(super) fn is_exceeded_by(&self, failed: usize) -> bool {
        failed > self.hosts as usize
    }
}

/// What is known of the failures in a rollout.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Failures {
    /// Why the rollout is halted.
    halted: Option<String>,
    budget: Option<Budget>,
    /// The hosts that count, and how many of them were lost.
    failed: Vec<HostName>,
    lost: usize,
    has_ended: bool,
}

impl Failures {
    /// Reads the failures. `found` holds all keys of the rollout.
    pub(super) fn read(order: InstructionOrder, budget: Option<Budget>, found: &KeySnapshot) -> Self {
        let halted = found.get(&Key::Halt(order)).map(|entry| Halt::reason(&entry.value));
        let counted_from = budget.map_or(0, |budget| budget.counted_from);
        let failed: Vec<_> = failed_hosts(order, counted_from, found).collect();
        let is_lost = |failed: &Option<FailedHost>| {
            failed.as_ref().is_none_or(|failed| failed.kind == FailureKind::Lost)
        };
        let lost = failed.iter().filter(|(_, failed)| is_lost(failed)).count();
        let has_ended = found.get(&Key::Ended(order)).is_some();
        let failed = failed.into_iter().map(|(host, _)| host).collect();
        Self { halted, budget, failed, lost, has_ended }
    }

    /// Returns why the rollout is halted, if it is.
    pub(super) fn halted(&self) -> Option<&str> {
        self.halted.as_deref()
    }

    /// Returns how many hosts failed and how many are tolerated, if there are more.
    pub(super) fn over_budget(&self) -> Option<(usize, u32)> {
        self.exceeded().map(|budget| (self.failed.len(), budget.hosts))
    }

    fn exceeded(&self) -> Option<Budget> {
        self.budget.filter(|budget| budget.is_exceeded_by(self.failed.len()))
    }

    /// True if the hosts may let the fleet go back when they halt the rollout: without the lost hosts, which may
    /// have lost their power and not their version, there are too many failed ones as well.
    pub(super) fn blame_version(&self) -> bool {
        let others = self.failed.len() - self.lost;
        !self.has_ended && self.budget.is_some_and(|budget| budget.is_exceeded_by(others))
    }

    /// Returns why the rollout is to be halted; `None` if it is halted or goes on.
    pub(super) fn reason_to_halt(&self) -> Option<String> {
        if self.halted.is_some() {
            return None;
        }
        let budget = self.exceeded()?;
        Some(over_budget(self.failed.len(), budget.hosts))
    }
}

/// Returns the hosts that failed in a rollout, first after this revision, and are not healed. The failure is
/// `None` if it cannot be read; it still counts. A host that stopped working after the rollout had ended
/// does not count: the version worked.
pub fn failed_hosts(
    order: InstructionOrder,
    counted_from: i64,
    found: &KeySnapshot,
) -> impl Iterator<Item = (HostName, Option<FailedHost>)> {
    let ended = found.get(&Key::Ended(order)).map_or(i64::MAX, |entry| entry.mod_revision);
    let failed = found.in_range(&Prefix::FailedOf(order));
    failed.filter_map(move |(key, entry)| {
        let Ok(Key::Failed(_, host)) = Key::parse(key) else { return None };
        let failed = keys::Failed::read(&entry.value).ok();
        // A failure that is written over another one is no new one, unless the host had been healed.
        let since = failed.as_ref().map_or(entry.create_revision, |failed| failed.counts_from(entry));
        if since <= counted_from {
            return None;
        }
        let is_over = |failed: &FailedHost| {
            failed.healed || failed.kind == FailureKind::Withdrawal && entry.mod_revision > ended
        };
        let counts = !failed.as_ref().is_some_and(is_over);
        counts.then_some((host, failed))
    })
}
