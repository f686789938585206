//! `/orchestrate/freezes/…`: why hosts start nothing.

use crate::time::EpochSeconds;
use serde::{Deserialize, Serialize};

/// A freeze.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freeze {
    /// Who wrote it.
    pub by: String,
    /// Why, for others to read.
    pub reason: String,
    /// When it was written.
    pub at: EpochSeconds,
    /// When its lease ends at the earliest; `None` if it stands until somebody removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<EpochSeconds>,
}
