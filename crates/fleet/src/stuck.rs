//! Which hosts do not reach the desired version without an operator.

use super::state::Fleet;
use super::verdict::{FailedBy, FleetVerdict};
use schema::frozen::FrozenBy;
use schema::names::HostName;
use schema::plan::Phase;
use schema::steps::StepPhase;
use schema::time::EpochSeconds;
use schema::verdict::{HostFailure, VerdictKind};

impl Fleet {
    /// True if the host does not reach the desired version until then, unless an operator helps. Deadlocks count if
    /// they were looked for.
    ///
    /// - A blocked host is stuck, and one that waits because the rollout is halted.
    /// - A frozen host is stuck, unless all its freezes end by then and the rollout is not halted.
    /// - A lost host is stuck, unless it vanished in the middle of an update, which may reboot it, or was never seen:
    ///   it may come for the first time.
    /// - A suspect host whose apply failed is stuck if its next attempt begins later. One whose validation fails
    ///   only needs a validation that passes.
    pub fn is_stuck(&self, host: &HostName, until: EpochSeconds) -> bool {
        let report = self.hosts().get(host).and_then(|facts| facts.readable_report());
        match self.verdict(host) {
            Some(FleetVerdict::Held(reason)) => match reason.kind() {
                VerdictKind::Blocked => true,
                VerdictKind::Frozen => self.is_halted() || self.is_frozen_after(host, until),
                _ => self.is_held_by_halt(host),
            },
            Some(FleetVerdict::Lost { seen: true, .. }) => {
                report.is_none_or(|report| report.phase == Phase::Idle)
            }
            Some(FleetVerdict::Failed(FailedBy::Report(HostFailure { failure, suspect: true, .. }))) => {
                let next = report.and_then(|report| report.next_attempt_at);
                failure.phase != StepPhase::Validate && next.is_none_or(|at| at > until)
            }
            _ => false,
        }
    }

    /// True if a freeze of the host ends later, or never by itself.
    fn is_frozen_after(&self, host: &HostName, until: EpochSeconds) -> bool {
        let ends = |frozen: &FrozenBy| frozen.freeze.as_ref().and_then(|freeze| freeze.until);
        let facts = self.hosts().get(host);
        let mut freezes = facts.into_iter().flat_map(|facts| self.freezes_of(host, facts));
        freezes.any(|frozen| ends(frozen).is_none_or(|at| at > until))
    }
}
