//! The steps of a host: the one that runs, how long they took, and the output of those that failed.

use crate::host::step_logs::StepLogs;
use schema::names::{StepName, Token};
use schema::records::{DURATIONS_IN_REPORT, StepDuration};
use schema::steps::StepPhase;
use schema::time::{BootMillis, EpochSeconds, Now, Span};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What a host remembers of its steps.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StepMemory {
    /// The step that is running.
    pub running: Option<Running>,
    /// How long steps took when they last succeeded; at most [`DURATIONS_IN_REPORT`].
    pub durations: Vec<StepDuration>,
    /// The output of the steps that failed or were deferred.
    pub logs: StepLogs,
}

/// A step that is running, and since when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    #[serde(flatten)]
    pub step: RunningStep,
    /// Since when; `None` if the agent was restarted meanwhile, so that it does not know when the step ended.
    #[serde(skip)]
    pub since: Option<BootMillis>,
    /// When it began, by the clock of the host.
    pub at: EpochSeconds,
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

impl StepMemory {
    /// Returns the step that is running.
    pub fn running(&self) -> Option<&RunningStep> {
        self.running.as_ref().map(|running| &running.step)
    }

    /// Returns since when a step runs that this process started.
    pub fn running_since(&self) -> Option<BootMillis> {
        self.running.as_ref()?.since
    }

    /// Notes that the runner of a step is about to be started.
    pub(super) fn begin(&mut self, step: RunningStep, now: Now) {
        self.running = Some(Running { step, since: Some(now.boot), at: now.wall });
    }

    /// Notes how long a step took that succeeded.
    pub(super) fn note_duration(&mut self, phase: StepPhase, step: &StepName, took: Duration) {
        let took = Span(Duration::from_millis(u64::try_from(took.as_millis()).unwrap_or(u64::MAX)));
        self.durations.retain(|known| known.phase != phase || known.step != *step);
        self.durations.push(StepDuration { phase, step: step.clone(), took });
        // Those of steps that did not run for long go first.
        let excess = self.durations.len().saturating_sub(DURATIONS_IN_REPORT);
        self.durations.drain(..excess);
    }
}
