//! The services of the catalog.

use crate::text::Text;
use catalog::{Instance, View};
use schema::health::Level;
use schema::names::{HostName, ServiceName, Tag};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

/// All services, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServicesView {
    /// The services.
    pub services: Vec<ServiceCounts>,
    /// The revision of the store at which the catalog was read.
    pub revision: i64,
}

/// How many instances a service has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServiceCounts {
    /// The name of the service.
    pub service: ServiceName,
    /// Number of functional instances.
    pub functional: usize,
    /// Number of addressable instances.
    pub addressable: usize,
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
                functional: count(Level::Functional),
                addressable: count(Level::Addressable),
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
            let ServiceCounts { service, functional, addressable, tags } = found;
            [service.to_string(), functional.to_string(), addressable.to_string(), list(tags)]
        };
        text.table(["SERVICE", "FUNCTIONAL", "ADDRESSABLE", "TAGS"], self.services.iter().map(row));
        text.fmt(f)
    }
}

/// One service with its instances, by host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServiceView {
    /// The name of the service.
    pub service: ServiceName,
    /// Its instances.
    pub instances: Vec<InstanceView>,
    /// The revision of the store at which the service was read.
    pub revision: i64,
}

/// An instance of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InstanceView {
    /// The name of the host.
    pub host: HostName,
    /// Its health in one word; see [`Instance::health_str`].
    pub health: &'static str,
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

impl ServiceView {
    /// Returns a service of a catalog; `None` if no host has it. `reason` says why an operator took the
    /// instance of a host out of use.
    pub fn new(
        service: &ServiceName,
        catalog: &View,
        reason: impl Fn(&HostName) -> Option<String>,
        revision: i64,
    ) -> Option<Self> {
        let instance = |(host, instance): (&HostName, &std::sync::Arc<Instance>)| InstanceView {
            host: host.clone(),
            health: instance.health_str(),
            reason: reason(host),
            addresses: instance.record.addresses.clone(),
            port: instance.record.port,
            tags: instance.record.tags.clone(),
            meta: instance.record.meta.clone(),
        };
        let instances = catalog.service(service)?.instances().iter().map(instance).collect();
        Some(Self { service: service.clone(), instances, revision })
    }
}

impl fmt::Display for ServiceView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Text::default();
        let row = |instance: &InstanceView| {
            let reason = instance.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
            [
                instance.host.to_string(),
                format!("{}{reason}", instance.health),
                list(&instance.addresses),
                instance.port.map_or("-".into(), |port| port.to_string()),
                list(&instance.tags),
            ]
        };
        text.table(["HOST", "HEALTH", "ADDRESSES", "PORT", "TAGS"], self.instances.iter().map(row));
        text.fmt(f)
    }
}

/// Returns values with commas between them, or a dash if there is none.
fn list<T: ToString>(values: impl IntoIterator<Item = T>) -> String {
    let values: Vec<String> = values.into_iter().map(|value| value.to_string()).collect();
    if values.is_empty() { "-".into() } else { values.join(",") }
}
