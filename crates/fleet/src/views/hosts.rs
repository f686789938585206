//! All hosts of the fleet, one row each.

use crate::facts::HostFacts;
use crate::state::Fleet;
use crate::text::Text;
use planning::calendar::rfc3339;
use schema::names::{HostName, Role, Version, quoted};
use schema::records::RosterEntry;
use schema::verdict::VerdictKind;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The hosts of the fleet, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HostsView {
    /// The hosts.
    pub hosts: Vec<ListedHost>,
    /// The revision of the store at which the fleet was read.
    pub revision: i64,
}

/// A host of the fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ListedHost {
    /// The name of the host.
    pub host: HostName,
    /// Its role.
    pub role: Option<Role>,
    /// Its group.
    pub group: Option<Role>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Since when it has been on the roster (RFC 3339); `None` if it is not, or if its entry cannot be read.
    pub added_at: Option<String>,
    /// When an operator decommissioned it (RFC 3339); `None` if it is part of the fleet.
    pub decommissioned_at: Option<String>,
    /// True if its agent runs.
    pub live: bool,
    /// The version of its agent, if that runs.
    pub agent_version: Option<String>,
    /// The versions under which it is listed: one as a rule, none while it is updated.
    pub listed_under: Vec<Version>,
    /// The version that it was last proven to run, by its report.
    pub installed: Option<Version>,
    /// Its verdict; `None` if it is decommissioned.
    pub verdict: Option<VerdictKind>,
    /// The reason of the verdict; `None` if the host is ok or decommissioned.
    pub reason: Option<String>,
    /// When it last reported that something changed (RFC 3339).
    pub reported_at: Option<String>,
}

/// Which hosts are meant. An empty list means all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostFilter {
    /// Roles, of which one is the host's.
    pub roles: Vec<Role>,
    /// Groups, of which one is the host's.
    pub groups: Vec<Role>,
    /// Labels that the host has, all of them.
    pub labels: Vec<(String, String)>,
    /// Verdicts, of which one is the host's.
    pub verdicts: Vec<VerdictKind>,
}

/// The column by which hosts are sorted. Equal ones are sorted by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HostOrder {
    /// By name.
    #[default]
    Host,
    /// By role.
    Role,
    /// By version; hosts that are not listed come first.
    Version,
    /// By verdict, the worst first.
    Verdict,
    /// By their last report, the oldest first.
    Since,
}

impl HostOrder {
    /// The columns by which hosts can be sorted.
    pub const ALL: [Self; 5] = [Self::Host, Self::Role, Self::Version, Self::Verdict, Self::Since];

    /// Returns the name of the column.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Role => "role",
            Self::Version => "version",
            Self::Verdict => "verdict",
            Self::Since => "since",
        }
    }
}

impl HostsView {
    /// Returns the hosts of a fleet, if wanted with those that operators decommissioned.
    pub fn new(fleet: &Fleet, with_decommissioned: bool, revision: i64) -> Self {
        let verdicts = fleet.verdicts();
        let members = fleet.hosts().iter().map(|(host, facts)| {
            let verdict = verdicts.get(host);
            let reason = verdict.map(|verdict| verdict.message()).filter(|reason| !reason.is_empty());
            ListedHost {
                verdict: verdict.map(|verdict| verdict.kind()),
                reason,
                ..ListedHost::of(host, facts)
            }
        });
        let mut hosts: Vec<ListedHost> = members.collect();
        if with_decommissioned {
            hosts.extend(fleet.others().iter().map(|(host, facts)| ListedHost::of(host, facts)));
        }
        let mut view = Self { hosts, revision };
        view.sort(HostOrder::Host);
        view
    }

    /// Keeps the hosts that are meant.
    pub fn keep(&mut self, filter: &HostFilter) {
        self.hosts.retain(|host| filter.includes(host));
    }

    /// Sorts the hosts.
    pub fn sort(&mut self, order: HostOrder) {
        self.hosts.sort_by(|a, b| a.host.cmp(&b.host));
        match order {
            HostOrder::Host => {}
            HostOrder::Role => self.hosts.sort_by(|a, b| a.role.cmp(&b.role)),
            HostOrder::Version => self.hosts.sort_by(|a, b| a.listed_under.cmp(&b.listed_under)),
            HostOrder::Verdict => self.hosts.sort_by_key(|host| std::cmp::Reverse(host.verdict)),
            HostOrder::Since => self.hosts.sort_by(|a, b| a.reported_at.cmp(&b.reported_at)),
        }
    }

    /// Returns the hosts as a table. A wide one has the group, the labels and the whole reason; else the reasons
    /// are cut to this width.
    pub fn text(&self, is_wide: bool, width: Option<usize>) -> Text {
        let mut text = Text::default();
        let row = |host: &ListedHost| {
            let [version, verdict, since, agent] = host.cells();
            [host.host.to_string(), name(host.role.as_ref()), version, verdict, since, agent, host.reason()]
        };
        let wide_row = |host: &ListedHost| {
            let [version, verdict, since, agent] = host.cells();
            let (role, group) = (name(host.role.as_ref()), name(host.group.as_ref()));
            let of_roster = [host.host.to_string(), role, group, host.labels()];
            let [host_name, role, group, labels] = of_roster;
            [host_name, role, group, labels, version, verdict, since, agent, host.reason()]
        };
        if is_wide {
            let header =
                ["HOST", "ROLE", "GROUP", "LABELS", "VERSION", "VERDICT", "SINCE", "AGENT", "REASON"];
            text.table(header, self.hosts.iter().map(wide_row));
        } else {
            let header = ["HOST", "ROLE", "VERSION", "VERDICT", "SINCE", "AGENT", "REASON"];
            text.table_within(width, header, self.hosts.iter().map(row));
        }
        text
    }
}

/// Number of known labels that are named beside an unknown one.
const LABELS_NAMED_MAX: usize = 10;

/// What stands for a value that is not known.
const NONE: &str = "-";

/// Returns the cell of a time since when a host has its verdict. A host reports when something changes, so that is
/// the time of its last report. One that is lost reported before.
pub(super) fn since(verdict: Option<VerdictKind>, reported_at: Option<&str>) -> String {
    match (verdict, reported_at) {
        (_, None) => NONE.into(),
        (Some(VerdictKind::Lost), Some(at)) => format!("after {at}"),
        (_, Some(at)) => at.into(),
    }
}

fn name(name: Option<&Role>) -> String {
    name.map_or(NONE.to_owned(), Role::to_string)
}

impl ListedHost {
    /// Returns the host without a verdict.
    fn of(host: &HostName, facts: &HostFacts) -> Self {
        let entry = facts.roster.clone().unwrap_or_default();
        let report = facts.readable_report();
        Self {
            host: host.clone(),
            role: entry.role,
            group: entry.group,
            labels: entry.labels,
            // An entry that cannot be read stands for no time at all.
            added_at: Some(entry.since).filter(|since| since.0 > 0).and_then(rfc3339),
            decommissioned_at: entry.decommissioned.and_then(rfc3339),
            live: facts.live.is_some(),
            agent_version: facts.agent_version().map(str::to_owned),
            listed_under: facts.listed.iter().cloned().collect(),
            installed: report.and_then(|report| report.installed.clone()),
            verdict: None,
            reason: None,
            reported_at: report.and_then(|report| rfc3339(report.at)),
        }
    }

    /// Returns version, verdict, time of the last report, and agent.
    fn cells(&self) -> [String; 4] {
        let listed: Vec<&str> = self.listed_under.iter().map(Version::as_str).collect();
        let version = match (listed.is_empty(), &self.installed) {
            (false, _) => listed.join(","),
            // It was taken off its list.
            (true, Some(installed)) => format!("({installed})"),
            (true, None) => NONE.into(),
        };
        let verdict = self.verdict.map_or("decommissioned", VerdictKind::as_str);
        let agent = match (self.live, &self.agent_version) {
            (true, Some(version)) => version.clone(),
            (true, None) => "unknown".into(),
            (false, _) => NONE.into(),
        };
        let since = since(self.verdict, self.reported_at.as_deref());
        [version, verdict.into(), since, agent]
    }

    fn labels(&self) -> String {
        let labels: Vec<String> = self.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if labels.is_empty() { NONE.into() } else { labels.join(",") }
    }

    fn reason(&self) -> String {
        let since = self.decommissioned_at.as_ref().map(|at| format!("since {at}"));
        self.reason.clone().or(since).unwrap_or_default()
    }
}

/// A text that is no label of a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("label {} is not NAME=VALUE", quoted(.0))]
pub struct NotALabel(String);

impl HostFilter {
    /// Parses a label of a host.
    ///
    /// # Errors
    /// Returns an error if it is not `NAME=VALUE`, or has control characters.
    pub fn parse_label(text: &str) -> Result<(String, String), NotALabel> {
        text.split_once('=')
            .filter(|(name, value)| Role::new(*name).is_ok() && !value.chars().any(char::is_control))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .ok_or_else(|| NotALabel(text.to_owned()))
    }

    /// Returns which name no host of the fleet has, also no decommissioned one: it is probably misspelled, and an empty
    /// answer would be taken for one about the hosts that were meant.
    pub fn unknown(&self, fleet: &Fleet) -> Option<String> {
        let entries = fleet.hosts().values().chain(fleet.others().values());
        let entries: Vec<&RosterEntry> = entries.filter_map(|facts| facts.roster.as_ref()).collect();
        let refusal = |what: &str, name: &str, known: BTreeSet<String>| {
            let known: Vec<String> = known.into_iter().collect();
            let there =
                if known.is_empty() { String::new() } else { format!(" (there are {})", known.join(", ")) };
            format!("no host of the fleet has {what} {}{there}", quoted(name))
        };
        let names = |of: fn(&RosterEntry) -> Option<&Role>| -> BTreeSet<String> {
            entries.iter().filter_map(|entry| of(entry)).map(Role::to_string).collect()
        };
        let roles = names(|entry| entry.role.as_ref());
        if let Some(role) = self.roles.iter().find(|role| !roles.contains(role.as_str())) {
            return Some(refusal("the role", role.as_str(), roles));
        }
        let groups = names(|entry| entry.group.as_ref());
        if let Some(group) = self.groups.iter().find(|group| !groups.contains(group.as_str())) {
            return Some(refusal("the group", group.as_str(), groups));
        }
        let label = |(name, value): (&String, &String)| format!("{name}={value}");
        let labels: BTreeSet<String> =
            entries.iter().flat_map(|entry| entry.labels.iter().map(label)).collect();
        let wanted = self.labels.iter().map(|(name, value)| label((name, value)));
        let unknown = wanted.into_iter().find(|wanted| !labels.contains(wanted))?;
        // Labels can be as many as hosts; those of the same name are the ones that may have been meant.
        let name = unknown.split('=').next().unwrap_or_default().to_owned();
        let alike = labels.into_iter().filter(|label| label.split('=').next() == Some(name.as_str()));
        Some(refusal("the label", &unknown, alike.take(LABELS_NAMED_MAX).collect()))
    }

    /// True if the host is meant.
    fn includes(&self, host: &ListedHost) -> bool {
        self.matches(&host.role, &host.group, &host.labels)
            && (self.verdicts.is_empty() || host.verdict.is_some_and(|is| self.verdicts.contains(&is)))
    }

    /// True if a host with this roster entry is meant, whatever its verdict. A host without an entry has no role, group or
    /// label.
    pub fn includes_entry(&self, entry: Option<&RosterEntry>) -> bool {
        let RosterEntry { role, group, labels, .. } = &entry.cloned().unwrap_or_default();
        self.matches(role, group, labels)
    }

    fn matches(&self, role: &Option<Role>, group: &Option<Role>, labels: &BTreeMap<String, String>) -> bool {
        let is_one = |names: &[Role], name: &Option<Role>| {
            names.is_empty() || name.as_ref().is_some_and(|name| names.contains(name))
        };
        let has = |(name, value): &(String, String)| labels.get(name) == Some(value);
        is_one(&self.roles, role) && is_one(&self.groups, group) && self.labels.iter().all(has)
    }
}
