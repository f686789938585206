//! The phases in which steps run.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The phases that have steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepPhase {
    /// Fetch what the version needs; disturbs nothing.
    Prefetch,
    /// The consistent phase: expensive, once per version.
    Apply,
    /// The eventual phase: cheap, runs again.
    Converge,
    /// Proof that the host works.
    Validate,
    /// Runs once when a host becomes suspect.
    OnSuspect,
}

impl fmt::Display for StepPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prefetch => "prefetch",
            Self::Apply => "apply",
            Self::Converge => "converge",
            Self::Validate => "validate",
            Self::OnSuspect => "on_suspect",
        })
    }
}
