//! The end of a rollout: every host has the version, or will not get it without help. One host looks for the end
//! and writes it.

use super::failures::{Budget, Failures, failed_hosts};
use super::halt::halts;
use super::holders::Holders;
use super::opening::{Members, StageTask, hosts_of, stage_task};
use super::rules::{Rules, governs, record_of};
use schema::codec;
use schema::instruction::Instruction;
use schema::keys::{Key, Prefix};
use schema::names::HostName;
use schema::order::InstructionOrder;
use schema::records::{
    Ended, FailedHost, FailureKind, HostProgress, ProgressState, RolloutRecord, RosterEntry, StageOpening,
};
use schema::snapshot::KeySnapshot;
use schema::time::Span;
use schema::transaction::{Compare, Transaction};
use schema::writes::claims::FoundClaims;
use schema::writes::rollout::end;
use std::collections::{BTreeMap, BTreeSet};

/// What became of a host in a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostResult {
    /// It has the version.
    Proven,
    /// It failed and does not try again by itself, or it vanished in its update.
    Failed,
    /// Its agent does not run, and it did not start.
    Absent,
    /// It does not have the version, and an operator said that nobody waits for it.
    Excused,
    /// It waits for its turn, or is being updated.
    Pending,
}

/// What the host does that looks whether its rollout has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndTask {
    /// Nothing more: the rollout has ended, or another one is current.
    Stop,
    /// It looks again later.
    Wait,
    /// It looks after hosts that vanished in their update: nobody else may wait for them.
    LookAfter(Holders),
    /// It halts the rollout: too many hosts failed, and none waits that would notice. The first of these
    /// transactions that the store permits counts.
    Halt(Vec<Transaction>),
    /// It opens the next stage, or prepares that.
    Stage(Transaction),
    /// The hosts up to this stage are observed for so long, beginning now.
    Soak(u32, Span),
    /// It writes that the rollout has ended.
    End(Transaction),
}

/// What a host does that is through with its rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClosingTask {
    /// Nothing more: the rollout has ended, or no policy governs it.
    Stop,
    /// Nothing now: another host looks, or the record is not written yet.
    Wait,
    /// It takes the mark of the host that looks.
    Begin,
    /// It holds the mark, and looks.
    Look,
}

/// Returns what a host reads that is through with its rollout.
pub fn closing_reads(order: InstructionOrder) -> [Key; 4] {
    [Key::RolloutPolicy, Key::RolloutRecord(order), Key::Ended(order), Key::Closing(order)]
}

/// Returns what a host does that is through with its rollout. `live_lease` is the lease of its agent.
pub fn closing_task(order: InstructionOrder, live_lease: i64, found: &KeySnapshot) -> ClosingTask {
    if found.get(&Key::Ended(order)).is_some() {
        return ClosingTask::Stop;
    }
    match (record_of(order, found), found.get(&Key::Closing(order))) {
        (None, _) if governs(order, found) => ClosingTask::Wait,
        (None, _) => ClosingTask::Stop,
        (Some(_), None) => ClosingTask::Begin,
        (Some(_), Some(mark)) if mark.lease == live_lease => ClosingTask::Look,
        (Some(_), Some(_)) => ClosingTask::Wait,
    }
}

/// Returns what is read, all at one revision.
pub fn end_reads(order: InstructionOrder) -> (Vec<Key>, Vec<Prefix>) {
    let hosts = vec![Prefix::Hosts, Prefix::Lives, Prefix::Announced, Prefix::Claimed];
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
    let results = results(order, &record, found);
    let count = |wanted| results.values().filter(|result| **result == wanted).count();
    let failures = Failures::read(order, Budget::of_record(&record), found);
    let rollout = Instruction { order, version: record.version.clone() };
    let is_halted = failures.halted().is_some();
    let hosts = hosts_of(found);
    let members = Members { record: &record, hosts: &hosts, results: &results };
    let opening = StageOpening { at: ended.at, by: ended.by.clone() };
    let stage = stage_task(order, &members, &opening, found);
    let (rules, _) = Rules::of_record(Ok(record), revision);
    let halts = halts(&rollout, (&rules, &failures), (ended.by.clone(), ended.at));
    if !halts.is_empty() {
        return EndTask::Halt(halts);
    }
    match stage {
        _ if is_halted => {}
        StageTask::Commit(transaction) => return EndTask::Stage(transaction),
        StageTask::Soak(stage, length) => return EndTask::Soak(stage, length),
        StageTask::Nothing => {}
    }
    let vanished = vanished(found);
    if !vanished.is_empty() {
        return EndTask::LookAfter(Holders::of_hosts(vanished));
    }
    if is_halted || count(HostResult::Pending) > 0 || count(HostResult::Proven) == 0 {
        return EndTask::Wait;
    }
    EndTask::End(end(order, ended, found))
}

/// Returns what became of the hosts of a rollout: those that were on the roster when its record was written. A host
/// that joined later counts when it is proven.
pub fn results(
    order: InstructionOrder,
    record: &RolloutRecord,
    found: &KeySnapshot,
) -> BTreeMap<HostName, HostResult> {
    let written_at = found.get(&Key::RolloutRecord(order)).map_or(i64::MAX, |entry| entry.create_revision);
    let failed: BTreeMap<HostName, Option<FailedHost>> = failed_hosts(order, 0, found).collect();
    let hosts = found.entries.iter().filter_map(|(key, entry)| match Key::parse(key) {
        Ok(Key::Host(host)) => {
            let roster = codec::read::<RosterEntry>(&entry.value);
            let is_member = roster.map_or(true, |roster| roster.decommissioned.is_none());
            is_member.then_some((host, entry.create_revision <= written_at))
        }
        _ => None,
    });
    let results = hosts.map(|(host, is_early)| {
        let result = result_of(&host, (order, record), failed.get(&host), found);
        (host, result, is_early)
    });
    let counts =
        |(host, result, is_early)| (is_early || result == HostResult::Proven).then_some((host, result));
    results.filter_map(counts).collect()
}

/// Returns what became of one host. `failed` is its failure, if it failed and is not healed.
fn result_of(
    host: &HostName,
    (order, record): (InstructionOrder, &RolloutRecord),
    failed: Option<&Option<FailedHost>>,
    found: &KeySnapshot,
) -> HostResult {
    let entry = |key| found.get(&key);
    let progress = entry(Key::Progress(order, host.clone()));
    // A value that cannot be read says at least that the host started.
    let started = || ProgressState::Started;
    let progress = progress.map(|entry| {
        codec::read::<HostProgress>(&entry.value).map_or_else(|_| started(), |progress| progress.state)
    });
    let is_live = entry(Key::Live(host.clone())).is_some();
    let announced = entry(Key::Announced(host.clone()));
    let announced = announced.and_then(|entry| codec::read_version(&entry.value).ok());
    let is_proven =
        announced.as_ref() == Some(&record.version) || !is_live && progress == Some(ProgressState::Proven);
    // A lost host keeps those claims that count failed hosts.
    let claims = FoundClaims::read(host, found).claims;
    let is_claimed = claims.is_some_and(|claims| claims.is_for_update() && !claims.lost);
    let is_lost = |failed: &FailedHost| failed.kind == FailureKind::Lost;
    match (failed, progress) {
        // While it keeps its claims, its version can still fail.
        (None, _) if is_proven && !(is_live && is_claimed) => HostResult::Proven,
        _ if entry(Key::Excused(order, host.clone())).is_some() => HostResult::Excused,
        (_, Some(ProgressState::GaveUp)) => HostResult::Failed,
        // It stopped working after its proof.
        (Some(_), Some(ProgressState::Proven)) => HostResult::Failed,
        (Some(Some(failed)), _) if is_lost(failed) && !is_live && !is_claimed => HostResult::Failed,
        // It was not available before, so it holds no claim by which others would notice that it vanished.
        (_, Some(ProgressState::Started)) if !is_live && !is_claimed => HostResult::Failed,
        // A host without an agent is listed as long as it reports.
        (None, None) if !is_live && !is_claimed && announced.is_none() => HostResult::Absent,
        _ => HostResult::Pending,
    }
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
