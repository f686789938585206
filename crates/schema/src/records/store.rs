//! `/orchestrate/store`: which store this is.

use crate::names::Token;
use serde::{Deserialize, Serialize};

/// `/orchestrate/store`: which store this is. A restored or replaced store can have the same cluster id;
/// it cannot have the same lineage and epoch and a history that goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreIdentity {
    /// Random, made once in the life of a fleet.
    pub lineage: Token,
    /// Goes up by one with each `store accept`.
    pub epoch: u64,
}
