//! What became of the hosts of a rollout.

use super::failures::failed_hosts;
use schema::codec;
use schema::keys::{self, Key};
use schema::names::HostName;
use schema::order::InstructionOrder;
use schema::records::{FailedHost, FailureKind, HostProgress, MaintenanceMode, ProgressState, RolloutRecord};
use schema::snapshot::KeySnapshot;
use schema::writes::claims::FoundClaims;
use std::collections::{BTreeMap, BTreeSet};

/// What became of a host in a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostResult {
    /// The host has the version.
    Proven,
    /// The host failed and does not try again by itself, or it vanished in its update.
    Failed,
    /// The host was proven, and its agent does not run any more. Whoever looks for the end of the rollout counts it as
    /// failed if it does not come back.
    Vanished,
    /// Its agent does not run, and it did not start.
    Absent,
    /// The host does not have the version, and an operator said that nobody waits for it.
    Excused,
    /// The host waits for its turn, or is being updated.
    Pending,
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
            let roster = keys::Host::read(&entry.value);
            let is_member = roster.map_or(true, |roster| roster.decommissioned.is_none());
            is_member.then_some((host, entry.create_revision <= written_at))
        }
        _ => None,
    });
    let results = hosts.map(|(host, is_early)| {
        let result = result_of(&host, order, record, failed.get(&host), found);
        (host, result, is_early)
    });
    let counts =
        |(host, result, is_early)| (is_early || result == HostResult::Proven).then_some((host, result));
    results.filter_map(counts).collect()
}

/// Returns what became of one host. `failed` is its failure, if it failed and is not healed.
fn result_of(
    host: &HostName,
    order: InstructionOrder,
    record: &RolloutRecord,
    failed: Option<&Option<FailedHost>>,
    found: &KeySnapshot,
) -> HostResult {
    let entry = |key| found.get(&key);
    let progress = entry(Key::Progress(order, host.clone()));
    // A value that cannot be read says at least that the host started.
    let started = || HostProgress::new(ProgressState::Started, record.at);
    let progress = progress.map(|entry| keys::Progress::read(&entry.value).unwrap_or_else(|_| started()));
    let has_agent = progress.is_some_and(|progress| progress.agent);
    let progress = progress.map(|progress| progress.state);
    let is_live = entry(Key::Live(host.clone())).is_some();
    let announced = entry(Key::Announced(host.clone()));
    let announced = announced.and_then(|entry| codec::read_version(&entry.value).ok());
    let was_proven = !is_live && progress == Some(ProgressState::Proven);
    // Nothing in the store ends when a host without an agent is off, and an operator said that one in maintenance may be.
    let may_be_off = !has_agent || is_in_maintenance(host, found);
    let is_proven = announced.as_ref() == Some(&record.version) || was_proven && may_be_off;
    // A lost host keeps those claims that count failed hosts.
    let claims = FoundClaims::read(host, found).claims;
    let is_claimed = claims.is_some_and(|claims| claims.is_for_update() && !claims.lost);
    let is_lost = |failed: &FailedHost| failed.kind == FailureKind::Lost;
    match (failed, progress) {
        // While it keeps its claims, its version can still fail.
        (None, _) if is_proven && !(is_live && is_claimed) => HostResult::Proven,
        _ if entry(Key::Excused(order, host.clone())).is_some() => HostResult::Excused,
        (None, _) if was_proven && !is_claimed => HostResult::Vanished,
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

/// True if a host is being updated in a rollout.
pub(super) fn has_started(host: &HostName, order: InstructionOrder, found: &KeySnapshot) -> bool {
    let progress = found.get(&Key::Progress(order, host.clone()));
    progress.is_some_and(|entry| {
        keys::Progress::read(&entry.value).map_or(true, |known| known.state == ProgressState::Started)
    })
}

/// True if an operator said that the whole host is in maintenance, so that it may be off. A drain does not say that.
fn is_in_maintenance(host: &HostName, found: &KeySnapshot) -> bool {
    let entry = found.get(&Key::Maintenance(host.clone()));
    let marks = entry.and_then(|entry| keys::Maintenance::read(&entry.value).ok());
    let mark = marks.and_then(|marks| marks.host);
    mark.is_some_and(|mark| mark.how == MaintenanceMode::Maintenance)
}

/// Number of hosts that the version has not reached and that are gone, from which on they show a fault of the network or
/// the power. Fewer may have been off before.
const MASS_LOSS: usize = 3;

/// Returns the hosts that vanished after their proof and are to be counted as failed if they do not come back; none
/// while most of the hosts that the version has not reached, and at least [`MASS_LOSS`], are gone too. Then the network
/// or the power is at fault.
pub(super) fn vanished_by_version(
    order: InstructionOrder,
    results: &BTreeMap<HostName, HostResult>,
    found: &KeySnapshot,
) -> BTreeSet<HostName> {
    let was_reached = |host: &HostName| found.get(&Key::Progress(order, host.clone())).is_some();
    let is_untouched =
        |(host, result): &(&HostName, &HostResult)| **result != HostResult::Proven && !was_reached(host);
    let untouched = results.iter().filter(is_untouched);
    let (gone, there): (Vec<_>, Vec<_>) = untouched
        .filter(|(host, _)| !is_in_maintenance(host, found))
        .partition(|(_, result)| **result == HostResult::Absent);
    if gone.len() >= MASS_LOSS && gone.len() > there.len() {
        return BTreeSet::new();
    }
    let vanished = results.iter().filter(|(_, result)| **result == HostResult::Vanished);
    vanished.map(|(host, _)| host.clone()).collect()
}
