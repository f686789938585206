//! The verdict of a host about itself. Exactly one applies, in this precedence: failed, blocked,
//! waiting, running, ok.

use crate::host::input::{Claim, Desired, Observed, Target};
use crate::host::needs::holding;
use crate::host::state::{HostState, ValidationResult};
use crate::policy::Policy;
use crate::rollout::Obstacle;
use schema::names::Version;
use schema::plan::{Plan, Reason};
use schema::records::Driver;
use schema::steps::StepPhase;
use schema::store_trust::StoreTrust;
use schema::verdict::{BlockedBy, Failure, HostFailure, HostVerdict, WaitingOn};

pub(super) fn verdict(
    state: &HostState,
    desired: &Desired,
    (observed, obstacle): (&Observed, Option<&Obstacle>),
    plan: &Plan,
) -> HostVerdict {
    if let Some((version, failure)) = failure(state) {
        let suspect = state.is_suspect(desired.policy);
        // The result has the cause. It may differ each time, and a verdict that differs is news.
        let failure = Failure { cause: None, ..failure.clone() };
        return HostVerdict::Failed(HostFailure { version, failure, suspect });
    }
    if let Some(by) = blocked_by(desired, observed).or_else(|| obstacle.and_then(blocked_by_rollout)) {
        return HostVerdict::Blocked { by };
    }
    if let Some(on) = waiting_on(state, desired, observed, plan) {
        return HostVerdict::Waiting { on };
    }
    if let Some(Obstacle::Full { limit, .. } | Obstacle::NotItsTurn { limit, .. }) = obstacle {
        let is_zero = matches!(obstacle, Some(Obstacle::Full { max: 0, .. }));
        return HostVerdict::Waiting { on: WaitingOn::Limit { limit: limit.to_string(), is_zero } };
    }
    if let Some(Obstacle::StageClosed { stage, .. }) = obstacle {
        return HostVerdict::Waiting { on: WaitingOn::Stage { stage: stage.clone() } };
    }
    if let Some(Obstacle::OutsideWindow(next)) = obstacle {
        return HostVerdict::Waiting { on: WaitingOn::Window { opens: next.opens.clone() } };
    }
    if let Some(halted @ (Obstacle::Halted(_) | Obstacle::OverBudget { .. })) = obstacle {
        return HostVerdict::Waiting { on: WaitingOn::Operator { why: halted.to_string() } };
    }
    running_towards(desired, state).map_or(HostVerdict::Ok, |version| HostVerdict::Running { version })
}

/// Returns the failure that counts. The failure of an attempt remains until the next attempt at the
/// same instruction ends.
fn failure(state: &HostState) -> Option<(Option<Version>, &Failure)> {
    if let Some(attempt) = &state.attempt {
        let ended = attempt.ended.as_ref().map(|end| &end.failure);
        return ended
            .or(attempt.last_failure.as_ref())
            .map(|failure| (Some(attempt.instruction.version.clone()), failure));
    }
    let failure = state.validation_failure().or(state.converge_failure.as_ref())?;
    Some((state.subject().cloned(), failure))
}

impl HostState {
    fn validation_failure(&self) -> Option<&Failure> {
        self.validation
            .as_ref()
            .filter(|v| v.result == ValidationResult::Failed)
            .and_then(|v| v.failure.as_ref())
    }
}

fn blocked_by(desired: &Desired, observed: &Observed) -> Option<BlockedBy> {
    if let Claim::Contested { holder, ours } = &observed.claim {
        return Some(BlockedBy::NameHeld { holder: holder.clone(), ours: ours.clone() });
    }
    match &observed.store_trust {
        StoreTrust::WentBack { by } => return Some(BlockedBy::StoreWentBack { sign: by.clone() }),
        StoreTrust::Unreadable { why } => return Some(BlockedBy::StoreUnreadable { why: why.clone() }),
        StoreTrust::OtherLineage { ours, theirs } => {
            return Some(BlockedBy::OtherLineage { ours: ours.clone(), theirs: theirs.clone() });
        }
        _ => {}
    }
    if observed.decommissioned {
        return Some(BlockedBy::Decommissioned);
    }
    if let Some(why) = &observed.settings_untrusted {
        return Some(BlockedBy::Settings { why: why.clone() });
    }
    if let Some((why, _)) = &observed.cannot_record {
        return Some(BlockedBy::CannotRecord { why: why.clone() });
    }
    match &desired.target {
        Target::Invalid { why } => Some(BlockedBy::InvalidInstruction { why: why.clone() }),
        _ => None,
    }
}

fn blocked_by_rollout(obstacle: &Obstacle) -> Option<BlockedBy> {
    match obstacle {
        Obstacle::Refused(_) | Obstacle::Unusable(_) => {
            Some(BlockedBy::Rollout { why: obstacle.to_string() })
        }
        Obstacle::Frozen(_)
        | Obstacle::Halted(_)
        | Obstacle::OverBudget { .. }
        | Obstacle::NotRead
        | Obstacle::NoRecord
        | Obstacle::StageClosed { .. }
        | Obstacle::OutsideWindow(_)
        | Obstacle::Full { .. }
        | Obstacle::NotItsTurn { .. } => None,
    }
}

fn waiting_on(state: &HostState, desired: &Desired, observed: &Observed, plan: &Plan) -> Option<WaitingOn> {
    if let Some(wait) = holding(state, desired.policy, observed.waits).into_iter().next() {
        return Some(WaitingOn::Service(wait));
    }
    if let Some((phase, step)) = held_step(state, desired.policy) {
        return Some(WaitingOn::Step { phase, step });
    }
    let behind = running_towards(desired, state).is_some();
    match plan.because {
        Reason::Spread => Some(WaitingOn::Spread),
        Reason::StoreAway if behind => Some(WaitingOn::Store),
        Reason::ExternalDriver if behind => Some(WaitingOn::ExternalDriver),
        _ if state.installed.is_none() && state.attempt.is_none() && !behind => match desired.target {
            Target::Unread => Some(WaitingOn::Store),
            _ => Some(WaitingOn::Instruction),
        },
        _ => None,
    }
}

fn held_step(state: &HostState, policy: &Policy) -> Option<(StepPhase, schema::names::StepName)> {
    if let Some(attempt) = state.attempt.as_ref().filter(|a| a.ended.is_none()) {
        for (phase, progress) in
            [(StepPhase::Prefetch, &attempt.prefetch), (StepPhase::Apply, &attempt.apply)]
        {
            if let Some(held) = &progress.held {
                return Some((phase, held.step.clone()));
            }
        }
    }
    let validation = state.validation.as_ref().and_then(|v| v.held.clone()).map(|s| (StepPhase::Validate, s));
    let converge = state.converge_held.clone().map(|s| (StepPhase::Converge, s));
    validation.or(converge).filter(|(phase, step)| policy.steps.of(*phase).iter().any(|s| s.name == *step))
}

/// Returns the version that the host should run and that is not yet proven on it.
fn running_towards(desired: &Desired, state: &HostState) -> Option<Version> {
    if let Some(attempt) = &state.attempt {
        return Some(attempt.instruction.version.clone());
    }
    let wanted = match &desired.target {
        Target::Known(target) if Some(target.order) >= state.observed_instruction => Some(&target.version),
        _ => None,
    };
    let goal = wanted.or(state.installed.as_ref())?;
    let there = state.installed.as_ref() == Some(goal) && state.in_progress_version.is_none();
    let proven = state.proof_holds || desired.policy.driver == Driver::External;
    (!(there && proven)).then(|| goal.clone())
}
