//! How far the host got in its rollout, and how long it keeps its claims after its proof. The next write to the
//! store says so.

use crate::host::cycle::ValidationResult;
use crate::host::site_config::SiteConfig;
use crate::host::state::{HostState, RolloutProgress};
use crate::rollout::Times;
use schema::instruction::Instruction;
use schema::order::InstructionOrder;
use schema::plan::AttemptCause;
use schema::records::{FailureKind, HostProgress, ProgressState};
use schema::steps::StepPhase;
use schema::time::{BootMillis, Now, Span};
use std::time::Duration;

impl HostState {
    /// Notes that the host started in a rollout; `times` are those of its record, if it has one. The start
    /// transaction says so too.
    pub(super) fn note_start(&mut self, order: InstructionOrder, times: Option<Times>, now: Now) {
        self.rollout.hold = None;
        let progress = HostProgress::of_agent(ProgressState::Started, now.wall);
        let (is_written, has_ended) = (true, false);
        self.rollout.progress = times.map(|_| RolloutProgress { order, progress, is_written, has_ended });
    }

    /// Notes that a newer instruction for the same version was taken over after the start.
    pub(super) fn note_new_order(&mut self, order: InstructionOrder, now: Now) {
        if let Some(known) = self.rollout.progress.as_mut() {
            let progress = HostProgress::of_agent(ProgressState::Started, now.wall);
            *known = RolloutProgress { order, progress, is_written: false, has_ended: false };
        }
    }

    /// Notes that the started attempt at an instruction ended with this result: the host is proven, or gave up.
    pub(super) fn note_result(&mut self, order: InstructionOrder, result: HostProgress) {
        let known = self.rollout.progress.as_mut().filter(|known| known.order == order);
        if let Some(known) = known.filter(|known| known.progress.state != result.state) {
            let seconds = result.at.0.saturating_sub(known.progress.at.0);
            let seconds = u64::try_from(seconds).ok().map(Duration::from_secs);
            // After a reboot, or if a newer instruction was taken over, the wall clock knows better.
            let is_near = |took: &Span| seconds.is_some_and(|s| s.abs_diff(took.0) <= Duration::from_secs(1));
            let is_proof =
                (known.progress.state, result.state) == (ProgressState::Started, ProgressState::Proven);
            let took = if is_proof { result.took.filter(is_near).or(seconds.map(Span)) } else { None };
            known.progress = HostProgress { took, ..result };
            known.is_written = false;
        }
    }

    /// Returns how long the validation steps took the last time.
    pub(super) fn validation_took(&self) -> Duration {
        let steps = self.steps.durations.iter().filter(|known| known.phase == StepPhase::Validate);
        steps.fold(Duration::ZERO, |sum, known| sum.saturating_add(known.took.0))
    }

    /// True if the host is off its old version and does not soon try again by itself.
    pub(super) fn has_given_up(&self, policy: &SiteConfig) -> bool {
        let goes_on = self.attempt.as_ref().is_some_and(|attempt| {
            // The next repair comes much later.
            let waits_for_repair = attempt.end().is_some() && attempt.cause == AttemptCause::Repair;
            // Its attempts end before they start, so it does not become suspect.
            let ended_before_start = attempt.end().is_some_and(|end| end.disruption.is_none());
            let is_stuck = ended_before_start && attempt.history.tries > policy.suspect_after;
            !self.is_suspect(policy) && !waits_for_repair && !is_stuck
        });
        self.is_disturbed() && !goes_on
    }

    /// True if the next write says that the host failed, is healed, or how far it got.
    pub fn must_write_outcome(&self) -> bool {
        self.must_write_failure() || self.must_write_progress()
    }

    /// True if the store does not know how far the host got.
    fn must_write_progress(&self) -> bool {
        self.rollout.progress.as_ref().is_some_and(|known| !known.is_written)
    }

    /// Returns what the next write says about the progress of the host.
    pub(super) fn progress_to_write(&self) -> Option<(InstructionOrder, HostProgress)> {
        let known = self.rollout.progress.as_ref().filter(|known| !known.is_written)?;
        Some((known.order, known.progress))
    }

    /// Notes that a write with this progress was applied.
    pub(super) fn progress_written(&mut self, written: Option<(InstructionOrder, HostProgress)>) {
        if let (Some(known), Some(written)) = (&mut self.rollout.progress, written)
            && (known.order, known.progress) == written
        {
            known.is_written = true;
        }
    }

    /// Returns true if the host looks whether the rollout of this instruction has ended: it started in it and does
    /// not know. A host that has the version already looks in every later rollout of it.
    pub fn drives_rollout(&self, instruction: &Instruction) -> bool {
        self.rollout.progress.is_some_and(|known| {
            let has_version = self.listing() == Some(&instruction.version);
            let is_again = known.order < instruction.order && has_version;
            is_again || known.order == instruction.order && !known.has_ended
        })
    }

    /// Notes that a rollout has ended, which the host is through with.
    pub(super) fn note_end(&mut self, order: InstructionOrder) {
        if let Some(known) = self.rollout.progress.as_mut().filter(|known| known.order <= order) {
            (known.order, known.has_ended) = (order, true);
        }
        // What fails from now on is no fault of the version.
        self.rollout.proven_in.take_if(|proven| proven.order <= order);
    }

    /// Takes a validation of the proven version into account, while the host keeps its claims.
    pub(super) fn hold_claims(&mut self, result: ValidationResult, now: Now) {
        let Some(hold) = &mut self.rollout.hold else { return };
        let (counts_in, is_late) = (hold.counts_in, now.boot >= hold.deadline.at);
        let is_over = match result {
            ValidationResult::Passed => {
                let since = *hold.passes_since.get_or_insert(now.boot);
                now.boot >= since.plus(hold.length.0)
            }
            // That counts as a failure, so others know before they take the place.
            ValidationResult::Failed => true,
            ValidationResult::NotYet => {
                hold.passes_since = None;
                is_late
            }
        };
        if let Some(order) = counts_in
            && result == ValidationResult::NotYet
            && is_over
        {
            self.count(order, FailureKind::Withdrawal, "validation did not pass in time".into(), None, now);
        }
        if is_over {
            (self.rollout.hold, self.rollout.claims) = (None, None);
        }
    }

    /// Returns when the validation is due that lets the host release its claims.
    pub(super) fn hold_ends_at(&self) -> Option<BootMillis> {
        let hold = self.rollout.hold.as_ref()?;
        Some(hold.passes_since?.plus(hold.length.0))
    }
}
