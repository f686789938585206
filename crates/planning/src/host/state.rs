//! The recorded state of a host, and how each new fact changes it. The agent keeps this value in
//! its journal; the simulation in the tests keeps it in memory. Both change it through
//! [`HostState::record`].
//!
//! This file is long because every change of the recorded state happens here.

use crate::host::step_logs::StepLogs;
use crate::policy::{INTERRUPTIONS_MAX, Policy, Step, StepMeaning};
use crate::rollout::Times;
use crate::settings::ValidationRule;
use schema::instruction::Instruction;
use schema::keys::StatusState;
use schema::names::{HostName, StatusType, StepName, Token, Version};
use schema::order::InstructionOrder;
use schema::plan::{AttemptCause, Conclusion};
use schema::records::{
    BundleLink, CHARGE_FOR, Cause, DURATIONS_IN_REPORT, FailedHost, HostClaims, HostProgress, LoggedStep,
    ProgressState, StatusRecord, StepDuration,
};
use schema::steps::StepEnd;
use schema::steps::StepPhase;
use schema::store_trust::StoreMemory;
use schema::time::{BootMillis, EpochSeconds, Now, Span};
use schema::verdict::Failure;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

fn boot() -> BootMillis {
    BootMillis(0)
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The progress of a phase.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// The steps that are done.
    pub done: Vec<StepName>,
    /// How often the due step was interrupted.
    #[serde(default)]
    pub interruptions: u32,
    /// The deferred step, if there is one, and when it runs again.
    #[serde(default)]
    pub held: Option<Deferred>,
    /// The failure that ended the phase.
    #[serde(default)]
    pub failed: Option<Failure>,
}

/// A deferred step: it ended with "not yet".
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deferred {
    /// The name of the step.
    pub step: StepName,
    /// When the step runs again.
    pub until: BootMillis,
}

/// One way of one instruction through prefetch, start and apply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// The instruction that the attempt works towards.
    pub instruction: Instruction,
    /// Why the attempt was begun.
    pub cause: AttemptCause,
    /// Counts the disruptive attempts at this instruction, from 1.
    pub number: u32,
    /// Counts all attempts at this instruction, including those that ended before the start.
    pub tries: u32,
    /// When the attempt began, in this boot.
    #[serde(default = "boot")]
    pub began: BootMillis,
    /// Digest of what the catalog made addressable when the attempt began, if that was known.
    #[serde(default)]
    pub addressable: Option<u64>,
    /// The version that was proven before.
    pub from: Option<Version>,
    /// Progress of the prefetch phase, which runs before the host is disturbed.
    pub prefetch: Progress,
    /// True if the start transaction was committed: the host is off its old version.
    pub started: bool,
    /// Progress of the apply phase.
    pub apply: Progress,
    /// True if a cycle has ended since apply ended. After a successful apply, a cycle without a
    /// validation result does not count.
    #[serde(default)]
    pub checked: bool,
    /// Set when the attempt ended without success.
    pub ended: Option<AttemptEnd>,
    /// The failure of the previous attempt at the same instruction.
    #[serde(default)]
    pub last_failure: Option<Failure>,
    /// When the attempt gives up, in this boot; `None` before the start, and without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Deadline>,
    /// Time after its proof in which a host that stops working counts as failed in the rollout; `None` if
    /// its failures do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charge_for: Option<Span>,
    /// Time after its proof for which the host keeps its claims; `None` if it releases them at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Span>,
    /// True if the attempt needed longer than its rollout allows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gave_up: bool,
}

/// When a started attempt gives up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deadline {
    /// The time, in this boot.
    pub at: BootMillis,
    /// The time that the attempt has from its start, or from a reboot.
    pub within: Span,
}

/// The end of a failed attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptEnd {
    /// The failure that ended the attempt.
    pub failure: Failure,
    /// When the next attempt may begin.
    pub next_at: BootMillis,
}

/// One run of converge and validate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cycle {
    /// The version that the cycle is about.
    pub version: Version,
    /// Progress of the converge phase, if it is part of this cycle.
    pub converge: Option<Progress>,
    /// Progress of the validate phase.
    pub validate: Progress,
}

/// When the converge phase ran last, and on which services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Converged {
    /// Digest of the needed services as the host saw them when the phase began.
    pub seen: Option<u64>,
    /// When the phase began, in this boot.
    pub at: Option<BootMillis>,
}

/// The result of a validation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValidationResult {
    /// The host works.
    Passed,
    /// The host does not work.
    Failed,
    /// There is no result yet: a step was deferred, or a service is missing.
    NotYet,
}

/// The last validation since boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validation {
    /// The version that was validated.
    pub version: Version,
    /// The result.
    pub result: ValidationResult,
    /// When the validation ended.
    pub at: BootMillis,
    /// Since when validation has failed without a break.
    pub failing_since: Option<BootMillis>,
    /// The failure, if validation failed.
    pub failure: Option<Failure>,
    /// The deferred step, if there was one.
    #[serde(default)]
    pub held: Option<StepName>,
}

/// A failure of the host in a rollout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedFailure {
    /// The rollout.
    pub order: InstructionOrder,
    /// The failure, as the store should contain it.
    pub failed: FailedHost,
    /// True if it was written since it changed last.
    pub is_written: bool,
}

/// A proof in a rollout whose failures count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvenIn {
    /// The rollout.
    pub order: InstructionOrder,
    /// Until when a failed validation counts, in this boot.
    pub until: BootMillis,
    /// The time that it counts after the proof, or after a reboot.
    #[serde(default = "usual_charge_for")]
    pub within: Span,
}

fn usual_charge_for() -> Span {
    CHARGE_FOR
}

/// How far a host got in a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolloutProgress {
    /// The rollout.
    pub order: InstructionOrder,
    /// How far, as the store should contain it.
    pub progress: HostProgress,
    /// True if it was written since it changed last.
    pub is_written: bool,
    /// True if the rollout is known to have ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_ended: bool,
}

/// A host that was proven and keeps its claims until its validation has passed for some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// The rollout in which its failures count; `None` if they do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts_in: Option<InstructionOrder>,
    /// The time for which validation must pass.
    pub length: Span,
    /// Since when it has passed, in this boot; `None` if it does not.
    pub passes_since: Option<BootMillis>,
    /// When the host releases its claims though its validation never passed or failed since.
    pub deadline: Deadline,
}

/// A step whose runner was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningStep {
    /// Names the directory that holds the lock, the output and the result of the run.
    pub run_id: Token,
    /// The phase of the step.
    pub phase: StepPhase,
    /// The name of the step.
    pub step: StepName,
}

/// Everything that a host remembers about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostState {
    /// The host that this state belongs to. A journal of another host is refused.
    pub host: HostName,
    /// The boot that the times and deadlines in this state belong to.
    pub boot_id: String,
    /// The machine that the journal was written on.
    pub machine_id: String,
    /// What the host remembers of the store.
    pub store: Option<StoreMemory>,
    /// The installed version: the version that was last proven here.
    pub installed: Option<Version>,
    /// The version whose disruptive start happened last and that is not proven since.
    #[serde(rename = "dirty")]
    pub in_progress_version: Option<Version>,
    /// The instruction under which that start happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbed_by: Option<InstructionOrder>,
    /// The claims that the host took with that start. It takes them again if they end without its doing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claims: Option<HostClaims>,
    /// The failure of the host that counts in a rollout, or did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_failure: Option<CountedFailure>,
    /// The rollout in which the installed version was proven, while that counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proven_in: Option<ProvenIn>,
    /// How far the host got in its last rollout that has a record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout_progress: Option<RolloutProgress>,
    /// Set while the host is proven and keeps its claims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    /// True if the proof of `installed` holds: validation passed in this boot, and nothing has
    /// disturbed the version since.
    pub proof_holds: bool,
    /// The current attempt, or the last one if it failed.
    pub attempt: Option<Attempt>,
    /// The current cycle.
    pub cycle: Option<Cycle>,
    /// The last validation in this boot.
    pub validation: Option<Validation>,
    /// The last failure of the converge phase; cleared when the phase succeeds.
    pub converge_failure: Option<Failure>,
    /// The deferred step of the last converge phase, if there was one.
    #[serde(default)]
    pub converge_held: Option<StepName>,
    /// When the converge phase ran last, and on which services.
    #[serde(default)]
    pub converged: Converged,
    /// The step that is running.
    pub running: Option<RunningStep>,
    /// Since when; `None` if the agent was restarted meanwhile, so that it does not know when the step ended.
    #[serde(skip)]
    pub running_since: Option<BootMillis>,
    /// When it began, by the clock of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_at: Option<EpochSeconds>,
    /// How long steps took when they last succeeded; at most [`DURATIONS_IN_REPORT`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub durations: Vec<StepDuration>,
    /// The observed instruction: the newest instruction that the host has acted on.
    #[serde(rename = "acted_on")]
    pub observed_instruction: Option<InstructionOrder>,
    /// The newest retry request of an operator that the host has acted on.
    #[serde(rename = "retry_heeded")]
    pub observed_retry: Option<InstructionOrder>,
    /// When proven versions were applied again, in the last 24 hours.
    pub repairs: Vec<BootMillis>,
    /// The instruction for which the `on_suspect` steps ran, and their progress.
    pub on_suspect: Option<OnSuspect>,
    /// True if a reboot cut off a step: the host validates before it goes on.
    #[serde(default)]
    pub validate_first: bool,
    /// Which entries of the validation directory count.
    #[serde(default)]
    pub validation_rule: ValidationRule,
    /// The results that the store should contain.
    pub statuses: BTreeMap<StatusType, (StatusState, StatusRecord)>,
    /// The last lines of the output of the last step that failed or was deferred. Earlier agents know only these.
    #[serde(default)]
    pub log: Vec<String>,
    /// The output of the steps that failed or were deferred.
    #[serde(default, skip_serializing_if = "StepLogs::is_empty")]
    pub logs: StepLogs,
    /// The bundle that the host uploaded last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<BundleLink>,
    /// When the last reports were written; at most [`REPORTS_IN_A_BURST`] times.
    #[serde(default)]
    pub report_times: Vec<BootMillis>,
}

/// The run of the steps that run once when a host becomes suspect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnSuspect {
    /// The instruction that made the host suspect.
    pub order: InstructionOrder,
    /// Progress of the steps.
    pub progress: Progress,
}

/// Something that happened to the host. Recording a fact never fails.
#[derive(Debug, Clone, PartialEq)]
pub enum Fact {
    /// A decision came to a conclusion.
    Concluded(Conclusion),
    /// The start transaction was committed.
    Started {
        /// The claims that the host has since then.
        claims: Option<HostClaims>,
        /// The times of its rollout; `None` if that has no record.
        times: Option<Times>,
        /// True if its failures count against the budget of the rollout.
        counts_failure: bool,
    },
    /// A rollout has ended: every host has its version, or will not get it without help.
    RolloutEnded(InstructionOrder),
    /// The runner of a step is about to be started.
    StepStarted(RunningStep),
    /// A step ended.
    StepEnded(StepReport),
    /// A report was written.
    ReportWritten,
    /// The bundle of a failure was uploaded.
    BundleUploaded(BundleLink),
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

impl Progress {
    /// Returns the first step that is not done; `None` if the phase is complete.
    pub fn due<'a>(&self, steps: &'a [Step]) -> Option<&'a Step> {
        steps.iter().find(|step| !self.done.contains(&step.name))
    }
}

impl HostState {
    /// Creates the state of a host without a journal. `installed` is the version in the version
    /// file: a host that lost its journal validates that version and does not apply it again
    /// blindly.
    pub fn new(host: HostName, machine_id: String, boot_id: String, installed: Option<Version>) -> Self {
        Self {
            host,
            boot_id,
            machine_id,
            store: None,
            installed,
            in_progress_version: None,
            disturbed_by: None,
            claims: None,
            counted_failure: None,
            proven_in: None,
            rollout_progress: None,
            hold: None,
            proof_holds: false,
            attempt: None,
            cycle: None,
            validation: None,
            converge_failure: None,
            converge_held: None,
            converged: Converged::default(),
            running: None,
            running_since: None,
            running_at: None,
            durations: Vec::new(),
            observed_instruction: None,
            observed_retry: None,
            repairs: Vec::new(),
            on_suspect: None,
            validate_first: false,
            validation_rule: ValidationRule::EveryExecutable,
            statuses: BTreeMap::new(),
            log: Vec::new(),
            logs: StepLogs::default(),
            bundle: None,
            report_times: Vec::new(),
        }
    }

    /// Returns the state of the same host under another spelling of its name. Keys that stay under the former
    /// one are forgotten: the report, and what the host said in rollouts.
    #[must_use]
    pub fn respelled(self, host: HostName) -> Self {
        let store = self.store.map(|memory| StoreMemory { report_revision: None, ..memory });
        Self { host, store, counted_failure: None, proven_in: None, rollout_progress: None, ..self }
    }

    /// Records a reboot. No proof outlives a reboot, and deadlines of the old boot are due now.
    /// Repairs of the old boot count as made at the beginning of this boot, so that a reboot loop
    /// never refills the budget.
    pub fn rebooted(&mut self, boot_id: String) {
        self.boot_id = boot_id;
        self.proof_holds = false;
        self.validation = None;
        self.cycle = None;
        self.converged.at = None;
        // Before the start transaction nothing has changed that should be validated first.
        self.validate_first =
            self.running.is_some() && self.attempt.as_ref().is_none_or(|attempt| attempt.started);
        self.report_times.clear();
        // Nobody knows how long the machine was off. If it does not work any more, the version may be at fault.
        if let Some(proven) = &mut self.proven_in {
            proven.until = boot().plus(proven.within.0);
        }
        if let Some(hold) = &mut self.hold {
            hold.passes_since = None;
            hold.deadline.at = boot().plus(hold.deadline.within.0);
        }
        self.repairs.iter_mut().for_each(|at| *at = BootMillis(0));
        if let Some(attempt) = &mut self.attempt {
            for progress in [&mut attempt.prefetch, &mut attempt.apply] {
                progress.held = None;
            }
            attempt.checked = false;
            attempt.began = boot();
            // How long the machine was off is not known.
            if let Some(deadline) = &mut attempt.deadline {
                deadline.at = boot().plus(deadline.within.0);
            }
            if let Some(end) = &mut attempt.ended {
                end.next_at = BootMillis(0);
            }
        }
    }

    /// Returns the version that counts as installed on a host without a journal: the one in its version
    /// file, unless the disk was copied from another host while an update was under way there. Then
    /// that version is not whole any more.
    pub fn installed_by_file(file: Option<Version>, copied_from: Option<&Self>) -> Option<Version> {
        file.filter(|_| copied_from.is_none_or(|state| state.in_progress_version.is_none()))
    }

    /// Returns the version that steps and validation are about: the in-progress version if there is
    /// one, else the installed version.
    pub fn subject(&self) -> Option<&Version> {
        self.in_progress_version.as_ref().or(self.installed.as_ref())
    }

    /// True if the version that steps and validation are about is on the machine as a whole: nothing was begun that
    /// its apply phase did not finish.
    fn is_whole(&self, policy: &Policy) -> bool {
        let is_applied = |attempt: &Attempt| {
            let apply = &attempt.apply;
            attempt.started && apply.failed.is_none() && apply.due(&policy.steps.apply).is_none()
        };
        self.in_progress_version.is_none() || self.attempt.as_ref().is_some_and(is_applied)
    }

    /// True after `suspect_after` failed disruptive attempts at the instruction. One that ended before
    /// its start disturbed nothing and does not count. A repair whose apply succeeded does not make a
    /// host suspect, because the cause may be a service that hosts share.
    pub fn is_suspect(&self, policy: &Policy) -> bool {
        self.attempt.as_ref().filter(|attempt| attempt.ended.is_some()).is_some_and(|attempt| {
            let disruptive = if attempt.started { attempt.number } else { attempt.number.saturating_sub(1) };
            attempt.gave_up
                || disruptive >= policy.suspect_after
                    && (attempt.cause == AttemptCause::Instruction || attempt.apply.failed.is_some())
        })
    }

    /// Records a fact. `jitter`, from 0 to 1, spreads deadlines.
    pub fn record(&mut self, fact: Fact, policy: &Policy, now: Now, jitter: f64) {
        match fact {
            Fact::Concluded(conclusion) => self.conclude(conclusion, policy, now, jitter),
            Fact::Started { claims, times, counts_failure } => {
                self.claims = claims.filter(|claims| !claims.claims.is_empty());
                if let Some(attempt) = &mut self.attempt {
                    attempt.started = true;
                    let within = times.map(|times| times.progress_deadline);
                    attempt.deadline = within.map(|within| Deadline { at: now.boot.plus(within.0), within });
                    self.in_progress_version = Some(attempt.instruction.version.clone());
                    attempt.charge_for = times.filter(|_| counts_failure).map(|times| times.charge_for);
                    attempt.hold = times.and_then(|times| times.hold);
                    let order = attempt.instruction.order;
                    self.disturbed_by = Some(order);
                    self.counted_failure.take_if(|failure| failure.order != order);
                    self.proven_in.take_if(|proven| proven.order != order);
                    self.note_start(order, times, now);
                    self.proof_holds = false;
                    self.cycle = None;
                    self.validate_first = false;
                    // The last converge phase was about another version.
                    self.converged = Converged::default();
                }
            }
            Fact::RolloutEnded(order) => self.note_end(order),
            Fact::StepStarted(running) => {
                (self.running, self.running_since) = (Some(running), Some(now.boot));
                self.running_at = Some(now.wall);
            }
            Fact::StepEnded(report) => self.end_step(report, policy, now),
            Fact::BundleUploaded(link) => {
                // That of an earlier rollout may have waited for longer.
                if self.bundle.as_ref().is_none_or(|newest| newest.rollout <= link.rollout) {
                    self.bundle = Some(link);
                }
            }
            Fact::ReportWritten => {
                self.report_times.push(now.boot);
                let excess = self.report_times.len().saturating_sub(super::REPORTS_IN_A_BURST);
                self.report_times.drain(..excess);
            }
        }
    }

    fn conclude(&mut self, conclusion: Conclusion, policy: &Policy, now: Now, jitter: f64) {
        match conclusion {
            Conclusion::AttemptBegan { instruction, cause, addressable } => {
                // A failed validation counts, also if the rest of its cycle is dropped.
                if self.cycle.as_ref().is_some_and(|cycle| cycle.validate.failed.is_some()) {
                    self.end_cycle(&[], policy, now);
                }
                self.begin_attempt(instruction, cause, addressable, now);
            }
            Conclusion::ApplyWaits => {
                let version = self.attempt.as_ref().map(|attempt| attempt.instruction.version.clone());
                self.set_status_of(version, (StatusType::apply(), StatusState::Pending), None, now);
            }
            Conclusion::CycleBegan { version, converge: with_converge, seen } => {
                let converge = with_converge.then(Progress::default);
                if with_converge {
                    self.converged = Converged { seen: seen.or(self.converged.seen), at: Some(now.boot) };
                }
                self.cycle = Some(Cycle { version, converge, validate: Progress::default() });
            }
            Conclusion::CycleEnded { lacking } => self.end_cycle(&lacking, policy, now),
            Conclusion::AttemptFailed => self.end_attempt(policy, now, jitter),
            Conclusion::GaveUp => self.give_up(policy, now),
            Conclusion::Proven { .. } => {
                if let Some(attempt) = self.attempt.take() {
                    self.note_proof(&attempt, now);
                    self.set_status(StatusType::apply(), StatusState::Success, None, now);
                    self.installed = Some(attempt.instruction.version);
                    // This result is written once for each host, with the first version that is
                    // proven.
                    if !self.statuses.contains_key(&StatusType::provisioned()) {
                        self.set_status(StatusType::provisioned(), StatusState::Success, None, now);
                    }
                    self.in_progress_version = None;
                    if self.hold.is_none() {
                        self.claims = None;
                    }
                    self.proof_holds = true;
                    self.clear_logs();
                }
            }
            Conclusion::AttemptDropped => {
                self.attempt = None;
                // The attempt waited and disturbed nothing, so the installed version is as good as
                // before.
                if self.apply_is_pending() {
                    match &self.installed {
                        Some(_) => self.set_status(StatusType::apply(), StatusState::Success, None, now),
                        None => drop(self.statuses.remove(&StatusType::apply())),
                    }
                }
            }
            Conclusion::Rearmed { order } => {
                self.observed_retry = Some(order);
                self.repairs.clear();
                self.on_suspect = None;
                if let Some(attempt) = &mut self.attempt
                    && let Some(end) = &mut attempt.ended
                {
                    attempt.number = 0;
                    attempt.tries = 0;
                    attempt.gave_up = false;
                    end.next_at = now.boot;
                }
            }
            Conclusion::FollowsFile { version } => {
                self.proof_holds = version.is_some();
                self.installed = version;
                // If an agent was the driver before, the script is now responsible for what it had
                // begun.
                self.in_progress_version = None;
                (self.claims, self.counted_failure, self.proven_in) = (None, None, None);
                (self.rollout_progress, self.hold) = (None, None);
                self.attempt = None;
                self.cycle = None;
                self.validation = None;
                self.converge_failure = None;
                self.converge_held = None;
            }
        }
    }

    /// True if the result of the apply phase is pending.
    pub(super) fn apply_is_pending(&self) -> bool {
        self.statuses.get(&StatusType::apply()).is_some_and(|(state, _)| *state == StatusState::Pending)
    }

    fn begin_attempt(
        &mut self,
        instruction: Instruction,
        cause: AttemptCause,
        addressable: Option<u64>,
        now: Now,
    ) {
        self.validation_rule = ValidationRule::EveryExecutable;
        // If the same version is triggered again during an attempt, only the instruction changes.
        if let Some(attempt) = &mut self.attempt
            && attempt.ended.is_none()
            && attempt.instruction.version == instruction.version
        {
            attempt.instruction = instruction;
            if attempt.started {
                let order = attempt.instruction.order;
                self.disturbed_by = Some(order);
                self.note_new_order(order, now);
            }
            self.note_observed_instruction();
            return;
        }
        // A restored store uses its revisions again: what is known of the order is about another version.
        if self.attempt.as_ref().is_some_and(|a| {
            a.instruction.order == instruction.order && a.instruction.version != instruction.version
        }) {
            (self.counted_failure, self.on_suspect, self.disturbed_by) = (None, None, None);
        }
        let before = self.attempt.take().filter(|a| a.instruction == instruction);
        if cause == AttemptCause::Repair {
            self.repairs.retain(|at| now.boot.since(*at) < DAY);
            self.repairs.push(now.boot);
        }
        let (number, tries, last_failure) = match before {
            // An attempt that ended before its start disturbed nothing and does not count.
            Some(a) if !a.started => (a.number.max(1), a.tries + 1, a.ended.map(|e| e.failure)),
            Some(a) => (a.number + 1, a.tries + 1, a.ended.map(|e| e.failure)),
            None => (1, 1, None),
        };
        self.cycle = None;
        self.validate_first = false;
        self.attempt = Some(Attempt {
            instruction,
            cause,
            number,
            tries,
            began: now.boot,
            addressable,
            from: self.installed.clone(),
            prefetch: Progress::default(),
            started: false,
            apply: Progress::default(),
            checked: false,
            ended: None,
            last_failure,
            deadline: None,
            charge_for: None,
            hold: None,
            gave_up: false,
        });
        self.note_observed_instruction();
    }

    fn note_observed_instruction(&mut self) {
        let Some(order) = self.attempt.as_ref().map(|a| a.instruction.order) else { return };
        self.observed_instruction = self.observed_instruction.max(Some(order));
        if let Some(store) = &mut self.store {
            store.target_revision = store.target_revision.max(Some(order.revision));
        }
    }

    fn progress_of(&mut self, phase: StepPhase) -> Option<&mut Progress> {
        match phase {
            StepPhase::Prefetch => self.attempt.as_mut().map(|a| &mut a.prefetch),
            StepPhase::Apply => self.attempt.as_mut().map(|a| &mut a.apply),
            StepPhase::Converge => self.cycle.as_mut().and_then(|c| c.converge.as_mut()),
            StepPhase::Validate => self.cycle.as_mut().map(|c| &mut c.validate),
            StepPhase::OnSuspect => {
                let order = self.attempt.as_ref()?.instruction.order;
                let known = self.on_suspect.take().filter(|o| o.order == order);
                let entry = known.unwrap_or(OnSuspect { order, progress: Progress::default() });
                Some(&mut self.on_suspect.insert(entry).progress)
            }
        }
    }

    fn end_step(&mut self, report: StepReport, policy: &Policy, now: Now) {
        (self.running, self.running_at) = (None, None);
        let since = self.running_since.take();
        let StepReport { phase, step, end, log, cause } = report;
        let meaning = policy.steps.meaning(phase, &step, &end);
        let logged = LoggedStep { phase, step: step.clone() };
        if meaning == StepMeaning::Done && self.logs.forget(&logged) {
            self.log = self.logs.newest();
        }
        if let Some(since) = since.filter(|_| meaning == StepMeaning::Done) {
            self.note_duration(phase, &step, now.boot.since(since));
        }
        let until = now.boot.plus(policy.not_yet_retry);
        let Some(progress) = self.progress_of(phase) else { return };
        progress.held = None;
        let failed = match meaning {
            StepMeaning::Done => {
                progress.interruptions = 0;
                progress.done.push(step);
                false
            }
            StepMeaning::NotYet => {
                progress.held = Some(Deferred { step, until });
                true
            }
            StepMeaning::Again if progress.interruptions + 1 < INTERRUPTIONS_MAX => {
                progress.interruptions += 1;
                false
            }
            StepMeaning::Again | StepMeaning::Failed => {
                progress.failed = Some(Failure { cause, ..Failure::of(phase, step, end) });
                true
            }
        };
        if failed {
            self.log.clone_from(&log);
            self.logs.note(logged, log);
        }
    }

    fn clear_logs(&mut self) {
        self.log.clear();
        self.logs.clear();
    }

    /// Notes how long a step took that succeeded.
    fn note_duration(&mut self, phase: StepPhase, step: &StepName, took: Duration) {
        let took = Span(Duration::from_millis(u64::try_from(took.as_millis()).unwrap_or(u64::MAX)));
        self.durations.retain(|known| known.phase != phase || known.step != *step);
        self.durations.push(StepDuration { phase, step: step.clone(), took });
        // Those of steps that did not run for long go first.
        let excess = self.durations.len().saturating_sub(DURATIONS_IN_REPORT);
        self.durations.drain(..excess);
    }

    fn end_cycle(&mut self, lacking: &[StepPhase], policy: &Policy, now: Now) {
        let Some(cycle) = self.cycle.take() else { return };
        if let Some(converge) = cycle.converge {
            self.converge_failure = converge.failed;
            self.converge_held = converge.held.map(|held| held.step);
            if lacking.contains(&StepPhase::Converge) {
                // The converge phase did not run on the services that the host saw.
                self.converged.seen = None;
            }
        }
        let (result, state) = match (&cycle.validate.failed, &cycle.validate.held) {
            (Some(_), _) => (ValidationResult::Failed, StatusState::Failed),
            (None, Some(_)) => (ValidationResult::NotYet, StatusState::Pending),
            (None, None) if lacking.contains(&StepPhase::Validate) => {
                (ValidationResult::NotYet, StatusState::Pending)
            }
            (None, None) => (ValidationResult::Passed, StatusState::Success),
        };
        let same_version = |v: &Validation| v.version == cycle.version;
        let failing_since =
            self.validation.as_ref().filter(|v| same_version(v)).and_then(|v| v.failing_since);
        let proof_is_about_it =
            self.in_progress_version.is_none() && self.installed.as_ref() == Some(&cycle.version);
        let failing_since = match result {
            ValidationResult::Passed => None,
            ValidationResult::Failed => failing_since.or(Some(now.boot)),
            ValidationResult::NotYet => failing_since,
        };
        match result {
            ValidationResult::Passed if proof_is_about_it => self.proof_holds = true,
            ValidationResult::Failed => self.proof_holds = false,
            _ => {}
        }
        if proof_is_about_it {
            self.count_validation(result, cycle.validate.failed.as_ref(), now);
            self.hold_claims(result, now);
        }
        // What was validated is that version only if it was applied as a whole.
        let version = Some(cycle.version.clone()).filter(|_| self.is_whole(policy));
        let validation = (StatusType::validation(), state);
        self.set_status_of(version, validation, cycle.validate.failed.as_ref(), now);
        self.validate_first = false;
        if let Some(attempt) = self.attempt.as_mut().filter(|a| a.started && a.ended.is_none()) {
            let failed = attempt.apply.failed.is_some();
            let finished = failed || attempt.apply.due(&policy.steps.apply).is_none();
            attempt.checked = finished && (failed || result != ValidationResult::NotYet);
        }
        self.validation = Some(Validation {
            version: cycle.version,
            result,
            at: now.boot,
            failing_since,
            failure: cycle.validate.failed,
            held: cycle.validate.held.map(|h| h.step),
        });
        if self.validation.as_ref().is_some_and(|v| v.result == ValidationResult::Passed)
            && self.attempt.is_none()
            && self.converge_failure.is_none()
        {
            self.clear_logs();
        }
    }

    fn end_attempt(&mut self, policy: &Policy, now: Now, jitter: f64) {
        let validation_failure = self.validation.as_ref().and_then(|v| v.failure.clone());
        let Some(attempt) = &mut self.attempt else { return };
        let local = attempt.prefetch.failed.clone().or_else(|| attempt.apply.failed.clone());
        let delay = match (&local, attempt.cause) {
            (Some(_), _) => policy.attempt_backoff.delay(attempt.tries, jitter),
            // Apply succeeded but validation fails, so the cause may be a service that hosts share:
            // the next attempt comes late, and is spread over the hosts.
            (None, AttemptCause::Instruction) => policy.reapply_after.mul_f64(1.0 + jitter),
            (None, AttemptCause::Repair) => DAY / policy.reapply_per_day.max(1),
        };
        let Some(failure) = local.or(validation_failure) else { return };
        attempt.ended = Some(AttemptEnd { failure, next_at: now.boot.plus(delay) });
        self.count_attempt(now);
        self.note_end_of_attempt(policy, now);
        self.note_result_of_apply(now);
    }

    /// Ends the attempt because it took longer than the rollout allows.
    fn give_up(&mut self, policy: &Policy, now: Now) {
        let Some(attempt) = &mut self.attempt else { return };
        let Some(Deadline { within, .. }) = attempt.deadline.take() else { return };
        attempt.apply.held = None;
        let due = attempt.apply.due(&policy.steps.apply).map(|step| (StepPhase::Apply, step));
        let validates = || policy.steps.validate.first().map(|step| (StepPhase::Validate, step));
        // An attempt without steps succeeds at once.
        let Some((phase, step)) = due.or_else(validates) else { return };
        let failure = Failure::too_slow(phase, step.name.clone(), within);
        attempt.gave_up = true;
        if phase == StepPhase::Apply {
            attempt.apply.failed = Some(failure.clone());
        }
        attempt.ended = Some(AttemptEnd { failure, next_at: now.boot });
        // A validation from before the start says nothing about what was applied since.
        (self.cycle, self.validation) = (None, None);
        self.count_attempt(now);
        self.note_end_of_attempt(policy, now);
        self.note_result_of_apply(now);
    }

    /// Notes in the rollout that the host gave up, if it did.
    fn note_end_of_attempt(&mut self, policy: &Policy, now: Now) {
        let order = self.attempt.as_ref().map(|attempt| attempt.instruction.order);
        if let Some(order) = order.filter(|_| self.has_given_up(policy)) {
            self.note_result(order, HostProgress::of_agent(ProgressState::GaveUp, now.wall));
        }
    }

    /// Writes the result of the apply phase of an attempt that ended.
    fn note_result_of_apply(&mut self, now: Now) {
        let Some(attempt) = self.attempt.as_ref().filter(|attempt| attempt.started) else { return };
        let failure = attempt.apply.failed.clone();
        let state = if failure.is_some() { StatusState::Failed } else { StatusState::Success };
        self.set_status(StatusType::apply(), state, failure.as_ref(), now);
    }

    fn set_status(&mut self, kind: StatusType, state: StatusState, failure: Option<&Failure>, now: Now) {
        self.set_status_of(self.subject().cloned(), (kind, state), failure, now);
    }

    /// Sets a result. A result that does not differ keeps its time, so it is not written again. One whose cause alone
    /// differs keeps it for some time, because a step may print another line each time.
    fn set_status_of(
        &mut self,
        version: Option<Version>,
        (kind, state): (StatusType, StatusState),
        failure: Option<&Failure>,
        now: Now,
    ) {
        let record = StatusRecord {
            at: now.wall,
            version,
            code: failure.map_or((state == StatusState::Success).then_some(0), |f| f.code.map(i64::from)),
            reason: failure.map(|f| f.reason.clone()).unwrap_or_default(),
            cause: failure.and_then(|f| f.cause.clone()),
        };
        let same = |(old_state, old): &(StatusState, StatusRecord)| {
            let age = record.at.0.abs_diff(old.at.0);
            let has_same_cause = old.cause == record.cause || age < CAUSE_LASTS.as_secs();
            let other = StatusRecord { at: record.at, cause: record.cause.clone(), ..old.clone() };
            *old_state == state && has_same_cause && other == record
        };
        if !self.statuses.get(&kind).is_some_and(same) {
            self.statuses.insert(kind, (state, record));
        }
    }
}

/// How long a failed result has its cause before another cause replaces it.
const CAUSE_LASTS: Duration = Duration::from_secs(300);

/// How many reports a host writes in quick succession. After that it writes one a minute for some time. An update with
/// phases that last takes about five.
pub const REPORTS_IN_A_BURST: usize = 10;
