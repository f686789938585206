//! The page of a search: hosts and services by a part of their names.

use super::table::{Cell, Table, to_host, to_service};
use crate::http::shared::ViewInput;
use crate::observed::Observed;
use askama::Template;
use fleet::views::HostsView;
use schema::names::{HostName, ServiceName};

#[derive(Template)]
#[template(path = "search.html")]
pub(super) struct SearchPage {
    text: String,
    hosts: Table,
    services: Table,
}

/// Returns where the host or the service with exactly this name is shown.
pub(super) fn exact(observed: &Observed, name: &str) -> Option<String> {
    let host = HostName::folded(name).ok().filter(|host| observed.fleet.hosts().contains_key(host));
    let service = ServiceName::new(name).ok();
    let service = service.filter(|name| observed.catalog().services().contains_key(name));
    host.map(|host| to_host(&host)).or_else(|| service.map(|service| to_service(&service)))
}

impl SearchPage {
    /// Returns what has this text in its name.
    pub(super) fn new(seen: &ViewInput<'_>, text: &str) -> Self {
        let wanted = text.to_ascii_lowercase();
        let fits = |name: &str| name.to_ascii_lowercase().contains(&wanted);
        let mut hosts = HostsView::new(seen.fleet(), true, seen.revision()).hosts;
        hosts.retain(|host| fits(host.host.as_str()));
        let services = seen.catalog().services().keys().filter(|name| fits(name.as_str()));
        let services = services.map(|name| [Cell::service(name)]);
        Self {
            hosts: super::hosts::table("hosts", "Hosts", &hosts).or_say("No host has this in its name."),
            services: Table::new("services", "Services", &["Service"], services)
                .or_say("No service has this in its name."),
            text: text.to_owned(),
        }
    }
}
