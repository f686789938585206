//! How each new fact changes the recorded state of a host.

use crate::host::attempt::{Attempt, AttemptHistory, Deadline, Disruption, Progress, Stage};
use crate::host::cycle::{Converged, Cycle};
use crate::host::reporting::NewResult;
use crate::host::site_config::SiteConfig;
use crate::host::state::{HostState, InProgress, RolloutPart, Versions};
use crate::host::step_memory::RunningStep;
use crate::rollout::Times;
use schema::instruction::Instruction;
use schema::keys::StatusState;
use schema::names::{StatusType, StepName};
use schema::order::InstructionOrder;
use schema::plan::{AttemptCause, Conclusion};
use schema::records::{BundleLink, Cause, HostClaims, HostProgress, ProgressState};
use schema::steps::{StepEnd, StepPhase};
use schema::time::Now;
use schema::verdict::Failure;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Something that happened to the host. Recording a fact never fails.
#[derive(Debug, Clone, PartialEq)]
pub enum Fact {
    /// A decision came to a conclusion.
    Concluded(Conclusion),
    /// The start transaction was committed.
    Started(Start),
    /// A rollout has ended: every host has its version, or will not get it without help.
    RolloutEnded(InstructionOrder),
    /// The runner of a step is about to be started.
    StepStarted(RunningStep),
    StepEnded(StepReport),
    /// A report was written.
    ReportWritten,
    /// The bundle of a failure was uploaded.
    BundleUploaded(BundleLink),
}

/// What a host has since its start transaction.
#[derive(Debug, Clone, PartialEq)]
pub struct Start {
    /// The claims that the host has since then.
    pub claims: Option<HostClaims>,
    /// The times of its rollout; `None` if that has no record.
    pub times: Option<Times>,
    /// True if its failures count against the budget of the rollout.
    pub counts_failure: bool,
}

/// How a step ended, and the last lines of its output.
#[derive(Debug, Clone, PartialEq)]
pub struct StepReport {
    /// The phase of the step.
    pub phase: StepPhase,
    /// The name of the step.
    pub step: StepName,
    /// How the step ended.
    pub end: StepEnd,
    /// The last lines of its output, bounded and redacted.
    pub log: Vec<String>,
    /// The cause, if it failed.
    pub cause: Option<Cause>,
}

impl HostState {
    /// Records a fact. `jitter`, from 0 to 1, spreads deadlines.
    pub fn record(&mut self, fact: Fact, policy: &SiteConfig, now: Now, jitter: f64) {
        match fact {
            Fact::Concluded(conclusion) => self.conclude(conclusion, policy, now, jitter),
            Fact::Started(start) => self.note_started(start, now),
            Fact::RolloutEnded(order) => self.note_end(order),
            Fact::StepStarted(step) => self.steps.begin(step, now),
            Fact::StepEnded(report) => self.end_step(report, policy, now),
            Fact::BundleUploaded(link) => self.reporting.note_bundle(link),
            Fact::ReportWritten => self.reporting.note_report(now.boot),
        }
    }

    fn note_started(&mut self, start: Start, now: Now) {
        let Start { claims, times, counts_failure } = start;
        self.rollout.claims = claims.filter(|claims| !claims.claims.is_empty());
        let Some(attempt) = &mut self.attempt else { return };
        attempt.start(Disruption {
            apply: Progress::default(),
            deadline: times.map(|times| Deadline::after(times.progress_deadline, now.boot)),
            charge_for: if counts_failure { times.map(|times| times.charge_for) } else { None },
            hold: times.and_then(|times| times.hold),
        });
        let Instruction { version, order } = attempt.instruction.clone();
        self.versions.in_progress = Some(InProgress { version, started_by: Some(order) });
        self.versions.proof_holds = false;
        self.rollout.counted_failure.take_if(|failure| failure.order != order);
        self.rollout.proven_in.take_if(|proven| proven.order != order);
        self.note_start(order, times, now);
        self.cycles.current = None;
        self.cycles.validate_first = false;
        // The last converge phase was about another version.
        self.cycles.converge.began = Converged::default();
    }

    fn conclude(&mut self, conclusion: Conclusion, policy: &SiteConfig, now: Now, jitter: f64) {
        match conclusion {
            Conclusion::AttemptBegan { instruction, cause, addressable } => {
                // A failed validation counts, also if the rest of its cycle is dropped.
                if self.cycles.current.as_ref().is_some_and(|cycle| cycle.validate.failed.is_some()) {
                    self.end_cycle(&[], policy, now);
                }
                self.begin_attempt(instruction, cause, addressable, now);
            }
            Conclusion::ApplyWaits => {
                let version = self.attempt.as_ref().map(|attempt| attempt.instruction.version.clone());
                let (kind, state) = (StatusType::apply(), StatusState::Pending);
                self.reporting.set(NewResult { kind, state, version, failure: None }, now);
            }
            Conclusion::CycleBegan { version, converge: with_converge, seen } => {
                if with_converge {
                    let seen = seen.or(self.cycles.converge.began.seen);
                    self.cycles.converge.began = Converged { seen, at: Some(now.boot) };
                }
                let converge = if with_converge { Some(Progress::default()) } else { None };
                self.cycles.current = Some(Cycle { version, converge, validate: Progress::default() });
            }
            Conclusion::CycleEnded { lacking } => self.end_cycle(&lacking, policy, now),
            Conclusion::AttemptFailed => self.end_attempt(policy, now, jitter),
            Conclusion::GaveUp => self.give_up(policy, now),
            Conclusion::Proven { .. } => self.note_proven(now),
            Conclusion::AttemptDropped => self.drop_attempt(now),
            Conclusion::Rearmed { order } => {
                self.observed.retry = Some(order);
                self.recovery = Default::default();
                if let Some(attempt) = &mut self.attempt {
                    attempt.rearm(now.boot);
                }
            }
            Conclusion::FollowsFile { version } => {
                // If an agent was the driver before, the script is now responsible for what it had
                // begun.
                let proof_holds = version.is_some();
                self.versions = Versions { installed: version, in_progress: None, proof_holds };
                self.rollout = RolloutPart::default();
                self.attempt = None;
                (self.cycles.current, self.cycles.validation) = (None, None);
                (self.cycles.converge.failure, self.cycles.converge.held) = (None, None);
            }
        }
    }

    /// Sets a result about the version that steps and validation are about.
    fn set_status(&mut self, kind: StatusType, state: StatusState, now: Now) {
        let version = self.subject().cloned();
        self.reporting.set(NewResult { kind, state, version, failure: None }, now);
    }

    fn note_proven(&mut self, now: Now) {
        let Some(attempt) = self.attempt.take() else { return };
        self.note_proof(&attempt, now);
        self.set_status(StatusType::apply(), StatusState::Success, now);
        self.versions.installed = Some(attempt.instruction.version);
        // This result is written once for each host, with the first version that is
        // proven.
        if !self.reporting.statuses.contains_key(&StatusType::provisioned()) {
            self.set_status(StatusType::provisioned(), StatusState::Success, now);
        }
        self.versions.in_progress = None;
        if self.rollout.hold.is_none() {
            self.rollout.claims = None;
        }
        self.versions.proof_holds = true;
        self.steps.logs.clear();
    }

    fn drop_attempt(&mut self, now: Now) {
        self.attempt = None;
        // The attempt waited and disturbed nothing, so the installed version is as good as
        // before.
        if self.reporting.apply_is_pending() {
            match &self.versions.installed {
                Some(_) => self.set_status(StatusType::apply(), StatusState::Success, now),
                None => drop(self.reporting.statuses.remove(&StatusType::apply())),
            }
        }
    }

    fn begin_attempt(
        &mut self,
        instruction: Instruction,
        cause: AttemptCause,
        addressable: Option<u64>,
        now: Now,
    ) {
        if let Some(attempt) = &mut self.attempt {
            // If the same version is triggered again during an attempt, only the instruction changes.
            if attempt.end().is_none() && attempt.instruction.version == instruction.version {
                attempt.instruction = instruction;
                self.note_same_version_again(now);
                return;
            }
            // A restored store uses its revisions again: what is known of the order is about another version.
            let Instruction { version, order } = &attempt.instruction;
            if *order == instruction.order && *version != instruction.version {
                (self.rollout.counted_failure, self.recovery.on_suspect) = (None, None);
                if let Some(in_progress) = &mut self.versions.in_progress {
                    in_progress.started_by = None;
                }
            }
        }
        let before = self.attempt.take().filter(|before| before.instruction == instruction);
        if cause == AttemptCause::Repair {
            self.recovery.repairs.retain(|at| now.boot.since(*at) < DAY);
            self.recovery.repairs.push(now.boot);
        }
        self.cycles.current = None;
        self.cycles.validate_first = false;
        self.attempt = Some(Attempt {
            instruction,
            cause,
            history: AttemptHistory::after(before),
            began: now.boot,
            addressable,
            from: self.versions.installed.clone(),
            stage: Stage::default(),
        });
        self.note_observed_instruction();
    }

    /// Notes that the attempt goes on under a newer instruction for the same version.
    fn note_same_version_again(&mut self, now: Now) {
        let Some(attempt) = &self.attempt else { return };
        let order = attempt.instruction.order;
        if attempt.stage.is_under_way() {
            if let Some(in_progress) = &mut self.versions.in_progress {
                in_progress.started_by = Some(order);
            }
            self.note_new_order(order, now);
        }
        self.note_observed_instruction();
    }

    fn note_observed_instruction(&mut self) {
        let Some(order) = self.attempt.as_ref().map(|a| a.instruction.order) else { return };
        self.observed.instruction = self.observed.instruction.max(Some(order));
        if let Some(store) = &mut self.store {
            store.target_revision = store.target_revision.max(Some(order.revision));
        }
    }

    fn end_attempt(&mut self, policy: &SiteConfig, now: Now, jitter: f64) {
        let Some(attempt) = &mut self.attempt else { return };
        let local = attempt.step_failure().cloned();
        let delay = match (&local, attempt.cause) {
            (Some(_), _) => policy.attempt_backoff.delay(attempt.history.tries, jitter),
            // Apply succeeded but validation fails, so the cause may be a service that hosts share:
            // the next attempt comes late, and is spread over the hosts.
            (None, AttemptCause::Instruction) => policy.reapply_after.mul_f64(1.0 + jitter),
            (None, AttemptCause::Repair) => DAY / policy.reapply_per_day.max(1),
        };
        let of_validation = self.cycles.validation.as_ref().and_then(|validation| validation.failure.clone());
        let Some(failure) = local.or(of_validation) else { return };
        attempt.fail(failure, now.boot.plus(delay), false);
        self.note_end_of_attempt(policy, now);
    }

    /// Ends the attempt because it took longer than the rollout allows.
    fn give_up(&mut self, policy: &SiteConfig, now: Now) {
        let Some(attempt) = &mut self.attempt else { return };
        let Some(disruption) = attempt.disruption_mut() else { return };
        let Some(Deadline { within, .. }) = disruption.deadline.take() else { return };
        disruption.apply.held = None;
        let due = disruption.apply.due(&policy.steps.apply).map(|step| (StepPhase::Apply, step));
        let validates = || policy.steps.validate.first().map(|step| (StepPhase::Validate, step));
        // An attempt without steps succeeds at once.
        let Some((phase, step)) = due.or_else(validates) else { return };
        let failure = Failure::too_slow(phase, step.name.clone(), within);
        if phase == StepPhase::Apply {
            disruption.apply.failed = Some(failure.clone());
        }
        attempt.fail(failure, now.boot, true);
        // A validation from before the start says nothing about what was applied since.
        (self.cycles.current, self.cycles.validation) = (None, None);
        self.note_end_of_attempt(policy, now);
    }

    /// Notes the end of an attempt: whether it counts as a failure, whether the host gave up, and the result of the
    /// apply phase.
    fn note_end_of_attempt(&mut self, policy: &SiteConfig, now: Now) {
        self.count_attempt(now);
        let gave_up = self.has_given_up(policy);
        let Some(attempt) = &self.attempt else { return };
        let (order, is_started) = (attempt.instruction.order, attempt.disruption().is_some());
        let failure = attempt.apply().failed.clone();
        if gave_up {
            self.note_result(order, HostProgress::of_agent(ProgressState::GaveUp, now.wall));
        }
        if is_started {
            let state = if failure.is_some() { StatusState::Failed } else { StatusState::Success };
            let (kind, version) = (StatusType::apply(), self.subject().cloned());
            self.reporting.set(NewResult { kind, state, version, failure: failure.as_ref() }, now);
        }
    }
}
