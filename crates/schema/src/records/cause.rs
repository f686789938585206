//! The cause of a failure, as results and rollouts keep it.

use crate::names::Fingerprint;
use serde::{Deserialize, Serialize};

/// Longest line of a cause, in bytes.
pub const CAUSE_LINE_MAX_BYTES: usize = 512;

/// Why a step failed, in a form that is equal on all hosts that fail in the same way. The crate `archive` makes it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cause {
    /// Equal for equal causes.
    pub fingerprint: Fingerprint,
    /// The line of the output that says why, without secrets, names, addresses and numbers; at most
    /// [`CAUSE_LINE_MAX_BYTES`].
    pub line: String,
}
