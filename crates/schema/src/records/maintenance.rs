//! `/orchestrate/maintenance/<host>`: what an operator took out of use.

use crate::names::ServiceName;
use crate::time::EpochSeconds;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `/orchestrate/maintenance/<host>`: what an operator took out of use on a host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Maintenance {
    /// All of its services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<MaintenanceEntry>,
    /// Some of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub services: BTreeMap<ServiceName, MaintenanceEntry>,
}

/// One thing taken out of use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaintenanceEntry {
    /// How.
    pub how: MaintenanceMode,
    /// Why, as the operator says.
    #[serde(default)]
    pub reason: String,
    /// Since when.
    pub at: EpochSeconds,
}

/// How something is out of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaintenanceMode {
    /// It counts as not working.
    Maintenance,
    /// It takes nothing new.
    Draining,
}

impl Maintenance {
    /// Nothing is out of use.
    pub fn is_empty(&self) -> bool {
        self.host.is_none() && self.services.is_empty()
    }

    /// What holds for a service. Maintenance weighs more than draining.
    pub fn of(&self, service: &ServiceName) -> Option<&MaintenanceEntry> {
        let both = [self.services.get(service), self.host.as_ref()];
        let both = || both.into_iter().flatten();
        both().find(|o| o.how == MaintenanceMode::Maintenance).or_else(|| both().next())
    }
}
