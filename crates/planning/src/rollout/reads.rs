//! The keys that a host reads before it starts an update.

use super::limits::{QueuedHost, place};
use super::rules::{self, record_of};
use schema::instruction::Instruction;
use schema::keys::{self, Key, Prefix};
use schema::limit::{HEADS, Limit, LimitBy};
use schema::names::{HostName, LabelName};
use schema::order::InstructionOrder;
use schema::reads::Read;
use schema::records::{ResolvedLimit, RosterEntry};
use schema::snapshot::KeySnapshot;

/// The first part of what a view is made from: single keys and ranges.
pub fn first_reads(host: &HostName, order: InstructionOrder) -> Vec<Read> {
    let keys = [Key::RolloutPolicy, Key::Host(host.clone()), Key::Progress(order, host.clone())];
    Read::all(&keys, &[Prefix::Freezes, Prefix::Rollout(order)])
}

/// The second part: the limits that count the host. `found` is the first part.
pub fn second_reads(host: &HostName, instruction: &Instruction, found: &KeySnapshot) -> Vec<Read> {
    let Instruction { order, version } = instruction;
    let record = record_of(*order, found).and_then(|(record, _)| record.ok());
    let limits = record.map(|record| record.limits).unwrap_or_default();
    let own = QueuedHost { place: place(host, version), host: host.clone() };
    reads_of_limits(&own, *order, &limits, found)
}

/// Returns what is read of those limits that count the host: the claims, its own ticket, and the tickets just
/// before it. A queue is not read whole, because every host of the fleet may wait in it.
pub(super) fn reads_of_limits(
    own: &QueuedHost,
    order: InstructionOrder,
    limits: &[ResolvedLimit],
    found: &KeySnapshot,
) -> Vec<Read> {
    let roster = roster_of(&own.host, found).unwrap_or_default();
    let limits = limits.iter().filter_map(|resolved| resolved.by.of_host(&roster).ok().flatten());
    limits.flat_map(|limit| reads_of_limit(own, order, limit)).collect()
}

/// Largest number of limits that are read before it is known which ones there are.
const POSSIBLE_LIMITS: usize = 8;

/// Returns what a host reads that does not know its rollout: limits that may count it are read as well, those by label
/// last. If another one counts it, that is read afterwards.
pub(crate) fn possible_reads(host: &HostName, instruction: &Instruction, roster: &RosterEntry) -> Vec<Read> {
    let Instruction { order, version } = instruction;
    let labels = roster.labels.keys().filter_map(|label| LabelName::new(label).ok()).map(LimitBy::Label);
    let all = [LimitBy::Fleet, LimitBy::Role, LimitBy::Group].into_iter().chain(labels);
    let limits = all.filter_map(|by| by.of_host(roster).ok().flatten()).take(POSSIBLE_LIMITS);
    let own = QueuedHost { place: place(host, version), host: host.clone() };
    let mut reads = first_reads(host, *order);
    reads.extend(limits.flat_map(|limit| reads_of_limit(&own, *order, limit)));
    reads
}

pub(super) fn reads_of_limit(own: &QueuedHost, order: InstructionOrder, limit: Limit) -> [Read; 3] {
    let ticket = Key::Ticket(order, limit.clone(), own.place, own.host.clone());
    [
        Read::Range(Prefix::ClaimsOf(limit.clone())),
        Read::Key(ticket.clone()),
        // One may be the host's own, where it has another place than this.
        Read::NextAfter { range: Prefix::Queue(order, limit), key: ticket, count: HEADS + 1 },
    ]
}

/// Returns the roster entry of a host; an empty one if it has none.
pub(super) fn roster_of(host: &HostName, found: &KeySnapshot) -> rules::Decoded<RosterEntry> {
    found.read(keys::Host(host.clone())).unwrap_or_else(|| Ok(RosterEntry::default()))
}
