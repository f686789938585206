//! `/orchestrate/hosts/<host>`: the roster.

use crate::host_config::role_of;
use crate::names::{HostName, Role};
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
    /// True if a script of the host put it on the roster: neither an agent nor an operator has said anything about
    /// it. The agent of the host replaces the entry. Such a host is not lost when it is silent: only its results
    /// say that it stopped reporting.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_script: bool,
    /// When the host was decommissioned; `None` if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decommissioned: Option<EpochSeconds>,
}

impl RosterEntry {
    /// Returns the entry of a host that a script drives. Its role is the one by which the verbs of the original tool
    /// know it: the letters of its name.
    pub fn of_script(host: &HostName, since: EpochSeconds) -> Self {
        Self { role: role_of(host), since, from_script: true, ..Self::default() }
    }
}
