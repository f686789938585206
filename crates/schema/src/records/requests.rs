//! What operators ask for once.

use crate::time::EpochSeconds;
use serde::{Deserialize, Serialize};

/// `/orchestrate/release_view`: agents stop serving what their guards retain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropStaleRequest {
    /// When it was asked for.
    pub at: EpochSeconds,
}

/// `/orchestrate/retry/<host>`: an operator wants the host to try again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryRequest {
    /// When it was asked for.
    pub at: EpochSeconds,
}
