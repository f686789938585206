//! The transaction of a host: start, done, withdraw, report. It is fenced: it compares the
//! revisions of the host's own claim and of the store's identity, so a host that lost either writes
//! nothing.

use super::claims::{ClaimsChange, FoundClaims, RolloutGuard, claim_keys, found_claims};
use super::{Fence, HostStatus, WriteRefusal, add_status};
use crate::codec;
use crate::freeze::FreezeScope;
use crate::frozen::FrozenBy;
use crate::keys::{self, Key, Prefix};
use crate::names::{HostName, Version};
use crate::order::InstructionOrder;
use crate::reads::Read;
use crate::records::{FailedHost, HostClaims, HostProgress, Report};
use crate::snapshot::{Entry, KeySnapshot};
use crate::time::EpochSeconds;
use crate::transaction::{Compare, Operation, Transaction};

/// What the transaction does with the listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listing {
    /// Leaves the listing unchanged.
    Keep,
    Remove,
    /// Lists the host under this version, since this time, and under no other version.
    Set(Version, EpochSeconds),
}

/// The content of one transaction of a host. It always includes the report, because the host
/// recognises its own write by the report's `write_id` after a lost answer.
#[derive(Debug, Clone)]
pub struct HostWrite<'a> {
    /// Name of the host that writes.
    pub host: &'a HostName,
    /// Revisions that must be unchanged.
    pub fence: Fence,
    /// What the start transaction compares besides; `None` for the other transactions.
    pub start: Option<StartGuard>,
    /// Change of the listing.
    pub listing: Listing,
    /// Results to write. Each written state removes the other states of its type.
    pub statuses: Vec<HostStatus>,
    /// The claims and the ticket that the host has from now on; `None` if they do not change.
    pub claims: Option<HostClaims>,
    /// Change of the failure of the host in a rollout.
    pub failure: FailureChange,
    /// How far the host got in a rollout; `None` if that does not change.
    pub progress: Option<(InstructionOrder, HostProgress)>,
    /// Report to write with the transaction.
    pub report: &'a Report,
    /// What the host wants to know of its rollout if its start is refused, or else when the transaction was applied.
    pub rollout_reads: &'a [Read],
}

/// What a transaction does with the failure of its host in a rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FailureChange {
    Keep,
    /// Writes that the host failed, or that it is healed.
    Put(InstructionOrder, FailedHost),
    /// Deletes what others wrote: the host is proven.
    Delete(InstructionOrder),
}

/// What the start transaction compares: that the host is still asked to start, and that nothing
/// forbids it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartGuard {
    /// Revision that `/current_version` must still have; 0 if it must not exist.
    pub target_revision: i64,
    /// Value that it must have too: a restored store uses its revisions again.
    pub target_value: Vec<u8>,
    /// The freezes that would match the host. It is empty in a store without brakes, in which there
    /// is no freeze: the identity of the store, which is compared too, says so.
    pub scopes: Vec<FreezeScope>,
    /// Revision of the roster entry from which the scopes and the limits follow. It is compared if there
    /// are scopes.
    pub roster_revision: i64,
    /// What is compared of the rollout; `None` in a store without brakes.
    pub rollout: Option<RolloutGuard>,
}

impl StartGuard {
    /// Adds the comparisons of a start.
    pub(super) fn add_to(&self, host: &HostName, transaction: &mut Transaction) {
        transaction.compares.push(Compare::Revision(Key::CurrentVersion, self.target_revision));
        if self.target_revision != 0 {
            transaction.compares.push(Compare::Value(Key::CurrentVersion, self.target_value.clone()));
        }
        if self.scopes.is_empty() {
            return;
        }
        transaction.compares.push(Compare::Revision(Key::Host(host.clone()), self.roster_revision));
        let ranges = || self.scopes.iter().cloned().map(Prefix::FreezesOf);
        transaction.compares.extend(ranges().map(Compare::NoneIn));
        transaction.read_ranges.extend(ranges());
        if let Some(rollout) = &self.rollout {
            rollout.add_to(transaction);
        }
    }
}

/// What a host believes that the store holds before its transaction.
///
/// A request that its client gave up can still be executed later: it can wait in a connection, or in
/// etcd after a time-out. So every write compares the revision of the host's own report, which every
/// write changes: a late one is refused as soon as a newer one was applied.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExpectedKeys {
    /// Value of the host's `announced` key; `None` if the key does not exist. It is compared if the
    /// transaction changes the listing.
    pub announced: Option<Vec<u8>>,
    /// Revision of the host's report; 0 if it does not exist.
    pub report_revision: i64,
    /// The claims of the host. They are compared if the transaction changes them.
    pub claims: FoundClaims,
}

/// What became of a transaction of a host whose answer was lost, or whose comparisons did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The write was applied at this revision.
    Applied(i64),
    /// A comparison failed, so nothing was written.
    Refused(WriteRefusal),
    /// A freeze stands, so nothing was written.
    Frozen(FrozenBy),
    /// The rollout is not as the host knew it, or somebody else holds a claim that the host wanted.
    /// Nothing was written.
    HeldBack,
    /// The write was not applied, or the keys were not the expected ones. It can be repeated with those that
    /// were found.
    Repeat(ExpectedKeys),
}

impl HostWrite<'_> {
    /// Returns the transaction, which compares the expected keys.
    pub fn transaction(&self, expected: &ExpectedKeys) -> Transaction {
        let mut transaction = Transaction::once("write the host's state");
        self.fence.add_to(&mut transaction, self.host);
        if let Some(start) = &self.start {
            start.add_to(self.host, &mut transaction);
        }
        let report = Key::Report(self.host.clone());
        transaction.compares.push(Compare::Revision(report.clone(), expected.report_revision));
        transaction.put(report, self.report.write_bounded(), 0);
        if self.listing != Listing::Keep {
            self.add_listing(&mut transaction, expected.announced.as_deref());
        }
        for status in &self.statuses {
            add_status(&mut transaction, self.host, status, 0);
        }
        match &self.failure {
            FailureChange::Keep => {}
            FailureChange::Put(order, failed) => {
                transaction.put(Key::Failed(*order, self.host.clone()), codec::write(failed), 0);
            }
            FailureChange::Delete(order) => transaction.delete(Key::Failed(*order, self.host.clone())),
        }
        if let Some((order, progress)) = &self.progress {
            transaction.put(Key::Progress(*order, self.host.clone()), codec::write(progress), 0);
        }
        if let Some(new) = &self.claims {
            let change = ClaimsChange { host: self.host, new, old: &expected.claims };
            change.add_to(&mut transaction);
        }
        transaction.reads = self.keys_to_judge(expected);
        let reads =
            if self.start.is_some() { &mut transaction.reads_instead } else { &mut transaction.reads_after };
        reads.extend_from_slice(self.rollout_reads);
        transaction
    }

    /// Returns the transaction that only takes back an untrue listing, for a store that accepts no puts; `None` if
    /// the listing is true until the write is applied, as before a start. It compares the report as the write does,
    /// so a late one deletes no newer listing.
    pub fn retraction(&self, expected: &ExpectedKeys) -> Option<Transaction> {
        let announced = expected.announced.as_deref()?;
        let is_untrue = match &self.listing {
            Listing::Keep => false,
            Listing::Remove => self.start.is_none(),
            Listing::Set(version, _) => announced != version.as_str().as_bytes(),
        };
        let only_listing = Self {
            listing: Listing::Remove,
            start: None,
            statuses: Vec::new(),
            claims: None,
            failure: FailureChange::Keep,
            progress: None,
            rollout_reads: &[],
            ..self.clone()
        };
        let mut transaction = only_listing.transaction(expected);
        transaction.name = "take back the listing";
        transaction.idempotent = true;
        transaction.operations.retain(|operation| matches!(operation, Operation::Delete(_)));
        is_untrue.then_some(transaction)
    }

    fn add_listing(&self, transaction: &mut Transaction, announced: Option<&[u8]>) {
        let host = self.host;
        let key = Key::Announced(host.clone());
        transaction.compares.push(match announced {
            Some(value) => Compare::Value(key.clone(), value.to_vec()),
            None => Compare::absent(key.clone()),
        });
        let new = if let Listing::Set(version, _) = &self.listing { Some(version) } else { None };
        let old = announced.and_then(|value| codec::read_version(value).ok());
        if let Some(old) = old.filter(|old| Some(old) != new) {
            transaction.delete(Key::RunningVersion(old, host.clone()));
        }
        match &self.listing {
            Listing::Set(version, at) => {
                let listing = Key::RunningVersion(version.clone(), host.clone());
                transaction.put(listing, at.0.to_string(), self.fence.live_lease);
                transaction.put(key, version.as_str(), self.fence.live_lease);
            }
            _ if announced.is_some() => transaction.delete(key),
            _ => {}
        }
    }

    /// Returns the keys from which [`HostWrite::outcome`] judges.
    pub fn keys_to_judge(&self, expected: &ExpectedKeys) -> Vec<Key> {
        let host = || self.host.clone();
        let mut keys = vec![
            Key::Announced(host()),
            Key::Live(host()),
            Key::Store,
            Key::CurrentVersion,
            Key::Report(host()),
            Key::Host(host()),
        ];
        if self.claims.is_some() {
            keys.extend(claim_keys(self.host, &expected.claims, self.claims.as_ref()));
        }
        let rollout = self.start.as_ref().and_then(|start| start.rollout.as_ref());
        keys.extend(rollout.into_iter().flat_map(RolloutGuard::keys));
        keys
    }

    /// Judges what became of the transaction that compares the expected keys, by those that were found
    /// after it.
    pub fn outcome(&self, expected: &ExpectedKeys, found: &KeySnapshot) -> Outcome {
        if let Some(revision) = self.own_write(found) {
            return Outcome::Applied(revision);
        }
        if let Some(refusal) = self.fence.broken(self.host, found) {
            return Outcome::Refused(refusal);
        }
        if let Some(start) = &self.start {
            let is_target = |found: &Entry| {
                (found.mod_revision, &found.value) == (start.target_revision, &start.target_value)
            };
            if !found.get(&Key::CurrentVersion).is_some_and(is_target) {
                return Outcome::Refused(WriteRefusal::Target);
            }
            let roster = found.revision_of(&Key::Host(self.host.clone()));
            if !start.scopes.is_empty() && start.roster_revision != roster {
                return Outcome::Refused(WriteRefusal::Roster);
            }
            if let Some(frozen) = FrozenBy::all(found).find(|frozen| start.scopes.contains(&frozen.scope)) {
                return Outcome::Frozen(frozen);
            }
            let rollout = start.rollout.as_ref();
            if rollout.is_some_and(|rollout| rollout.is_broken(self.host, self.claims.as_ref(), found)) {
                return Outcome::HeldBack;
            }
        }
        let claims = match &self.claims {
            Some(_) => found_claims(self.host, &self.keys_to_judge(expected), found),
            None => expected.claims.clone(),
        };
        // What the host wants to have follows from what it believed to have.
        if claims.revision != expected.claims.revision {
            return Outcome::Refused(WriteRefusal::Limits);
        }
        let announced = found.get(&Key::Announced(self.host.clone()));
        Outcome::Repeat(ExpectedKeys {
            announced: announced.map(|entry| entry.value.clone()),
            report_revision: found.revision_of(&Key::Report(self.host.clone())),
            claims,
        })
    }

    /// Judges what became of a transaction that the store refused. If everything that can be judged is as
    /// expected, somebody holds what the host wanted in a way that cannot be read.
    pub fn refused(&self, expected: &ExpectedKeys, found: &KeySnapshot) -> Outcome {
        match self.outcome(expected, found) {
            Outcome::Repeat(now) if now == *expected && self.start.is_some() => Outcome::HeldBack,
            Outcome::Repeat(now) if now == *expected => Outcome::Refused(WriteRefusal::Limits),
            outcome => outcome,
        }
    }

    fn own_write(&self, found: &KeySnapshot) -> Option<i64> {
        let entry = found.get(&Key::Report(self.host.clone()))?;
        let report = keys::Report::read(&entry.value).ok()?;
        (report.write_id == self.report.write_id).then_some(entry.mod_revision)
    }
}
