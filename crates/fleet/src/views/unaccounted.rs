//! The unaccounted hosts.

use super::hosts::HostFilter;
use crate::state::Fleet;
use crate::text::Text;
use crate::verdict::Unaccounted;
use planning::calendar::rfc3339;
use schema::names::HostName;
use schemars::JsonSchema;
use serde::Serialize;

/// The unaccounted hosts, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UnaccountedView {
    /// The hosts.
    pub unaccounted: Vec<UnaccountedHost>,
    /// The revision of the store at which the fleet was read.
    pub revision: i64,
}

/// An unaccounted host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UnaccountedHost {
    /// The name of the host.
    pub host: HostName,
    /// Why it is unaccounted.
    pub how: Unaccounted,
    /// The details of its verdict.
    pub reason: String,
    /// When it reported last (RFC 3339), if it has a report that can be read.
    pub reported_at: Option<String>,
}

impl UnaccountedView {
    /// Returns the unaccounted hosts of a fleet that are meant.
    pub fn new(fleet: &Fleet, filter: &HostFilter, revision: i64) -> Self {
        let of = |(host, verdict): (&HostName, &crate::FleetVerdict)| {
            let facts =
                fleet.hosts().get(host).filter(|facts| filter.includes_entry(facts.roster.as_ref()))?;
            let report = facts.readable_report();
            Some(UnaccountedHost {
                host: host.clone(),
                how: verdict.unaccounted()?,
                reason: verdict.message(),
                reported_at: report.and_then(|report| rfc3339(report.at)),
            })
        };
        Self { unaccounted: fleet.verdicts().iter().filter_map(of).collect(), revision }
    }
}

impl UnaccountedView {
    /// Returns the hosts as a table, in which the reasons are cut to this width.
    pub fn text(&self, width: Option<usize>) -> Text {
        let mut text = Text::default();
        let row = |found: &UnaccountedHost| {
            let UnaccountedHost { host, how, reason, reported_at } = found;
            let reported_at = reported_at.as_deref().unwrap_or("never");
            // The word says it all.
            let reason = if *how == Unaccounted::NeverSeen { "-" } else { reason.as_str() };
            [host.to_string(), how.to_string(), reported_at.to_owned(), reason.to_owned()]
        };
        text.table_within(width, ["HOST", "HOW", "REPORTED AT", "REASON"], self.unaccounted.iter().map(row));
        text
    }
}
