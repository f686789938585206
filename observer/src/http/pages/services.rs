//! The pages of services: how many instances work, and who waits for them.

use super::table::{Cell, Table, to_host};
use crate::http::fleet;
use crate::http::shared::ViewInput;
use ::fleet::WaitGraph;
use ::fleet::views::{
    CheckView, InstanceView, RootsView, ServiceCounts, ServiceView, ServicesView, WaitingFor,
};
use askama::Template;
use schema::health::Level;
use schema::names::{HostName, ServiceName};

/// Most root causes whose chain is shown.
const ROOTS_MAX: usize = 20;

#[derive(Template)]
#[template(path = "services.html")]
pub(super) struct ServicesPage {
    service_count: usize,
    roots: Vec<RootLine>,
    more_roots: usize,
    table: Table,
}

/// A root cause, and the way of one host to it.
struct RootLine {
    text: String,
    host_count: usize,
    first: Option<HostName>,
    /// The hosts from that one to the root, each with what it waits for.
    chain: Vec<(HostName, String)>,
}

impl ServicesPage {
    /// Returns the page of all services.
    pub(super) fn new(seen: &ViewInput<'_>) -> Self {
        let view = ServicesView::new(seen.catalog(), seen.revision());
        let graph = WaitGraph::of(seen.fleet(), seen.catalog(), seen.now);
        let roots = RootsView::new(&graph, seen.revision()).waiting;
        let row = |found: &ServiceCounts| {
            let tags: Vec<&str> = found.tags.iter().map(|tag| tag.as_str()).collect();
            [
                Cell::service(&found.service),
                Cell::number(found.functional_count),
                Cell::number(found.addressable_count),
                Cell::text(tags.join(", ")),
            ]
        };
        let table = Table::new(
            "services",
            "All services",
            &["Service", "Functional", "Addressable", "Tags"],
            view.services.iter().map(row),
        );
        let line = |found: &WaitingFor| {
            let first = found.hosts.first().cloned();
            let chain = first.iter().flat_map(|host| graph.chains(host));
            let chain = chain.filter(|chain| chain.root.clone().canonical() == found.root).take(1);
            let chain = chain.flat_map(|chain| chain.links).map(|(host, wait)| (host, wait.to_string()));
            RootLine {
                text: found.root.to_string(),
                host_count: found.hosts.len(),
                chain: chain.collect(),
                first,
            }
        };
        Self {
            service_count: view.services.len(),
            more_roots: roots.len().saturating_sub(ROOTS_MAX),
            roots: roots.iter().take(ROOTS_MAX).map(line).collect(),
            table: table.json("/v1/services").or_say("No host has a service."),
        }
    }
}

#[derive(Template)]
#[template(path = "service.html")]
pub(super) struct ServicePage {
    service: ServiceName,
    functional_count: usize,
    instance_count: usize,
    instances: Table,
    checks: Table,
}

impl ServicePage {
    /// Returns the page of one service.
    ///
    /// # Errors
    /// Returns why there is nothing to show.
    pub(super) fn new(seen: &ViewInput<'_>, service: &ServiceName) -> Result<Self, String> {
        let view: ServiceView = fleet::service_view(seen, service, true)?;
        let instance = |found: &InstanceView| {
            let addresses: Vec<String> = found.addresses.iter().map(ToString::to_string).collect();
            let tags: Vec<&str> = found.tags.iter().map(|tag| tag.as_str()).collect();
            let meta: Vec<String> =
                found.meta.iter().map(|(name, value)| format!("{name}={value}")).collect();
            [
                Cell::host(&found.host),
                Cell::text(found.health_text()),
                Cell::text(addresses.join(", ")),
                Cell::text(found.port.map(|port| port.to_string()).unwrap_or_default()),
                Cell::text(tags.join(", ")),
                Cell::text(meta.join(", ")),
            ]
        };
        let check = |found: &CheckView| {
            [
                Cell::host(&found.host),
                Cell::text(&found.check),
                Cell::text(found.status.to_string()),
                Cell::text(&found.output),
            ]
        };
        let functional = seen.catalog().service(service);
        let functional = functional.map_or(0, |service| service.at(Level::Functional, None).count());
        Ok(Self {
            functional_count: functional,
            instance_count: view.instances.len(),
            instances: Table::new(
                "instances",
                "Instances",
                &["Host", "Health", "Addresses", "Port", "Tags", "Metadata"],
                view.instances.iter().map(instance),
            )
            .json(format!("/v1/services/{service}?checks=true")),
            checks: Table::new(
                "checks",
                "Checks that do not pass",
                &["Host", "Check", "Status", "Output"],
                view.checks.iter().flatten().map(check),
            )
            .or_say("No report of these hosts names a check that fails."),
            service: service.clone(),
        })
    }
}
