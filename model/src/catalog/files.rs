//! The catalog as files: the YAML that Hiera reads, and the JSON that survives a restart of the agent.

use super::{Catalog, CatalogFact, GuardSettings, Health, ServiceRecord, View};
use crate::names::{HostName, InterfaceName, ServiceName};
use crate::time::BootMillis;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;

/// The addresses of each interface of each service: what the YAML holds.
pub fn hiera_entries(view: &View) -> BTreeMap<(ServiceName, InterfaceName), BTreeSet<IpAddr>> {
    let mut entries: BTreeMap<_, BTreeSet<IpAddr>> = BTreeMap::new();
    for (name, service) in view.services() {
        for instance in service.instances().values().filter(|instance| !instance.is_withdrawn()) {
            for (interface, addresses) in &instance.record.interfaces {
                let key = (name.clone(), interface.clone());
                entries.entry(key).or_default().extend(addresses.iter().copied());
            }
        }
    }
    entries
}

/// `services::<service>::<interface>: [address, …]`, one line each. IPv4 stands plain, everything else in single quotes,
/// so that every reader of YAML takes it for text (contract C22).
pub fn hiera_yaml(view: &View) -> String {
    let mut lines: Vec<(String, String)> = Vec::new();
    for ((service, interface), addresses) in hiera_entries(view) {
        let mut list = String::new();
        for address in addresses {
            let separator = if list.is_empty() { "" } else { ", " };
            // Writing to a string does not fail.
            let _ = match address {
                IpAddr::V4(ip) => write!(list, "{separator}{ip}"),
                IpAddr::V6(ip) => write!(list, "{separator}'{ip}'"),
            };
        }
        lines.push((format!("services::{service}::{interface}"), list));
    }
    // By the whole key, as a reader sorts it.
    lines.sort();
    if lines.is_empty() {
        return "{}\n".into();
    }
    lines.into_iter().map(|(key, list)| format!("{key}: [{list}]\n")).collect()
}

/// The services of which a new file would lose so much against the old one that a fault is likelier than
/// the truth, each with how many addresses it loses and how many it had.
pub fn vanished_entries(old: &str, new: &View, guard: &GuardSettings) -> Vec<(ServiceName, usize, usize)> {
    let mut before: BTreeMap<ServiceName, BTreeSet<(String, IpAddr)>> = BTreeMap::new();
    for line in old.lines() {
        let Some((key, list)) = line.strip_prefix("services::").and_then(|rest| rest.split_once(": ["))
        else {
            continue;
        };
        let Some((service, interface)) = key.split_once("::") else { continue };
        let Ok(service) = ServiceName::new(service) else { continue };
        let addresses = list.trim_end_matches(']').split(", ");
        let addresses = addresses.filter_map(|text| text.trim_matches('\'').parse::<IpAddr>().ok());
        let entries = addresses.map(|address| (interface.to_owned(), address));
        before.entry(service).or_default().extend(entries);
    }
    let mut after: BTreeMap<ServiceName, BTreeSet<(String, IpAddr)>> = BTreeMap::new();
    for ((service, interface), addresses) in hiera_entries(new) {
        let entries = addresses.into_iter().map(|address| (interface.as_str().to_owned(), address));
        after.entry(service).or_default().extend(entries);
    }
    let had_in_all = before.values().map(BTreeSet::len).sum();
    let lost = before.into_iter().map(|(service, had)| {
        let has = after.remove(&service).unwrap_or_default();
        (service, had.difference(&has).count(), had.len())
    });
    let lost: Vec<_> = lost.filter(|(_, lost, _)| *lost > 0).collect();
    let sum = |part: fn(&(ServiceName, usize, usize)) -> usize| lost.iter().map(part).sum::<usize>();
    // Many services that lose little each lose much together.
    if guard.is_cliff(sum(|l| l.1), had_in_all) {
        return lost;
    }
    lost.into_iter().filter(|(_, lost, had)| guard.is_cliff(*lost, *had)).collect()
}

/// The catalog as it is kept on disk: what is served while the store is away, also across restarts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CachedCatalog {
    /// The revision of the store at which this was last different.
    pub revision: i64,
    /// The instances of each service.
    pub services: BTreeMap<ServiceName, Vec<CachedInstance>>,
}

/// One instance on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachedInstance {
    /// On this host.
    pub host: HostName,
    /// Where it is.
    #[serde(flatten)]
    pub record: CachedRecord,
    /// Its health, if that is followed here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// An agent keeps it.
    pub leased: bool,
}

/// A record within an instance, whose host stands beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "ServiceRecord", into = "ServiceRecord")]
pub struct CachedRecord(pub Arc<ServiceRecord>);

impl From<ServiceRecord> for CachedRecord {
    fn from(record: ServiceRecord) -> Self {
        Self(Arc::new(record))
    }
}

impl From<CachedRecord> for ServiceRecord {
    fn from(record: CachedRecord) -> Self {
        Self { host: None, ..record.0.as_ref().clone() }
    }
}

impl CachedCatalog {
    /// What is kept of a view.
    pub fn of(view: &View, revision: i64) -> Self {
        let services = view.services().iter().map(|(name, service)| {
            let instances = service.instances().iter().map(|(host, instance)| CachedInstance {
                host: host.clone(),
                record: CachedRecord(instance.record.clone()),
                health: instance.health,
                leased: instance.leased,
            });
            (name.clone(), instances.collect())
        });
        Self { revision, services: services.collect() }
    }

    /// The catalog that it stood for; it is not known to be true now.
    pub fn restore(self, guard: GuardSettings, now: BootMillis) -> Catalog {
        let mut catalog = Catalog::new(guard);
        for (service, instances) in self.services {
            let is_followed = instances.iter().any(|i| i.health.is_some());
            for CachedInstance { host, record, health, leased } in instances {
                let fact = CatalogFact::Record(Some((record.0, leased)));
                catalog.apply(&service, &host, fact, now);
                if health.is_some() {
                    catalog.apply(&service, &host, CatalogFact::Health(health), now);
                }
            }
            if is_followed {
                catalog.view.note_health_known(&service);
            }
        }
        catalog.view.note_records_known();
        catalog.settle(now, true);
        catalog
    }
}
