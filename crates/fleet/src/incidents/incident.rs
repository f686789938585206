//! One incident.

use schema::digest::Digest;
use schema::names::HostName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What identifies an incident: a hash of the lineage of the store, the rollout, the kind and the cause. So it is equal
/// in every observer of a fleet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct IncidentId(String);

impl IncidentId {
    /// Returns the id.
    pub fn new(lineage: &str, rollout: Option<&str>, kind: IncidentKind, cause: &str) -> Self {
        let mut digest = Digest::default();
        digest.text(lineage).text(rollout.unwrap_or_default()).text(kind.as_str()).text(cause);
        Self(format!("{:016x}", digest.finish()))
    }
}

impl fmt::Display for IncidentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How soon somebody has to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Nobody has to, but people may want to know.
    Info,
    /// During working hours.
    Ticket,
    /// Now.
    Page,
}

impl Severity {
    /// All severities.
    pub const ALL: [Self; 3] = [Self::Info, Self::Ticket, Self::Page];

    /// Returns the word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Ticket => "ticket",
            Self::Page => "page",
        }
    }
}

/// The kind of an incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IncidentKind {
    /// The observer cannot read the store, so that nothing else is known.
    StoreAway,
    /// The store raised an alarm, so that hosts cannot write what happens to them.
    StoreAlarm,
    /// The rollout is halted.
    Halted,
    /// Many hosts were lost at about the same time.
    ManyLost,
    /// Hosts are lost.
    Lost,
    /// Hosts failed in the same way.
    Failed,
    /// Hosts are blocked for the same reason.
    Blocked,
    /// A freeze has stood for more than a day.
    FrozenForLong,
    /// A certificate ends soon.
    CertificateEnds,
    /// Hosts failed in the rollout, and it goes on.
    FailedInRollout,
}

impl IncidentKind {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::StoreAway,
        Self::StoreAlarm,
        Self::Halted,
        Self::ManyLost,
        Self::Lost,
        Self::Failed,
        Self::Blocked,
        Self::FrozenForLong,
        Self::CertificateEnds,
        Self::FailedInRollout,
    ];

    /// Returns the word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::StoreAway => "store_away",
            Self::StoreAlarm => "store_alarm",
            Self::Halted => "halted",
            Self::ManyLost => "many_lost",
            Self::Lost => "lost",
            Self::Failed => "failed",
            Self::Blocked => "blocked",
            Self::FrozenForLong => "frozen_for_long",
            Self::CertificateEnds => "certificate_ends",
            Self::FailedInRollout => "failed_in_rollout",
        }
    }

    /// Returns how soon somebody has to look.
    pub fn severity(self) -> Severity {
        match self {
            Self::StoreAway | Self::StoreAlarm | Self::Halted | Self::ManyLost => Severity::Page,
            Self::Lost | Self::Failed | Self::Blocked | Self::FrozenForLong | Self::CertificateEnds => {
                Severity::Ticket
            }
            Self::FailedInRollout => Severity::Info,
        }
    }

    /// Returns the command that says more.
    pub fn hint(self) -> &'static str {
        match self {
            Self::StoreAway => "orchestrate ping",
            Self::StoreAlarm => "orchestrate store show",
            Self::Halted | Self::FailedInRollout => "orchestrate rollout status",
            Self::ManyLost | Self::Lost => "orchestrate hosts list --verdict lost",
            Self::Failed => "orchestrate get_failures --group",
            Self::Blocked => "orchestrate hosts list --verdict blocked",
            Self::FrozenForLong => "orchestrate freezes",
            Self::CertificateEnds => "orchestrate status",
        }
    }
}

/// What people have to be told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Incident {
    /// What identifies it, equal in every observer of the fleet.
    pub incident_id: IncidentId,
    /// Its kind.
    pub kind: IncidentKind,
    /// How soon somebody has to look.
    pub severity: Severity,
    /// What is wrong, in one line. It may contain what hosts and programs said.
    pub summary: String,
    /// The command that says more.
    pub hint: String,
    /// The hosts that it is about, by name.
    pub hosts: Vec<HostName>,
    /// The rollout that it belongs to.
    pub rollout_id: Option<String>,
}

impl Incident {
    /// Returns an incident. `cause` tells it from others of its kind.
    pub(super) fn new(
        lineage: &str,
        rollout: Option<&str>,
        kind: IncidentKind,
        cause: &str,
        summary: String,
        hosts: impl IntoIterator<Item = HostName>,
    ) -> Self {
        Self {
            incident_id: IncidentId::new(lineage, rollout, kind, cause),
            kind,
            severity: kind.severity(),
            summary,
            hint: kind.hint().to_owned(),
            hosts: hosts.into_iter().collect(),
            rollout_id: rollout.map(str::to_owned),
        }
    }
}
