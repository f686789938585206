//! What a host reads that wants to start.

use super::rules::{Read, record_of};
use schema::codec;
use schema::keys::{Key, Prefix};
use schema::names::HostName;
use schema::order::InstructionOrder;
use schema::records::{ResolvedLimit, RosterEntry};
use schema::snapshot::KeySnapshot;

/// The first part of what a view is made from: single keys and ranges.
pub fn first_reads(host: &HostName, order: InstructionOrder) -> (Vec<Key>, Vec<Prefix>) {
    let keys = vec![Key::RolloutPolicy, Key::Host(host.clone()), Key::Progress(order, host.clone())];
    (keys, vec![Prefix::Freezes, Prefix::Rollout(order)])
}

/// The second part: the claims and the queues of the limits that count the host. `found` is the first
/// part.
pub fn second_reads(host: &HostName, order: InstructionOrder, found: &KeySnapshot) -> Vec<Prefix> {
    let record = record_of(order, found).and_then(|(record, _)| record.ok());
    ranges_of_limits(host, order, &record.map(|record| record.limits).unwrap_or_default(), found)
}

/// Returns the claims and the queues of those limits that count the host.
pub(super) fn ranges_of_limits(
    host: &HostName,
    order: InstructionOrder,
    limits: &[ResolvedLimit],
    found: &KeySnapshot,
) -> Vec<Prefix> {
    let roster = roster_of(host, found).unwrap_or_default();
    let limits = limits.iter().filter_map(|resolved| resolved.by.of_host(&roster).ok().flatten());
    limits.flat_map(|limit| [Prefix::ClaimsOf(limit.clone()), Prefix::Queue(order, limit)]).collect()
}

/// Returns the roster entry of a host; an empty one if it has none.
pub(super) fn roster_of(host: &HostName, found: &KeySnapshot) -> Read<RosterEntry> {
    found.get(&Key::Host(host.clone())).map_or(Ok(RosterEntry::default()), |entry| codec::read(&entry.value))
}
