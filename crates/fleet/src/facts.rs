//! What the store contains about hosts and their services.

use schema::health::CheckStatus;
use schema::keys::StatusState;
use schema::names::{Fingerprint, HostName, ServiceName, StatusType, Version};
use schema::records::{Driver, LiveClaim, Maintenance, Report, RosterEntry, StatusRecord};
use std::collections::{BTreeMap, BTreeSet};

/// Everything that the store contains about one host.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostFacts {
    /// The roster entry; a default entry if it cannot be read.
    pub roster: Option<RosterEntry>,
    /// The claim of the agent, or why it cannot be read.
    pub live: Option<Result<LiveClaim, String>>,
    /// The versions that the host is listed under.
    pub listed: BTreeSet<Version>,
    /// The results, by type and state; `None` for a record that cannot be read.
    pub statuses: BTreeMap<(StatusType, StatusState), Option<Box<StatusRecord>>>,
    /// The types of the results that the host reports by one-shot verbs.
    pub reporting: BTreeSet<StatusType>,
    /// The report, or why it cannot be read.
    pub report: Option<Result<Report, String>>,
    /// The revision at which the report was written; 0 if it is not known.
    pub report_revision: i64,
    /// What another machine with the name of this host says, if there is one.
    pub clash: Option<String>,
}

impl HostFacts {
    /// True if an operator decommissioned the host.
    pub fn is_decommissioned(&self) -> bool {
        self.roster.as_ref().is_some_and(|entry| entry.decommissioned.is_some())
    }

    /// True if an agent or an operator put the host on the roster.
    pub fn is_expected(&self) -> bool {
        self.roster.as_ref().is_some_and(|entry| !entry.from_script)
    }

    /// Returns the report; `None` if no agent runs on the host, or if the report cannot be read.
    pub(super) fn live_report(&self) -> Option<&Report> {
        if self.live.is_some() { self.readable_report() } else { None }
    }

    /// Returns the report, if it can be read.
    pub fn readable_report(&self) -> Option<&Report> {
        self.report.as_ref().and_then(|report| report.as_ref().ok())
    }

    /// Returns the causes of its failed results, as far as they are known.
    pub(super) fn failed_causes(&self) -> impl Iterator<Item = &Fingerprint> {
        let failed = self.statuses.iter().filter(|((_, state), _)| *state == StatusState::Failed);
        failed.filter_map(|(_, record)| Some(&record.as_ref()?.cause.as_ref()?.fingerprint))
    }

    /// Returns the version of the agent, if that runs and its claim can be read.
    pub fn agent_version(&self) -> Option<&str> {
        let claim = self.live.as_ref()?.as_ref().ok();
        claim.map(|claim| claim.agent_version.as_str()).filter(|version| !version.is_empty())
    }

    /// Returns who applies versions on the host; `None` without a live agent.
    pub fn driver(&self) -> Option<Driver> {
        // A claim that cannot be read comes from a newer agent, which is assumed to be the driver.
        self.live.as_ref().map(|claim| claim.as_ref().map_or(Driver::Agent, |c| c.driver))
    }

    /// True if the host is a member of the fleet. A decommissioned host is one only while it is
    /// live or listed.
    pub(super) fn is_member(&self) -> bool {
        !self.is_decommissioned() || self.live.is_some() || !self.listed.is_empty()
    }

    pub(super) fn was_seen(&self) -> bool {
        self.report.is_some() || !self.statuses.is_empty() || !self.reporting.is_empty()
    }

    /// Returns the results that count in addition to the report. If an agent is the driver, its
    /// report says what the results of apply and validation mean now, so these are left out: the
    /// result of an earlier attempt stays in the store until the newest attempt ends.
    pub(super) fn results(
        &self,
        state: StatusState,
    ) -> impl Iterator<Item = (&StatusType, Option<&StatusRecord>)> {
        let report_speaks = self.driver() == Some(Driver::Agent) && self.report.is_some();
        let own = [StatusType::apply(), StatusType::validation()];
        self.statuses
            .iter()
            .filter(move |((kind, found), _)| *found == state && !(report_speaks && own.contains(kind)))
            .map(|((kind, _), record)| (kind, record.as_deref()))
    }
}

/// The services of hosts that are critical or in warning, and the maintenance that operators set.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Services {
    pub(super) unwell: BTreeMap<(HostName, ServiceName), CheckStatus>,
    pub(super) maintenance: BTreeMap<HostName, Maintenance>,
}
