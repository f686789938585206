//! The page of hosts: those that fit a filter.

use super::marks::{ORDER, place};
use super::table::{Cell, Table};
use crate::http::parameters::{HostsParameters, Parameters};
use crate::http::shared::Seen;
use askama::Template;
use planning::fleet::views::{HostOrder, HostsView, ListedHost};
use schema::verdict::VerdictKind;

#[derive(Template)]
#[template(path = "hosts.html")]
pub(super) struct HostsPage {
    /// The filter in words.
    filter: String,
    host_count: usize,
    role: String,
    verdict: String,
    verdicts: [VerdictKind; 8],
    table: Table,
}

impl HostsPage {
    /// Returns the page of these hosts: by default those first that need somebody.
    pub(super) fn new(
        seen: &Seen<'_>,
        HostsParameters { filter, order, all }: &HostsParameters,
        parameters: &Parameters,
    ) -> Self {
        let mut view = HostsView::new(seen.fleet(), *all, seen.revision());
        view.keep(filter);
        view.sort(*order);
        if *order == HostOrder::Host {
            view.hosts.sort_by_key(|host| host.verdict.map(place));
        }
        let words = parameters.iter().filter(|(name, value)| !value.is_empty() && name != "sort");
        let words: Vec<String> = words.map(|(name, value)| format!("{name} {value}")).collect();
        let pairs = parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let first = |wanted: &str| {
            let found = parameters.iter().find(|(name, _)| name == wanted);
            found.map(|(_, value)| value.clone()).unwrap_or_default()
        };
        Self {
            filter: words.join(", "),
            host_count: view.hosts.len(),
            role: first("role"),
            verdict: first("verdict"),
            verdicts: ORDER,
            table: table(("hosts", "Hosts"), &view.hosts)
                .json(super::table::with_parameters("/v1/hosts", pairs))
                .or_say("No host fits."),
        }
    }
}

/// Returns a table of hosts.
pub(super) fn table(title: (&'static str, &str), hosts: &[ListedHost]) -> Table {
    let row = |host: &ListedHost| {
        let versions: Vec<&str> = host.listed_under.iter().map(|version| version.as_str()).collect();
        let role = host.role.as_ref().map(ToString::to_string).unwrap_or_default();
        [
            Cell::host(&host.host),
            host.verdict.map_or_else(|| Cell::text("decommissioned"), Cell::Verdict),
            Cell::text(role),
            Cell::text(versions.join(", ")),
            Cell::text(host.reason.clone().unwrap_or_default()),
            Cell::time(host.reported_at.as_deref()),
        ]
    };
    Table::new(title, &["Host", "Verdict", "Role", "Version", "Reason", "Reported"], hosts.iter().map(row))
}
