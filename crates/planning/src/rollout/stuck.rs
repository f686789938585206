//! What keeps a rollout from going on: limits that no host leaves by itself, so that the hosts that wait for them wait for an
//! operator, and hosts that vanished after their proof.

use super::opening::hosts_of;
use super::results::{HostResult, has_started, vanished_by_version};
use schema::keys::Key;
use schema::limit::Limit;
use schema::names::HostName;
use schema::order::InstructionOrder;
use schema::records::RolloutRecord;
use schema::snapshot::KeySnapshot;
use schema::time::format_duration;
use schema::writes::claims::FoundClaims;
use std::collections::{BTreeMap, BTreeSet};

/// Returns why hosts that have not started cannot do so without an operator, and what the operator can do; `None` if
/// their limits are not in the way. `results` says what became of the hosts, `found` holds everything that
/// [`end_reads`](super::end_reads) names.
pub(super) fn stuck_limits(
    order: InstructionOrder,
    record: &RolloutRecord,
    results: &BTreeMap<HostName, HostResult>,
    found: &KeySnapshot,
) -> Option<String> {
    let roster = hosts_of(found);
    let waits =
        |host: &HostName| results.get(host) == Some(&HostResult::Pending) && !has_started(host, order, found);
    let mut limits: BTreeSet<(Limit, u32)> = BTreeSet::new();
    for (_, entry) in roster.iter().filter(|(host, _)| waits(host)) {
        limits.extend(record.limits.iter().filter_map(|resolved| {
            let limit = resolved.by.of_host(entry).ok().flatten()?;
            let max = resolved.max_of(&limit.value);
            Some((limit, max))
        }));
    }
    limits.into_iter().find_map(|(limit, max)| {
        if max == 0 {
            let path = limit.path();
            return Some(format!(
                "no host of {limit} starts: its limit is 0; `orchestrate rollout set --max {path}=N` raises it"
            ));
        }
        let idle = idle_holders(&limit, results, found);
        if idle.len() < max as usize {
            return None;
        }
        let names: Vec<&str> = idle.iter().map(|host| host.as_str()).collect();
        let (names, first) = (names.join(", "), names[0]);
        Some(format!(
                "the limit of {limit} is held by hosts that do not go on: {names}; repair them, or run `orchestrate claims release {first}` and `orchestrate rollout excuse {first}`"
            ))
    })
}

/// Returns the hosts that hold a claim of a limit though they gave up or were lost.
fn idle_holders(
    limit: &Limit,
    results: &BTreeMap<HostName, HostResult>,
    found: &KeySnapshot,
) -> Vec<HostName> {
    let hosts = found.entries.keys().filter_map(|key| match Key::parse(key) {
        Ok(Key::Claimed(host)) => Some(host),
        _ => None,
    });
    let is_idle = |host: &HostName| {
        let Some(claims) = FoundClaims::read(host, found).claims else { return false };
        let is_over = claims.lost || results.get(host) == Some(&HostResult::Failed);
        claims.number_of(limit).is_some() && claims.is_for_update() && is_over
    };
    hosts.filter(is_idle).collect()
}

/// Says which hosts vanished after their proof, and what becomes of them.
pub(super) fn held_by_vanished(
    order: InstructionOrder,
    record: &RolloutRecord,
    results: &BTreeMap<HostName, HostResult>,
    found: &KeySnapshot,
) -> Option<String> {
    let vanished = results.iter().filter(|(_, result)| **result == HostResult::Vanished);
    let names: Vec<&str> = vanished.map(|(host, _)| host.as_str()).collect();
    let (first, names) = (*names.first()?, names.join(", "));
    let lost_after = format_duration(record.lost_after.0);
    Some(if vanished_by_version(order, results, found).is_empty() {
        format!(
            "vanished after the proof: {names}; none counts as failed while most hosts that the version has not reached are gone too; `orchestrate rollout excuse {first}` goes on without it"
        )
    } else {
        format!(
            "vanished after the proof: {names}; a host counts as failed when its agent has not run for {lost_after}"
        )
    })
}
