//! Who changes a rollout.

use schema::time::EpochSeconds;

/// Who writes something about a rollout, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Author {
    /// The name of the host or the operator.
    pub by: String,
    /// The time of the write.
    pub at: EpochSeconds,
}
