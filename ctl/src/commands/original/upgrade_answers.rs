//! What the verbs of `rolling_upgrade` answer.

use super::upgrade::{UpgradeState, UpgradeView};
use schema::names::{HostName, Version};
use schemars::JsonSchema;
use serde::Serialize;

/// The hosts by how far they are. The names are in the order of the original's line.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct UpgradeLists {
    pub(super) pending: Vec<HostName>,
    pub(super) upgraded: Vec<HostName>,
    pub(super) upgrading: Vec<HostName>,
}

/// What `rolling_upgrade status` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct StatusAnswer<'a> {
    #[serde(flatten)]
    pub(super) lists: UpgradeLists,
    pub(super) held: Vec<HostName>,
    pub(super) version: Option<&'a Version>,
    pub(super) revision: i64,
}

/// What `rolling_upgrade upgrade` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct UpgradeAnswer<'a> {
    pub(super) version: &'a Version,
    pub(super) noop: bool,
    pub(super) triggered: bool,
    pub(super) enabled_hosts: &'a [HostName],
    pub(super) states: &'a UpgradeLists,
    pub(super) over: bool,
    pub(super) revision: i64,
}

/// What `rolling_upgrade global_disable_puppet` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DisableAnswer {
    pub(super) changed: bool,
    pub(super) revision: i64,
}

/// Returns the lists of hosts as the original prints them.
pub(super) fn lists(view: &UpgradeView) -> UpgradeLists {
    let names = |state| view.hosts_in(state).cloned().collect();
    UpgradeLists {
        pending: names(UpgradeState::Pending),
        upgraded: names(UpgradeState::Upgraded),
        upgrading: names(UpgradeState::Upgrading),
    }
}
