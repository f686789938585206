//! What the end of a step, and that of a cycle, changes in the recorded state of a host.

use crate::host::attempt::{Deferred, Progress};
use crate::host::cycle::{Validation, ValidationResult};
use crate::host::record::StepReport;
use crate::host::reporting::NewResult;
use crate::host::site_config::{INTERRUPTIONS_MAX, SiteConfig, StepMeaning};
use crate::host::state::{HostState, OnSuspect};
use schema::names::StatusType;
use schema::records::LoggedStep;
use schema::steps::StepPhase;
use schema::time::Now;
use schema::verdict::Failure;

impl HostState {
    /// Records the end of the step that ran.
    pub(super) fn end_step(&mut self, report: StepReport, policy: &SiteConfig, now: Now) {
        let since = self.steps.running.take().and_then(|running| running.since);
        let StepReport { phase, step, end, log, cause } = report;
        let meaning = policy.steps.meaning(phase, &step, &end);
        let logged = LoggedStep { phase, step: step.clone() };
        if meaning == StepMeaning::Done {
            self.steps.logs.forget(&logged);
            if let Some(since) = since {
                self.steps.note_duration(phase, &step, now.boot.since(since));
            }
        }
        let until = now.boot.plus(policy.not_yet_retry);
        let Some(progress) = self.progress_of(phase) else { return };
        progress.held = None;
        match meaning {
            StepMeaning::Done => {
                progress.interruptions = 0;
                progress.done.push(step);
                return;
            }
            StepMeaning::Again if progress.interruptions + 1 < INTERRUPTIONS_MAX => {
                progress.interruptions += 1;
                return;
            }
            StepMeaning::NotYet => progress.held = Some(Deferred { step, until }),
            StepMeaning::Again | StepMeaning::Failed => {
                progress.failed = Some(Failure { cause, ..Failure::of(phase, step, end) });
            }
        }
        self.steps.logs.note(logged, log);
    }

    fn progress_of(&mut self, phase: StepPhase) -> Option<&mut Progress> {
        match phase {
            StepPhase::Prefetch => self.attempt.as_mut()?.prefetch_mut(),
            StepPhase::Apply => {
                self.attempt.as_mut()?.disruption_mut().map(|disruption| &mut disruption.apply)
            }
            StepPhase::Converge => self.cycles.current.as_mut()?.converge.as_mut(),
            StepPhase::Validate => self.cycles.current.as_mut().map(|cycle| &mut cycle.validate),
            StepPhase::OnSuspect => {
                let order = self.attempt.as_ref()?.instruction.order;
                let known = self.recovery.on_suspect.take().filter(|known| known.order == order);
                let entry = known.unwrap_or(OnSuspect { order, progress: Progress::default() });
                Some(&mut self.recovery.on_suspect.insert(entry).progress)
            }
        }
    }

    /// Records the end of the current cycle. Phases in `lacking` lack a service.
    pub(super) fn end_cycle(&mut self, lacking: &[StepPhase], policy: &SiteConfig, now: Now) {
        let Some(mut cycle) = self.cycles.current.take() else { return };
        if let Some(converge) = cycle.converge.take() {
            self.cycles.note_converge(converge, lacking.contains(&StepPhase::Converge));
        }
        let (result, state) = cycle.result(lacking);
        let before = self.cycles.validation.as_ref().filter(|before| before.version == cycle.version);
        let failing_since = before.and_then(|before| before.failing_since);
        let failing_since = match result {
            ValidationResult::Passed => None,
            ValidationResult::Failed => failing_since.or(Some(now.boot)),
            ValidationResult::NotYet => failing_since,
        };
        let proof_is_about_it =
            !self.is_disturbed() && self.versions.installed.as_ref() == Some(&cycle.version);
        match result {
            ValidationResult::Passed if proof_is_about_it => self.versions.proof_holds = true,
            ValidationResult::Failed => self.versions.proof_holds = false,
            _ => {}
        }
        let failure = cycle.validate.failed;
        if proof_is_about_it {
            self.count_validation(result, failure.as_ref(), now);
            self.hold_claims(result, now);
        }
        // What was validated is that version only if it was applied as a whole.
        let version = if self.is_whole(policy) { Some(cycle.version.clone()) } else { None };
        let kind = StatusType::validation();
        self.reporting.set(NewResult { kind, state, version, failure: failure.as_ref() }, now);
        self.cycles.validate_first = false;
        if let Some(attempt) = &mut self.attempt {
            attempt.cycle_ended(result != ValidationResult::NotYet, policy);
        }
        self.cycles.validation = Some(Validation {
            version: cycle.version,
            result,
            at: now.boot,
            failing_since,
            failure,
            held: cycle.validate.held.map(|held| held.step),
        });
        let works = result == ValidationResult::Passed && self.cycles.converge.failure.is_none();
        if works && self.attempt.is_none() {
            self.steps.logs.clear();
        }
    }
}
