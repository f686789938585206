//! What happened to a fleet of a script, as facts in order.

use crate::laws::{Intent, Writer};
use crate::machine::Machine;
use crate::store::Change;
use crate::summary::Summary;
use schema::codec;
use schema::keys::{self, Key};
use schema::names::{HostName, Version};
use schema::records::{FailureKind, ProgressState};
use schema::snapshot::KeySnapshot;
use std::collections::{BTreeMap, BTreeSet};

/// Something that happened to a fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FleetFact {
    /// A version became the desired one.
    Triggered(Version),
    /// The hosts went back to a version by themselves.
    RolledBack(Version),
    /// A host left its old version to update to this one.
    Started(HostName, Version),
    /// A host runs a version and its validation passed, for the first time since it started.
    Proven(HostName, Version),
    /// A host failed in the rollout, for the first time.
    Failed(HostName, FailureKind),
    /// A host that failed does not count any more, because it works.
    Healed(HostName),
    /// A host does not soon try again by itself.
    GaveUp(HostName),
    /// Others found a host lost. Its claims ended, or stay because it failed.
    Lost(HostName),
    /// A host released its claims, or an operator did.
    Released(HostName),
    /// The hosts up to this stage are through, and are observed.
    SoakBegan(u32),
    /// The stage of this number has to be observed again.
    SoakEnded(u32),
    /// A stage was opened.
    StageOpened(u32),
    /// Too many hosts failed.
    Halted(String),
    /// An operator let a halted rollout go on.
    Resumed,
    Ended,
}

/// A fact, and when it happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Noted {
    /// Milliseconds since the fleet settled on its first version.
    pub at: u64,
    /// The revision of the store.
    pub revision: i64,
    pub fact: FleetFact,
}

/// What happened to a fleet.
#[derive(Debug, Clone)]
pub struct History {
    /// The facts, in order.
    pub log: Vec<Noted>,
    /// The contents of the store at the times of [`Act::Look`](crate::Act::Look).
    pub looks: Vec<KeySnapshot>,
    /// The content of the store at the end.
    pub end: KeySnapshot,
    /// The version that each host is listed under at the end.
    pub listed: BTreeMap<HostName, Version>,
    /// How long it took.
    pub lasted: u64,
    pub summary: Summary,
}

impl History {
    /// Returns the times and facts that satisfy a condition, in order.
    pub fn all<'a, T>(
        &'a self,
        choose: impl Fn(&'a FleetFact) -> Option<T> + 'a,
    ) -> impl Iterator<Item = (u64, T)> + 'a {
        self.log.iter().filter_map(move |noted| Some((noted.at, choose(&noted.fact)?)))
    }

    /// Returns the time of the first fact that is equal to this one.
    pub fn time_of(&self, fact: &FleetFact) -> Option<u64> {
        self.log.iter().find(|noted| noted.fact == *fact).map(|noted| noted.at)
    }

    /// Returns how many hosts are listed under a version at the end.
    pub fn hosts_at(&self, version: &Version) -> usize {
        self.listed.values().filter(|listed| *listed == version).count()
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Notes {
    pub(crate) log: Vec<Noted>,
    /// When the times begin.
    began: u64,
    /// True if the rollout of the desired version has ended.
    pub(crate) is_over: bool,
    target: i64,
    /// The hosts that started, and were not proven since.
    started: BTreeSet<HostName>,
    /// The hosts that hold claims.
    holders: BTreeSet<HostName>,
}

impl Notes {
    /// Notes what happens from now on.
    pub(crate) fn since(began: u64) -> Self {
        Self { began, ..Self::default() }
    }

    /// Takes over changes of one revision.
    pub(crate) fn note(&mut self, changes: &[Change], writer: &Writer, machines: &[Machine], now: u64) {
        let by = match writer {
            Writer::Host(machine, intent) => Some((&machines[*machine].host, intent)),
            _ => None,
        };
        let opens = changes.iter().any(|c| matches!(Key::parse(&c.key), Ok(Key::StageOpened(..))));
        let at = now.saturating_sub(self.began);
        if let (Some((host, Intent { starts: Some(version), .. })), Some(change)) = (by, changes.first()) {
            self.started.insert(host.clone());
            let fact = FleetFact::Started(host.clone(), version.clone());
            self.log.push(Noted { at, revision: change.revision, fact });
        }
        for change in changes.iter().filter(|change| !change.is_nothing) {
            let by = by.map(|(host, _)| host);
            if let Some(fact) = self.fact_of(change, by, opens) {
                self.log.push(Noted { at, revision: change.revision, fact });
            }
        }
    }

    fn fact_of(&mut self, change: &Change, by: Option<&HostName>, opens: bool) -> Option<FleetFact> {
        let key = Key::parse(&change.key).ok()?;
        let value = change.entry.as_ref().map(|entry| entry.value.as_slice());
        let is_new = change.entry.as_ref().is_some_and(|e| e.create_revision == e.mod_revision);
        Some(match (key, value) {
            (Key::CurrentVersion, Some(value)) => {
                (self.target, self.is_over) = (change.revision, false);
                let version = codec::read_version(value).ok()?;
                let of_hosts = by.is_some();
                if of_hosts { FleetFact::RolledBack(version) } else { FleetFact::Triggered(version) }
            }
            (Key::RunningVersion(version, host), Some(_)) if self.started.remove(&host) => {
                FleetFact::Proven(host, version)
            }
            (Key::Failed(_, host), Some(value)) => {
                let failed = keys::Failed::read(value).ok()?;
                if failed.healed {
                    FleetFact::Healed(host)
                } else if is_new {
                    FleetFact::Failed(host, failed.kind)
                } else {
                    return None;
                }
            }
            (Key::Failed(_, host), None) => FleetFact::Healed(host),
            (Key::Progress(_, host), Some(value)) => {
                let progress = keys::Progress::read(value).ok()?;
                if progress.state != ProgressState::GaveUp {
                    return None;
                }
                FleetFact::GaveUp(host)
            }
            (Key::Claimed(host), value) => {
                let claims = value.and_then(|value| keys::Claimed::read(value).ok());
                let holds = claims.as_ref().is_some_and(|claims| !claims.claims.is_empty());
                let held = self.holders.contains(&host);
                if holds {
                    self.holders.insert(host.clone());
                } else {
                    self.holders.remove(&host);
                }
                let is_of_other = by.is_some_and(|by| *by != host);
                let stays_lost = claims.is_some_and(|claims| claims.lost);
                if is_of_other && held && (stays_lost || !holds) {
                    FleetFact::Lost(host)
                } else if held && !holds {
                    FleetFact::Released(host)
                } else {
                    return None;
                }
            }
            (Key::Soak(_, stage), Some(_)) if is_new => FleetFact::SoakBegan(stage),
            (Key::Soak(_, stage), None) if !opens => FleetFact::SoakEnded(stage),
            (Key::StageOpened(_, stage), Some(_)) => FleetFact::StageOpened(stage),
            (Key::Halt(_), Some(value)) => {
                FleetFact::Halted(keys::Halt::read(value).map_or_else(|_| String::new(), |halt| halt.why))
            }
            (Key::Halt(_), None) => FleetFact::Resumed,
            (Key::Ended(order), Some(_)) => {
                self.is_over = order.revision == self.target;
                FleetFact::Ended
            }
            _ => return None,
        })
    }
}
