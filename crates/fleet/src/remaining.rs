//! What remains of services when an operator takes a host, or a service on it, out of use.

use catalog::View;
use schema::health::Level;
use schema::keys::{self, Key};
use schema::names::{HostName, ServiceName};
use schema::snapshot::KeySnapshot;
use schemars::JsonSchema;
use serde::Serialize;

/// What remains of a service without the instance on one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Remaining {
    /// The name of the service.
    pub service: ServiceName,
    /// Number of functional instances on other hosts.
    pub functional_count: usize,
    /// Number of all instances, with that of the host.
    pub instance_count: usize,
    /// True if the instance of the host is the only functional one.
    #[serde(skip)]
    pub takes_last: bool,
    /// One of the hosts with another functional instance.
    #[serde(skip)]
    pub other: Option<HostName>,
}

/// Returns what remains of the services that a host has, or of one of them. `found` holds the marks of operators:
/// an instance with a mark does not count, even if its host has not acted on the mark yet.
pub fn remaining(
    catalog: &View,
    found: &KeySnapshot,
    host: &HostName,
    only: Option<&ServiceName>,
) -> Vec<Remaining> {
    let of_host = catalog.services().iter().filter(|(name, service)| {
        service.instances().contains_key(host) && only.is_none_or(|only| only == *name)
    });
    let has_mark = |host: &HostName, service: &ServiceName| {
        let entry = found.get(&Key::Maintenance(host.clone()));
        let marks = entry.and_then(|entry| keys::Maintenance::read(&entry.value).ok());
        marks.is_some_and(|marks| marks.of(service).is_some())
    };
    of_host
        .map(|(name, service)| {
            let functional = service.at(Level::Functional, None).map(|(host, _)| host);
            let functional: Vec<&HostName> = functional.filter(|host| !has_mark(host, name)).collect();
            let others: Vec<&HostName> = functional.iter().copied().filter(|other| *other != host).collect();
            Remaining {
                service: name.clone(),
                functional_count: others.len(),
                instance_count: service.instances().len(),
                takes_last: others.is_empty() && functional.contains(&host),
                other: others.first().map(|other| (*other).clone()),
            }
        })
        .collect()
}
