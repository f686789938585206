//! `/orchestrate/store`: the identity of the store.

use crate::names::Token;
use serde::{Deserialize, Serialize};

/// `/orchestrate/store`: the identity of the store. A restored or replaced store can have the same
/// cluster id, but it cannot have the same lineage, the same epoch and a history that continues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreIdentity {
    /// Random token, created once in the life of a fleet.
    pub lineage: Token,
    /// How often `store accept` was called in this lineage.
    pub epoch: u64,
}
