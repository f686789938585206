//! Requests that operators make once.

use crate::time::EpochSeconds;
use serde::{Deserialize, Serialize};

/// `/orchestrate/release_view`: the request that agents end the retained state of the catalog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropStaleRequest {
    /// When the request was made.
    pub at: EpochSeconds,
}

/// `/orchestrate/retry/<host>`: the request that a host try again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryRequest {
    /// When the request was made.
    pub at: EpochSeconds,
}
