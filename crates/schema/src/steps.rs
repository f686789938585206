//! The phases that run steps.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A phase that has steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
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
