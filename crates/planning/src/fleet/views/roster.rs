//! The hosts of the roster.

use crate::text::{Text, rfc3339};
use schema::codec;
use schema::keys::Key;
use schema::names::{HostName, Role};
use schema::records::RosterEntry;
use schema::snapshot::KeySnapshot;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// The hosts of the roster, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RosterView {
    /// The hosts.
    pub hosts: Vec<RosterHost>,
    /// The revision of the store at which the roster was read.
    pub revision: i64,
    /// The hosts whose entries cannot be read, with the reason.
    #[serde(skip)]
    pub unreadable: Vec<(HostName, String)>,
    /// Number of keys in the range that are not of a host.
    #[serde(skip)]
    pub skipped: usize,
}

/// A host of the roster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RosterHost {
    /// The name of the host.
    pub host: HostName,
    /// Its role.
    pub role: Option<Role>,
    /// Its group.
    pub group: Option<Role>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Since when it has been on the roster (RFC 3339).
    pub since: Option<String>,
    /// When an operator decommissioned it (RFC 3339); `None` if it is part of the fleet.
    pub decommissioned: Option<String>,
    /// True if its agent runs.
    pub live: bool,
}

impl RosterView {
    /// Returns the roster that a snapshot holds, with the decommissioned hosts if `all` is true.
    pub fn new(found: &KeySnapshot, is_live: impl Fn(&HostName) -> bool, all: bool) -> Self {
        let mut view =
            Self { hosts: Vec::new(), revision: found.revision, unreadable: Vec::new(), skipped: 0 };
        for (key, value) in &found.entries {
            let Ok(Key::Host(host)) = Key::parse(key) else {
                view.skipped += 1;
                continue;
            };
            let entry = codec::read::<RosterEntry>(&value.value).unwrap_or_else(|error| {
                view.unreadable.push((host.clone(), error.to_string()));
                RosterEntry::default()
            });
            if all || entry.decommissioned.is_none() {
                view.hosts.push(RosterHost {
                    live: is_live(&host),
                    host,
                    role: entry.role,
                    group: entry.group,
                    labels: entry.labels,
                    since: rfc3339(entry.since),
                    decommissioned: entry.decommissioned.and_then(rfc3339),
                });
            }
        }
        view
    }
}

impl RosterHost {
    fn row(&self) -> [String; 6] {
        let name = |name: &Option<Role>| name.as_ref().map_or("-".to_owned(), Role::to_string);
        let labels: Vec<String> = self.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let labels = if labels.is_empty() { "-".into() } else { labels.join(",") };
        let state = match (&self.decommissioned, self.live) {
            (Some(_), _) => "decommissioned",
            (None, true) => "live",
            (None, false) => "no agent",
        };
        let since = self.since.clone().unwrap_or_default();
        [self.host.to_string(), name(&self.role), name(&self.group), labels, since, state.into()]
    }
}

impl fmt::Display for RosterView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Text::default();
        let header = ["HOST", "ROLE", "GROUP", "LABELS", "SINCE", "STATE"];
        text.table(header, self.hosts.iter().map(RosterHost::row));
        text.fmt(f)
    }
}
