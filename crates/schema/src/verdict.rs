//! Verdicts: where a host stands, in one word and in sentences. All are plain values: they are tested,
//! served by `/status`, stored in the report and printed by `orchestrate`.

use crate::codec::cut;
use crate::names::{StepName, Version};
use crate::records::{Cause, REASON_MAX_BYTES};
use crate::steps::{StepEnd, StepPhase};
use crate::time::Span;
use crate::why_not::{BlockedWire, VerdictWire, WaitingWire, WhyNot};
use serde::{Deserialize, Serialize};
use std::fmt;

pub use crate::verdict_kind::VerdictKind;

/// The verdict of a host about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Wire", into = "Wire")]
pub enum HostVerdict {
    /// The target is installed and works.
    Ok,
    /// The host works towards the target.
    Running { version: Version },
    /// The host could continue, but waits, or is blocked.
    Held(WhyNot),
    /// An attempt or a validation failed.
    Failed(HostFailure),
}

/// The form of a verdict in the store.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
enum Wire {
    Ok,
    Running {
        version: Version,
    },
    Waiting {
        #[serde(flatten)]
        on: WaitingWire,
    },
    Blocked {
        #[serde(flatten)]
        by: BlockedWire,
    },
    Failed(HostFailure),
}

impl From<HostVerdict> for Wire {
    fn from(verdict: HostVerdict) -> Self {
        match verdict {
            HostVerdict::Ok => Self::Ok,
            HostVerdict::Running { version } => Self::Running { version },
            HostVerdict::Held(reason) => match VerdictWire::from(reason) {
                VerdictWire::Waiting(on) => Self::Waiting { on },
                VerdictWire::Blocked(by) => Self::Blocked { by },
            },
            HostVerdict::Failed(failed) => Self::Failed(failed),
        }
    }
}

impl From<Wire> for HostVerdict {
    fn from(wire: Wire) -> Self {
        match wire {
            Wire::Ok => Self::Ok,
            Wire::Running { version } => Self::Running { version },
            Wire::Waiting { on } => Self::Held(on.into()),
            Wire::Blocked { by } => Self::Held(by.into()),
            Wire::Failed(failed) => Self::Failed(failed),
        }
    }
}

impl HostVerdict {
    /// True if both are the same news: who holds a limit, for example, is not compared.
    pub fn is_same_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Held(one), Self::Held(two)) => one.is_same_as(two),
            _ => self == other,
        }
    }

    /// Returns the kind of the verdict.
    pub fn kind(&self) -> VerdictKind {
        match self {
            Self::Ok => VerdictKind::Ok,
            Self::Running { .. } => VerdictKind::Running,
            Self::Held(reason) => reason.kind(),
            Self::Failed(failed) => failed.kind(),
        }
    }

    /// Returns the explanation of the verdict, in words; empty for [`HostVerdict::Ok`].
    pub fn message(&self) -> String {
        match self {
            Self::Ok => String::new(),
            Self::Running { version } => on_its_way(version),
            Self::Held(reason) => reason.to_string(),
            Self::Failed(failed) => failed.to_string(),
        }
    }
}

/// Returns the explanation of a host that works towards a version.
pub fn on_its_way(version: &Version) -> String {
    format!("on its way to {version}")
}

/// A failure of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFailure {
    /// The version that failed, if it is known.
    pub version: Option<Version>,
    pub failure: Failure,
    /// True if the host is suspect: the agent only retries slowly.
    pub suspect: bool,
}

impl HostFailure {
    /// Returns the kind of the verdict.
    pub fn kind(&self) -> VerdictKind {
        if self.suspect { VerdictKind::Suspect } else { VerdictKind::Failed }
    }
}

impl fmt::Display for HostFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.failure.reason)?;
        self.version.as_ref().map_or(Ok(()), |version| write!(f, " (version {version})"))
    }
}

/// What failed, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The phase that failed.
    pub phase: StepPhase,
    /// The step that failed.
    pub step: StepName,
    /// Exit code of the step, if it ended with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// Reason of the failure, in words.
    pub reason: String,
    /// How the step ended; `None` in what an agent wrote that did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<StepEnd>,
    /// The cause, as the output of the step shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
}

impl Failure {
    /// Returns the failure of a step that ended in this way.
    pub fn of(phase: StepPhase, step: StepName, end: StepEnd) -> Self {
        let end = match end {
            StepEnd::NotStarted { why } => StepEnd::NotStarted { why: cut(&why, REASON_MAX_BYTES) },
            end => end,
        };
        let code = if let StepEnd::Exited { code } = end { Some(code) } else { None };
        let reason = cut(&format!("{phase} step {step} {end}"), REASON_MAX_BYTES);
        Self { phase, step, code, reason, end: Some(end), cause: None }
    }

    /// Returns the failure of an update that took longer than its rollout allows, at this step.
    pub fn too_slow(phase: StepPhase, step: StepName, within: Span) -> Self {
        let reason = format!("{phase} step {step} had not succeeded {within} after the start");
        Self { phase, step, code: None, reason, end: None, cause: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A time-out is not an exit, also for those that read the report or the journal.
    #[test]
    fn the_end_of_a_failed_step_keeps_its_type() {
        let check = |end: StepEnd, expected: &str| {
            let failure = Failure::of(StepPhase::Apply, StepName::new("s").unwrap(), end);
            let text = serde_json::to_string(&failure).unwrap();
            assert_eq!(text, format!(r#"{{"phase":"apply","step":"s",{expected}}}"#));
            assert_eq!(serde_json::from_str::<Failure>(&text).unwrap(), failure);
        };
        check(
            StepEnd::Exited { code: 3 },
            r#""code":3,"reason":"apply step s exited with code 3","end":{"end":"exited","code":3}"#,
        );
        check(
            StepEnd::TimedOut { limit_millis: 5000 },
            r#""reason":"apply step s took longer than 5s (timeout)","end":{"end":"timed_out","limit_millis":5000}"#,
        );
        check(
            StepEnd::Signalled { signal: "SIGKILL".into() },
            r#""reason":"apply step s was ended by SIGKILL","end":{"end":"signalled","signal":"SIGKILL"}"#,
        );
    }
}
