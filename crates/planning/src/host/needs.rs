//! Which unmet needs of a host hold it now.

use crate::host::attempt::{Progress, Stage};
use crate::host::site_config::{SiteConfig, Step};
use crate::host::state::HostState;
use schema::names::StepName;
use schema::records::Wait;
use schema::steps::StepPhase;

/// Returns the first need that keeps a phase from going on: a need of the whole phase, of its due
/// step, or of a step before that. A complete phase needs nothing any more.
pub(super) fn lacks<'a>(
    waits: &'a [Wait],
    steps: &[Step],
    phase: StepPhase,
    progress: &Progress,
) -> Option<&'a Wait> {
    let due = steps.iter().position(|step| !progress.done.contains(&step.name));
    if due.is_none() && !steps.is_empty() {
        return None;
    }
    let is_reached =
        |name: &StepName| steps.iter().position(|step| step.name == *name).is_some_and(|at| Some(at) <= due);
    waits.iter().find(|wait| wait.phase == phase && wait.step.as_ref().is_none_or(is_reached))
}

/// Returns the needs that hold the host now: those of prefetch or apply while an attempt waits
/// there, otherwise those of converge and validate, which a settled host repeats.
pub(super) fn holding(state: &HostState, policy: &SiteConfig, waits: &[Wait]) -> Vec<Wait> {
    let of = |phase: StepPhase| waits.iter().filter(move |wait| wait.phase == phase);
    let held = |phase, progress: &Progress| {
        progress.failed.is_none() && lacks(waits, policy.steps.of(phase), phase, progress).is_some()
    };
    match state.attempt.as_ref().map(|attempt| &attempt.stage) {
        Some(Stage::Preparing { prefetch }) if held(StepPhase::Prefetch, prefetch) => {
            of(StepPhase::Prefetch).cloned().collect()
        }
        Some(Stage::Applying(disruption) | Stage::Checked(disruption))
            if held(StepPhase::Apply, &disruption.apply) =>
        {
            of(StepPhase::Apply).cloned().collect()
        }
        // The needs of the first apply step hold the start.
        Some(Stage::Preparing { prefetch }) => {
            let steps = &policy.steps.apply;
            let first = steps.first().map(|step| &step.name);
            let fetched = prefetch.due(&policy.steps.prefetch).is_none();
            let holds = |wait: &&Wait| fetched && wait.step.as_ref().is_none_or(|step| Some(step) == first);
            of(StepPhase::Apply).filter(holds).cloned().collect()
        }
        _ if state.subject().is_none() => Vec::new(),
        _ => of(StepPhase::Converge).chain(of(StepPhase::Validate)).cloned().collect(),
    }
}
