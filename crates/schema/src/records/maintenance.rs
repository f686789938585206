//! `/orchestrate/maintenance/<host>`: an operator's marks on the instances of a host.

use crate::names::ServiceName;
use crate::time::EpochSeconds;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `/orchestrate/maintenance/<host>`: an operator's marks on the instances of a host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Maintenance {
    /// Mark that holds for all services of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<MaintenanceEntry>,
    /// Marks that hold for single services.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub services: BTreeMap<ServiceName, MaintenanceEntry>,
}

/// One mark, with its reason and time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaintenanceEntry {
    /// Whether the mark means maintenance or draining.
    pub how: MaintenanceMode,
    /// Reason that the operator gave.
    #[serde(default)]
    pub reason: String,
    /// When the mark was set.
    pub at: EpochSeconds,
}

/// The kind of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MaintenanceMode {
    /// The instance counts as critical.
    Maintenance,
    /// The instance takes no new work.
    Draining,
}

impl MaintenanceMode {
    /// Returns the kind in one word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Maintenance => "maintenance",
            Self::Draining => "draining",
        }
    }
}

impl Maintenance {
    /// True if nothing is marked.
    pub fn is_empty(&self) -> bool {
        self.host.is_none() && self.services.is_empty()
    }

    /// Returns the mark that holds for a service: its own or that of the host. Maintenance takes
    /// precedence over draining.
    pub fn of(&self, service: &ServiceName) -> Option<&MaintenanceEntry> {
        let both = [self.services.get(service), self.host.as_ref()];
        let both = || both.into_iter().flatten();
        both().find(|o| o.how == MaintenanceMode::Maintenance).or_else(|| both().next())
    }
}
