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
use crate::records::{Halt, RolloutPolicy, RolloutRecord, StoreIdentity};
use crate::snapshot::KeySnapshot;
use crate::transaction::{Compare, Transaction};
use std::collections::BTreeMap;

/// How many records are kept.
const RECORDS_KEPT: usize = 100;
/// How many keys of older rollouts one transaction deletes at most.
const KEYS_TO_DELETE: usize = 50;

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
/// version and identity must be as found. `rollouts` are the keys of all rollouts: those
/// of the oldest are deleted.
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
    let mut older: BTreeMap<InstructionOrder, Vec<Key>> = BTreeMap::new();
    for key in rollouts.filter_map(|key| Key::parse(key).ok()) {
        match key {
            Key::RolloutRecord(of) | Key::Failed(of, _) | Key::Halt(of) if of < order => {
                older.entry(of).or_default().push(key);
            }
            _ => {}
        }
    }
    let excess = (older.len() + 1).saturating_sub(RECORDS_KEPT);
    older.into_values().take(excess).flatten().take(KEYS_TO_DELETE).for_each(|key| transaction.delete(key));
    transaction
}

/// Returns the transaction by which somebody halts a rollout, unless it is halted. The record must be as
/// found.
pub fn halt(order: InstructionOrder, record_revision: i64, halt: &Halt) -> Transaction {
    let mut transaction = Transaction::idempotent("halt the rollout")
        .when(Compare::Revision(Key::RolloutRecord(order), record_revision))
        .when(Compare::absent(Key::Halt(order)));
    transaction.put(Key::Halt(order), codec::write(halt), 0);
    transaction
}

/// Returns the transaction by which an operator lets a halted rollout go on. Failures up to the revision of
/// what was found do not count any more. `record` is the one that was found.
pub fn resume(order: InstructionOrder, record: RolloutRecord, found: &KeySnapshot, act: &Act) -> Transaction {
    let (halt, key) = (Key::Halt(order), Key::RolloutRecord(order));
    let mut transaction = Transaction::once("resume the rollout")
        .when(Compare::Revision(halt.clone(), found.revision_of(&halt)))
        .when(Compare::Revision(key.clone(), found.revision_of(&key)));
    let record = RolloutRecord { counted_from: found.revision, ..record };
    transaction.put(key, codec::write(&record), 0);
    transaction.delete(halt.clone());
    act.add_event(transaction, &halt, found)
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
