//! The fleet: what is known of each host, and the verdict about it. A fleet is built from all keys at once, or
//! follows the keys one change after the other.

use super::facts::{HostFacts, Services};
use super::target::FleetTarget;
use super::verdict::FleetVerdict;
use schema::codec;
use schema::frozen::FrozenBy;
use schema::health::{CheckStatus, Health};
use schema::keys::{self, Key, read_freeze};
use schema::names::{HostName, Version};
use schema::order::InstructionOrder;
use schema::records::{Halt, Maintenance, StatusRecord};
use schema::why_not::WaitingHost;
use std::collections::{BTreeMap, BTreeSet};

/// The fleet at one revision.
#[derive(Debug, Clone, PartialEq)]
pub struct Fleet {
    pub(super) target: FleetTarget,
    pub(super) hosts: BTreeMap<HostName, HostFacts>,
    /// Hosts with keys in the store that are not members: an operator decommissioned them.
    others: BTreeMap<HostName, HostFacts>,
    /// The version that each host announces.
    pub(super) announced: BTreeMap<HostName, Version>,
    skipped: BTreeSet<String>,
    unreadable: BTreeSet<String>,
    pub(super) services: Services,
    /// The freezes by their keys, because they are in the order of the store.
    pub(super) freezes: BTreeMap<String, FrozenBy>,
    /// Why rollouts are halted.
    pub(super) halts: BTreeMap<InstructionOrder, String>,
    /// Hosts that can never go on by themselves, each with the loop that holds it.
    pub(super) deadlocks: BTreeMap<HostName, Vec<WaitingHost>>,
    /// The verdict of every member.
    verdicts: BTreeMap<HostName, FleetVerdict>,
}

/// The hosts whose verdicts depend on a key. Deadlocks also depend on the services and on the time, so they are
/// looked for separately: [`Fleet::find_deadlocks`].
#[derive(Debug, Clone, PartialEq, Eq)]
enum Dependents {
    /// No verdict depends on it.
    None,
    /// The verdict of one host does.
    Host(HostName),
    /// The verdicts of all hosts may do.
    All,
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
            others: BTreeMap::new(),
            announced: BTreeMap::new(),
            skipped: BTreeSet::new(),
            unreadable: BTreeSet::new(),
            services: Services::default(),
            freezes: BTreeMap::new(),
            halts: BTreeMap::new(),
            deadlocks: BTreeMap::new(),
            verdicts: BTreeMap::new(),
        }
    }

    /// Adds a key and its value. Keys that do not belong to `orchestrate`, or that contain invalid names, are counted
    /// and skipped.
    pub fn add(&mut self, text: &str, value: &[u8]) {
        self.note(text, Some(value));
    }

    /// Notes at which revision the report of a host was written that was added.
    pub fn note_report_revision(&mut self, host: &HostName, revision: i64) {
        if let Some(facts) = self.hosts.get_mut(host) {
            facts.report_revision = revision;
        }
    }

    /// Returns the fleet when everything was added.
    #[must_use]
    pub fn complete(mut self, target: FleetTarget) -> Self {
        self.target = target;
        self.others = self.hosts.extract_if(.., |_, facts| !facts.is_member()).collect();
        self.derive_all();
        self
    }

    /// Changes a complete fleet as a key of the store changed; the value is `None` if it was deleted. Derives the
    /// verdicts that depend on the key again, but for the desired version, which [`Self::set_target`] changes.
    pub fn change(&mut self, text: &str, value: Option<&[u8]>) {
        match self.note(text, value) {
            Dependents::None => {}
            Dependents::Host(host) => self.settle_membership(&host),
            Dependents::All => self.derive_all(),
        }
    }

    /// Changes the desired version. Every verdict depends on it.
    pub fn set_target(&mut self, target: FleetTarget) {
        if self.target != target {
            self.target = target;
            self.derive_all();
        }
    }

    /// Replaces the deadlocks, and derives the verdicts of hosts that were or are in one.
    pub(super) fn set_deadlocks(&mut self, found: BTreeMap<HostName, Vec<WaitingHost>>) {
        let before = std::mem::replace(&mut self.deadlocks, found);
        let concerned: BTreeSet<HostName> =
            before.into_keys().chain(self.deadlocks.keys().cloned()).collect();
        concerned.iter().for_each(|host| self.derive(host));
    }

    /// Derives the verdict of a host whose facts changed, after it has joined or left the members.
    fn settle_membership(&mut self, host: &HostName) {
        if let Some(facts) = self.hosts.remove(host).or_else(|| self.others.remove(host)) {
            if facts == HostFacts::default() {
                // All its keys are gone.
            } else if facts.is_member() {
                self.hosts.insert(host.clone(), facts);
            } else {
                self.others.insert(host.clone(), facts);
            }
        }
        self.derive(host);
    }

    fn derive(&mut self, host: &HostName) {
        match self.hosts.get(host).map(|facts| self.derive_verdict(host, facts)) {
            Some(verdict) => self.verdicts.insert(host.clone(), verdict),
            None => self.verdicts.remove(host),
        };
    }

    fn derive_all(&mut self) {
        let of = |(host, facts): (&HostName, &HostFacts)| (host.clone(), self.derive_verdict(host, facts));
        self.verdicts = self.hosts.iter().map(of).collect();
    }

    /// Notes the value of a key, or that the key does not exist. Returns whose verdicts depend on it.
    fn note(&mut self, text: &str, value: Option<&[u8]>) -> Dependents {
        if let Some((scope, token)) = read_freeze(text) {
            match value {
                Some(value) => {
                    let freeze = FrozenBy { scope, token, freeze: keys::Freeze::read(value).ok() };
                    self.freezes.insert(text.to_owned(), freeze);
                }
                None => _ = self.freezes.remove(text),
            }
            return Dependents::All;
        }
        match Key::parse(text) {
            Ok(key) => self.note_key(text, key, value),
            Err(_) => {
                insert_or_remove(&mut self.skipped, text.to_owned(), value.is_some());
                Dependents::None
            }
        }
    }

    fn note_key(&mut self, text: &str, key: Key, value: Option<&[u8]>) -> Dependents {
        match key {
            Key::RunningVersion(version, host) => {
                insert_or_remove(&mut self.facts_of(&host).listed, version, value.is_some());
                Dependents::Host(host)
            }
            // An announcement alone does not make a host known.
            Key::Announced(host) => {
                let version = value.and_then(|value| codec::read_version(value).ok());
                set_or_remove(&mut self.announced, host, version);
                Dependents::None
            }
            Key::Status(kind, state, host) => {
                let record = value.map(|value| StatusRecord::read(value).ok().map(Box::new));
                set_or_remove(&mut self.facts_of(&host).statuses, (kind, state), record);
                Dependents::Host(host)
            }
            Key::Reporting(kind, host) => {
                insert_or_remove(&mut self.facts_of(&host).reporting, kind, value.is_some());
                Dependents::Host(host)
            }
            Key::Host(host) => {
                let entry = value.map(keys::Host::read);
                self.note_unreadable(text, entry.as_ref().is_some_and(Result::is_err));
                self.facts_of(&host).roster = entry.map(Result::unwrap_or_default);
                Dependents::Host(host)
            }
            Key::Live(host) => {
                let claim = value.map(|value| keys::Live::read(value).map_err(|e| e.to_string()));
                self.note_unreadable(text, claim.as_ref().is_some_and(Result::is_err));
                self.facts_of(&host).live = claim;
                Dependents::Host(host)
            }
            Key::Report(host) => {
                let report = value.map(|value| keys::Report::read(value).map_err(|e| e.to_string()));
                self.note_unreadable(text, report.as_ref().is_some_and(Result::is_err));
                self.facts_of(&host).report = report;
                Dependents::Host(host)
            }
            Key::NameClash(host) => {
                let clash = value.map(|value| match keys::NameClash::read(value) {
                    Ok(clash) => clash.to_string(),
                    Err(_) => "another machine has the same name".into(),
                });
                self.facts_of(&host).clash = clash;
                Dependents::Host(host)
            }
            Key::Health(service, host) => {
                let status = match value.and_then(Health::read) {
                    Some(Health::Critical) => Some(CheckStatus::Critical),
                    Some(Health::Warning) => Some(CheckStatus::Warning),
                    _ => None,
                };
                set_or_remove(&mut self.services.unwell, (host, service), status);
                Dependents::None
            }
            Key::Halt(order) => {
                set_or_remove(&mut self.halts, order, value.map(Halt::reason));
                if self.target.order() == Some(order) { Dependents::All } else { Dependents::None }
            }
            Key::Maintenance(host) => {
                let marks = value.and_then(|value| keys::Maintenance::read(value).ok());
                set_or_remove(&mut self.services.maintenance, host, marks);
                Dependents::None
            }
            // The caller reads the desired version. Freezes were taken before: those without a valid token hold too.
            // The other keys say nothing about a host.
            _ => Dependents::None,
        }
    }

    /// Returns the facts of a host, wherever it belongs; new ones are among the members at first.
    fn facts_of(&mut self, host: &HostName) -> &mut HostFacts {
        if let Some(facts) = self.others.get_mut(host) {
            return facts;
        }
        self.hosts.entry(host.clone()).or_default()
    }

    fn note_unreadable(&mut self, key: &str, unreadable: bool) {
        insert_or_remove(&mut self.unreadable, key.to_owned(), unreadable);
    }

    /// Returns the desired version of the fleet.
    pub fn target(&self) -> &FleetTarget {
        &self.target
    }

    /// Returns the number of keys that were skipped.
    pub fn skipped(&self) -> usize {
        self.skipped.len()
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

    /// Returns the hosts that operators decommissioned, and that are neither live nor listed any more.
    pub fn others(&self) -> &BTreeMap<HostName, HostFacts> {
        &self.others
    }

    /// Returns the verdict of every host.
    pub fn verdicts(&self) -> &BTreeMap<HostName, FleetVerdict> {
        &self.verdicts
    }

    /// Returns the verdict of one host; `None` if it is not a member of the fleet.
    pub fn verdict(&self, host: &HostName) -> Option<&FleetVerdict> {
        self.verdicts.get(host)
    }

    /// Returns how operators took a host, or services on it, out of use.
    pub fn maintenance(&self, host: &HostName) -> Option<&Maintenance> {
        self.services.maintenance.get(host)
    }

    /// Returns the freezes that stand, in the order of their keys.
    pub fn freezes(&self) -> impl Iterator<Item = &FrozenBy> {
        self.freezes.values()
    }
}

/// Adds an item to a set, or takes it out of it.
fn insert_or_remove<T: Ord>(set: &mut BTreeSet<T>, item: T, is_there: bool) {
    if is_there {
        set.insert(item);
    } else {
        set.remove(&item);
    }
}

/// Sets a value in a map, or removes it.
fn set_or_remove<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => _ = map.insert(key, value),
        None => _ = map.remove(&key),
    }
}
