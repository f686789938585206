//! The transactions of a rollout that no single host owns: the policy, the record, and claims that an
//! operator releases.

use super::Fence;
use super::act::Act;
use super::claims::delete_claims;
use super::operator::mark_brakes;
use crate::codec;
use crate::keys::Key;
use crate::names::HostName;
use crate::order::InstructionOrder;
use crate::records::{RolloutPolicy, RolloutRecord, StoreIdentity};
use crate::snapshot::KeySnapshot;
use crate::transaction::{Compare, Transaction};

/// How many records are kept.
const RECORDS_KEPT: usize = 100;
/// How many old records one transaction deletes at most.
const RECORDS_TO_DELETE: usize = 10;

/// Returns the transaction that writes the policy, if it is still as it was found. In a store without
/// brakes it also marks the store, so that older agents start nothing; `identity` is what was found.
pub fn set_policy(
    policy: &RolloutPolicy,
    identity: &StoreIdentity,
    found: &KeySnapshot,
    act: &Act,
) -> Transaction {
    let key = Key::RolloutPolicy;
    let mut transaction = Transaction::once("write the rollout policy")
        .when(Compare::Revision(Key::Store, found.revision_of(&Key::Store)))
        .when(Compare::Revision(key.clone(), found.revision_of(&key)));
    transaction.put(key.clone(), codec::write(policy), 0);
    mark_brakes(&mut transaction, identity, found);
    act.add_event(transaction, &key, found)
}

/// Returns the transaction by which a host takes over the writing of a record.
pub fn begin_resolving(host: &HostName, fence: Fence, order: InstructionOrder) -> Transaction {
    let mut transaction = Transaction::idempotent("begin to write the record of the rollout");
    fence.add_to(&mut transaction, host);
    let key = Key::Resolving(order);
    transaction.compares.push(Compare::absent(Key::RolloutRecord(order)));
    transaction.compares.push(Compare::absent(key.clone()));
    transaction.put(key, host.as_str(), fence.live_lease);
    transaction
}

/// Returns the keys that [`write_record`] compares.
pub fn record_keys(order: InstructionOrder) -> [Key; 5] {
    let (record, resolving) = (Key::RolloutRecord(order), Key::Resolving(order));
    [Key::RolloutPolicy, Key::CurrentVersion, Key::Store, record, resolving]
}

/// Returns the transaction that writes the record of a rollout, unless there is one. Policy, desired
/// version and identity must be as found. `rollouts` are the keys of all rollouts: the oldest records are
/// deleted.
pub fn write_record<'a>(
    order: InstructionOrder,
    record: &RolloutRecord,
    found: &KeySnapshot,
    rollouts: impl Iterator<Item = &'a str>,
) -> Transaction {
    let mut transaction = Transaction::idempotent("write the record of the rollout");
    let key = Key::RolloutRecord(order);
    transaction.compares.push(Compare::absent(key.clone()));
    for key in [Key::RolloutPolicy, Key::CurrentVersion, Key::Store] {
        let revision = found.revision_of(&key);
        transaction.compares.push(Compare::Revision(key, revision));
    }
    transaction.put(key, codec::write(record), 0);
    if found.get(&Key::Resolving(order)).is_some() {
        transaction.delete(Key::Resolving(order));
    }
    let mut records: Vec<InstructionOrder> = rollouts
        .filter_map(|key| match Key::parse(key) {
            Ok(Key::RolloutRecord(of)) if of < order => Some(of),
            _ => None,
        })
        .collect();
    records.sort_unstable();
    let excess = (records.len() + 1).saturating_sub(RECORDS_KEPT).min(RECORDS_TO_DELETE);
    for old in records.into_iter().take(excess) {
        transaction.delete(Key::RolloutRecord(old));
    }
    transaction
}

/// Returns the transaction that releases the claims of a host at an operator's word, if they are still
/// as they were found. `found` holds the claims of all hosts. With `may_return`, the host learns that its
/// claims were released, so that it does not take them again.
pub fn release_claims(host: &HostName, may_return: bool, found: &KeySnapshot, act: &Act) -> Transaction {
    let key = Key::Claimed(host.clone());
    let mut transaction = Transaction::once("release the claims");
    delete_claims(&mut transaction, host, may_return, found);
    transaction.reads.push(key.clone());
    act.add_event(transaction, &key, found)
}
