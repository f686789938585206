//! The verdict of a host about itself. Exactly one applies, in this precedence: failed, blocked,
//! waiting, running, ok.

use crate::host::attempt::Stage;
use crate::host::cycle::ValidationResult;
use crate::host::input::{Claim, Desired, Observed, Target};
use crate::host::inputs::Inputs;
use crate::host::needs::holding;
use crate::host::site_config::SiteConfig;
use crate::host::state::HostState;
use schema::names::Version;
use schema::plan::{Plan, Reason};
use schema::records::Driver;
use schema::steps::StepPhase;
use schema::store_trust::StoreTrust;
use schema::verdict::{Failure, HostFailure, HostVerdict, VerdictKind};
use schema::why_not::WhyNot;

pub(super) fn verdict(inputs: Inputs<'_>, obstacle: Option<&WhyNot>, plan: &Plan) -> HostVerdict {
    let Inputs { state, desired, observed, .. } = inputs;
    if let Some((version, failure)) = failure(state) {
        let suspect = state.is_suspect(desired.policy);
        // The result has the cause. It may differ each time, and a verdict that differs is news.
        let failure = Failure { cause: None, ..failure.clone() };
        return HostVerdict::Failed(HostFailure { version, failure, suspect });
    }
    let reason = blocked_by(desired, observed)
        .or_else(|| obstacle_of_kind(obstacle, VerdictKind::Blocked))
        .or_else(|| waiting_on(state, desired, observed, plan))
        .or_else(|| obstacle_of_kind(obstacle, VerdictKind::Waiting));
    if let Some(reason) = reason {
        return HostVerdict::Held(reason);
    }
    running_towards(desired, state).map_or(HostVerdict::Ok, |version| HostVerdict::Running { version })
}

/// Returns the failure that counts. The failure of an attempt remains until the next attempt at the
/// same instruction ends.
fn failure(state: &HostState) -> Option<(Option<Version>, &Failure)> {
    if let Some(attempt) = &state.attempt {
        let ended = attempt.end().map(|end| &end.failure);
        return ended
            .or(attempt.history.last_failure.as_ref())
            .map(|failure| (Some(attempt.instruction.version.clone()), failure));
    }
    let failure = state.validation_failure().or(state.cycles.converge.failure.as_ref())?;
    Some((state.subject().cloned(), failure))
}

impl HostState {
    fn validation_failure(&self) -> Option<&Failure> {
        self.cycles.validation_with(ValidationResult::Failed)?.failure.as_ref()
    }
}

fn blocked_by(desired: &Desired, observed: &Observed) -> Option<WhyNot> {
    if let Claim::Contested { holder, ours } = &observed.claim {
        return Some(WhyNot::NameHeld { holder: holder.clone(), ours: ours.clone() });
    }
    match &observed.store_trust {
        StoreTrust::WentBack { by } => return Some(WhyNot::StoreWentBack { sign: by.clone() }),
        StoreTrust::Unreadable { why } => return Some(WhyNot::StoreUnreadable { why: why.clone() }),
        StoreTrust::OtherLineage { ours, theirs } => {
            return Some(WhyNot::OtherLineage { ours: ours.clone(), theirs: theirs.clone() });
        }
        _ => {}
    }
    if observed.decommissioned {
        return Some(WhyNot::Decommissioned);
    }
    if let Some(why) = &observed.settings_untrusted {
        return Some(WhyNot::Settings { why: why.clone() });
    }
    if let Some((why, _)) = &observed.cannot_record {
        return Some(WhyNot::CannotRecord { why: why.clone() });
    }
    match &desired.target {
        Target::Invalid { why } => Some(WhyNot::InvalidInstruction { why: why.clone() }),
        _ => None,
    }
}

/// Returns what keeps the host from starting, if this is the verdict that belongs to it. A freeze is none of a host:
/// its readers see the freeze.
fn obstacle_of_kind(obstacle: Option<&WhyNot>, kind: VerdictKind) -> Option<WhyNot> {
    let obstacle = obstacle?;
    if obstacle.kind() == kind { Some(obstacle.clone()) } else { None }
}

fn waiting_on(state: &HostState, desired: &Desired, observed: &Observed, plan: &Plan) -> Option<WhyNot> {
    if let Some(wait) = holding(state, desired.policy, observed.waits).into_iter().next() {
        return Some(WhyNot::Service(wait));
    }
    if let Some((phase, step)) = held_step(state, desired.policy) {
        return Some(WhyNot::Step { phase, step });
    }
    let behind = running_towards(desired, state).is_some();
    match plan.because {
        Reason::Spread => Some(WhyNot::Spread),
        Reason::StoreAway if behind => Some(WhyNot::Store),
        Reason::ExternalDriver if behind => Some(WhyNot::ExternalDriver),
        _ if state.versions.installed.is_none() && state.attempt.is_none() && !behind => match desired.target
        {
            Target::Unread => Some(WhyNot::Store),
            _ => Some(WhyNot::Instruction),
        },
        _ => None,
    }
}

fn held_step(state: &HostState, policy: &SiteConfig) -> Option<(StepPhase, schema::names::StepName)> {
    let of_attempt = match state.attempt.as_ref().map(|attempt| &attempt.stage) {
        Some(Stage::Preparing { prefetch }) => Some((StepPhase::Prefetch, prefetch)),
        Some(Stage::Applying(disruption) | Stage::Checked(disruption)) => {
            Some((StepPhase::Apply, &disruption.apply))
        }
        Some(Stage::Ended(_)) | None => None,
    };
    if let Some((phase, progress)) = of_attempt
        && let Some(held) = &progress.held
    {
        return Some((phase, held.step.clone()));
    }
    let cycles = &state.cycles;
    let validation =
        cycles.validation.as_ref().and_then(|v| v.held.clone()).map(|s| (StepPhase::Validate, s));
    let converge = cycles.converge.held.clone().map(|s| (StepPhase::Converge, s));
    validation.or(converge).filter(|(phase, step)| policy.steps.of(*phase).iter().any(|s| s.name == *step))
}

/// Returns the version that the host should run and that is not yet proven on it.
fn running_towards(desired: &Desired, state: &HostState) -> Option<Version> {
    if let Some(attempt) = &state.attempt {
        return Some(attempt.instruction.version.clone());
    }
    let wanted = match &desired.target {
        Target::Known(target) if Some(target.order) >= state.observed.instruction => Some(&target.version),
        _ => None,
    };
    let goal = wanted.or(state.versions.installed.as_ref())?;
    let there = state.versions.installed.as_ref() == Some(goal) && !state.is_disturbed();
    let proven = state.versions.proof_holds || desired.policy.driver == Driver::External;
    (!(there && proven)).then(|| goal.clone())
}
