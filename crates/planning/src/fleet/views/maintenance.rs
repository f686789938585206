//! Hosts and services that operators took out of use.

use crate::text::rfc3339;
use schema::codec;
use schema::keys::Key;
use schema::names::HostName;
use schema::records::{Maintenance, MaintenanceEntry, MaintenanceMode};
use schema::snapshot::KeySnapshot;
use serde::Serialize;

/// A host, or a service on it, that an operator took out of use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MaintenanceView {
    /// The name of the host.
    pub host: HostName,
    /// The name of the service; `all` if it is the whole host.
    pub service: String,
    /// Whether it is in maintenance or draining.
    pub how: MaintenanceMode,
    /// The operator's reason.
    pub reason: String,
    /// Since when (RFC 3339).
    pub since: Option<String>,
}

impl MaintenanceView {
    /// Returns everything that a snapshot shows to be out of use.
    pub fn all(found: &KeySnapshot) -> Vec<Self> {
        let of = |(key, entry): (&String, &schema::snapshot::Entry)| match Key::parse(key) {
            Ok(Key::Maintenance(host)) => Some(Self::of(&host, &codec::read(&entry.value).ok()?)),
            _ => None,
        };
        found.entries.iter().filter_map(of).flatten().collect()
    }

    /// Returns what is out of use on a host.
    pub fn of(host: &HostName, found: &Maintenance) -> Vec<Self> {
        let one = |service: &str, entry: &MaintenanceEntry| Self {
            host: host.clone(),
            service: service.to_owned(),
            how: entry.how,
            reason: entry.reason.clone(),
            since: rfc3339(entry.at),
        };
        let all = found.host.iter().map(|entry| one("all", entry));
        all.chain(found.services.iter().map(|(name, entry)| one(name.as_str(), entry))).collect()
    }

    /// Returns it on a line, without the host.
    pub(super) fn line(&self) -> String {
        let [_, service, how, since, reason] = self.row();
        let of = if service == "all" { how } else { format!("{service} {how}") };
        let reason = if reason.is_empty() { reason } else { format!(": {reason}") };
        format!("{of} since {since}{reason}")
    }

    pub(super) fn row(&self) -> [String; 5] {
        let how = match self.how {
            MaintenanceMode::Maintenance => "maintenance",
            MaintenanceMode::Draining => "draining",
        };
        let since = self.since.clone().unwrap_or_default();
        [self.host.to_string(), self.service.clone(), how.into(), since, self.reason.clone()]
    }
}
