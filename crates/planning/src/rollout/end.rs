//! The end of a rollout: every host has the version, or will not get it without help. One host looks for the end
//! and writes it.

use super::failures::{Budget, Failures};
use super::halt::halts;
use super::holders::{Holders, Proven};
use super::opening::{Members, StageTask, stage_task};
use super::results::{HostResult, vanished_by_version};
use super::rules::{Rules, record_of};
use schema::instruction::Instruction;
use schema::keys::{Key, Prefix};
use schema::names::HostName;
use schema::order::InstructionOrder;
use schema::records::{Ended, StageOpening};
use schema::snapshot::KeySnapshot;
use schema::time::Span;
use schema::transaction::{Compare, Transaction};
use schema::writes::claims::FoundClaims;
use schema::writes::rollout::end;
use std::collections::BTreeSet;

/// What the host does that looks whether its rollout has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndTask {
    /// Nothing more: the rollout has ended, or another one is current.
    Stop,
    /// It looks again later.
    Wait,
    /// It looks after hosts that vanished, in their update or after their proof: nobody else may wait for them.
    LookAfter(Holders),
    /// It halts the rollout: too many hosts failed, and none waits that would notice. The first of these
    /// transactions that the store permits counts.
    Halt(Vec<Transaction>),
    /// It opens the next stage, or prepares that.
    Stage(Transaction),
    /// The timer of this stage is started: the hosts up to it are observed for so long.
    Soak(u32, Span),
    /// It writes that the rollout has ended.
    End(Transaction),
}

/// Returns what is read, all at one revision.
pub fn end_reads(order: InstructionOrder) -> (Vec<Key>, Vec<Prefix>) {
    let hosts = vec![Prefix::Hosts, Prefix::Lives, Prefix::Announced, Prefix::Claimed, Prefix::Maintenances];
    let of_rollout = vec![Prefix::Rollout(order), Prefix::ProgressOf(order)];
    (vec![Key::Store, Key::CurrentVersion], [hosts, of_rollout].concat())
}

/// Returns a transaction that changes nothing. It is applied if the host still holds the mark `closing`, and nothing
/// that was read has changed, as far as a comparison can see that.
pub fn unchanged(order: InstructionOrder, live_lease: i64, found: &KeySnapshot) -> Transaction {
    let mut transaction = Transaction::idempotent("ask whether the rollout has changed");
    transaction.compares.push(Compare::Lease(Key::Closing(order), live_lease));
    // The end of a timer deletes it.
    let timers = found.entries.iter().filter_map(|(key, entry)| match Key::parse(key) {
        Ok(key @ Key::SoakTimer(..)) => Some(Compare::Revision(key, entry.mod_revision)),
        _ => None,
    });
    transaction.compares.extend(timers);
    for key in [Key::Store, Key::CurrentVersion] {
        let revision = found.revision_of(&key);
        transaction.compares.push(Compare::Revision(key, revision));
    }
    let (_, ranges) = end_reads(order);
    transaction.compares.extend(ranges.into_iter().map(|range| Compare::NoneNewer(range, found.revision)));
    transaction
}

/// Returns what a host does that holds the mark `closing` of a rollout. `found` holds everything that was read.
pub fn end_task(order: InstructionOrder, found: &KeySnapshot, ended: &Ended) -> EndTask {
    let is_current = Instruction::find(found).is_some_and(|instruction| instruction.order == order);
    let Some((Ok(record), revision)) = record_of(order, found).filter(|_| is_current) else {
        return EndTask::Stop;
    };
    if found.get(&Key::Ended(order)).is_some() {
        return EndTask::Stop;
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
    let stage = stage_task(&members, &StageOpening { at: ended.at, by: ended.by.clone() });
    let (rules, _) = Rules::of_record(Ok(record), revision);
    let halts = halts(&rollout, (&rules, &failures), (ended.by.clone(), ended.at));
    if !halts.is_empty() {
        return EndTask::Halt(halts);
    }
    match &stage {
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
        return EndTask::Wait;
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
