//! Hosts and services that operators took out of use.

use planning::calendar::rfc3339;
use schema::keys::{self, Key, Prefix};
use schema::names::{HostName, ServiceName};
use schema::records::{Maintenance, MaintenanceEntry, MaintenanceMode};
use schema::snapshot::KeySnapshot;
use schemars::JsonSchema;
use serde::Serialize;

/// A host, or a service on it, that an operator took out of use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MaintenanceView {
    /// The name of the host.
    pub host: HostName,
    /// The name of the service; `None` if it is the whole host.
    pub service: Option<ServiceName>,
    /// Whether it is in maintenance or draining.
    pub how: MaintenanceMode,
    /// The operator's reason, if one was given.
    pub reason: Option<String>,
    /// Since when (RFC 3339).
    pub since: Option<String>,
}

impl MaintenanceView {
    /// Returns everything that a snapshot shows to be out of use.
    pub fn all(found: &KeySnapshot) -> Vec<Self> {
        let of = |(key, entry): (&String, &schema::snapshot::Entry)| match Key::parse(key) {
            Ok(Key::Maintenance(host)) => Some(Self::of(&host, &keys::Maintenance::read(&entry.value).ok()?)),
            _ => None,
        };
        found.in_range(&Prefix::Maintenances).filter_map(of).flatten().collect()
    }

    /// Returns what is out of use on a host.
    pub fn of(host: &HostName, found: &Maintenance) -> Vec<Self> {
        let one = |service: Option<&ServiceName>, entry: &MaintenanceEntry| Self {
            host: host.clone(),
            service: service.cloned(),
            how: entry.how,
            reason: Some(entry.reason.clone()).filter(|reason| !reason.is_empty()),
            since: rfc3339(entry.at),
        };
        let all = found.host.iter().map(|entry| one(None, entry));
        all.chain(found.services.iter().map(|(name, entry)| one(Some(name), entry))).collect()
    }

    /// Returns it on a line, without the host.
    pub(super) fn line(&self) -> String {
        let [_, _, how, since, _] = self.row();
        let of = self.service.as_ref().map(|service| format!("{service} ")).unwrap_or_default() + &how;
        let reason = self.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        format!("{of} since {since}{reason}")
    }

    pub(super) fn row(&self) -> [String; 5] {
        let how = match self.how {
            MaintenanceMode::Maintenance => "maintenance",
            MaintenanceMode::Draining => "draining",
        };
        let since = self.since.clone().unwrap_or_default();
        let service = self.service.as_ref().map_or("all".into(), ServiceName::to_string);
        [self.host.to_string(), service, how.into(), since, self.reason.clone().unwrap_or_default()]
    }
}
