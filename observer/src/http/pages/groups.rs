//! The hosts of a fleet in groups: how many of each verdict and version.

use super::icons::{ORDER, place};
use super::table::with_parameters;
use crate::http::parameters::{Parameters, one_of, unknown};
use fleet::views::ListedHost;
use http_server::ErrorResponse;
use schema::verdict::VerdictKind;
use std::collections::{BTreeMap, BTreeSet};

/// Most labels by which a page offers to group hosts.
const LABELS_MAX: usize = 12;
/// Most versions of a group that are counted each for itself.
const VERSIONS_MAX: usize = 8;

/// The word for versions that are not counted each for itself.
const OTHER: &str = "other";

/// What the hosts of a group have in common.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum GroupBy {
    #[default]
    Role,
    Group,
    Label(String),
}

impl GroupBy {
    pub(super) fn read(text: &str) -> Self {
        match text {
            "role" => Self::Role,
            "group" => Self::Group,
            label => Self::Label(label.strip_prefix("label:").unwrap_or(label).to_owned()),
        }
    }

    /// Returns the word of the parameter.
    pub(super) fn word(&self) -> String {
        match self {
            Self::Role | Self::Group => self.name().to_owned(),
            Self::Label(label) => format!("label:{label}"),
        }
    }

    /// Returns what is common to the hosts of a group.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Role => "role",
            Self::Group => "group",
            Self::Label(label) => label,
        }
    }

    fn value(&self, host: &ListedHost) -> Option<String> {
        match self {
            Self::Role => host.role.as_ref().map(ToString::to_string),
            Self::Group => host.group.as_ref().map(ToString::to_string),
            Self::Label(label) => host.labels.get(label).cloned(),
        }
    }

    /// Returns where the hosts of a group are listed, with a verdict if one is given.
    fn hosts(&self, value: &str, verdict: Option<VerdictKind>) -> String {
        let label;
        let (name, value) = match self {
            Self::Role => ("role", value),
            Self::Group => ("group", value),
            Self::Label(name) => {
                label = format!("{name}={value}");
                ("label", label.as_str())
            }
        };
        let verdict = verdict.map(|verdict| ("verdict", verdict.as_str()));
        with_parameters("/hosts", [(name, value)].into_iter().chain(verdict))
    }
}

/// What the cells of a group show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Fill {
    #[default]
    Verdict,
    Version,
}

impl Fill {
    pub(super) const ALL: [Self; 2] = [Self::Verdict, Self::Version];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Verdict => "verdict",
            Self::Version => "version",
        }
    }
}

/// How the first page shows the fleet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Grouping {
    pub(super) by: GroupBy,
    pub(super) fill: Fill,
}

impl Grouping {
    /// Reads the parameters of the first page.
    pub(super) fn read(parameters: &Parameters) -> Result<Self, ErrorResponse> {
        let mut read = Self::default();
        for (name, value) in parameters {
            match name.as_str() {
                "by" => read.by = GroupBy::read(value),
                "fill" => read.fill = one_of(name, value, &Fill::ALL, Fill::as_str)?,
                _ => return Err(unknown(name, &["by", "fill"])),
            }
        }
        Ok(read)
    }
}

/// How many hosts of a group have a verdict.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct VerdictCount {
    pub(super) verdict: VerdictKind,
    pub(super) count: usize,
    /// Where they are listed; `None` if the group has no name.
    pub(super) to: Option<String>,
}

/// A group of hosts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// What its hosts have in common; `None` if they have nothing in its place.
    pub(super) name: Option<String>,
    /// Where its hosts are listed; `None` if it has no name.
    pub(super) to: Option<String>,
    pub(super) host_count: usize,
    /// The verdicts of its hosts in the order of the pages.
    pub(super) verdicts: Vec<VerdictCount>,
    /// The versions of its hosts, the most frequent first.
    pub(super) versions: Vec<(String, usize)>,
}

impl Group {
    /// Returns what a script draws a cell for each host from: verdicts with their numbers, or versions by their places
    /// in a list.
    pub(super) fn cells(&self, fill: &Fill, versions: &[String]) -> String {
        let verdict = |found: &VerdictCount| format!("{}:{}", found.verdict, found.count);
        let version = |(version, count): &(String, usize)| {
            let place = versions
                .iter()
                .position(|known| known == version)
                .unwrap_or(versions.len().saturating_sub(1));
            format!("{place}:{count}")
        };
        let cells: Vec<String> = match fill {
            Fill::Verdict => self.verdicts.iter().map(verdict).collect(),
            Fill::Version => self.versions.iter().map(version).collect(),
        };
        cells.join(" ")
    }

    /// Returns the versions with their numbers in words.
    pub(super) fn versions_text(&self) -> String {
        let of = |(version, count): &(String, usize)| format!("{version}: {count}");
        self.versions.iter().map(of).collect::<Vec<_>>().join(", ")
    }
}

/// Returns the groups of hosts: those first of which most hosts need somebody.
pub(super) fn groups(hosts: &[ListedHost], by: &GroupBy) -> Vec<Group> {
    let mut found: BTreeMap<Option<String>, Vec<&ListedHost>> = BTreeMap::new();
    for host in hosts {
        found.entry(by.value(host)).or_default().push(host);
    }
    let mut groups: Vec<Group> = found.into_iter().map(|(name, hosts)| group(name, &hosts, by)).collect();
    let badness = |group: &Group| {
        let of = |verdict: &VerdictKind| {
            group.verdicts.iter().find(|found| found.verdict == *verdict).map_or(0, |found| found.count)
        };
        // Hosts that are ok make no group more urgent.
        ORDER[..ORDER.len() - 1].iter().map(of).collect::<Vec<_>>()
    };
    groups.sort_by_key(|group| std::cmp::Reverse(badness(group)));
    groups
}

fn group(name: Option<String>, hosts: &[&ListedHost], by: &GroupBy) -> Group {
    let mut verdicts: BTreeMap<usize, (VerdictKind, usize)> = BTreeMap::new();
    let mut versions: BTreeMap<String, usize> = BTreeMap::new();
    for host in hosts {
        if let Some(verdict) = host.verdict {
            verdicts.entry(place(verdict)).or_insert((verdict, 0)).1 += 1;
        }
        let listed: Vec<&str> = host.listed_under.iter().map(|version| version.as_str()).collect();
        *versions.entry(if listed.is_empty() { "none".into() } else { listed.join("+") }).or_default() += 1;
    }
    let to = |verdict| name.as_deref().map(|name| by.hosts(name, verdict));
    let verdicts = verdicts.into_values();
    let verdicts =
        verdicts.map(|(verdict, count)| VerdictCount { verdict, count, to: to(Some(verdict)) }).collect();
    let mut versions: Vec<(String, usize)> = versions.into_iter().collect();
    versions.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let others: usize = versions.drain(versions.len().min(VERSIONS_MAX)..).map(|(_, count)| count).sum();
    versions.extend((others > 0).then(|| (OTHER.to_owned(), others)));
    Group { to: to(None), host_count: hosts.len(), verdicts, versions, name }
}

/// Returns the versions of all groups, the most frequent first.
pub(super) fn versions(groups: &[Group]) -> Vec<String> {
    let mut counts: BTreeMap<&String, usize> = BTreeMap::new();
    for (version, count) in groups.iter().flat_map(|group| &group.versions) {
        *counts.entry(version).or_default() += count;
    }
    let mut versions: Vec<(&String, usize)> = counts.into_iter().collect();
    versions.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let named = versions.into_iter().filter(|(version, _)| *version != OTHER).take(VERSIONS_MAX);
    // What has no place of its own gets the one after these.
    named.map(|(version, _)| version.clone()).chain([OTHER.to_owned()]).collect()
}

/// Returns by what the hosts can be grouped: where that leads, and what people read.
pub(super) fn ways(hosts: &[ListedHost], fill: Fill) -> Vec<(String, String)> {
    let labels: BTreeSet<&String> = hosts.iter().flat_map(|host| host.labels.keys()).collect();
    let labels = labels.into_iter().take(LABELS_MAX);
    let labels = labels.map(|label| (format!("label:{label}"), label.clone()));
    let own = ["role", "group"].map(|word| (word.to_owned(), word.to_owned()));
    let to = |(word, name): (String, String)| (to_groups(&word, fill), name);
    own.into_iter().chain(labels).map(to).collect()
}

/// Returns where the fleet is shown in these groups.
pub(super) fn to_groups(by: &str, fill: Fill) -> String {
    let fill = if fill == Fill::default() { None } else { Some(("fill", fill.as_str())) };
    with_parameters("/", [("by", by)].into_iter().chain(fill))
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::names::{HostName, Role, Version};

    fn host(name: &str, role: Option<&str>, verdict: VerdictKind, version: &str) -> ListedHost {
        ListedHost {
            host: HostName::new(name).unwrap(),
            role: role.map(|role| Role::new(role).unwrap()),
            group: None,
            labels: [("rack".to_owned(), format!("r {name}"))].into(),
            added_at: None,
            decommissioned_at: None,
            live: true,
            agent_version: None,
            listed_under: vec![Version::new(version).unwrap()],
            installed: None,
            verdict: Some(verdict),
            reason: None,
            reported_at: None,
        }
    }

    #[test]
    fn the_group_that_needs_somebody_comes_first_and_its_exceptions_too() {
        let hosts = [
            host("a", Some("db"), VerdictKind::Ok, "1"),
            host("b", Some("db"), VerdictKind::Ok, "2"),
            host("c", Some("db"), VerdictKind::Ok, "2"),
            host("d", Some("web"), VerdictKind::Ok, "2"),
            host("e", Some("web"), VerdictKind::Failed, "1"),
            host("f", None, VerdictKind::Running, "1"),
        ];
        let found = groups(&hosts, &GroupBy::Role);
        let rows: Vec<(Option<&str>, String, String)> = found
            .iter()
            .map(|group| (group.name.as_deref(), group.cells(&Fill::Verdict, &[]), group.versions_text()))
            .collect();
        assert_eq!(
            rows,
            [
                (Some("web"), "failed:1 ok:1".into(), "1: 1, 2: 1".into()),
                (None, "running:1".into(), "1: 1".into()),
                (Some("db"), "ok:3".into(), "2: 2, 1: 1".into()),
            ]
        );
        assert_eq!(found[0].verdicts[0].to.as_deref(), Some("/hosts?role=web&verdict=failed"));
        assert_eq!(ways(&hosts, Fill::Verdict)[2], ("/?by=label%3Arack".to_owned(), "rack".to_owned()));
        let order = versions(&found);
        assert_eq!(order, ["1", "2", "other"]);
        assert_eq!(found[2].cells(&Fill::Version, &order), "1:2 0:1");
        assert_eq!(to_groups("role", Fill::Version), "/?by=role&fill=version");
        let racks = groups(&hosts, &GroupBy::read("label:rack"));
        assert_eq!(racks[0].to.as_deref(), Some("/hosts?label=rack%3Dr+e"));
    }
}
