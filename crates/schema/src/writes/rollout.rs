//! The transactions of a rollout that no single host owns: the policy, the record, and claims that an
//! operator releases.

use super::Fence;
use super::act::Act;
use super::claims::delete_claims;
use super::operator::mark_brakes;
use crate::codec;
use crate::instruction::Instruction;
use crate::keys::{self, Key, Prefix};
use crate::names::{HostName, Version};
use crate::order::InstructionOrder;
use crate::records::{
    Closing, Ended, Halt, RolloutOptions, RolloutPolicy, RolloutRecord, StoreIdentity, Trigger,
};
use crate::snapshot::KeySnapshot;
use crate::transaction::{Compare, Transaction};
use std::collections::BTreeSet;

/// How many records are kept.
const RECORDS_KEPT: usize = 100;
/// How many older rollouts one transaction deletes at most.
const ROLLOUTS_TO_DELETE: usize = 10;

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
    let before = found.value_of(keys::RolloutPolicy);
    let before = before.filter(|before| !before.is_empty());
    // While it is empty, nobody notes which versions worked.
    let since = before.map_or(found.revision, |before| before.since);
    let policy = RolloutPolicy { since, ..policy.clone() };
    transaction.put(key.clone(), codec::write(&policy), 0);
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

/// The keys from which the record of a new rollout follows.
pub const RECORD_KEYS: [Key; 4] = [Key::RolloutPolicy, Key::CurrentVersion, Key::Trigger, Key::Store];

/// Returns the keys from which the record of a rollout follows, and those that say whether somebody writes it.
pub fn record_keys(order: InstructionOrder) -> [Key; 6] {
    let [policy, version, trigger, store] = RECORD_KEYS;
    [policy, version, trigger, store, Key::RolloutRecord(order), Key::Resolving(order)]
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
    let older = rollouts.filter_map(|key| match Key::parse(key) {
        Ok(
            Key::RolloutRecord(of) | Key::Failed(of, _) | Key::Halt(of) | Key::Ended(of) | Key::Closing(of),
        ) => Some(of),
        _ => None,
    });
    let older: BTreeSet<InstructionOrder> = older.filter(|of| *of < order).collect();
    let excess = (older.len() + 1).saturating_sub(RECORDS_KEPT);
    for outdated in older.into_iter().take(excess.min(ROLLOUTS_TO_DELETE)) {
        transaction.delete_all(Prefix::Rollout(outdated));
        transaction.delete_all(Prefix::ProgressOf(outdated));
    }
    transaction
}

/// Returns the transaction by which a host takes over to look whether a rollout has ended, or says something else in its
/// mark. `mark` is the revision of the mark that it found, 0 if there is none; `lease` the one of the new mark. The host
/// keeps it alive as long as it looks.
pub fn begin_closing(
    host: &HostName,
    fence: Fence,
    order: InstructionOrder,
    mark: i64,
    lease: i64,
    closing: &Closing,
) -> Transaction {
    let mut transaction = Transaction::idempotent("look whether the rollout has ended");
    fence.add_to(&mut transaction, host);
    transaction.compares.push(Compare::absent(Key::Ended(order)));
    transaction.compares.push(Compare::Revision(Key::Closing(order), mark));
    transaction.put(Key::Closing(order), codec::write(closing), lease);
    transaction
}

/// Returns the transaction that ends a rollout, if nothing changed since what was found: no other version is
/// desired, no host failed, joined, came back, or got further.
pub fn end(order: InstructionOrder, ended: &Ended, found: &KeySnapshot) -> Transaction {
    let mut transaction = Transaction::idempotent("end the rollout");
    for key in [Key::Store, Key::CurrentVersion, Key::RolloutRecord(order), Key::Halt(order)] {
        let revision = found.revision_of(&key);
        transaction.compares.push(Compare::Revision(key, revision));
    }
    let key = Key::Ended(order);
    transaction.compares.push(Compare::absent(key.clone()));
    for range in [Prefix::Hosts, Prefix::Lives, Prefix::FailedOf(order), Prefix::ProgressOf(order)] {
        transaction.compares.push(Compare::NoneNewer(range, found.revision));
    }
    transaction.put(key, codec::write(ended), 0);
    transaction.delete(Key::Closing(order));
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

/// Adds to the transaction that halts a rollout that the fleet goes back to a version that worked, if the
/// rollout has not ended and its version is still the desired one.
pub fn add_rollback(transaction: &mut Transaction, rollout: &Instruction, good: &Version, halt: &Halt) {
    let Instruction { order, version } = rollout;
    transaction.compares.push(Compare::absent(Key::Ended(*order)));
    // A restored store uses its revisions again.
    transaction.compares.push(Compare::Revision(Key::CurrentVersion, order.revision));
    transaction.compares.push(Compare::Value(Key::CurrentVersion, version.as_str().into()));
    let trigger = Trigger {
        at: halt.at,
        by: halt.by.clone(),
        reason: Some(halt.why.clone()),
        from: Some(version.clone()),
        options: RolloutOptions::default(),
        rollback: true,
    };
    transaction.put(Key::CurrentVersion, good.as_str(), 0);
    transaction.put(Key::Trigger, codec::write(&trigger), 0);
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

/// Returns the transaction by which an operator changes the numbers of the present rollout, if its record is as it was
/// found.
pub fn change_record(
    order: InstructionOrder,
    record: &RolloutRecord,
    found: &KeySnapshot,
    act: &Act,
) -> Transaction {
    let key = Key::RolloutRecord(order);
    let mut transaction = Transaction::once("change the numbers of the rollout");
    for key in [Key::Store, Key::CurrentVersion, key.clone()] {
        let revision = found.revision_of(&key);
        transaction.compares.push(Compare::Revision(key, revision));
    }
    transaction.put(key.clone(), codec::write(record), 0);
    act.add_event(transaction, &key, found)
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
