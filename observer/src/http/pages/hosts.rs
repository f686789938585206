//! The page of hosts: those that fit a filter.

use super::icons::{ORDER, place};
use super::table::{Cell, Table};
use crate::http::parameters::{HostsParameters, Parameters};
use crate::http::shared::ViewInput;
use askama::Template;
use fleet::views::{HostsView, ListedHost};
use schema::digest::Digest;
use schema::names::Role;
use schema::verdict::VerdictKind;

#[derive(Template)]
#[template(path = "hosts.html")]
pub(super) struct HostsPage {
    /// The filter in words.
    filter: String,
    host_count: usize,
    role: String,
    verdict: String,
    /// What the form keeps: the other parameters.
    others: Parameters,
    verdicts: [VerdictKind; 8],
    table: Table,
}

impl HostsPage {
    /// Returns the page of these hosts: by default those first that need somebody.
    pub(super) fn new(
        seen: &ViewInput<'_>,
        HostsParameters { filter, order, all }: &HostsParameters,
        parameters: &Parameters,
        cause: Option<&str>,
    ) -> Self {
        let mut view = HostsView::new(seen.fleet(), *all, seen.revision());
        view.keep(filter);
        view.sort(*order);
        if !parameters.iter().any(|(name, _)| name == "sort") {
            view.hosts.sort_by_key(|host| host.verdict.map_or(ORDER.len(), place));
        }
        if let Some(cause) = cause {
            view.hosts.retain(|host| is_of_cause(host, cause));
        }
        let words = parameters.iter().filter(|(name, value)| !value.is_empty() && name != "sort");
        let mut words: Vec<String> = words.map(|(name, value)| format!("{name} {value}")).collect();
        // The cause itself is a word for the program; the first host says it.
        let first_reason =
            view.hosts.first().and_then(|host| Some(format!("{}: {}", host.verdict?, host.reason.as_ref()?)));
        words.extend(cause.map(|_| first_reason.unwrap_or_else(|| "no host has this cause any more".into())));
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
            others: parameters
                .iter()
                .filter(|(name, _)| !["role", "verdict"].contains(&name.as_str()))
                .cloned()
                .collect(),
            verdicts: ORDER,
            table: table("hosts", "Hosts", &view.hosts)
                .json(super::table::with_parameters("/v1/hosts", pairs))
                .or_say("No host fits."),
        }
    }
}

/// Identifies hosts of one role that have the same verdict for the same reason, in the address of their list.
pub(super) fn cause_id(verdict: VerdictKind, role: Option<&Role>, reason: &str) -> String {
    let mut digest = Digest::default();
    digest.text(verdict.as_str()).text(role.map_or("", Role::as_str)).text(reason);
    format!("{:016x}", digest.finish())
}

fn is_of_cause(host: &ListedHost, cause: &str) -> bool {
    let reason = host.reason.as_deref().unwrap_or_default();
    host.verdict.is_some_and(|verdict| cause_id(verdict, host.role.as_ref(), reason) == cause)
}

/// Returns a table of hosts.
pub(super) fn table(id: &'static str, title: &str, hosts: &[ListedHost]) -> Table {
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
    Table::new(
        id,
        title,
        &["Host", "Verdict", "Role", "Version", "Reason", "Reported"],
        hosts.iter().map(row),
    )
}
