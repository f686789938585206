//! Opens the stages of a rollout, one after the other. A stage opens when every host of the stages before it is
//! proven or settled otherwise, and stayed so for the time of the soak.

use super::limits::place;
use super::results::HostResult;
use super::stages::{open_stage, replacement, stage_of};
use schema::codec;
use schema::keys::Key;
use schema::names::HostName;
use schema::order::InstructionOrder;
use schema::records::{RolloutRecord, RosterEntry, Soak, StageOpening};
use schema::snapshot::KeySnapshot;
use schema::time::Span;
use schema::transaction::Transaction;
use schema::writes::stage::{begin_soak, choose_hosts, end_soak, open_stages};
use std::collections::{BTreeMap, BTreeSet};

/// What is to be done about the stages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StageTask {
    /// Nothing: all stages are open, or a host is not through.
    Nothing,
    /// This is written.
    Commit(Transaction),
    /// The timer of this stage is started: its hosts are observed for so long.
    Soak(u32, Span),
}

/// The hosts of a rollout and what became of them.
pub(super) struct Members<'a> {
    pub(super) record: &'a RolloutRecord,
    pub(super) hosts: &'a BTreeMap<HostName, RosterEntry>,
    pub(super) results: &'a BTreeMap<HostName, HostResult>,
}

impl Members<'_> {
    /// Returns the number of the stage that a host belongs to.
    fn stage_of(&self, host: &HostName) -> u32 {
        let unknown = RosterEntry::default();
        let roster = self.hosts.get(host).unwrap_or(&unknown);
        stage_of(&self.record.stages, host, roster, place(host, &self.record.version))
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
                    HostResult::Pending => false,
                };
                (!is_settled).then_some((host, result))
            })
    }

    /// Returns the record with other hosts in the place of those that an open stage chose and whose agents do not run,
    /// or that left the roster; `None` if there is no such host, or no other one.
    fn choose_again(&self, open: u32, found: &KeySnapshot) -> Option<RolloutRecord> {
        let is_gone =
            |host: &&HostName| self.results.get(*host).is_none_or(|result| *result == HostResult::Absent);
        let gone: Vec<HostName> = self.chosen(open).iter().filter(is_gone).cloned().collect();
        let mut record = self.record.clone();
        let mut changes = false;
        for host in gone {
            changes |= replace(&mut record, (&host, open), self.hosts, |other| {
                let is_live = found.get(&Key::Live(other.clone())).is_some();
                let result = self.results.get(other);
                is_live
                    && result
                        .is_some_and(|result| *result != HostResult::Failed && *result != HostResult::Excused)
            });
        }
        changes.then_some(record)
    }
}

/// Puts another host in the place of one that a stage chose. Returns false if there is none.
fn replace(
    record: &mut RolloutRecord,
    (host, number): (&HostName, u32),
    hosts: &BTreeMap<HostName, RosterEntry>,
    may_be: impl Fn(&HostName) -> bool,
) -> bool {
    // Of a host that left the roster no role is known.
    let role = hosts.get(host).map(|roster| roster.role.as_ref());
    let other = replacement((&record.stages, number), role, &record.version, hosts, may_be);
    let stage = record.stages.get_mut(number as usize);
    let (Some(other), Some(stage)) = (other, stage) else { return false };
    stage.hosts.remove(host);
    stage.hosts.insert(other);
    true
}

/// Returns the record of a rollout that does not wait for this host any more. If a stage chose it, another host whose
/// agent runs takes its place. `hosts` are those on the roster; `found` says which agents run.
pub fn record_without(
    host: &HostName,
    record: &RolloutRecord,
    hosts: &BTreeMap<HostName, RosterEntry>,
    found: &KeySnapshot,
) -> RolloutRecord {
    let mut record = record.clone();
    let number = record.stages.iter().position(|stage| stage.hosts.contains(host));
    if let Some(number) = number.and_then(|number| u32::try_from(number).ok()) {
        let is_live = |other: &HostName| found.get(&Key::Live(other.clone())).is_some();
        let may_be = |other: &HostName| other != host && is_live(other);
        if !replace(&mut record, (host, number), hosts, may_be) {
            record.stages[number as usize].hosts.remove(host);
        }
    }
    record
}

fn is_timed(soak: &[u8]) -> bool {
    codec::read::<Soak>(soak).is_ok_and(|soak| soak.timed)
}

/// Returns what is to be done about the stages of a rollout.
pub(super) fn stage_task(
    order: InstructionOrder,
    members: &Members<'_>,
    opening: &StageOpening,
    found: &KeySnapshot,
) -> StageTask {
    let stages = &members.record.stages;
    let (open, rest) = (open_stage(order, stages, found), u32::try_from(stages.len()).unwrap_or(u32::MAX));
    if open == rest {
        return StageTask::Nothing;
    }
    let soak = found.get(&Key::Soak(order, open));
    if let Some(record) = members.choose_again(open, found) {
        return StageTask::Commit(choose_hosts((order, open), &record, found));
    }
    let is_empty = |number| members.of_stage(number).next().is_none();
    let works = members.of_stage(open).any(|(_, result)| result == HostResult::Proven);
    if members.unsettled(open).next().is_some() || !works && !is_empty(open) {
        let ends = || StageTask::Commit(end_soak((order, open), found));
        return soak.map_or(StageTask::Nothing, |_| ends());
    }
    let length = stages[open as usize].rule.soak.filter(|_| !is_empty(open));
    let has_failed_since = |begun: i64| {
        found.entries.iter().any(|(key, entry)| {
            entry.mod_revision > begun && matches!(Key::parse(key), Ok(Key::Failed(of, _)) if of == order)
        })
    };
    match (length, soak) {
        (Some(_), None) => StageTask::Commit(begin_soak((order, open), opening, found)),
        (Some(_), Some(soak)) if has_failed_since(soak.create_revision) => {
            StageTask::Commit(end_soak((order, open), found))
        }
        (Some(length), Some(soak)) if !is_timed(&soak.value) => StageTask::Soak(open, length),
        (Some(_), Some(_)) if found.get(&Key::SoakTimer(order, open)).is_some() => StageTask::Nothing,
        _ => {
            let to = (open + 1..rest).find(|number| !is_empty(*number)).unwrap_or(rest);
            StageTask::Commit(open_stages((order, open), open + 1..=to, opening, found))
        }
    }
}

/// Returns the hosts on the roster, with their entries. One whose entry cannot be read has an empty one.
pub fn hosts_of(found: &KeySnapshot) -> BTreeMap<HostName, RosterEntry> {
    let hosts = found.entries.iter().filter_map(|(key, entry)| match Key::parse(key) {
        Ok(Key::Host(host)) => Some((host, codec::read::<RosterEntry>(&entry.value).unwrap_or_default())),
        _ => None,
    });
    hosts.filter(|(_, roster)| roster.decommissioned.is_none()).collect()
}
