//! The page of a search: hosts and services by a part of their names.

use super::table::{Cell, Table};
use crate::http::shared::Seen;
use askama::Template;
use planning::fleet::views::HostsView;

#[derive(Template)]
#[template(path = "search.html")]
pub(super) struct SearchPage {
    text: String,
    hosts: Table,
    services: Table,
}

impl SearchPage {
    /// Returns what has this text in its name.
    pub(super) fn new(seen: &Seen<'_>, text: &str) -> Self {
        let wanted = text.to_ascii_lowercase();
        let fits = |name: &str| name.to_ascii_lowercase().contains(&wanted);
        let mut hosts = HostsView::new(seen.fleet(), true, seen.revision()).hosts;
        hosts.retain(|host| fits(host.host.as_str()));
        let services = seen.catalog().services().keys().filter(|name| fits(name.as_str()));
        let services = services.map(|name| [Cell::service(name)]);
        Self {
            hosts: super::hosts::table(("hosts", "Hosts"), &hosts).or_say("No host has this in its name."),
            services: Table::new(("services", "Services"), &["Service"], services)
                .or_say("No service has this in its name."),
            text: text.to_owned(),
        }
    }
}
