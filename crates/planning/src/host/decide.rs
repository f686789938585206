//! Decides what a host does next. [`decide`] is a pure function over values. The agent calls
//! [`advance`], executes the effect that the plan begins with, records the fact that results from
//! it, and decides again.
//!
//! This file is long because a decision is read from the top to the bottom, and its cases exclude
//! each other.

use crate::host::attempt::{Attempt, AttemptEnd, Disruption, NOT_BEGUN, Progress, Stage};
use crate::host::brakes::Brakes;
use crate::host::cycle::{Validation, ValidationResult};
use crate::host::input::{Claim, Decision, Desired, Observed, Target, VersionFile};
use crate::host::inputs::Inputs;
use crate::host::next_attempt::{repair_due, suspect_again, turn_of};
use crate::host::record::Fact;
use crate::host::site_config::{SiteConfig, Step};
use crate::host::state::HostState;
use crate::host::{claims, needs, publish, verdict};
use crate::rollout::{ClaimNeed, Permit};
use schema::instruction::Instruction;
use schema::keys::StatusState;
use schema::names::{StatusType, Version};
use schema::plan::{Action, AttemptCause, Conclusion, Effect, Phase, Plan, Planned, Reason};
use schema::records::{Driver, Wait};
use schema::steps::StepPhase;
use schema::store_trust::StoreTrust;
use schema::time::{BootMillis, Now};
use schema::why_not::WhyNot;
use std::time::Duration;

/// Decides what a host does next.
pub fn decide(state: &HostState, desired: &Desired, observed: &Observed, now: Now) -> Decision {
    let mut decider = Decider { desired, observed, state, policy: desired.policy, now, start: None };
    decider.start = decider.start();
    let mut plan = decider.plan();
    let obstacle = decider.start.as_ref().and_then(|start| start.as_ref().err());
    let inputs = Inputs { state, desired, observed, now };
    let verdict = verdict::verdict(inputs, obstacle, &plan);
    let report = publish::report(&plan, &verdict, obstacle, inputs);
    let starts = match (plan.actions.first().map(|planned| &planned.action), &decider.start) {
        (Some(Action::Do(Effect::CommitStart { .. })), Some(Ok(permit))) => Some(permit),
        _ => None,
    };
    let mut claims = claims::wanted(inputs, obstacle, starts);
    // The journal must say first why claims are released. A ticket grants nothing.
    let leaves_queue = claims.as_ref().is_some_and(|claims| claims::leaves_queue(observed, claims));
    let tells_outcome = observed.cannot_record.is_none();
    if !tells_outcome && !leaves_queue {
        claims = None;
    }
    publish::add(&mut plan, &report, claims.as_ref(), inputs);
    let needs_journal = claims.is_some() && !leaves_queue || tells_outcome && state.must_write_outcome();
    Decision { plan, verdict, report, claims, permit: starts.cloned(), tells_outcome, needs_journal }
}

/// Result of [`advance`].
#[derive(Debug, Clone, PartialEq)]
pub struct Advance {
    /// The conclusions that were recorded, in order.
    pub recorded: Vec<Planned>,
    /// The last decision: its plan begins with an effect, or does nothing.
    pub decision: Decision,
}

/// Decides and records the conclusions of the decision, until a decision begins with an effect or
/// does nothing. `jitter`, from 0 to 1, spreads deadlines.
pub fn advance(
    state: &mut HostState,
    desired: &Desired,
    observed: &Observed,
    now: Now,
    jitter: f64,
) -> Advance {
    let mut recorded = Vec::new();
    loop {
        let decision = decide(state, desired, observed, now);
        let conclusion = match decision.plan.actions.first() {
            Some(planned @ Planned { action: Action::Record(conclusion), .. }) => {
                recorded.push(planned.clone());
                conclusion.clone()
            }
            _ => return Advance { recorded, decision },
        };
        state.record(Fact::Concluded(conclusion), desired.policy, now, jitter);
    }
}

/// True if an attempt works towards another instruction than this one, which is not older. A restored store uses
/// its revisions again, so the version may differ though the order does not.
fn is_replaced(attempt: &Attempt, target: &Instruction) -> bool {
    let order = attempt.instruction.order;
    target.order > order || target.order == order && target.version != attempt.instruction.version
}

struct Decider<'a> {
    desired: &'a Desired<'a>,
    observed: &'a Observed<'a>,
    state: &'a HostState,
    policy: &'a SiteConfig,
    now: Now,
    /// What the host takes when it starts, or what keeps it from starting; `None` if it is not ready to
    /// start.
    start: Option<Result<Permit, WhyNot>>,
}

fn hold(phase: Phase, because: Reason, requeue_at: Option<BootMillis>) -> Plan {
    Plan { phase, actions: Vec::new(), because, requeue_at }
}

fn act(phase: Phase, because: Reason, action: impl Into<Action>) -> Plan {
    let actions = vec![Planned { action: action.into(), because: because.clone() }];
    Plan { phase, actions, because, requeue_at: None }
}

impl Decider<'_> {
    fn plan(&self) -> Plan {
        if let Claim::Contested { .. } = self.observed.claim {
            return hold(Phase::Idle, Reason::Blocked, None);
        }
        if let Some(running) = self.state.steps.running() {
            let because = Reason::StepRunning { run_id: running.run_id.clone() };
            return hold(self.phase_of(running.phase), because, None);
        }
        if let Some((_, again)) = &self.observed.cannot_record {
            return hold(Phase::Idle, Reason::Blocked, Some(*again));
        }
        if self.policy.driver == Driver::External {
            return self.follow_file();
        }
        if self.observed.settings_untrusted.is_some() {
            return hold(Phase::Idle, Reason::Blocked, None);
        }
        if let Some(request) = self.desired.retry
            && self.observed.store_trust == StoreTrust::Trusted
            && Some(request) > self.state.observed.retry
        {
            return act(Phase::Idle, Reason::OperatorAsked, Conclusion::Rearmed { order: request });
        }
        if let Some(installed) = &self.state.versions.installed
            && !self.state.is_disturbed()
            && let VersionFile::Content(found) = &self.observed.version_file
            && found.as_ref() != Some(installed)
        {
            let version = installed.clone();
            return act(Phase::Idle, Reason::Succeeded, Effect::WriteVersionFile { version });
        }
        match self.state.attempt.as_ref() {
            Some(attempt) => self.with_attempt(attempt),
            None => self.without_attempt(),
        }
    }

    /// Returns the phase that the host reports during a step of `phase`. Outside an attempt,
    /// converge and validate are reported as idle, so that a settled host that validates itself
    /// stays idle for others.
    fn phase_of(&self, phase: StepPhase) -> Phase {
        let under_way = self.state.is_under_way();
        match phase {
            StepPhase::Prefetch => Phase::Prefetch,
            StepPhase::Apply => Phase::Apply,
            StepPhase::Converge if under_way => Phase::Converge,
            StepPhase::Validate if under_way => Phase::Validate,
            StepPhase::Converge | StepPhase::Validate | StepPhase::OnSuspect => Phase::Idle,
        }
    }

    fn follow_file(&self) -> Plan {
        let left_over = self.state.attempt.is_some() || self.state.is_disturbed();
        let version = match &self.observed.version_file {
            VersionFile::Content(version) => version.clone(),
            VersionFile::Unreadable => None,
        };
        if left_over || self.state.versions.installed != version {
            return act(Phase::Idle, Reason::ExternalDriver, Conclusion::FollowsFile { version });
        }
        hold(Phase::Idle, Reason::ExternalDriver, None)
    }

    /// Returns the target, unless it is older than the observed instruction.
    fn instruction(&self) -> Option<&Instruction> {
        match &self.desired.target {
            Target::Known(target) if Some(target.order) >= self.state.observed.instruction => Some(target),
            _ => None,
        }
    }

    fn may_start(&self) -> bool {
        self.observed.store_trust == StoreTrust::Trusted
            && self.observed.store_ready
            && self.observed.claim == Claim::Held
            && !self.observed.decommissioned
    }

    /// Returns what the host takes when it starts, or what keeps it from starting; `None` if it is not
    /// ready to start.
    fn start(&self) -> Option<Result<Permit, WhyNot>> {
        let attempt = self.state.preparing()?;
        let prefetch = attempt.prefetch()?;
        if self.observed.cannot_record.is_some() {
            return None;
        }
        let has_prefetched = prefetch.failed.is_none() && prefetch.due(&self.policy.steps.prefetch).is_none();
        let is_ready = has_prefetched
            && self.is_still_wanted(attempt)
            && self.unmet_need(StepPhase::Apply, &NOT_BEGUN).is_none()
            && self.may_start();
        if !is_ready {
            return None;
        }
        if let Some(why) = &self.observed.bad_roster {
            return Some(Err(WhyNot::Rollout { why: why.clone() }));
        }
        let need = self.need_of_claims(attempt);
        let held = self.observed.published.as_ref().map(|published| &published.claims);
        Some(self.observed.brakes.permit(&attempt.instruction, held, need, self.now))
    }

    /// Returns whether the host needs claims to start. It does not if it is not available anyway: nothing
    /// was ever proven on it, or its old version is gone and a newer instruction came.
    fn need_of_claims(&self, attempt: &Attempt) -> ClaimNeed {
        let provisioned = (StatusType::provisioned(), StatusState::Success);
        let was_proven = self.state.versions.installed.is_some()
            || self.observed.published.as_ref().is_none_or(|p| p.statuses.contains_key(&provisioned));
        let is_disturbed = self.state.is_disturbed();
        let started_by = self.state.versions.in_progress.as_ref().and_then(|version| version.started_by);
        let is_newer = started_by < Some(attempt.instruction.order);
        let held = self.observed.published.as_ref().and_then(|published| published.claims.claims.as_ref());
        // A host that is listed is available, whoever else took claims in its name.
        let is_of_earlier_life = self.state.listing().is_none()
            && held.is_some_and(|held| held.instance != *self.observed.instance);
        if !was_proven {
            ClaimNeed::FirstInstall
        } else if is_disturbed && is_newer {
            ClaimNeed::Nothing
        } else if is_disturbed || is_of_earlier_life {
            // It does not release the claims of an earlier installation before it is proven.
            ClaimNeed::Retake
        } else {
            ClaimNeed::Take
        }
    }

    fn is_settled_at(&self, version: &Version) -> bool {
        !self.state.is_disturbed() && self.state.versions.installed.as_ref() == Some(version)
    }

    /// Begins an attempt when the host's time in the spread window has come.
    fn begin(&self, target: &Instruction, because: Reason) -> Plan {
        if !self.may_start() {
            return self.idle_cycle(Reason::StoreAway, None);
        }
        let due = turn_of(&self.state.host, target, self.desired);
        // A host that is already disturbed does not wait for its time.
        if self.now.boot < due && !self.state.is_disturbed() {
            return self.idle_cycle(Reason::Spread, Some(due));
        }
        let begin = self.begin_attempt(target, AttemptCause::Instruction);
        let mut plan = act(Phase::Start, because, begin);
        self.add_expected_steps(&mut plan, target, false);
        plan
    }

    fn with_attempt(&self, attempt: &Attempt) -> Plan {
        if let Some(target) = self.instruction().filter(|target| is_replaced(attempt, target)) {
            if attempt.stage.is_under_way() && !self.may_start() {
                return self.continue_attempt(attempt);
            }
            if attempt.disruption().is_some() || !self.is_settled_at(&target.version) {
                return self.begin(target, Reason::NewInstruction);
            }
            return act(Phase::Idle, Reason::BackToInstalled, Conclusion::AttemptDropped);
        }
        self.continue_attempt(attempt)
    }

    /// Adds the rest of an attempt to the plan, as far as it can be foreseen. It serves readers of
    /// the plan; the agent executes only the first action.
    fn add_expected_steps(&self, plan: &mut Plan, target: &Instruction, started: bool) {
        let because = Reason::AttemptUnderWay;
        let mut push = |action: Action| {
            if !plan.actions.iter().any(|p| p.action == action) {
                plan.actions.push(Planned { action, because: because.clone() });
            }
        };
        let attempt = self.state.attempt.as_ref().filter(|a| a.instruction.order == target.order);
        let cycle = self.state.cycles.current.as_ref();
        let done = |phase: StepPhase, step: &Step| {
            let progress = match phase {
                StepPhase::Prefetch => attempt.and_then(Attempt::prefetch),
                StepPhase::Apply => attempt.map(Attempt::apply),
                StepPhase::Converge => cycle.and_then(|c| c.converge.as_ref()),
                StepPhase::Validate => cycle.map(|c| &c.validate),
                StepPhase::OnSuspect => None,
            };
            progress.is_some_and(|p| p.done.contains(&step.name))
        };
        // Nobody foresees that a host becomes suspect.
        for phase in StepPhase::ALL.into_iter().filter(|phase| *phase != StepPhase::OnSuspect) {
            if phase == StepPhase::Apply && !started {
                push(Effect::CommitStart { instruction: target.clone() }.into());
            }
            for step in self.policy.steps.of(phase) {
                let over = started && phase == StepPhase::Prefetch;
                if !over && !done(phase, step) {
                    push(Effect::RunStep { phase, step: step.name.clone() }.into());
                }
            }
        }
        let version = target.version.clone();
        push(Conclusion::Proven { version: version.clone() }.into());
        push(Effect::WriteVersionFile { version: version.clone() }.into());
        push(Effect::Announce { version }.into());
    }

    /// Plans to give up an update that has taken longer than its rollout allows; `None` if it goes on.
    fn give_up(&self, disruption: &Disruption) -> Option<Plan> {
        let deadline = disruption.deadline.filter(|deadline| self.now.boot >= deadline.at)?;
        let because = Reason::TooSlow { within: deadline.within };
        Some(act(Phase::Idle, because, Conclusion::GaveUp))
    }

    fn continue_attempt(&self, attempt: &Attempt) -> Plan {
        let is_started = attempt.stage.is_under_way();
        let mut plan = match &attempt.stage {
            Stage::Preparing { prefetch } => self.before_start(attempt, prefetch),
            Stage::Applying(disruption) => self.while_applying(attempt, disruption),
            Stage::Checked(disruption) => self.after_check(attempt, disruption),
            Stage::Ended(end) => return self.after_failure(attempt, end),
        };
        let deadline = attempt.disruption().and_then(|disruption| disruption.deadline);
        if let Some(deadline) = deadline
            && plan.actions.is_empty()
        {
            plan.requeue_at = Some(plan.requeue_at.map_or(deadline.at, |at| at.min(deadline.at)));
        }
        let of_attempt = plan.phase != Phase::Idle;
        if !plan.actions.is_empty() && of_attempt && attempt.step_failure().is_none() {
            self.add_expected_steps(&mut plan, &attempt.instruction, is_started);
        }
        plan
    }

    /// Plans the part of an attempt before the start transaction. Nothing is disturbed yet, and the
    /// attempt may still be dropped.
    fn before_start(&self, attempt: &Attempt, prefetch: &Progress) -> Plan {
        let gone = match &self.desired.target {
            Target::NotSet | Target::Invalid { .. } => true,
            Target::Known(target) => target.order < attempt.instruction.order,
            Target::Unread => false,
        };
        if gone {
            return act(Phase::Idle, Reason::InstructionGone, Conclusion::AttemptDropped);
        }
        // A failed validation takes the host off its list before anything else happens.
        if let Some(cycle) = &self.state.cycles.current
            && cycle.validate.failed.is_some()
        {
            return self.cycle(&cycle.version, Reason::ValidationDue);
        }
        if let Some(plan) = self.step(StepPhase::Prefetch, prefetch, Reason::AttemptUnderWay) {
            return if plan.actions.is_empty() { self.hold_before_start(plan) } else { plan };
        }
        if prefetch.failed.is_some() {
            return act(Phase::Prefetch, Reason::SomethingFailed, Conclusion::AttemptFailed);
        }
        // The needs of the first apply step hold the start, so that a waiting host stays listed.
        if let Some(wait) = self.unmet_need(StepPhase::Apply, &NOT_BEGUN) {
            let because = Reason::Lacks { service: wait.service.clone() };
            return self
                .apply_waits(because.clone())
                .unwrap_or_else(|| self.hold_before_start(hold(Phase::Start, because, None)));
        }
        if !self.may_start() {
            return self.hold_before_start(hold(Phase::Start, Reason::StoreAway, None));
        }
        if let Some(Err(obstacle)) = &self.start {
            let because = Reason::HeldBack(obstacle.clone());
            let tries_at = match self.observed.brakes {
                Brakes::Known(view) => view.tries_at(self.now),
                Brakes::Unasked | Brakes::Refused(..) => None,
            };
            return self.hold_before_start(hold(Phase::Start, because, tries_at));
        }
        let instruction = attempt.instruction.clone();
        // The report that the start transaction writes names the phase that begins with it.
        act(Phase::Apply, Reason::AttemptUnderWay, Effect::CommitStart { instruction })
    }

    /// Keeps converging and validating the old version while an attempt waits before its start.
    fn hold_before_start(&self, waiting: Plan) -> Plan {
        let plan = self.idle_cycle(waiting.because, waiting.requeue_at);
        if plan.actions.is_empty() { Plan { phase: waiting.phase, ..plan } } else { plan }
    }

    /// Plans the part of an attempt after the start transaction, until a cycle has ended. It goes on even if the store
    /// is not reachable.
    fn while_applying(&self, attempt: &Attempt, disruption: &Disruption) -> Plan {
        let next = || self.apply(attempt, disruption);
        let check = || self.check_attempt(&attempt.instruction.version);
        self.give_up(disruption).or_else(next).unwrap_or_else(check)
    }

    /// Plans the end of an attempt of which a cycle has ended since apply ended.
    fn after_check(&self, attempt: &Attempt, disruption: &Disruption) -> Plan {
        if let Some(plan) = self.apply(attempt, disruption) {
            return plan;
        }
        if attempt.apply_works() && self.state.cycles.has_passed() {
            let version = attempt.instruction.version.clone();
            return act(Phase::Validate, Reason::Succeeded, Conclusion::Proven { version });
        }
        act(Phase::Validate, Reason::SomethingFailed, Conclusion::AttemptFailed)
    }

    /// Plans what comes before the next apply step, and that step; `None` if the phase is complete or failed.
    fn apply(&self, attempt: &Attempt, disruption: &Disruption) -> Option<Plan> {
        // Claims that ended while the host was away are taken again before it goes on. What the store holds is
        // known in a moment.
        if self.state.rollout.claims.is_some() && self.observed.published.is_none() && self.may_start() {
            return Some(hold(Phase::Apply, Reason::StoreAway, None));
        }
        if self.state.cycles.validate_first {
            return Some(self.cycle(&attempt.instruction.version, Reason::AfterBoot));
        }
        let plan = self.step(StepPhase::Apply, &disruption.apply, Reason::AttemptUnderWay)?;
        if plan.actions.is_empty()
            && let Some(noted) = self.apply_waits(plan.because.clone())
        {
            return Some(noted);
        }
        Some(plan)
    }

    /// Plans to record that the apply phase waits; `None` if the result of apply is already pending
    /// or failed. The failure of an earlier attempt remains until this attempt ends.
    fn apply_waits(&self, because: Reason) -> Option<Plan> {
        let status = self.state.reporting.statuses.get(&StatusType::apply()).map(|(state, _)| *state);
        let is_said = matches!(status, Some(StatusState::Pending | StatusState::Failed));
        (!is_said).then(|| act(Phase::Start, because, Conclusion::ApplyWaits))
    }

    /// Plans converge and validate of an attempt. A validation without a result is repeated.
    fn check_attempt(&self, version: &Version) -> Plan {
        if self.state.cycles.current.is_none()
            && let Some(validation) = &self.state.cycles.validation
            && validation.version == *version
            && validation.result == ValidationResult::NotYet
        {
            let due = self.converge_due();
            let missing = self.observed.waits.iter().find(|wait| wait.phase == StepPhase::Validate);
            let again = validation.at.plus(self.policy.not_yet_retry);
            match (&validation.held, missing) {
                (Some(step), _) if self.now.boot < again => {
                    return hold(Phase::Validate, Reason::Held { step: step.clone() }, Some(again));
                }
                // Any change of this service wakes the host.
                (None, Some(wait)) if due.is_none_or(|due| self.now.boot < due) => {
                    return hold(Phase::Validate, Reason::Lacks { service: wait.service.clone() }, due);
                }
                _ => {}
            }
        }
        self.cycle(version, Reason::AttemptUnderWay)
    }

    fn unmet_need(&self, phase: StepPhase, progress: &Progress) -> Option<&Wait> {
        needs::lacks(self.observed.waits, self.policy.steps.of(phase), phase, progress)
    }

    /// True if the converge phase may run. It runs only on a completely applied version: not
    /// between the start transaction and the end of a successful apply.
    fn may_converge(&self) -> bool {
        self.state.is_whole(self.policy)
    }

    /// Returns when the converge phase may follow a change of the services that the host needs.
    /// `None` if nothing changed since it ran last, if the services are not known, or if the phase
    /// cannot run now.
    fn converge_due(&self) -> Option<BootMillis> {
        let seen = self.observed.services_seen?;
        let converged = self.state.cycles.converge.began;
        let lacks = self.observed.waits.iter().any(|wait| wait.phase == StepPhase::Converge);
        if self.policy.steps.converge.is_empty()
            || converged.seen == Some(seen)
            || lacks
            || !self.may_converge()
        {
            return None;
        }
        Some(converged.at.map_or(BootMillis(0), |at| at.plus(self.policy.converge_at_most_every)))
    }

    /// Plans the due step of a phase, or waits if the step is deferred or lacks a service. `None`
    /// if the phase is complete or failed.
    fn step(&self, phase: StepPhase, progress: &Progress, because: Reason) -> Option<Plan> {
        if progress.failed.is_some() {
            return None;
        }
        let shown = self.phase_of(phase);
        if let Some(held) = &progress.held
            && self.now.boot < held.until
        {
            return Some(hold(shown, Reason::Held { step: held.step.clone() }, Some(held.until)));
        }
        if let Some(wait) = self.unmet_need(phase, progress) {
            return Some(hold(shown, Reason::Lacks { service: wait.service.clone() }, None));
        }
        let step = progress.due(self.policy.steps.of(phase))?.name.clone();
        Some(act(shown, because, Effect::RunStep { phase, step }))
    }

    /// Plans the next action of a cycle. A phase that is deferred or failed does not hold the other
    /// phase.
    fn cycle(&self, version: &Version, because: Reason) -> Plan {
        let cycles = &self.state.cycles;
        let Some(cycle) = cycles.current.as_ref().filter(|cycle| cycle.version == *version) else {
            let under_way = self.state.is_under_way();
            let converge = self.may_converge()
                && (under_way
                    || cycles.validation_with(ValidationResult::Failed).is_some()
                    || cycles.converge.failure.is_some()
                    || cycles.converge.held.is_some()
                    || self.converge_due().is_some());
            let seen = self.observed.services_seen;
            let begin = Conclusion::CycleBegan { version: version.clone(), converge, seen };
            let phase = if under_way { Phase::Converge } else { Phase::Idle };
            return act(phase, because, begin);
        };
        // A missing service holds only the phase that needs it.
        let mut lacking = Vec::new();
        let mut goes_on = |phase, progress: &Progress| {
            let lacks = progress.failed.is_none() && self.unmet_need(phase, progress).is_some();
            if lacks {
                lacking.push(phase);
            }
            progress.held.is_none() && !lacks
        };
        let converge = cycle.converge.as_ref().filter(|c| goes_on(StepPhase::Converge, c));
        let validate = Some(&cycle.validate).filter(|v| goes_on(StepPhase::Validate, v));
        if let Some(converge) = converge
            && let Some(plan) = self.step(StepPhase::Converge, converge, because.clone())
        {
            return plan;
        }
        if let Some(validate) = validate
            && let Some(plan) = self.step(StepPhase::Validate, validate, because.clone())
        {
            return plan;
        }
        act(self.phase_of(StepPhase::Validate), because, Conclusion::CycleEnded { lacking })
    }

    fn after_failure(&self, attempt: &Attempt, end: &AttemptEnd) -> Plan {
        let version = &attempt.instruction.version;
        let cycles = &self.state.cycles;
        let passed = cycles.validation_with(ValidationResult::Passed);
        let is_about_it = passed.is_some_and(|validation| validation.version == *version);
        if attempt.apply_works() && cycles.current.is_none() && is_about_it {
            return act(Phase::Idle, Reason::Succeeded, Conclusion::Proven { version: version.clone() });
        }
        if self.state.is_suspect(self.policy) {
            let order = attempt.instruction.order;
            let known = self.state.recovery.on_suspect.as_ref().filter(|known| known.order == order);
            let progress = known.map_or(&NOT_BEGUN, |known| &known.progress);
            if cycles.current.is_none()
                && progress.held.is_none()
                && let Some(plan) = self.step(StepPhase::OnSuspect, progress, Reason::BecameSuspect)
            {
                return plan;
            }
            return match suspect_again(
                attempt,
                self.policy,
                self.observed.addressable,
                self.state.host.as_str(),
            ) {
                Some((due, because))
                    if self.now.boot >= due && self.is_still_wanted(attempt) && self.may_start() =>
                {
                    self.try_again(attempt, because)
                }
                again => self.idle_cycle(Reason::Suspect, again.map(|(due, _)| due)),
            };
        }
        if self.now.boot < end.next_at {
            return self.idle_cycle(Reason::BackingOff, Some(end.next_at));
        }
        if !self.is_still_wanted(attempt) || !self.may_start() {
            return self.idle_cycle(self.why_no_instruction(), None);
        }
        self.try_again(attempt, Reason::TryAgain)
    }

    fn begin_attempt(&self, instruction: &Instruction, cause: AttemptCause) -> Conclusion {
        let addressable = self.observed.addressable.map(|now| now.digest);
        Conclusion::AttemptBegan { instruction: instruction.clone(), cause, addressable }
    }

    fn try_again(&self, attempt: &Attempt, because: Reason) -> Plan {
        let begin = self.begin_attempt(&attempt.instruction, attempt.cause);
        let mut plan = act(Phase::Start, because, begin);
        self.add_expected_steps(&mut plan, &attempt.instruction, false);
        plan
    }

    fn is_still_wanted(&self, attempt: &Attempt) -> bool {
        self.instruction() == Some(&attempt.instruction)
    }

    fn why_no_instruction(&self) -> Reason {
        match &self.desired.target {
            Target::Unread => Reason::StoreAway,
            Target::NotSet => Reason::NoInstruction,
            Target::Invalid { .. } => Reason::Blocked,
            Target::Known(target) if Some(target.order) < self.state.observed.instruction => {
                Reason::OlderInstruction
            }
            Target::Known(_) if self.may_start() => Reason::Settled,
            Target::Known(_) => Reason::StoreAway,
        }
    }

    fn without_attempt(&self) -> Plan {
        let Some(target) = self.instruction() else {
            return self.idle_cycle(self.why_no_instruction(), None);
        };
        if !self.is_settled_at(&target.version) {
            return self.begin(target, Reason::NewInstruction);
        }
        if let Some(due) = repair_due(self.state, self.policy, self.now.boot) {
            if self.now.boot >= due && self.may_start() && self.state.cycles.current.is_none() {
                let begin = self.begin_attempt(target, AttemptCause::Repair);
                return act(Phase::Start, Reason::Repair, begin);
            }
            return self.idle_cycle(Reason::SomethingFailed, Some(due));
        }
        self.idle_cycle(Reason::Settled, None)
    }

    /// Plans what a host does while no attempt can go on: it validates the version that it has
    /// whenever validation is due.
    fn idle_cycle(&self, because: Reason, requeue_at: Option<BootMillis>) -> Plan {
        let Some(subject) = self.state.subject() else {
            return hold(Phase::Idle, because, requeue_at);
        };
        if self.state.cycles.current.is_some() {
            return self.cycle(subject, Reason::ValidationDue);
        }
        let validation = self.state.cycles.validation.as_ref();
        let Some(validation) = validation.filter(|validation| validation.version == *subject) else {
            return self.cycle(subject, Reason::AfterBoot);
        };
        let mut due = validation.at.plus(self.validation_delay(validation));
        due = self.state.hold_ends_at().map_or(due, |ends| due.min(ends));
        if self.now.boot >= due {
            return self.cycle(subject, Reason::ValidationDue);
        }
        if let Some(converge) = self.converge_due() {
            if self.now.boot >= converge {
                return self.cycle(subject, Reason::ServicesChanged);
            }
            due = due.min(converge);
        }
        let requeue_at = requeue_at.filter(|at| *at > self.now.boot).map_or(due, |at| at.min(due));
        hold(Phase::Idle, because, Some(requeue_at))
    }

    /// Returns the delay before the next validation. While validation fails, the delay grows with
    /// the time since the first failure, from a twelfth of `validate_every` up to `validate_every`.
    fn validation_delay(&self, validation: &Validation) -> Duration {
        let every = self.policy.validate_every;
        match (validation.result, validation.failing_since) {
            (ValidationResult::Failed, Some(since)) => validation.at.since(since).clamp(every / 12, every),
            (ValidationResult::NotYet, _) => self.policy.not_yet_retry.min(every),
            _ if self.state.cycles.converge.held.is_some() => self.policy.not_yet_retry.min(every),
            _ => every,
        }
    }
}
