//! The output of the steps that failed or were deferred.

use schema::records::LoggedStep;
use schema::verdict::HostVerdict;
use schema::why_not::WhyNot;
use serde::{Deserialize, Serialize};

/// The last lines of the output of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct StepLog {
    #[serde(flatten)]
    of: LoggedStep,
    lines: Vec<String>,
}

/// The output of the last step of each phase that failed or was deferred, the newest last.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StepLogs(Vec<StepLog>);

impl StepLogs {
    /// Notes a step that failed or was deferred.
    pub(super) fn note(&mut self, of: LoggedStep, lines: Vec<String>) {
        self.0.retain(|log| log.of.phase != of.phase);
        self.0.push(StepLog { of, lines });
    }

    /// Forgets the output of a step, which has succeeded since.
    pub(super) fn forget(&mut self, step: &LoggedStep) {
        self.0.retain(|log| log.of != *step);
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the step that a report is about, and its output: the step that the verdict names, or else the
    /// last one.
    pub(super) fn of(&self, verdict: &HostVerdict) -> Option<(LoggedStep, Vec<String>)> {
        let named = match verdict {
            HostVerdict::Failed(failed) => Some((failed.failure.phase, &failed.failure.step)),
            HostVerdict::Held(WhyNot::Step { phase, step }) => Some((*phase, step)),
            _ => None,
        };
        let log = match named {
            Some(named) => self.0.iter().find(|log| (log.of.phase, &log.of.step) == named),
            None => self.0.last(),
        }?;
        Some((log.of.clone(), log.lines.clone()))
    }
}
