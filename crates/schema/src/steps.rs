//! The phases that run steps, and how a step ends.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// A phase that has steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StepPhase {
    /// Fetches what the version needs, and disturbs nothing.
    Prefetch,
    /// The consistent phase: expensive, runs once per version.
    Apply,
    /// The eventual phase: cheap, runs again.
    Converge,
    /// Proves that the host works.
    Validate,
    /// Runs once when a host becomes suspect.
    OnSuspect,
}

impl StepPhase {
    /// All phases. The compiler notices one that is added before the last.
    pub const ALL: [Self; Self::OnSuspect as usize + 1] =
        [Self::Prefetch, Self::Apply, Self::Converge, Self::Validate, Self::OnSuspect];
}

impl StepPhase {
    /// Returns the name of the phase.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Prefetch => "prefetch",
            Self::Apply => "apply",
            Self::Converge => "converge",
            Self::Validate => "validate",
            Self::OnSuspect => "on_suspect",
        }
    }
}

impl fmt::Display for StepPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a step ended, as its runner saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum StepEnd {
    /// The step exited by itself.
    Exited {
        /// The exit code.
        code: i32,
    },
    /// A signal ended the step.
    Signalled {
        /// The name of the signal.
        signal: String,
    },
    /// The step took longer than its limit and was ended.
    TimedOut {
        /// The limit, in milliseconds.
        limit_millis: u64,
    },
    /// The runner disappeared without a result: power loss, reboot or kill.
    Interrupted,
    /// The step could not be started.
    NotStarted {
        /// Why the step could not be started.
        why: String,
    },
}

impl StepEnd {
    /// Returns the word for the way in which the step ended.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Exited { .. } => "exited",
            Self::Signalled { .. } => "signalled",
            Self::TimedOut { .. } => "timed_out",
            Self::Interrupted => "interrupted",
            Self::NotStarted { .. } => "not_started",
        }
    }
}

impl fmt::Display for StepEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited { code } => write!(f, "exited with code {code}"),
            Self::Signalled { signal } => write!(f, "was ended by {signal}"),
            Self::TimedOut { limit_millis } => write!(
                f,
                "took longer than {} (timeout)",
                crate::time::format_duration(Duration::from_millis(*limit_millis))
            ),
            Self::Interrupted => f.write_str("was interrupted"),
            Self::NotStarted { why } => write!(f, "could not be started: {why}"),
        }
    }
}
