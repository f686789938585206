//! The transactions of operators. Each carries the event that tells who did what.

use super::act::Act;
use crate::codec::{self, cut};
use crate::freeze::FreezeScope;
use crate::frozen::FrozenBy;
use crate::instruction::Epoch;
use crate::keys::{self, Key, Prefix};
use crate::names::{HostName, ServiceName, Token, Version};
use crate::reads::Read;
use crate::records::{
    DropStaleRequest, EVENT_TEXT_MAX_BYTES, Freeze, Maintenance, RetryRequest, RolloutOptions, RosterEntry,
    StoreIdentity, Trigger,
};
use crate::snapshot::{Entry, KeySnapshot};
use crate::time::EpochSeconds;
use crate::transaction::{Compare, Transaction};
use std::collections::BTreeSet;

/// True if this version is the instruction in force. None is in force while the identity of the
/// store cannot be read.
pub fn is_in_force(found: &KeySnapshot, version: &Version) -> bool {
    let Ok(epoch) = Epoch::read(found.get(&Key::Store)) else { return false };
    let instruction = epoch.instruction(found.get(&Key::CurrentVersion));
    instruction.ok().flatten().is_some_and(|instruction| instruction.version == *version)
}

/// The version that an operator asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetRequest {
    pub version: Version,
    /// What its rollout does not take from the policy.
    pub options: RolloutOptions,
    /// True if nothing is written when the version is the instruction in force.
    pub if_different: bool,
    /// What is read when the version is written: that from which the record of its rollout follows.
    pub rollout_reads: Vec<Read>,
}

impl TargetRequest {
    /// Returns the request for a version, under the policy as it is.
    pub fn new(version: Version) -> Self {
        Self { version, options: RolloutOptions::default(), if_different: false, rollout_reads: Vec::new() }
    }
}

/// Returns the transaction that writes the desired version. With `only_if_unchanged` it replaces
/// only the instruction that was found.
pub fn set_target(
    request: &TargetRequest,
    only_if_unchanged: bool,
    found: &KeySnapshot,
    act: &Act,
) -> Transaction {
    let mut transaction = Transaction::once("set /current_version");
    if only_if_unchanged {
        let revision = found.revision_of(&Key::CurrentVersion);
        transaction.compares.push(Compare::Revision(Key::CurrentVersion, revision));
    }
    put_target(&mut transaction, &request.version, false, &request.options, found, act);
    transaction.reads_after.clone_from(&request.rollout_reads);
    act.add_event(transaction, &Key::CurrentVersion, found)
}

/// Returns the transaction by which an operator lets the fleet go back to a version, if the desired version is
/// still the one that was found.
pub fn roll_back(version: &Version, found: &KeySnapshot, act: &Act) -> Transaction {
    let key = Key::CurrentVersion;
    let mut transaction = Transaction::once("roll back");
    for key in [Key::Store, key.clone()] {
        let revision = found.revision_of(&key);
        transaction.compares.push(Compare::Revision(key, revision));
    }
    put_target(&mut transaction, version, true, &RolloutOptions::default(), found, act);
    act.add_event(transaction, &key, found)
}

/// Adds the write of the desired version, and in a store with brakes of who asked for it.
pub(super) fn put_target(
    transaction: &mut Transaction,
    version: &Version,
    rollback: bool,
    options: &RolloutOptions,
    found: &KeySnapshot,
    act: &Act,
) {
    let seconds = i64::try_from(act.id.millis() / 1000).unwrap_or(i64::MAX);
    let text = |text: &String| cut(text, EVENT_TEXT_MAX_BYTES);
    let from = found.value_of(keys::CurrentVersion);
    let (by, reason) = (text(&act.by), act.reason.as_ref().map(text));
    let options = options.clone();
    let trigger = Trigger { at: EpochSeconds(seconds), by, reason, from, options, rollback };
    transaction.put(Key::CurrentVersion, version.as_str(), 0);
    // Without a policy nobody reads it.
    let identity = found.value_of(keys::Store);
    if identity.is_some_and(|identity| identity.has_brakes) {
        transaction.put(Key::Trigger, codec::write(&trigger), 0);
    }
}

/// What the id of the freeze begins with that accepting a store writes; its epoch follows.
const ACCEPT: &str = "accept-";
/// The reason of that freeze.
const ACCEPT_REASON: &str =
    "the store was accepted; remove this freeze when `orchestrate claims --stale` lists no host";

/// True if the rollout policy has limits, or cannot be read.
pub fn has_limits(found: &KeySnapshot) -> bool {
    let policy = found.read(keys::RolloutPolicy);
    policy.is_some_and(|policy| policy.map_or(true, |policy| !policy.limits.is_empty()))
}

/// True for the freeze that accepting a store writes.
pub fn is_of_accept(frozen: &FrozenBy) -> bool {
    frozen.scope == FreezeScope::Fleet
        && frozen.token.as_ref().is_some_and(|token| token.as_str().starts_with(ACCEPT))
}

/// True for a claim that its host has not written since the store was accepted, or marked. `claim` is its
/// entry in what was found.
pub fn is_stale(claim: &Entry, found: &KeySnapshot) -> bool {
    claim.mod_revision < found.revision_of(&Key::Store)
}

/// Returns the transaction that accepts the store for the whole fleet: it writes the identity with
/// the next epoch, and the desired version, if the identity is still the one that was found. The
/// freezes and the rollout policy, which `found` contains as well, keep their effect.
///
/// A store that went back has lost claims of limits. So the fleet is frozen if the policy has limits, until
/// the hosts have asserted theirs and somebody has looked. It lists hosts under versions that they may not have
/// any more, so no listing stays: each host that has a version lists itself again.
pub fn accept_store(
    identity: &StoreIdentity,
    version: &Version,
    at: EpochSeconds,
    found: &KeySnapshot,
    act: &Act,
) -> Transaction {
    let mut transaction = Transaction::once("accept the store")
        .when(Compare::Revision(Key::Store, found.revision_of(&Key::Store)));
    let before = found.value_of(keys::Store);
    let has_brakes = before.is_some_and(|before| before.has_brakes)
        || FrozenBy::all(found).next().is_some()
        || found.get(&Key::RolloutPolicy).is_some();
    let identity = StoreIdentity { has_brakes, ..identity.clone() };
    if has_limits(found)
        && let Ok(token) = Token::new(format!("{ACCEPT}{}", identity.epoch))
    {
        let freeze = Freeze { by: act.by.clone(), reason: ACCEPT_REASON.into(), at, until: None };
        transaction.put(Key::Freeze(FreezeScope::Fleet, token), codec::write(&freeze), 0);
    }
    transaction.put(Key::Store, identity.write(), 0);
    transaction.delete_all(Prefix::Announced);
    transaction.delete_all(Prefix::RunningVersions);
    put_target(&mut transaction, version, false, &RolloutOptions::default(), found, act);
    act.add_event(transaction, &Key::Store, found)
}

/// Returns the transaction that puts a host on the roster.
pub fn add_host(host: &HostName, entry: &RosterEntry, found: &KeySnapshot, act: &Act) -> Transaction {
    let key = Key::Host(host.clone());
    let mut transaction = Transaction::idempotent("add the host");
    transaction.put(key.clone(), codec::write(entry), 0);
    act.add_event(transaction, &key, found)
}

/// Returns the transactions that decommission a host, in order: they withdraw its services, then
/// replace its roster entry by a tombstone and delete its other keys, except for its claims. `found` holds
/// its keys.
pub fn decommission(
    host: &HostName,
    tombstone: &RosterEntry,
    found: &KeySnapshot,
    act: &Act,
) -> Vec<Transaction> {
    let keys = || found.entries.keys().filter_map(|key| Key::parse(key).ok());
    let of_host = || keys().filter(|key| key.host() == Some(host));
    let service = |key| match key {
        Key::Service(service, _) | Key::Health(service, _) => Some(service),
        _ => None,
    };
    let services: BTreeSet<ServiceName> = of_host().filter_map(service).collect();
    let services: Vec<ServiceName> = services.into_iter().collect();
    let mut transactions = super::services::withdraw_all(host, &services);
    let mut last = Transaction::idempotent("decommission the host");
    let roster = Key::Host(host.clone());
    last.put(roster.clone(), codec::write(tombstone), 0);
    // The keys of services are gone by then. The claims are released afterwards, each by comparison.
    let is_done = |key: &Key| matches!(key, Key::Service(..) | Key::Health(..) | Key::Claimed(_));
    let others = of_host().filter(|key| *key != roster && !is_done(key));
    others.for_each(|key| last.delete(key));
    transactions.push(act.add_event(last, &roster, found));
    transactions
}

/// Returns the transaction that requests that a host try again.
pub fn request_retry(host: &HostName, at: EpochSeconds, found: &KeySnapshot, act: &Act) -> Transaction {
    let key = Key::Retry(host.clone());
    let mut transaction = Transaction::idempotent("request a retry");
    transaction.put(key.clone(), codec::write(&RetryRequest { at }), 0);
    act.add_event(transaction, &key, found)
}

/// Largest number of instances that [`set_maintenance`] compares: the store allows 128 comparisons.
pub const COMPARED_MAX: usize = 60;

/// Returns the transaction that writes which services of a host are in maintenance, if that is
/// still as it was found, and if the instances of others that remain are as well: so two operators do not
/// take the last two instances of a service at the same time. `remain` has at most [`COMPARED_MAX`] entries.
pub fn set_maintenance(
    host: &HostName,
    maintenance: &Maintenance,
    remain: &[(ServiceName, HostName)],
    found: &KeySnapshot,
    act: &Act,
) -> Transaction {
    let key = Key::Maintenance(host.clone());
    let mut transaction = Transaction::once("change the maintenance marks")
        .when(Compare::Revision(key.clone(), found.revision_of(&key)));
    let keys = remain.iter().flat_map(|(service, other)| {
        [Key::Health(service.clone(), other.clone()), Key::Maintenance(other.clone())]
    });
    for key in BTreeSet::from_iter(keys) {
        let revision = found.revision_of(&key);
        transaction.compares.push(Compare::Revision(key, revision));
    }
    if maintenance.is_empty() {
        transaction.delete(key.clone());
    } else {
        transaction.put(key.clone(), codec::write(maintenance), 0);
    }
    act.add_event(transaction, &key, found)
}

/// Returns the transaction that writes a freeze under a key of its own. In a store without brakes it
/// also marks the store, so that older agents start nothing; `identity` is what was found, or what a store without
/// an identity gets.
pub fn add_freeze(
    scope: &FreezeScope,
    token: &Token,
    freeze: &Freeze,
    lease: i64,
    identity: &StoreIdentity,
    found: &KeySnapshot,
    act: &Act,
) -> Transaction {
    let key = Key::Freeze(scope.clone(), token.clone());
    let mut transaction = Transaction::once("write the freeze")
        .when(Compare::Revision(Key::Store, found.revision_of(&Key::Store)))
        .when(Compare::absent(key.clone()));
    transaction.put(key.clone(), codec::write(freeze), lease);
    mark_brakes(&mut transaction, identity, found);
    act.add_event(transaction, &key, found)
}

/// Marks a store without brakes, so that older agents start nothing. `identity` is what was found, or what a
/// store without an identity gets.
pub(super) fn mark_brakes(transaction: &mut Transaction, identity: &StoreIdentity, found: &KeySnapshot) {
    let identity = match found.get(&Key::Store) {
        Some(_) if identity.has_brakes => return,
        Some(entry) => identity.clone().with_brakes(entry),
        None => StoreIdentity { has_brakes: true, ..identity.clone() },
    };
    transaction.put(Key::Store, identity.write(), 0);
}

/// Returns the transaction that removes a freeze, if it is still as it was found.
pub fn remove_freeze(scope: &FreezeScope, token: &Token, found: &KeySnapshot, act: &Act) -> Transaction {
    let key = Key::Freeze(scope.clone(), token.clone());
    let mut transaction =
        Transaction::once("remove the freeze").when(Compare::Revision(key.clone(), found.revision_of(&key)));
    transaction.delete(key.clone());
    act.add_event(transaction, &key, found)
}

/// Returns the transaction that requests that agents stop serving retained instances.
pub fn request_drop_stale(at: EpochSeconds, found: &KeySnapshot, act: &Act) -> Transaction {
    let mut transaction = Transaction::idempotent("release the view");
    transaction.put(Key::DropStale, codec::write(&DropStaleRequest { at }), 0);
    act.add_event(transaction, &Key::DropStale, found)
}
