//! `/orchestrate/hosts/<host>`: the roster.

use crate::names::Role;
use crate::time::EpochSeconds;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `/orchestrate/hosts/<host>`: a host that the fleet is expected to have, or the tombstone of a
/// decommissioned host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct RosterEntry {
    /// The role of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The group that the host belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Role>,
    /// Labels that operators are free to choose.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Since when the host is on the roster.
    #[serde(default)]
    pub since: EpochSeconds,
    /// When the host was decommissioned; `None` if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decommissioned: Option<EpochSeconds>,
}
