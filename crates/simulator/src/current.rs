//! What the store says of the current rollout, for the laws about what waits. It is read once for all hosts, and says
//! by itself what a host or a rollout waits for: nothing here asks the functions by which hosts decide.

use crate::store::Store;
use schema::codec;
use schema::digest::Digest;
use schema::freeze::FreezeScope;
use schema::instruction::Instruction;
use schema::keys::{self, Key, Prefix};
use schema::limit::{Limit, LimitBy, Place};
use schema::names::{HostName, Version};
use schema::order::InstructionOrder;
use schema::records::{
    FailedHost, FailureKind, HostClaims, HostProgress, RolloutRecord, RosterEntry, TimeOfDay, Window,
};
use schema::snapshot::Entry;
use schema::time::EpochSeconds;
use std::collections::{BTreeMap, BTreeSet};

/// A host on the roster.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) roster: RosterEntry,
    /// The revision at which it joined.
    pub(crate) joined_at: i64,
}

/// A failure of a host.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) failed: FailedHost,
    pub(crate) created_at: i64,
    pub(crate) written_at: i64,
}

/// The current rollout, at one revision.
#[derive(Debug, Clone, Default)]
pub(crate) struct Current {
    /// The record, with the revisions at which it was created and written last.
    pub(crate) record: Option<(RolloutRecord, [i64; 2])>,
    /// True if a policy demands a record, and there is none.
    pub(crate) lacks_record: bool,
    /// The time, in seconds of the wall clock.
    pub(crate) wall: i64,
    pub(crate) is_halted: bool,
    pub(crate) has_ended: bool,
    /// The last stage that is open.
    pub(crate) open: u32,
    /// The keys that say how far a soak is, and when they were written.
    pub(crate) soaks: Vec<(String, i64)>,
    pub(crate) members: BTreeMap<HostName, Member>,
    pub(crate) live: BTreeSet<HostName>,
    pub(crate) announced: BTreeMap<HostName, Version>,
    pub(crate) progress: BTreeMap<HostName, HostProgress>,
    pub(crate) failures: BTreeMap<HostName, Failure>,
    pub(crate) excused: BTreeSet<HostName>,
    /// The claims of each host, and the revision of what says so.
    pub(crate) claimed: BTreeMap<HostName, (HostClaims, i64)>,
    /// The hosts that hold the numbers of each limit.
    pub(crate) holders: BTreeMap<Limit, BTreeMap<u32, HostName>>,
    /// The hosts that wait for each limit, in order.
    pub(crate) tickets: BTreeMap<Limit, BTreeSet<(Place, HostName)>>,
    freezes: Vec<FreezeScope>,
}

/// Returns the instruction that counts in a store.
pub(crate) fn instruction_of(store: &Store) -> Option<Instruction> {
    Instruction::find(&store.read(&[Key::Store, Key::CurrentVersion]))
}

/// Returns the place of a host among those that wait for a version, as keys.md defines it.
pub(crate) fn place_of(host: &HostName, version: &Version) -> Place {
    let digest = Digest::default().text(version.as_str()).text(host.as_str()).finish();
    Place(u32::try_from(digest >> 32).unwrap_or(u32::MAX))
}

/// True if a rollout has no windows, or one of them is open at this time of the wall clock, in seconds. All of them are
/// in UTC.
pub(crate) fn is_in_window(record: &RolloutRecord, wall: i64) -> bool {
    let minute = wall.div_euclid(60).rem_euclid(24 * 60);
    let of_day = |time: TimeOfDay| {
        let (hours, minutes) = time.hours_and_minutes();
        i64::from(hours * 60 + minutes)
    };
    let is_open = |window: &Window| {
        let (from, to) = (of_day(window.from), of_day(window.to));
        if from < to { (from..to).contains(&minute) } else { minute >= from || minute < to }
    };
    record.windows.is_empty() || record.windows.iter().any(is_open)
}

/// Returns the number of the stage of a host, computed again from what a record says.
pub(crate) fn stage_number(record: &RolloutRecord, host: &HostName, roster: &RosterEntry) -> u32 {
    let share = u64::from(place_of(host, &record.version).0);
    for (number, stage) in record.stages.iter().enumerate() {
        let has = |by: &LimitBy| match by {
            LimitBy::Role => roster.role.as_ref().map(ToString::to_string),
            LimitBy::Group => roster.group.as_ref().map(ToString::to_string),
            LimitBy::Label(label) => roster.labels.get(label.as_str()).cloned(),
            LimitBy::Fleet => Some("all".to_owned()),
        };
        let is_selected = stage.rule.select.iter().all(|(by, values)| {
            has(by).is_some_and(|value| values.iter().any(|wanted| wanted.as_str() == value))
        });
        let is_in = match (stage.rule.count, stage.rule.share) {
            (Some(_), _) => stage.hosts.contains(host),
            (None, Some(percent)) => is_selected && share * 100 < u64::from(percent) << 32,
            (None, None) => is_selected,
        };
        if is_in {
            return u32::try_from(number).unwrap_or(u32::MAX);
        }
    }
    u32::try_from(record.stages.len()).unwrap_or(u32::MAX)
}

impl Current {
    /// Reads the rollout of an instruction.
    pub(crate) fn read(order: InstructionOrder, store: &Store, wall: EpochSeconds) -> Self {
        let ranges = [
            Prefix::Hosts,
            Prefix::Lives,
            Prefix::Announced,
            Prefix::Claims,
            Prefix::Claimed,
            Prefix::Queues,
            Prefix::Freezes,
            Prefix::Rollout(order),
            Prefix::ProgressOf(order),
        ];
        let found = store.read_all(&[Key::RolloutPolicy], &ranges);
        let mut current = Self { wall: wall.0, ..Self::default() };
        for (key, entry) in &found.entries {
            if let Ok(key) = Key::parse(key) {
                current.take(order, key, entry);
            }
        }
        current.lacks_record &= current.record.is_none();
        current
    }

    fn take(&mut self, order: InstructionOrder, key: Key, entry: &Entry) {
        let text = key.to_string();
        match key {
            Key::RolloutPolicy => {
                let policy = keys::RolloutPolicy::read(&entry.value);
                let is_in_force = policy.is_ok_and(|policy| !policy.is_empty());
                self.lacks_record = is_in_force && entry.create_revision <= order.revision;
            }
            Key::RolloutRecord(_) => {
                let revisions = [entry.create_revision, entry.mod_revision];
                self.record = keys::RolloutRecord::read(&entry.value).ok().map(|record| (record, revisions));
            }
            Key::Halt(_) => self.is_halted = true,
            Key::Ended(_) => self.has_ended = true,
            Key::StageOpened(_, stage) => self.open = self.open.max(stage),
            Key::Soak(..) | Key::SoakTimer(..) => self.soaks.push((text, entry.mod_revision)),
            Key::Excused(_, host) => drop(self.excused.insert(host)),
            Key::Failed(_, host) => {
                if let Ok(failed) = keys::Failed::read(&entry.value) {
                    let (created_at, written_at) = (entry.create_revision, entry.mod_revision);
                    self.failures.insert(host, Failure { failed, created_at, written_at });
                }
            }
            Key::Progress(_, host) => {
                self.progress
                    .extend(keys::Progress::read(&entry.value).ok().map(|progress| (host, progress)));
            }
            Key::Host(host) => {
                let roster = keys::Host::read(&entry.value).unwrap_or_default();
                self.members.insert(host, Member { roster, joined_at: entry.create_revision });
            }
            Key::Live(host) => drop(self.live.insert(host)),
            Key::Announced(host) => {
                self.announced.extend(codec::read_version(&entry.value).ok().map(|version| (host, version)));
            }
            Key::Claimed(host) => {
                let claims = keys::Claimed::read(&entry.value).ok();
                self.claimed.extend(claims.map(|claims| (host, (claims, entry.mod_revision))));
            }
            Key::Claim(limit, number) => {
                let holder = keys::Claim::read(&entry.value).ok().map(|claim| (number, claim.host));
                self.holders.entry(limit).or_default().extend(holder);
            }
            Key::Ticket(of, limit, place, host) if of == order => {
                self.tickets.entry(limit).or_default().insert((place, host));
            }
            Key::Freeze(scope, _) => self.freezes.push(scope),
            _ => {}
        }
    }

    /// True if a freeze or a pause stands that matches a host.
    pub(crate) fn is_frozen(&self, host: &HostName, roster: &RosterEntry) -> bool {
        self.freezes.iter().any(|scope| match scope {
            FreezeScope::Fleet | FreezeScope::Pause => true,
            FreezeScope::Host(of) => of == host,
            FreezeScope::Role(role) => roster.role.as_ref() == Some(role),
            FreezeScope::Group(group) => roster.group.as_ref() == Some(group),
        })
    }

    /// Returns the failure of a host, unless it is healed.
    pub(crate) fn failure(&self, host: &HostName) -> Option<&Failure> {
        self.failures.get(host).filter(|failure| !failure.failed.healed)
    }

    /// True if more hosts failed than the rollout tolerates.
    pub(crate) fn is_over_budget(&self) -> bool {
        let Some((RolloutRecord { budget: Some(budget), counted_from, .. }, _)) = &self.record else {
            return false;
        };
        let failures = self.failures.values().filter(|failure| !failure.failed.healed);
        failures.filter(|failure| failure.created_at > *counted_from).count() > *budget as usize
    }

    /// Returns the limits that count a host, and how many hosts of each may be unavailable.
    pub(crate) fn limits_of(&self, roster: &RosterEntry) -> Vec<(Limit, u32)> {
        let limits = self.record.iter().flat_map(|(record, _)| &record.limits);
        let of_host = limits.filter_map(|resolved| {
            let limit = resolved.by.of_host(roster).ok().flatten()?;
            let max = resolved.values.get(&limit.value).copied().unwrap_or(resolved.max);
            Some((limit, max))
        });
        of_host.collect()
    }

    /// True if a host holds claims for its update, and nobody found it lost.
    pub(crate) fn is_updating(&self, host: &HostName) -> bool {
        self.claimed.get(host).is_some_and(|(claims, _)| claims.is_for_update() && !claims.lost)
    }

    /// True if a host counts as failed because its agent did not run.
    pub(crate) fn is_lost(&self, host: &HostName) -> bool {
        self.failure(host).is_some_and(|failure| failure.failed.kind == FailureKind::Lost)
    }
}
