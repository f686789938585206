//! The services of the catalog.

use crate::text::Text;
use catalog::{Instance, View};
use schema::health::{CheckStatus, Level};
use schema::keys::{self, Key};
use schema::names::{HostName, ServiceName, Tag};
use schema::records::{FailingCheck, MaintenanceEntry, MaintenanceMode};
use schema::snapshot::KeySnapshot;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

/// All services, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ServicesView {
    /// The services.
    pub services: Vec<ServiceCounts>,
    /// The revision of the store at which the catalog was read.
    pub revision: i64,
}

/// How many instances a service has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ServiceCounts {
    /// The name of the service.
    pub service: ServiceName,
    /// Number of functional instances.
    pub functional_count: usize,
    /// Number of addressable instances.
    pub addressable_count: usize,
    /// The tags of all instances.
    pub tags: BTreeSet<Tag>,
}

impl ServicesView {
    /// Returns the services of a catalog.
    pub fn new(catalog: &View, revision: i64) -> Self {
        let services = catalog.services().iter().map(|(name, service)| {
            let count = |level| service.at(level, None).count();
            ServiceCounts {
                service: name.clone(),
                functional_count: count(Level::Functional),
                addressable_count: count(Level::Addressable),
                tags: service.instances().values().flat_map(|i| i.record.tags.iter().cloned()).collect(),
            }
        });
        Self { services: services.collect(), revision }
    }
}

impl fmt::Display for ServicesView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Text::default();
        let row = |found: &ServiceCounts| {
            let ServiceCounts { service, functional_count, addressable_count, tags } = found;
            [service.to_string(), functional_count.to_string(), addressable_count.to_string(), list(tags)]
        };
        text.table(["SERVICE", "FUNCTIONAL", "ADDRESSABLE", "TAGS"], self.services.iter().map(row));
        text.fmt(f)
    }
}

/// One service with its instances, by host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ServiceView {
    /// The name of the service.
    pub service: ServiceName,
    /// Its instances.
    pub instances: Vec<InstanceView>,
    /// The checks that do not pass, of its instances and of their hosts; `None` if nobody asked.
    pub checks: Option<Vec<CheckView>>,
    /// The revision of the store at which the service was read.
    pub revision: i64,
}

/// A check of a host that does not pass, as its last report has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CheckView {
    /// The name of the host.
    pub host: HostName,
    /// The name of the check.
    pub check: String,
    /// Its result.
    pub status: CheckStatus,
    /// The last line of its output; empty if it printed nothing.
    pub output: String,
}

/// An instance of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct InstanceView {
    /// The name of the host.
    pub host: HostName,
    /// Its health in one word; see [`Instance::health_str`].
    pub health: &'static str,
    /// How an operator took it out of use.
    pub maintenance: Option<MaintenanceMode>,
    /// Why an operator took it out of use.
    pub reason: Option<String>,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Its port.
    pub port: Option<u16>,
    /// Its tags.
    pub tags: BTreeSet<Tag>,
    /// Its metadata.
    pub meta: BTreeMap<String, String>,
}

impl InstanceView {
    /// Returns the health, and how and why an operator took the instance out of use.
    pub fn health_text(&self) -> String {
        let is_in_maintenance = self.maintenance == Some(MaintenanceMode::Maintenance);
        let why = match (is_in_maintenance, &self.reason) {
            (true, Some(reason)) => format!(" (maintenance: {reason})"),
            (true, None) => " (maintenance)".into(),
            (false, Some(reason)) => format!(" ({reason})"),
            (false, None) => String::new(),
        };
        format!("{}{why}", self.health)
    }
}

impl ServiceView {
    /// Returns a service of a catalog; `None` if no host has it. `mark` returns the operator's mark for the
    /// instance of a host.
    pub fn new(
        service: &ServiceName,
        catalog: &View,
        mark: impl Fn(&HostName) -> Option<MaintenanceEntry>,
        revision: i64,
    ) -> Option<Self> {
        let instance = |(host, instance): (&HostName, &std::sync::Arc<Instance>)| {
            let (maintenance, reason) = mark(host).map(|mark| (mark.how, mark.reason)).unzip();
            InstanceView {
                host: host.clone(),
                health: instance.health_str(),
                maintenance,
                reason: reason.filter(|reason| !reason.is_empty()),
                addresses: instance.record.addresses.clone(),
                port: instance.record.port,
                tags: instance.record.tags.clone(),
                meta: instance.record.meta.clone(),
            }
        };
        let instances = catalog.service(service)?.instances().iter().map(instance).collect();
        Some(Self { service: service.clone(), instances, checks: None, revision })
    }

    /// Adds the checks that do not pass, by the reports of the hosts. Returns the hosts without a report that can
    /// be read.
    pub fn add_checks(&mut self, reports: &KeySnapshot) -> Vec<HostName> {
        let mut without = Vec::new();
        let of_host = |instance: &InstanceView| {
            let entry = reports.get(&Key::Report(instance.host.clone()));
            let report = entry.and_then(|entry| keys::Report::read(&entry.value).ok());
            if report.is_none() {
                without.push(instance.host.clone());
            }
            let checks = report.map(|report| report.checks).unwrap_or_default();
            let of_service = checks
                .into_iter()
                .filter(|found| found.service.as_ref().is_none_or(|service| *service == self.service));
            let view = |FailingCheck { check, status, line, .. }| CheckView {
                host: instance.host.clone(),
                check,
                status,
                output: line,
            };
            of_service.map(view).collect::<Vec<_>>()
        };
        self.checks = Some(self.instances.iter().flat_map(of_host).collect());
        without
    }
}

impl fmt::Display for ServiceView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Text::default();
        let row = |instance: &InstanceView| {
            [
                instance.host.to_string(),
                instance.health_text(),
                list(&instance.addresses),
                instance.port.map_or("-".into(), |port| port.to_string()),
                list(&instance.tags),
            ]
        };
        text.table(["HOST", "HEALTH", "ADDRESSES", "PORT", "TAGS"], self.instances.iter().map(row));
        let row = |found: &CheckView| {
            let CheckView { host, check, status, output } = found;
            [host.to_string(), check.clone(), status.to_string(), output.clone()]
        };
        text.section(["HOST", "CHECK", "STATUS", "OUTPUT"], self.checks.iter().flatten().map(row));
        text.fmt(f)
    }
}

/// Returns values with commas between them, or a dash if there is none.
fn list<T: ToString>(values: impl IntoIterator<Item = T>) -> String {
    let values: Vec<String> = values.into_iter().map(|value| value.to_string()).collect();
    if values.is_empty() { "-".into() } else { values.join(",") }
}
