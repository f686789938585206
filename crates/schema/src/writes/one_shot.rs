//! The transactions of `update_own_info` and `update_own_status`, which write for a host from
//! outside of its agent.

use super::claims::{ClaimsChange, FoundClaims};
use super::host::StartGuard;
use super::{HostStatus, add_status};
use crate::codec;
use crate::keys::Key;
use crate::names::{HostName, Version};
use crate::order::InstructionOrder;
use crate::records::{FailedHost, HostClaims, HostProgress, ProgressState, Purpose, RosterEntry};
use crate::snapshot::KeySnapshot;
use crate::time::{EpochSeconds, Span};
use crate::transaction::{Compare, Operation, Transaction};
use std::time::Duration;

/// Adds to a transaction that a host without an agent is on the roster, unless it is: rollouts, limits and freezes of roles know the
/// hosts of the roster alone.
pub fn register(transaction: &mut Transaction, host: &HostName, at: EpochSeconds) {
    let value = codec::write(&RosterEntry::of_script(host, at)).into_bytes();
    transaction.operations.push(Operation::PutIfAbsent { key: Key::Host(host.clone()), value });
}

/// The host for which a one-shot verb writes, with its lease and fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OneShot {
    /// Name of the host.
    pub host: HostName,
    /// Lease that the written keys are attached to; 0 for durable keys.
    pub lease: i64,
    /// Revision of the claim of a live agent; `None` if no agent holds the name. Every write
    /// compares it.
    pub live_revision: Option<i64>,
}

impl OneShot {
    fn fenced(&self, name: &'static str) -> Transaction {
        let live = Key::Live(self.host.clone());
        Transaction::idempotent(name).when(Compare::Revision(live, self.live_revision.unwrap_or(0)))
    }

    /// Returns the transaction that puts the host on the roster, unless it is on it.
    pub fn join(&self, at: EpochSeconds) -> Transaction {
        let mut transaction = self.fenced("put the host on the roster");
        register(&mut transaction, &self.host, at);
        transaction
    }

    /// Returns the transaction that lists the host under a version and under no other. `others` are
    /// the versions under which the host is listed now.
    pub fn list(&self, version: &Version, at: EpochSeconds, others: &[Version]) -> Transaction {
        let mut transaction = self.fenced("list the host");
        let listing = |version: &Version| Key::RunningVersion(version.clone(), self.host.clone());
        transaction.put(listing(version), at.0.to_string(), self.lease);
        transaction.put(Key::Announced(self.host.clone()), version.as_str(), self.lease);
        others.iter().filter(|other| *other != version).for_each(|other| transaction.delete(listing(other)));
        transaction
    }

    /// Returns the transaction by which a script starts an update under a rollout policy: it takes claims,
    /// if nothing forbids the start. `found` holds the claims that the host has, and the identity of the
    /// store.
    pub fn start(&self, guard: &StartGuard, claims: &HostClaims, found: &KeySnapshot) -> Transaction {
        let mut transaction = self.fenced("start the update");
        transaction.compares.push(Compare::Revision(Key::Store, found.revision_of(&Key::Store)));
        let held = FoundClaims::read(&self.host, found);
        guard.add_to(&self.host, &mut transaction);
        ClaimsChange { host: &self.host, new: claims, old: &held }.add_to(&mut transaction);
        let progress = HostProgress::new(ProgressState::Started, claims.since);
        self.add_progress(&mut transaction, claims.rollout, &progress);
        transaction
    }

    /// Adds to a transaction of this host that its update ends, with a failure or without: it releases its claims, or after a failure
    /// those that do not count failed hosts, unless it holds them for something else too. `found` holds the
    /// claims that it has.
    pub fn release(
        &self,
        transaction: &mut Transaction,
        failed: Option<&FailedHost>,
        at: EpochSeconds,
        found: &KeySnapshot,
    ) {
        let has_failed = failed.is_some();
        let held = FoundClaims::read(&self.host, found);
        let Some(mut claims) = held.claims.clone() else { return };
        if claims.purposes.iter().any(|purpose| *purpose != Purpose::Update) {
            if !has_failed || claims.claims.iter().all(|claim| !claim.keep_failed) {
                claims.end(&Purpose::Update);
            }
        } else {
            claims.claims.retain(|claim| has_failed && claim.keep_failed);
        }
        claims.ticket = None;
        claims.released = false;
        if let Some(order) = held.claims.as_ref().filter(|held| held.is_for_update()).map(|held| held.rollout)
        {
            let key = Key::Failed(order, self.host.clone());
            match failed {
                Some(failed) => transaction.put(key, codec::write(failed), 0),
                None => transaction.delete(key),
            }
            let state = if has_failed { ProgressState::GaveUp } else { ProgressState::Proven };
            let since = held.claims.as_ref().map_or(at, |held| held.since);
            let took = if has_failed { None } else { u64::try_from(at.0.saturating_sub(since.0)).ok() };
            let took = took.map(|seconds| Span(Duration::from_secs(seconds)));
            let progress = HostProgress { took, ..HostProgress::new(state, at) };
            self.add_progress(transaction, order, &progress);
        }
        if Some(&claims) != held.claims.as_ref() {
            ClaimsChange { host: &self.host, new: &claims, old: &held }.add_to(transaction);
        }
    }

    fn add_progress(&self, transaction: &mut Transaction, order: InstructionOrder, progress: &HostProgress) {
        transaction.put(Key::Progress(order, self.host.clone()), codec::write(progress), 0);
    }

    /// Returns the transaction that writes one result and removes the other states of its type. A
    /// result under a lease also leaves a durable key, so that a host that stopped reporting can be
    /// told from one that never reported.
    pub fn status(&self, status: &HostStatus) -> Transaction {
        let mut transaction = self.fenced("write the status");
        add_status(&mut transaction, &self.host, status, self.lease);
        if self.lease != 0 {
            let HostStatus { kind, record, .. } = status;
            transaction.operations.push(Operation::PutIfAbsent {
                key: Key::Reporting(kind.clone(), self.host.clone()),
                value: record.at.0.to_string().into_bytes(),
            });
        }
        transaction
    }
}
