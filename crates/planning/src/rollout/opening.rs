//! Opens the stages of a rollout, one after the other. A stage opens when every host of the stages before it is
//! proven or settled otherwise, and stayed so for the time of the soak.

use super::frozen::FrozenHosts;
use super::limits::place;
use super::results::{HostResult, results};
use super::stages::{open_stage, stage_of};
use schema::keys::{self, Key};
use schema::names::HostName;
use schema::order::InstructionOrder;
use schema::records::{RolloutRecord, RosterEntry, StageOpening};
use schema::snapshot::{Entry, KeySnapshot};
use schema::time::Span;
use schema::transaction::Transaction;
use schema::writes::stage::{RolloutStage, begin_soak, choose_hosts, end_soak, open_stages};
use std::collections::{BTreeMap, BTreeSet};

/// What is to be done about the stages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StageTask {
    /// Nothing: all stages are open.
    AllOpen,
    /// Nothing now: a host is not through, or is observed.
    Wait,
    Commit(Transaction),
    /// This is written, also while the rollout is halted: the hosts are observed again.
    EndSoak(Transaction),
    /// The timer of this stage is started: its hosts are observed for so long.
    Soak(u32, Span),
}

/// The hosts of a rollout and what became of them.
pub(super) struct Members<'a> {
    order: InstructionOrder,
    record: &'a RolloutRecord,
    /// The roster entries, also of hosts that left the roster.
    roster: BTreeMap<HostName, RosterEntry>,
    pub(super) results: BTreeMap<HostName, HostResult>,
    found: &'a KeySnapshot,
}

impl<'a> Members<'a> {
    /// `found` holds everything that [`end_reads`](super::end_reads) names.
    pub(super) fn read(order: InstructionOrder, record: &'a RolloutRecord, found: &'a KeySnapshot) -> Self {
        Self::with_results(order, record, results(order, record, found), found)
    }

    /// Returns the hosts of a rollout of which this became. `found` holds the roster and the claims of host names.
    pub(super) fn with_results(
        order: InstructionOrder,
        record: &'a RolloutRecord,
        results: BTreeMap<HostName, HostResult>,
        found: &'a KeySnapshot,
    ) -> Self {
        Self { order, record, roster: roster_of_all(found).collect(), results, found }
    }

    fn stage_in(&self, record: &RolloutRecord, host: &HostName) -> u32 {
        let unknown = RosterEntry::default();
        let roster = self.roster.get(host).unwrap_or(&unknown);
        stage_of(&record.stages, host, roster, place(host, &record.version))
    }

    /// Returns the number of the stage that a host belongs to.
    fn stage_of(&self, host: &HostName) -> u32 {
        self.stage_in(self.record, host)
    }

    /// Returns the hosts of a stage, and what became of them.
    pub(super) fn all_of_stage(&self, number: u32) -> impl Iterator<Item = (&HostName, HostResult)> {
        let of_stage = self.results.iter().filter(move |(host, _)| self.stage_of(host) == number);
        of_stage.map(|(host, result)| (host, *result))
    }

    /// Returns the hosts of a stage that nobody excused, and what became of them.
    fn of_stage(&self, number: u32) -> impl Iterator<Item = (&HostName, HostResult)> {
        self.all_of_stage(number).filter(|(_, result)| *result != HostResult::Excused)
    }

    fn chosen(&self, number: u32) -> &BTreeSet<HostName> {
        static NONE: BTreeSet<HostName> = BTreeSet::new();
        self.record.stages.get(number as usize).map_or(&NONE, |stage| &stage.hosts)
    }

    /// True if a stage has no hosts: it opens together with the next one.
    pub(super) fn is_empty(&self, number: u32) -> bool {
        self.of_stage(number).next().is_none()
    }

    /// True if a host of the stage has the version.
    pub(super) fn works(&self, number: u32) -> bool {
        self.of_stage(number).any(|(_, result)| result == HostResult::Proven)
    }

    /// True if nobody of the stages up to `open` is waited for, and the version works there.
    pub(super) fn is_through(&self, open: u32) -> bool {
        self.unsettled(open).next().is_none() && (self.works(open) || self.is_empty(open))
    }

    /// Returns the last stage that opens after this one at the same time: a stage without hosts is passed over. `rest`
    /// is the last one of all.
    pub(super) fn next_stage(&self, open: u32, rest: u32) -> u32 {
        (open + 1..rest).find(|number| !self.is_empty(*number)).unwrap_or(rest)
    }

    /// Returns the hosts for which the stage after `open` waits.
    pub(super) fn unsettled(&self, open: u32) -> impl Iterator<Item = (&HostName, HostResult)> {
        (0..=open)
            .flat_map(move |number| self.of_stage(number).map(move |(host, result)| (number, host, result)))
            .filter_map(move |(number, host, result)| {
                let is_chosen = self.chosen(number).contains(host);
                let is_settled = match result {
                    HostResult::Proven | HostResult::Excused => true,
                    HostResult::Failed => !is_chosen,
                    // A chosen host of an earlier stage had the version when that was settled.
                    HostResult::Absent => !is_chosen || number < open,
                    HostResult::Pending | HostResult::Vanished => false,
                };
                (!is_settled).then_some((host, result))
            })
    }

    /// Says that the next stage, or the end, waits for hosts that are all frozen; `None` if one of them is not.
    pub(super) fn held_by_freezes(&self, waits_for: &[HostName]) -> Option<String> {
        let frozen = FrozenHosts::read(self.found);
        let of = |host: &HostName| frozen.of(host, self.roster.get(host)?);
        let first = waits_for.first()?;
        let by = of(first)?;
        if waits_for.iter().any(|host| of(host).is_none()) {
            return None;
        }
        Some(match waits_for.len() - 1 {
            0 => format!("it waits for {first}: {by}"),
            more => format!("it waits for {first} and {more} more, which are all frozen: {by}"),
        })
    }

    /// Returns the record with other hosts in the place of those that a stage chose and that do not belong to it any
    /// more, and of those of the open stage whose agents do not run; `None` if nothing changes.
    fn choose_again(&self, open: u32) -> Option<RolloutRecord> {
        let mut record = self.record.clone();
        for number in open..u32::try_from(record.stages.len()).unwrap_or(u32::MAX) {
            for host in self.chosen(number) {
                let result = self.results.get(host);
                // An earlier stage may have taken it.
                let is_gone = result.is_none() || self.stage_in(&record, host) != number;
                if is_gone || number == open && result == Some(&HostResult::Absent) {
                    let other = self.replacement(host, number, &record, !is_gone);
                    // A host that does not run is better than none: the stage is not skipped then.
                    if other.is_some() || is_gone {
                        replace(&mut record, host, number, other);
                    }
                }
            }
        }
        (record != *self.record).then_some(record)
    }

    /// Returns the host that takes the place of one that a stage chose: the first by place, if possible one whose
    /// agent runs, that is not frozen and that no later stage chose.
    fn replacement(
        &self,
        host: &HostName,
        number: u32,
        record: &RolloutRecord,
        must_be_live: bool,
    ) -> Option<HostName> {
        let is_live = |other: &HostName| self.found.get(&Key::Live(other.clone())).is_some();
        let role = self.roster.get(host).map(|roster| &roster.role);
        let rule = &record.stages.get(number as usize)?.rule;
        let fits = |(other, result): &(&HostName, &HostResult)| {
            let roster = self.roster.get(*other).filter(|roster| rule.selects(roster));
            *other != host
                && !matches!(result, HostResult::Failed | HostResult::Excused | HostResult::Vanished)
                && roster.is_some_and(|roster| role.is_none_or(|role| *role == roster.role))
                && self.stage_in(record, other) > number
                && (is_live(other) || !must_be_live)
        };
        let is_chosen = |other: &HostName| record.stages.iter().any(|stage| stage.hosts.contains(other));
        let frozen = FrozenHosts::read(self.found);
        let is_frozen = |other: &HostName| {
            self.roster.get(other).is_some_and(|roster| frozen.of(other, roster).is_some())
        };
        let order = |other: &HostName| {
            (!is_live(other), is_frozen(other), is_chosen(other), place(other, &record.version))
        };
        let others = self.results.iter().filter(fits).map(|(other, _)| other);
        others.min_by_key(|other| order(other)).cloned()
    }

    /// True if a host was not observed in the soak that began at a revision: it started later, or not at all. Any
    /// other host that is not settled is only restarting, or tries again.
    fn is_late(&self, host: &HostName, begun: i64) -> bool {
        let progress = self.found.get(&Key::Progress(self.order, host.clone()));
        progress.is_none_or(|progress| progress.create_revision > begun)
    }
}

/// Puts another host, or none, in the place of one that a stage chose.
fn replace(record: &mut RolloutRecord, host: &HostName, number: u32, other: Option<HostName>) {
    if let Some(stage) = record.stages.get_mut(number as usize) {
        stage.hosts.remove(host);
        stage.hosts.extend(other);
    }
}

/// Returns the record of a rollout that does not wait for this host any more. If a stage that is not settled chose
/// it, another host whose agent runs takes its place. `found` holds everything that
/// [`end_reads`](super::end_reads) names.
pub fn record_without(
    host: &HostName,
    order: InstructionOrder,
    record: &RolloutRecord,
    found: &KeySnapshot,
) -> RolloutRecord {
    let members = Members::read(order, record, found);
    let mut new = record.clone();
    let open = open_stage(order, &record.stages, found);
    let number = record.stages.iter().position(|stage| stage.hosts.contains(host));
    let number = number.and_then(|number| u32::try_from(number).ok());
    if let Some(number) = number.filter(|number| *number >= open) {
        let other = members.replacement(host, number, record, true);
        replace(&mut new, host, number, other);
    }
    new
}

fn is_timed(soak: &[u8]) -> bool {
    keys::Soak::read(soak).is_ok_and(|soak| soak.timed)
}

/// Returns what is to be done about the stages of a rollout.
pub(super) fn stage_task(members: &Members<'_>, opening: &StageOpening) -> StageTask {
    let Members { order, record, found, .. } = members;
    let stages = &record.stages;
    let (open, rest) = (open_stage(*order, stages, found), u32::try_from(stages.len()).unwrap_or(u32::MAX));
    if open == rest {
        return StageTask::AllOpen;
    }
    let of_stage = RolloutStage { order: *order, stage: open };
    if let Some(record) = members.choose_again(open) {
        return StageTask::Commit(choose_hosts(of_stage, &record, found));
    }
    let soak = found.get(&Key::Soak(*order, open));
    if let Some(soak) = soak {
        let has_failed = found.entries.iter().any(|(key, entry)| {
            let is_failure = || matches!(Key::parse(key), Ok(Key::Failed(of, _)) if of == *order);
            entry.mod_revision > soak.create_revision && is_failure()
        });
        match stages[open as usize].rule.soak {
            _ if has_failed => return StageTask::EndSoak(end_soak(of_stage, found)),
            Some(length) if !is_timed(&soak.value) => return StageTask::Soak(open, length),
            // Who is not proven for a moment counts when the time is over.
            _ if found.get(&Key::SoakTimer(*order, open)).is_some() => return StageTask::Wait,
            _ => {}
        }
    }
    if !members.is_through(open) {
        let is_late = |soak: &Entry| {
            members.unsettled(open).any(|(host, _)| members.is_late(host, soak.create_revision))
        };
        return match soak.filter(|soak| is_late(soak)) {
            Some(_) => StageTask::EndSoak(end_soak(of_stage, found)),
            None => StageTask::Wait,
        };
    }
    if soak.is_none() && stages[open as usize].rule.soak.is_some() && !members.is_empty(open) {
        return StageTask::Commit(begin_soak(of_stage, opening, found));
    }
    let to = members.next_stage(open, rest);
    StageTask::Commit(open_stages(of_stage, open + 1..=to, opening, found))
}

/// Returns all roster entries. One that cannot be read is empty.
fn roster_of_all(found: &KeySnapshot) -> impl Iterator<Item = (HostName, RosterEntry)> {
    found.entries.iter().filter_map(|(key, entry)| match Key::parse(key) {
        Ok(Key::Host(host)) => Some((host, keys::Host::read(&entry.value).unwrap_or_default())),
        _ => None,
    })
}

/// Returns the hosts on the roster, with their entries. One whose entry cannot be read has an empty one.
pub fn hosts_of(found: &KeySnapshot) -> BTreeMap<HostName, RosterEntry> {
    roster_of_all(found).filter(|(_, roster)| roster.decommissioned.is_none()).collect()
}
