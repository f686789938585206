//! What is known of each host, and its verdict.

use crate::fleet::verdict::{Blocked, FailedBy, FleetVerdict, Running, Waiting};
use schema::codec;
use schema::health::Health;
use schema::keys::{Key, StatusState};
use schema::names::{HostName, ServiceName, StatusType, Version};
use schema::plan::{BlockedBy, HostVerdict, WaitingOn};
use schema::records::{Driver, LiveClaim, Maintenance, Report, RosterEntry, StatusRecord, StoreIdentity};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// What the fleet is asked to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FleetTarget {
    /// No instruction.
    NotSet,
    /// `/current_version` is not a version.
    Invalid {
        /// The rule that it breaks.
        why: String,
    },
    /// An instruction.
    Known {
        /// The version.
        version: Version,
        /// The revision of `/current_version`.
        revision: i64,
    },
}

impl FleetTarget {
    /// Reads the target from the value and revision of `/current_version`, and the store's identity with
    /// its revision. An instruction from before the store's epoch does not count.
    pub fn read(current_version: Option<(&[u8], i64)>, store: Option<(&StoreIdentity, i64)>) -> Self {
        let Some((value, revision)) = current_version else { return Self::NotSet };
        if store.is_some_and(|(identity, since)| identity.epoch > 0 && revision < since) {
            return Self::NotSet;
        }
        match codec::read_version(value) {
            Ok(version) => Self::Known { version, revision },
            Err(why) => Self::Invalid { why },
        }
    }

    /// The version, if there is a valid one.
    pub fn version(&self) -> Option<&Version> {
        if let Self::Known { version, .. } = self { Some(version) } else { None }
    }
}

/// Everything that the store says of one host.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostFacts {
    /// Its roster entry; a default one if the entry cannot be read.
    pub roster: Option<RosterEntry>,
    /// The claim of its agent; the inner value is missing if the claim cannot be read.
    pub live: Option<Option<LiveClaim>>,
    /// The versions that it is listed under.
    pub listed: BTreeSet<Version>,
    /// Its results; without a record where that cannot be read.
    pub statuses: BTreeMap<(StatusType, StatusState), Option<StatusRecord>>,
    /// The types of result that it reports by one-shot verbs.
    pub reporting: BTreeSet<StatusType>,
    /// Its report, or why that cannot be read.
    pub report: Option<Result<Report, String>>,
}

impl HostFacts {
    /// An operator took it out.
    pub fn is_decommissioned(&self) -> bool {
        self.roster.as_ref().is_some_and(|entry| entry.decommissioned.is_some())
    }

    /// Its report, if it can be read.
    pub fn readable_report(&self) -> Option<&Report> {
        self.report.as_ref().and_then(|report| report.as_ref().ok())
    }

    /// Who applies versions on it; `None` without a live agent.
    pub fn driver(&self) -> Option<Driver> {
        // A claim that cannot be read is that of a newer agent: assume that it drives.
        self.live.as_ref().map(|claim| claim.as_ref().map_or(Driver::Agent, |c| c.driver))
    }

    /// A host that was taken out and is gone is no member; one that still speaks is.
    fn is_member(&self) -> bool {
        !self.is_decommissioned() || self.live.is_some() || !self.listed.is_empty()
    }

    fn was_seen(&self) -> bool {
        self.report.is_some() || !self.statuses.is_empty() || !self.reporting.is_empty()
    }

    /// The results that count beside the report. An agent that drives says in its report what its own
    /// results mean now; a result of before the newest attempt stays in the store until that ends.
    fn results(&self, state: StatusState) -> impl Iterator<Item = (&StatusType, Option<&StatusRecord>)> {
        let report_speaks = self.driver() == Some(Driver::Agent) && self.report.is_some();
        let own = [StatusType::apply(), StatusType::validation()];
        self.statuses
            .iter()
            .filter(move |((kind, found), _)| *found == state && !(report_speaks && own.contains(kind)))
            .map(|((kind, _), record)| (kind, record.as_ref()))
    }
}

/// The state of the whole in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FleetState {
    /// Every host runs the target.
    Settled,
    /// Some are on their way, none needs a person.
    Updating,
    /// At least one is lost, failed or blocked, or a service does not work though nothing explains that.
    Failing,
    /// Nobody can tell.
    Unknown,
}

impl fmt::Display for FleetState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Settled => "settled",
            Self::Updating => "updating",
            Self::Failing => "failing",
            Self::Unknown => "unknown",
        })
    }
}

/// The fleet at one revision.
#[derive(Debug, Clone, PartialEq)]
pub struct Fleet {
    pub(super) target: FleetTarget,
    pub(super) hosts: BTreeMap<HostName, HostFacts>,
    /// The version that each host names in its own key.
    pub(super) announced: BTreeMap<HostName, Version>,
    pub(super) skipped: usize,
    pub(super) unreadable: BTreeSet<String>,
    pub(super) services: Services,
    /// Hosts that can never go on by themselves, and the loop that holds each.
    pub(super) deadlocks: BTreeMap<HostName, Vec<(HostName, ServiceName)>>,
}

impl Fleet {
    /// Builds the snapshot from keys and values of one revision, in any order. Keys that are none of ours,
    /// or that hold names that are not valid, are counted and passed over.
    pub fn new<'a>(target: FleetTarget, entries: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Self {
        let mut fleet = Self {
            target,
            hosts: BTreeMap::new(),
            announced: BTreeMap::new(),
            skipped: 0,
            unreadable: BTreeSet::new(),
            services: Services::default(),
            deadlocks: BTreeMap::new(),
        };
        for (text, value) in entries {
            match Key::parse(text) {
                Ok(key) => fleet.note(text, key, value),
                Err(_) => fleet.skipped += 1,
            }
        }
        fleet.hosts.retain(|_, facts| facts.is_member());
        fleet
    }

    fn note(&mut self, text: &str, key: Key, value: &[u8]) {
        match key {
            Key::RunningVersion(version, host) => {
                self.host_facts(host).listed.insert(version);
            }
            // It says nothing of a host that is not listed.
            Key::Announced(host) => {
                self.announced.extend(codec::read_version(value).ok().map(|version| (host, version)));
            }
            Key::Status(kind, state, host) => {
                let record = StatusRecord::read(value).ok();
                self.host_facts(host).statuses.insert((kind, state), record);
            }
            Key::Reporting(kind, host) => {
                self.host_facts(host).reporting.insert(kind);
            }
            Key::Host(host) => {
                let entry = codec::read(value);
                self.note_unreadable(text, entry.is_err());
                self.host_facts(host).roster = Some(entry.unwrap_or_default());
            }
            Key::Live(host) => {
                let claim = codec::read(value);
                self.note_unreadable(text, claim.is_err());
                self.host_facts(host).live = Some(claim.ok());
            }
            Key::Report(host) => {
                let report = codec::read(value).map_err(|e| e.to_string());
                self.note_unreadable(text, report.is_err());
                self.host_facts(host).report = Some(report);
            }
            Key::Health(service, host) => self.services.note(service, host, value),
            Key::Maintenance(host) => {
                self.services.maintenance.extend(codec::read(value).ok().map(|out| (host, out)));
            }
            Key::CurrentVersion
            | Key::Store
            | Key::Retry(_)
            | Key::Service(..)
            | Key::DropStale
            | Key::Config(_) => {}
        }
    }

    pub(super) fn host_facts(&mut self, host: HostName) -> &mut HostFacts {
        self.hosts.entry(host).or_default()
    }

    fn note_unreadable(&mut self, key: &str, unreadable: bool) {
        if unreadable {
            self.unreadable.insert(key.to_owned());
        }
    }

    /// What the fleet is asked to run.
    pub fn target(&self) -> &FleetTarget {
        &self.target
    }

    /// How many keys were passed over.
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    /// Keys whose values cannot be read.
    pub fn unreadable(&self) -> &BTreeSet<String> {
        &self.unreadable
    }

    /// The hosts and what is known of them.
    pub fn hosts(&self) -> &BTreeMap<HostName, HostFacts> {
        &self.hosts
    }

    /// The versions that hosts are listed under, and how many each.
    pub fn versions(&self) -> BTreeMap<&Version, usize> {
        let mut versions = BTreeMap::new();
        for version in self.hosts.values().flat_map(|facts| &facts.listed) {
            *versions.entry(version).or_default() += 1;
        }
        versions
    }

    /// Hosts that are listed under a version which they do not name in their own key, by version.
    pub fn unconfirmed(&self) -> BTreeMap<&Version, Vec<&HostName>> {
        let mut unconfirmed: BTreeMap<&Version, Vec<&HostName>> = BTreeMap::new();
        for (host, facts) in &self.hosts {
            for version in facts.listed.iter().filter(|v| self.announced.get(host) != Some(v)) {
                unconfirmed.entry(version).or_default().push(host);
            }
        }
        unconfirmed
    }

    /// The verdict of every host.
    pub fn verdicts(&self) -> BTreeMap<&HostName, FleetVerdict> {
        self.hosts.iter().map(|(host, facts)| (host, self.derive_verdict(host, facts))).collect()
    }

    /// The verdict of one host, if it is part of the fleet.
    pub fn verdict(&self, host: &HostName) -> Option<FleetVerdict> {
        self.hosts.get(host).map(|facts| self.derive_verdict(host, facts))
    }

    /// The state of the whole.
    pub fn state(&self) -> FleetState {
        let verdicts = self.verdicts();
        let any = |test: fn(&FleetVerdict) -> bool| verdicts.values().any(test);
        let needs_somebody = |v: &FleetVerdict| {
            matches!(v, FleetVerdict::Lost { .. } | FleetVerdict::Failed(_) | FleetVerdict::Blocked(_))
        };
        if any(needs_somebody) || !self.failed_services().is_empty() || self.lacks_while_settled(&verdicts) {
            FleetState::Failing
        } else if self.target == FleetTarget::NotSet {
            FleetState::Unknown
        } else if any(|v| *v != FleetVerdict::Ok) {
            FleetState::Updating
        } else if self.unknown_reason().is_some() {
            FleetState::Unknown
        } else {
            FleetState::Settled
        }
    }

    /// A host that is listed under the target and waits is not on its way anywhere: what it needs has gone.
    fn lacks_while_settled(&self, verdicts: &BTreeMap<&HostName, FleetVerdict>) -> bool {
        let is_there = |host: &HostName| match self.target.version() {
            Some(version) => self.hosts[host].listed.contains(version),
            None => false,
        };
        let waits = |v: &FleetVerdict| matches!(v, FleetVerdict::Waiting(Waiting::On(WaitingOn::Service(_))));
        verdicts.iter().any(|(host, verdict)| waits(verdict) && is_there(host))
    }

    /// What keeps a reader from saying that the fleet is settled, other than its hosts.
    pub fn unknown_reason(&self) -> Option<String> {
        match &self.target {
            FleetTarget::NotSet => return Some("no version has been triggered".into()),
            FleetTarget::Invalid { why } => return Some(format!("/current_version is not a version: {why}")),
            FleetTarget::Known { .. } => {}
        }
        if let Some(key) = self.unreadable.first() {
            return Some(format!("{} values cannot be read, the first under {key}", self.unreadable.len()));
        }
        self.hosts.is_empty().then(|| "no host is known".into())
    }

    pub(super) fn derive_verdict(&self, host: &HostName, facts: &HostFacts) -> FleetVerdict {
        let deadlock = || self.deadlocks.get(host).cloned().map(Blocked::Deadlock);
        lost(facts)
            .or_else(|| self.failed(facts).map(FleetVerdict::Failed))
            .or_else(|| self.blocked(facts).map(FleetVerdict::Blocked))
            .or_else(|| deadlock().map(FleetVerdict::Blocked))
            .or_else(|| self.waiting(facts).map(FleetVerdict::Waiting))
            .or_else(|| self.running(facts).map(FleetVerdict::Running))
            .unwrap_or(FleetVerdict::Ok)
    }

    /// The report of a live agent, if it decided on the newest instruction.
    pub(super) fn current_report<'e>(&self, facts: &'e HostFacts) -> Option<&'e Report> {
        let report = facts.readable_report().filter(|_| facts.live.is_some())?;
        match &self.target {
            FleetTarget::Known { revision, .. } => {
                report.target.as_ref().is_some_and(|t| t.revision == *revision).then_some(report)
            }
            _ => Some(report),
        }
    }

    fn failed(&self, facts: &HostFacts) -> Option<FailedBy> {
        if let Some(HostVerdict::Failed { version, failure, suspect }) =
            self.current_report(facts).map(|r| r.verdict.clone())
        {
            return Some(FailedBy::Report { version, failure, suspect });
        }
        if let Some((kind, record)) = facts.results(StatusState::Failed).next() {
            return Some(FailedBy::Status { kind: kind.clone(), record: record.cloned() });
        }
        // What an agent writes stays; only a script's success runs out, and leaves the trace that it was there.
        let stale = |kind: &&StatusType| !facts.statuses.keys().any(|(found, _)| found == *kind);
        let kind = facts.reporting.iter().find(stale).filter(|_| facts.live.is_none())?;
        Some(FailedBy::Stale { kind: kind.clone() })
    }

    fn blocked(&self, facts: &HostFacts) -> Option<Blocked> {
        let report = facts.readable_report().filter(|_| facts.live.is_some());
        if facts.is_decommissioned() {
            return Some(Blocked::By(BlockedBy::Decommissioned));
        }
        // What blocks a host is seldom the instruction: it stands also when that has moved on.
        match (report.map(|r| &r.verdict), &self.target) {
            (
                Some(HostVerdict::Blocked { by: BlockedBy::InvalidInstruction { .. } }),
                FleetTarget::Known { .. },
            ) => {}
            (Some(HostVerdict::Blocked { by }), _) => return Some(Blocked::By(by.clone())),
            _ => {}
        }
        match (&self.target, report.and_then(|r| r.target.as_ref())) {
            (FleetTarget::Invalid { why }, _) => {
                Some(Blocked::By(BlockedBy::InvalidInstruction { why: why.clone() }))
            }
            (FleetTarget::Known { revision, .. }, Some(decided)) if decided.revision > *revision => {
                Some(Blocked::NewerInstruction { decided: decided.revision, found: *revision })
            }
            _ => None,
        }
    }

    fn waiting(&self, facts: &HostFacts) -> Option<Waiting> {
        if let Some(HostVerdict::Waiting { on }) = self.current_report(facts).map(|r| r.verdict.clone()) {
            return Some(Waiting::On(on));
        }
        if let Some((kind, _)) = facts.results(StatusState::Pending).next() {
            return Some(Waiting::Status(kind.clone()));
        }
        let idle = facts.live.is_none() && facts.listed.is_empty();
        (idle && self.target == FleetTarget::NotSet).then_some(Waiting::On(WaitingOn::Instruction))
    }

    fn running(&self, facts: &HostFacts) -> Option<Running> {
        if facts.live.is_some() {
            match &facts.report {
                None => return Some(Running::NoReport),
                Some(Err(why)) => return Some(Running::UnreadableReport { why: why.clone() }),
                Some(Ok(_)) => {}
            }
            // It proved the very version before it was triggered once more: there is nothing that it has to do.
            let is_proven = |report: &Report| {
                let version = self.target.version();
                report.verdict == HostVerdict::Ok
                    && report.installed.as_ref() == version
                    && facts.listed.iter().eq(version)
            };
            if facts.readable_report().is_some_and(is_proven) {
                return None;
            }
            let Some(report) = self.current_report(facts) else {
                let decided = facts.readable_report().and_then(|r| r.target.as_ref()).map(|t| t.revision);
                return Some(Running::NotActedOn { decided });
            };
            if let HostVerdict::Running { version } = &report.verdict {
                return Some(Running::Towards(version.clone()));
            }
        }
        // A report that says "ok" is believed together with the listing, which is the proof for everybody else.
        let wanted = match &self.target {
            FleetTarget::Known { version, .. } => Some(version),
            _ => self.current_report(facts).and_then(|r| r.installed.as_ref()),
        };
        let there = facts.listed.len() == 1 && wanted.is_none_or(|wanted| facts.listed.contains(wanted));
        if there || (facts.listed.is_empty() && wanted.is_none()) {
            None
        } else if facts.listed.is_empty() {
            Some(Running::NotListed)
        } else {
            Some(Running::ListedUnder(facts.listed.clone()))
        }
    }
}

/// A host that the roster names, or that once reported, and that says nothing now.
fn lost(facts: &HostFacts) -> Option<FleetVerdict> {
    let known = facts.roster.is_some() || facts.report.is_some();
    let silent = facts.live.is_none() && facts.listed.is_empty();
    (known && silent).then(|| FleetVerdict::Lost {
        seen: facts.was_seen(),
        last_report: facts.readable_report().map(|r| r.at),
    })
}

/// What hosts say of their services, as far as it is bad, and what operators took out of use.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Services {
    pub(super) critical: BTreeSet<(HostName, ServiceName)>,
    pub(super) maintenance: BTreeMap<HostName, Maintenance>,
}

impl Services {
    pub(super) fn note(&mut self, service: ServiceName, host: HostName, value: &[u8]) {
        if Health::read(value) == Some(Health::Critical) {
            self.critical.insert((host, service));
        }
    }
}
