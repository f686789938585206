//! A step that runs.

use crate::text::rough;
use planning::calendar::as_rfc3339;
use schema::names::StepName;
use schema::records::LongStep;
use schema::steps::StepPhase;
use schema::time::EpochSeconds;
use schemars::JsonSchema;
use serde::Serialize;

/// A step that has run for some time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RunningStepView {
    /// The phase of the step.
    pub phase: StepPhase,
    /// The name of the step.
    pub step: StepName,
    /// When it began (RFC 3339), by the clock of the host.
    #[serde(serialize_with = "as_rfc3339")]
    #[schemars(with = "Option<String>")]
    pub since: Option<EpochSeconds>,
    /// Its time limit in seconds.
    pub limit_seconds: u64,
}

impl RunningStepView {
    /// Returns it on a line, with how long it has run.
    pub fn text(&self, now: EpochSeconds) -> String {
        let Self { phase, step, since, limit_seconds } = self;
        let ran = since.map_or(0, |since| now.0.saturating_sub(since.0).try_into().unwrap_or_default());
        format!("{phase} step {step}, for {}; its limit is {}", rough(ran), rough(*limit_seconds))
    }
}

impl From<&LongStep> for RunningStepView {
    fn from(LongStep { phase, step, since, timeout }: &LongStep) -> Self {
        let (since, limit_seconds) = (Some(*since), timeout.0.as_secs());
        Self { phase: *phase, step: step.clone(), since, limit_seconds }
    }
}
