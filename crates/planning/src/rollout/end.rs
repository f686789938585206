//! The end of a rollout: every host has the version, or will not get it without help. One host looks for the end
//! and writes it.

use super::author::Author;
use super::closing::{hosts_to_tell, live_hosts};
use super::failures::{Budget, Failures};
use super::halt::halts;
use super::holders::{Holders, Proven};
use super::opening::{Members, StageTask, stage_task};
use super::results::{HostResult, vanished_by_version};
use super::rules::{Rules, record_of};
use super::stages::open_stage;
use schema::instruction::Instruction;
use schema::keys::{Key, Prefix};
use schema::names::HostName;
use schema::order::InstructionOrder;
use schema::records::{Ended, StageOpening};
use schema::snapshot::KeySnapshot;
use schema::time::Span;
use schema::transaction::Transaction;
use schema::writes::claims::FoundClaims;
use schema::writes::rollout::end;
use std::collections::BTreeSet;
use std::time::Duration;

/// Shortest time between two reads of the whole fleet.
pub(super) const READ_PAUSE: Duration = Duration::from_millis(500);
/// Shortest time between two reads, as a multiple of the time that a read takes: the more hosts, the longer.
const READ_PAUSE_FACTOR: u32 = 20;
/// Interval at which the fleet is read though nothing has changed.
const READ_INTERVAL: Duration = Duration::from_secs(30);
/// Interval at which the fleet is read while vanished hosts are waited for: the keys of that are not watched.
const LOOK_AFTER_INTERVAL: Duration = Duration::from_secs(5);

/// The host with the mark watches claims and versions while it waits for at most so many hosts.
const FEW_HOSTS: usize = 20;

/// What the host does that looks whether its rollout has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndTask {
    /// Nothing more: the rollout has ended, or another one is current.
    Stop,
    /// The host waits for so many hosts.
    Wait(usize),
    /// The host writes its mark again, with this number of agents: the others ask the less often, the more there are.
    Tell(u32),
    /// The host looks after hosts that vanished, in their update or after their proof: nobody else may wait for them.
    LookAfter(Holders),
    /// The host halts the rollout: too many hosts failed, and none waits that would notice. The first of these
    /// transactions that the store permits counts.
    Halt(Vec<Transaction>),
    /// The host opens the next stage, or prepares that.
    Stage(Transaction),
    /// The timer of this stage is started: the hosts up to it are observed for so long.
    Soak(u32, Span),
    /// The host writes that the rollout has ended.
    End(Transaction),
}

/// Returns what is read, all at one revision.
pub fn end_reads(order: InstructionOrder) -> (Vec<Key>, Vec<Prefix>) {
    let hosts = vec![
        Prefix::Hosts,
        Prefix::Lives,
        Prefix::Announced,
        Prefix::Claimed,
        Prefix::Maintenances,
        Prefix::Freezes,
    ];
    let of_rollout = vec![Prefix::Rollout(order), Prefix::ProgressOf(order)];
    (vec![Key::Store, Key::CurrentVersion], [hosts, of_rollout].concat())
}

impl EndTask {
    /// Returns when the host with the mark reads the fleet again after it has done this: at the earliest, because
    /// something has changed, and at the latest. A read takes `took`.
    pub fn read_again_after(&self, took: Duration) -> [Duration; 2] {
        let pause = READ_PAUSE.max(took.saturating_mul(READ_PAUSE_FACTOR));
        let latest = match self {
            Self::LookAfter(_) => LOOK_AFTER_INTERVAL,
            Self::Stop | Self::Wait(_) => READ_INTERVAL,
            // What it has written, or what kept it from writing, is news.
            Self::Tell(_) | Self::Halt(_) | Self::Stage(_) | Self::Soak(..) | Self::End(_) => pause,
        };
        [pause, latest.max(pause)]
    }

    /// Returns the ranges that the host with the mark watches until its next read. Each host writes its claims and its
    /// version several times in an update. While many hosts are waited for, none of those writes settles a stage or
    /// the rollout, so they are not watched.
    pub fn follows(&self, order: InstructionOrder) -> Vec<Prefix> {
        let (_, mut ranges) = end_reads(order);
        if matches!(self, Self::Wait(hosts) if *hosts > FEW_HOSTS) {
            ranges.retain(|range| !matches!(range, Prefix::Announced | Prefix::Claimed));
        }
        ranges
    }
}

/// Returns what a host does that holds the mark `closing` of a rollout. `found` holds everything that was read.
pub fn end_task(order: InstructionOrder, found: &KeySnapshot, ended: &Ended) -> EndTask {
    let is_current = Instruction::find(found).is_some_and(|instruction| instruction.order == order);
    if !is_current {
        return EndTask::Stop;
    }
    let Some((Ok(record), revision)) = record_of(order, found) else {
        return EndTask::Stop;
    };
    if found.get(&Key::Ended(order)).is_some() {
        return EndTask::Stop;
    }
    if let Some(hosts) = hosts_to_tell(order, found) {
        return EndTask::Tell(hosts);
    }
    let failures = Failures::read(order, Budget::of_record(&record), found);
    let rollout = Instruction { order, version: record.version.clone() };
    let is_halted = failures.halted().is_some();
    let members = Members::read(order, &record, found);
    let has = |wanted| members.results.values().any(|result| *result == wanted);
    let is_pending = has(HostResult::Pending) || has(HostResult::Vanished);
    let is_settled = !is_pending && has(HostResult::Proven);
    let hosts = vanished_by_version(order, &members.results, found);
    let proven = Proven { order, lost_after: record.lost_after, hosts };
    let opening = StageOpening { at: ended.at, by: ended.by.clone(), hosts: live_hosts(found) };
    let stage = stage_task(&members, &opening);
    let waits_for = members.unsettled(open_stage(order, &record.stages, found)).count();
    let (rules, _) = Rules::of_record(Ok(record), revision);
    let halts = halts(&rollout, &rules, &failures, Author { by: ended.by.clone(), at: ended.at });
    if !halts.is_empty() {
        return EndTask::Halt(halts);
    }
    match &stage {
        // A host that fails in a halted rollout may work again before that goes on, and nothing says so then.
        StageTask::EndSoak(transaction) => return EndTask::Stage(transaction.clone()),
        _ if is_halted => {}
        StageTask::Commit(transaction) => return EndTask::Stage(transaction.clone()),
        StageTask::Soak(stage, length) => return EndTask::Soak(*stage, *length),
        StageTask::AllOpen | StageTask::Wait => {}
    }
    let holders = Holders::of_rollout(vanished(found), proven);
    if !holders.is_empty() {
        return EndTask::LookAfter(holders);
    }
    // The end opens every stage.
    if is_halted || stage != StageTask::AllOpen || !is_settled {
        return EndTask::Wait(waits_for);
    }
    EndTask::End(end(order, ended, found))
}

/// Returns the hosts that hold claims for an update and whose agents do not run.
fn vanished(found: &KeySnapshot) -> BTreeSet<HostName> {
    let hosts = found.entries.keys().filter_map(|key| match Key::parse(key) {
        Ok(Key::Claimed(host)) => Some(host),
        _ => None,
    });
    let holds = |host: &HostName| {
        let claims = FoundClaims::read(host, found).claims;
        let is_held = claims.is_some_and(|claims| claims.is_for_update() && !claims.lost);
        is_held && found.get(&Key::Live(host.clone())).is_none()
    };
    hosts.filter(holds).collect()
}
