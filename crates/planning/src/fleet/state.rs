//! What is known of each host, and its verdict.
//!
//! This file is long because the facts of a host and the verdict about them are read together.

use crate::fleet::verdict::{Blocked, FailedBy, FleetVerdict, Running, Waiting};
use schema::codec;
use schema::freeze::FreezeScope;
use schema::frozen::FrozenBy;
use schema::health::Health;
use schema::instruction::{Epoch, Instruction};
use schema::keys::{Key, StatusState, read_freeze};
use schema::names::{HostName, ServiceName, StatusType, Version};
use schema::plan::Phase;
use schema::records::{Driver, LiveClaim, Maintenance, NameClash, Report, RosterEntry, StatusRecord};
use schema::snapshot::Entry;
use schema::verdict::{BlockedBy, HostVerdict, WaitingOn};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The desired version of the fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FleetTarget {
    /// There is no instruction.
    NotSet,
    /// The value of `/current_version` is not a version.
    Invalid {
        /// The naming rule that the value breaks.
        why: String,
    },
    /// An instruction.
    Known {
        /// The desired version.
        version: Version,
        /// The revision of `/current_version`.
        revision: i64,
    },
}

impl FleetTarget {
    /// Reads the target from the entry of `/current_version`, as far as it counts in this epoch.
    pub fn read(current_version: Option<&Entry>, epoch: Epoch) -> Self {
        match epoch.instruction(current_version) {
            Ok(Some(Instruction { version, order })) => Self::Known { version, revision: order.revision },
            Ok(None) => Self::NotSet,
            Err(why) => Self::Invalid { why },
        }
    }

    /// Returns the desired version; `None` if there is no valid one.
    pub fn version(&self) -> Option<&Version> {
        if let Self::Known { version, .. } = self { Some(version) } else { None }
    }
}

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
    /// What another machine with the name of this host says, if there is one.
    pub clash: Option<String>,
}

impl HostFacts {
    /// True if an operator decommissioned the host.
    pub fn is_decommissioned(&self) -> bool {
        self.roster.as_ref().is_some_and(|entry| entry.decommissioned.is_some())
    }

    /// Returns the report, if it can be read.
    pub fn readable_report(&self) -> Option<&Report> {
        self.report.as_ref().and_then(|report| report.as_ref().ok())
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
    fn is_member(&self) -> bool {
        !self.is_decommissioned() || self.live.is_some() || !self.listed.is_empty()
    }

    fn was_seen(&self) -> bool {
        self.report.is_some() || !self.statuses.is_empty() || !self.reporting.is_empty()
    }

    /// Returns the results that count in addition to the report. If an agent is the driver, its
    /// report says what the results of apply and validation mean now, so these are left out: the
    /// result of an earlier attempt stays in the store until the newest attempt ends.
    fn results(&self, state: StatusState) -> impl Iterator<Item = (&StatusType, Option<&StatusRecord>)> {
        let report_speaks = self.driver() == Some(Driver::Agent) && self.report.is_some();
        let own = [StatusType::apply(), StatusType::validation()];
        self.statuses
            .iter()
            .filter(move |((kind, found), _)| *found == state && !(report_speaks && own.contains(kind)))
            .map(|((kind, _), record)| (kind, record.as_deref()))
    }
}

/// The state of the whole fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FleetState {
    /// Every host runs the target.
    Settled,
    /// Some hosts are not at the target yet; none needs an operator.
    Updating,
    /// At least one host is lost, failed or blocked, or a host at the target waits for a service,
    /// or a service does not work without an explanation.
    Failing,
    /// The state cannot be determined; see [`Fleet::unknown_reason`].
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
    /// The version that each host announces.
    pub(super) announced: BTreeMap<HostName, Version>,
    pub(super) skipped: usize,
    pub(super) unreadable: BTreeSet<String>,
    pub(super) services: Services,
    freezes: Vec<FrozenBy>,
    /// Hosts that can never go on by themselves, each with the loop that holds it.
    pub(super) deadlocks: BTreeMap<HostName, Vec<(HostName, ServiceName)>>,
}

impl Fleet {
    /// Builds the fleet from keys and values of one revision, in any order.
    pub fn new<'a>(target: FleetTarget, entries: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Self {
        let mut fleet = Self::empty();
        entries.into_iter().for_each(|(key, value)| fleet.add(key, value));
        fleet.complete(target)
    }

    /// Returns a fleet to which keys and values of one revision are then added, in any order.
    pub fn empty() -> Self {
        Self {
            target: FleetTarget::NotSet,
            hosts: BTreeMap::new(),
            announced: BTreeMap::new(),
            skipped: 0,
            unreadable: BTreeSet::new(),
            services: Services::default(),
            freezes: Vec::new(),
            deadlocks: BTreeMap::new(),
        }
    }

    /// Adds a key and its value. Keys that do not belong to `orchestrate`, or that contain invalid names, are counted
    /// and skipped.
    pub fn add(&mut self, text: &str, value: &[u8]) {
        if let Some((scope, token)) = read_freeze(text) {
            self.freezes.push(FrozenBy { scope, token, freeze: codec::read(value).ok() });
            return;
        }
        match Key::parse(text) {
            Ok(key) => self.note(text, key, value),
            Err(_) => self.skipped += 1,
        }
    }

    /// Returns the fleet when everything was added. Hosts that are not members of it are left out.
    #[must_use]
    pub fn complete(mut self, target: FleetTarget) -> Self {
        self.target = target;
        self.hosts.retain(|_, facts| facts.is_member());
        self
    }

    fn note(&mut self, text: &str, key: Key, value: &[u8]) {
        match key {
            Key::RunningVersion(version, host) => {
                self.host_facts(host).listed.insert(version);
            }
            // An announcement alone does not make a host known.
            Key::Announced(host) => {
                self.announced.extend(codec::read_version(value).ok().map(|version| (host, version)));
            }
            Key::Status(kind, state, host) => {
                let record = StatusRecord::read(value).ok().map(Box::new);
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
                let claim = codec::read(value).map_err(|e| e.to_string());
                self.note_unreadable(text, claim.is_err());
                self.host_facts(host).live = Some(claim);
            }
            Key::Report(host) => {
                let report = codec::read(value).map_err(|e| e.to_string());
                self.note_unreadable(text, report.is_err());
                self.host_facts(host).report = Some(report);
            }
            Key::NameClash(host) => {
                let clash = codec::read::<NameClash>(value);
                self.host_facts(host).clash =
                    Some(clash.map_or("another machine has the same name".into(), |clash| clash.to_string()));
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
            | Key::Config(_)
            | Key::HostConfig(..)
            | Key::EnablePuppet(_)
            | Key::Event(_)
            | Key::HostEvent(..)
            // They were taken before: those without a valid token hold too.
            | Key::Freeze(..)
            | Key::RolloutPolicy
            | Key::Trigger
            | Key::RolloutRecord(_)
            | Key::Closing(_)
            | Key::Ended(_)
            | Key::StageOpened(..)
            | Key::Soak(..)
            | Key::SoakTimer(..)
            | Key::Excused(..)
            | Key::Progress(..)
            | Key::Resolving(_)
            | Key::Failed(..)
            | Key::Halt(_)
            | Key::Claim(..)
            | Key::Claimed(_)
            | Key::Ticket(..)
            | Key::LostMark(_)
            | Key::LostTimer(_) => {}
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

    /// Returns the desired version of the fleet.
    pub fn target(&self) -> &FleetTarget {
        &self.target
    }

    /// Returns the number of keys that were skipped.
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    /// Returns the keys whose values cannot be read.
    pub fn unreadable(&self) -> &BTreeSet<String> {
        &self.unreadable
    }

    /// Returns the members of the fleet, and what is known of each.
    pub fn hosts(&self) -> &BTreeMap<HostName, HostFacts> {
        &self.hosts
    }

    /// Returns the versions that hosts are listed under, each with the number of its hosts.
    pub fn versions(&self) -> BTreeMap<&Version, usize> {
        let mut versions = BTreeMap::new();
        for version in self.hosts.values().flat_map(|facts| &facts.listed) {
            *versions.entry(version).or_default() += 1;
        }
        versions
    }

    /// Returns the hosts with a listing that is not confirmed, by version.
    pub fn unconfirmed(&self) -> BTreeMap<&Version, Vec<&HostName>> {
        let mut unconfirmed: BTreeMap<&Version, Vec<&HostName>> = BTreeMap::new();
        for (host, facts) in &self.hosts {
            for version in facts.listed.iter().filter(|v| self.announced.get(host) != Some(v)) {
                unconfirmed.entry(version).or_default().push(host);
            }
        }
        unconfirmed
    }

    /// Returns the verdict of every host.
    pub fn verdicts(&self) -> BTreeMap<&HostName, FleetVerdict> {
        self.hosts.iter().map(|(host, facts)| (host, self.derive_verdict(host, facts))).collect()
    }

    /// Returns the verdict of one host; `None` if it is not a member of the fleet.
    pub fn verdict(&self, host: &HostName) -> Option<FleetVerdict> {
        self.hosts.get(host).map(|facts| self.derive_verdict(host, facts))
    }

    /// Returns the state of the whole fleet.
    pub fn state(&self) -> FleetState {
        self.state_by(&self.verdicts(), !self.failed_services().is_empty())
    }

    /// The same for a caller that has the verdicts already, and knows whether services fail.
    pub(super) fn state_by(
        &self,
        verdicts: &BTreeMap<&HostName, FleetVerdict>,
        is_service_down: bool,
    ) -> FleetState {
        let any = |test: fn(&FleetVerdict) -> bool| verdicts.values().any(test);
        let needs_somebody = |v: &FleetVerdict| {
            matches!(v, FleetVerdict::Lost { .. } | FleetVerdict::Failed(_) | FleetVerdict::Blocked(_))
        };
        let clashes = self.hosts.values().any(|facts| facts.clash.is_some());
        if any(needs_somebody) || clashes || is_service_down || self.lacks_while_settled(verdicts) {
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

    /// True if a host that is listed under the target waits for a service. Such a host is not
    /// updating: a service that it needs has gone.
    fn lacks_while_settled(&self, verdicts: &BTreeMap<&HostName, FleetVerdict>) -> bool {
        let is_there = |host: &HostName| match self.target.version() {
            Some(version) => self.hosts[host].listed.contains(version),
            None => false,
        };
        let waits = |v: &FleetVerdict| matches!(v, FleetVerdict::Waiting(Waiting::On(WaitingOn::Service(_))));
        verdicts.iter().any(|(host, verdict)| waits(verdict) && is_there(host))
    }

    /// Returns what, apart from the verdicts of hosts, keeps a reader from calling the fleet
    /// settled.
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
            .or_else(|| self.frozen(host, facts).map(FleetVerdict::Frozen))
            .or_else(|| self.waiting(facts).map(FleetVerdict::Waiting))
            .or_else(|| self.running(facts).map(FleetVerdict::Running))
            .unwrap_or(FleetVerdict::Ok)
    }

    /// Returns the report of a live agent. If there is an instruction, the report counts only if
    /// the host decided on exactly that instruction.
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
        if let Some(HostVerdict::Failed(failed)) = self.current_report(facts).map(|r| &r.verdict) {
            return Some(FailedBy::Report(failed.clone()));
        }
        if let Some((kind, record)) = facts.results(StatusState::Failed).next() {
            return Some(FailedBy::Status { kind: kind.clone(), record: record.cloned() });
        }
        // The results of an agent are durable. Only the successful result of a script expires; the
        // key in `/orchestrate/reporting` then shows that it existed.
        let stale = |kind: &&StatusType| !facts.statuses.keys().any(|(found, _)| found == *kind);
        let kind = facts.reporting.iter().find(stale).filter(|_| facts.live.is_none())?;
        Some(FailedBy::Stale { kind: kind.clone() })
    }

    fn blocked(&self, facts: &HostFacts) -> Option<Blocked> {
        let report = facts.readable_report().filter(|_| facts.live.is_some());
        if facts.is_decommissioned() {
            return Some(Blocked::By(BlockedBy::Decommissioned));
        }
        // The cause is rarely the instruction, so the host also counts as blocked if its report is
        // about an older instruction.
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

    /// Returns the freeze that keeps a host from starting: one that matches it while it is not at the
    /// target and has disturbed nothing yet.
    fn frozen(&self, host: &HostName, facts: &HostFacts) -> Option<FrozenBy> {
        let target = self.target.version()?;
        if self.freezes.is_empty() || facts.listed.iter().eq([target]) {
            return None;
        }
        let report = facts.readable_report().filter(|_| facts.live.is_some())?;
        // A host that has the target installed has nothing to start, and a script says no phase.
        let starts = match report.phase {
            Phase::Idle => report.installed.as_ref() != Some(target),
            Phase::Prefetch | Phase::Start => true,
            Phase::Apply | Phase::Converge | Phase::Validate => false,
        };
        let is_script = matches!(&facts.live, Some(Ok(claim)) if claim.driver == Driver::External);
        if !starts || is_script {
            return None;
        }
        let roster = facts.roster.as_ref();
        let (role, group) = (roster.and_then(|r| r.role.as_ref()), roster.and_then(|r| r.group.as_ref()));
        let scopes = FreezeScope::of_host(host, role, group);
        self.freezes.iter().find(|frozen| scopes.contains(&frozen.scope)).cloned()
    }

    /// Returns how operators took a host, or services on it, out of use.
    pub fn maintenance(&self, host: &HostName) -> Option<&Maintenance> {
        self.services.maintenance.get(host)
    }

    /// Returns the freezes that stand.
    pub fn freezes(&self) -> &[FrozenBy] {
        &self.freezes
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
            // The host had already proven this version when it was triggered again, so it has
            // nothing to do.
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
                let step = report.running_step.as_ref().map(|running| (running.phase, running.step.clone()));
                return Some(Running::Towards { version: version.clone(), step });
            }
        }
        // A report with the verdict ok counts only together with the listing, which is the proof
        // for all other readers.
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

/// Returns the verdict lost for a host that is on the roster or once reported, and that is now
/// neither live nor listed.
fn lost(facts: &HostFacts) -> Option<FleetVerdict> {
    let known = facts.roster.is_some() || facts.report.is_some();
    let silent = facts.live.is_none() && facts.listed.is_empty();
    (known && silent).then(|| FleetVerdict::Lost {
        seen: facts.was_seen(),
        last_report: facts.readable_report().map(|r| r.at),
    })
}

/// The critical services of hosts, and the maintenance that operators set.
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
