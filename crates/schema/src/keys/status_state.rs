//! The states of a host in the key of its status.

use serde::{Deserialize, Serialize};

/// The three states of a status type. A host is in at most one of them at every revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StatusState {
    /// The last attempt succeeded.
    Success,
    /// The last attempt failed.
    Failed,
    /// The last attempt ended with "not yet".
    Pending,
}

impl StatusState {
    /// All states, in the order in which they are listed.
    pub const ALL: [Self; 3] = [Self::Success, Self::Failed, Self::Pending];

    /// Returns the text that represents the state in a key.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failed => "failed",
            Self::Pending => "pending",
        }
    }
}
