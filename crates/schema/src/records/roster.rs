//! `/orchestrate/hosts/<host>`: the roster.

use crate::names::Role;
use crate::time::EpochSeconds;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `/orchestrate/hosts/<host>`: a host that exists, or the tombstone of one that was taken out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct RosterEntry {
    /// The role it plays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The group it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Role>,
    /// Free labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Since when it is on the roster.
    #[serde(default)]
    pub since: EpochSeconds,
    /// When it was taken out, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decommissioned: Option<EpochSeconds>,
}
