//! The kinds of verdicts: where a host stands, in one word.

use schemars::JsonSchema;
use serde::Serialize;
use std::fmt;

/// The kinds of verdicts, of a host about itself and of a reader about a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum VerdictKind {
    /// The target is installed and works.
    Ok,
    /// The host works towards the target.
    Running,
    /// The host could continue, but waits.
    Waiting,
    /// A freeze keeps the host from starting. No host says this about itself.
    Frozen,
    /// The host cannot go on until the cause is removed.
    Blocked,
    /// An attempt or a validation failed.
    Failed,
    /// Too many attempts failed: the agent only retries slowly.
    Suspect,
    /// The host is known to be part of the fleet and is gone. No host says this about itself.
    Lost,
}

impl VerdictKind {
    /// All kinds, the worst last.
    pub const ALL: [Self; 8] = [
        Self::Ok,
        Self::Running,
        Self::Waiting,
        Self::Frozen,
        Self::Blocked,
        Self::Failed,
        Self::Suspect,
        Self::Lost,
    ];

    /// The kinds of which one is the verdict of a host about itself.
    pub const OF_HOSTS: [Self; 6] =
        [Self::Ok, Self::Running, Self::Waiting, Self::Blocked, Self::Failed, Self::Suspect];

    /// Returns the verdict in one word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Frozen => "frozen",
            Self::Blocked => "blocked",
            Self::Failed => "failed",
            Self::Suspect => "suspect",
            Self::Lost => "lost",
        }
    }
}

impl fmt::Display for VerdictKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
