//! The hosts that are not ok, by what keeps them from it.

use crate::bundles::{NewestBundles, UploadedBundle};
use crate::facts::HostFacts;
use crate::state::Fleet;
use crate::verdict::FleetVerdict;
use crate::views::hosts::since;
use planning::calendar::rfc3339;
use schema::names::{HostName, Role};
use schema::verdict::VerdictKind;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// The verdict of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HostVerdictView {
    /// The name of the host.
    pub host: HostName,
    /// The verdict in one word.
    pub verdict: VerdictKind,
    /// The details.
    pub reason: String,
    /// Its role.
    pub role: Option<Role>,
    /// When it last reported that something changed (RFC 3339).
    pub reported_at: Option<String>,
}

impl HostVerdictView {
    /// Returns the verdict of a host of a fleet.
    pub fn new(host: &HostName, verdict: &FleetVerdict, fleet: &Fleet) -> Self {
        let facts = fleet.hosts().get(host);
        let roster = facts.and_then(|facts| facts.roster.as_ref());
        let report = facts.and_then(HostFacts::readable_report);
        Self {
            host: host.clone(),
            verdict: verdict.kind(),
            reason: verdict.message(),
            role: roster.and_then(|entry| entry.role.clone()),
            reported_at: report.and_then(|report| rfc3339(report.at)),
        }
    }
}

/// Hosts of one role that have the same verdict for the same reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Cause {
    /// The verdict in one word.
    pub verdict: VerdictKind,
    /// The reason.
    pub reason: String,
    /// The role of the hosts.
    pub role: Option<Role>,
    /// The hosts, by name.
    pub hosts: Vec<HostName>,
    /// The oldest of their last reports (RFC 3339); `None` if none has reported.
    pub reported_at: Option<String>,
    /// The bundles about what failed on these hosts; empty if they have not failed. Hosts whose steps fail with the
    /// same exit code may have failed for different reasons, each with a bundle.
    pub bundles: Vec<UploadedBundle>,
}

/// Most characters of the names in a row of more than one host. A row with longer ones has only their number.
const NAMES_MAX: usize = 24;

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [hosts, _, verdict, _, reason] = self.row();
        write!(f, "{hosts}: {verdict}: {reason}")
    }
}

impl Cause {
    /// The header of [`Self::row`].
    pub(super) const HEADER: [&'static str; 5] = ["HOST", "ROLE", "VERDICT", "SINCE", "REASON"];

    /// Groups hosts of a fleet: the worst verdict first, then the cause of the most hosts. Every host is in one group.
    pub fn all(hosts: &[HostVerdictView], fleet: &Fleet) -> Vec<Self> {
        let mut causes: BTreeMap<_, Self> = BTreeMap::new();
        for HostVerdictView { host, verdict, reason, role, reported_at } in hosts {
            let cause = causes.entry((verdict, reason, role)).or_insert_with(|| Self {
                verdict: *verdict,
                reason: reason.clone(),
                role: role.clone(),
                hosts: Vec::new(),
                reported_at: reported_at.clone(),
                bundles: Vec::new(),
            });
            cause.hosts.push(host.clone());
            cause.reported_at = cause.reported_at.take().into_iter().chain(reported_at.clone()).min();
        }
        let mut causes = Vec::from_iter(causes.into_values());
        causes.sort_by_key(|cause| std::cmp::Reverse((cause.verdict, cause.hosts.len())));
        let bundles = NewestBundles::of(fleet);
        let has_failed =
            |cause: &&mut Self| matches!(cause.verdict, VerdictKind::Failed | VerdictKind::Suspect);
        for cause in causes.iter_mut().filter(has_failed) {
            cause.bundles = bundles.of_hosts(&cause.hosts, fleet);
        }
        causes
    }

    /// True if its row does not name the hosts.
    pub(super) fn is_long(&self) -> bool {
        let characters: usize = self.hosts.iter().map(|host| host.as_str().len() + ", ".len()).sum();
        self.hosts.len() > 1 && characters > NAMES_MAX
    }

    /// Returns the cause as a row of a table of this width, with the lines below it, which name its bundles.
    pub(super) fn noted_row(&self, width: Option<usize>) -> ([String; 5], Vec<String>) {
        (self.row(), self.bundles.iter().map(|bundle| bundle.line(width)).collect())
    }

    /// Returns the cause as a row of a table.
    fn row(&self) -> [String; 5] {
        let names: Vec<&str> = self.hosts.iter().map(HostName::as_str).collect();
        let hosts = if self.is_long() { format!("{} hosts", names.len()) } else { names.join(", ") };
        let role = self.role.as_ref().map_or("-".into(), Role::to_string);
        let since = since(Some(self.verdict), self.reported_at.as_deref());
        [hosts, role, self.verdict.to_string(), since, self.reason.clone()]
    }
}
