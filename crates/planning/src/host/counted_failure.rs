//! What a host counts as a failure of its rollout, and that it is healed. The next write to the store says
//! so, together with the claims that the host releases: nobody takes its place without knowing.

use crate::host::attempt::{Attempt, Deadline};
use crate::host::cycle::ValidationResult;
use crate::host::state::{CountedFailure, Hold, HostState, ProvenIn};
use schema::order::InstructionOrder;
use schema::plan::AttemptCause;
use schema::records::{Cause, FailedHost, FailureKind, HostProgress, ProgressState};
use schema::time::{Now, Span};
use schema::verdict::Failure;
use schema::writes::host::FailureChange;

impl HostState {
    /// Counts an attempt that ended without success, if it disturbed the host. A repair is about a version
    /// that was proven before.
    pub(super) fn count_attempt(&mut self, now: Now) {
        let Some(attempt) = &self.attempt else { return };
        let Some(end) = attempt.end() else { return };
        let is_charged = end.disruption.as_ref().is_some_and(|disruption| disruption.charge_for.is_some());
        if is_charged && attempt.cause == AttemptCause::Instruction {
            let (order, failure) = (attempt.instruction.order, end.failure.clone());
            self.count(order, FailureKind::Attempt, failure.reason, failure.cause, now);
        }
    }

    /// Takes a validation of the proven version into account.
    pub(super) fn count_validation(&mut self, result: ValidationResult, failure: Option<&Failure>, now: Now) {
        // A reboot gives no more time to one whose time is over.
        self.rollout.proven_in.take_if(|proven| now.boot >= proven.until.at);
        let proven = self.rollout.proven_in.map(|proven| proven.order);
        // Nobody took the place of a host that keeps its claims.
        let counts_in = self.rollout.hold.as_ref().and_then(|hold| hold.counts_in).or(proven);
        match (result, counts_in) {
            (ValidationResult::Passed, _) => {
                if let Some(order) = self.rollout.counted_failure.as_ref().map(|failure| failure.order) {
                    self.heal(order);
                }
            }
            (ValidationResult::Failed, Some(order)) => {
                let reason = failure.map(|failure| failure.reason.clone()).unwrap_or_default();
                let cause = failure.and_then(|failure| failure.cause.clone());
                self.count(order, FailureKind::Withdrawal, reason, cause, now);
            }
            (ValidationResult::Failed | ValidationResult::NotYet, _) => {}
        }
    }

    /// Takes the proof of an attempt into account.
    pub(super) fn note_proof(&mut self, attempt: &Attempt, now: Now) {
        let order = attempt.instruction.order;
        self.heal(order);
        let Some(disruption) = attempt.disruption() else { return };
        let started = |deadline: &Deadline| now.boot.plus(deadline.within.0).since(deadline.at);
        let took = disruption.deadline.as_ref().map(started).map(Span);
        let validation = disruption.hold.map(|_| Span(self.validation_took()));
        let proven = HostProgress::of_agent(ProgressState::Proven, now.wall);
        self.note_result(order, HostProgress { took, validation, ..proven });
        // A repair proves nothing new.
        if attempt.cause == AttemptCause::Repair {
            return;
        }
        if let Some(charge_for) = disruption.charge_for {
            self.rollout.proven_in = Some(ProvenIn { order, until: Deadline::after(charge_for, now.boot) });
        }
        if let (Some(length), Some(deadline)) = (disruption.hold, disruption.deadline) {
            let deadline = Deadline::after(Span(length.0 + deadline.within.0), now.boot);
            let counts_in = disruption.charge_for.map(|_| order);
            self.rollout.hold = Some(Hold { counts_in, length, passes_since: Some(now.boot), deadline });
        }
    }

    pub(super) fn count(
        &mut self,
        order: InstructionOrder,
        kind: FailureKind,
        reason: String,
        cause: Option<Cause>,
        now: Now,
    ) {
        let counts = |known: &CountedFailure| known.order == order && !known.failed.healed;
        if !self.rollout.counted_failure.as_ref().is_some_and(counts) {
            let was_healed = self.rollout.counted_failure.as_ref().is_some_and(|known| known.order == order);
            let again = was_healed.then_some(0);
            let failed = FailedHost { at: now.wall, kind, reason, cause, healed: false, again };
            self.rollout.counted_failure = Some(CountedFailure { order, failed, is_written: false });
        }
    }

    fn heal(&mut self, order: InstructionOrder) {
        if let Some(known) = self.rollout.counted_failure.as_mut().filter(|known| known.order == order)
            && !known.failed.healed
        {
            known.failed.healed = true;
            known.is_written = false;
        }
    }

    /// True if the store does not know the failure yet, or that it is healed.
    pub(super) fn must_write_failure(&self) -> bool {
        self.rollout.counted_failure.as_ref().is_some_and(|failure| !failure.is_written)
    }

    /// Returns what a write of the host does about its failure. `announces` is the rollout whose version it
    /// announces: others may have counted the host as lost there, or an earlier life of it may have failed.
    pub(super) fn failure_change(&self, announces: Option<InstructionOrder>) -> FailureChange {
        match (&self.rollout.counted_failure, announces) {
            (Some(failure), announces)
                if !failure.is_written || Some(failure.order) == announces && failure.failed.healed =>
            {
                FailureChange::Put(failure.order, failure.failed.clone())
            }
            (Some(failure), Some(order)) if failure.order == order => FailureChange::Keep,
            (_, Some(order)) => FailureChange::Delete(order),
            (_, None) => FailureChange::Keep,
        }
    }

    /// Notes that a write with this change was applied.
    pub(super) fn failure_written(&mut self, change: &FailureChange) {
        if let (Some(failure), FailureChange::Put(order, failed)) =
            (&mut self.rollout.counted_failure, change)
            && (failure.order, &failure.failed) == (*order, failed)
        {
            failure.is_written = true;
        }
    }
}
