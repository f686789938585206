//! The transactions of operators and of one-shot verbs, one function for each.
//!
//! This file is long because it holds all transactions of operators, so that a reader can compare
//! them.

use crate::error::{Class, StoreError};
use crate::host_write::add_statuses;
use crate::key_snapshot::{Entry, KeySnapshot};
use crate::request::{Deadline, Repeat};
use crate::session::Session;
use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp};
use schema::codec;
use schema::keys::{Key, StatusState};
use schema::names::{HostName, ServiceName, StatusType, Version};
use schema::records::{RetryRequest, RosterEntry, StatusRecord, StoreIdentity};
use schema::store_trust::predates_epoch;
use schema::time::EpochSeconds;
use std::collections::BTreeSet;

/// The instruction after [`Session::set_target`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TargetSet {
    /// Revision of `/current_version`.
    pub revision: i64,
    /// True if the call wrote `/current_version`.
    pub changed: bool,
}

/// True if this version is the instruction in force. An instruction that was written before the
/// store was accepted does not count, and none counts while the identity of the store cannot be
/// read.
fn is_current_version(snapshot: &KeySnapshot, version: &Version) -> bool {
    let identity = snapshot.get(&Key::Store);
    let epoch =
        identity.map_or(Ok(0), |e| codec::read::<StoreIdentity>(&e.value).map(|identity| identity.epoch));
    let accepted_at = identity.map_or(0, |e| e.mod_revision);
    let is_this = |e: &&Entry| e.value == version.as_str().as_bytes();
    let found = snapshot.get(&Key::CurrentVersion).filter(is_this);
    found.zip(epoch.ok()).is_some_and(|(e, epoch)| !predates_epoch(epoch, accepted_at, e.mod_revision))
}

/// The identity that `store accept` wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// Identity of the store with the new epoch.
    pub identity: StoreIdentity,
    /// Revision at which identity and instruction were written.
    pub revision: i64,
}

/// The host for which a one-shot verb writes, with its lease and fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OneShot {
    /// Name of the host.
    pub host: HostName,
    /// Lease that the listing is attached to.
    pub lease: i64,
    /// Revision of the claim of a live agent; `None` if no agent holds the name. Every write
    /// compares it.
    pub live_revision: Option<i64>,
}

/// One result to write, with its lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusWrite {
    /// Type of the result.
    pub kind: StatusType,
    /// State to write; the other states of the type are removed.
    pub state: StatusState,
    /// Record to store under the state.
    pub record: StatusRecord,
    /// Lease that the result is attached to; 0 for a durable result.
    pub lease: i64,
}

impl Session {
    /// Writes the desired version. After a lost answer it reads back: only the same value at a
    /// newer revision counts as success. The write is repeated only if nobody else wrote meanwhile,
    /// so that a repeated older instruction never overwrites a newer one of another operator.
    ///
    /// With `if_different` nothing is written if this version is already the instruction in force.
    /// Otherwise the write replaces only the instruction that was read before.
    ///
    /// # Errors
    /// Returns the store's error. It is of class [`Class::Unknown`] if it is not known whether the
    /// write was applied, also if another operator's instruction is found after a lost answer.
    pub async fn set_target(
        &self,
        version: &Version,
        if_different: bool,
        deadline: Deadline,
    ) -> Result<TargetSet, StoreError> {
        let operation = "set /current_version";
        let keys = [Key::CurrentVersion, Key::Store];
        let revision_of = |snapshot: &KeySnapshot| snapshot.get(&keys[0]).map_or(0, |e| e.mod_revision);
        let full = self.full(&keys[0]);
        let mut before = self.read_keys(&keys, deadline).await?;
        let mut may_be_applied = false;
        loop {
            let revision_before = revision_of(&before);
            if if_different && !may_be_applied && is_current_version(&before, version) {
                return Ok(TargetSet { revision: revision_before, changed: false });
            }
            let is_compared = if_different || may_be_applied;
            let compare = Compare::mod_revision(full.clone(), CompareOp::Equal, revision_before);
            let compares: Vec<Compare> = is_compared.then_some(compare).into_iter().collect();
            let answer = self
                .call(operation, Repeat::IfNotApplied, deadline, |mut client| {
                    let put = TxnOp::put(full.clone(), version.as_str(), None);
                    let txn = Txn::new().when(compares.clone()).and_then([put]);
                    async move { client.txn(txn).await }
                })
                .await;
            let lost = match answer {
                Ok(answer) if answer.succeeded() => {
                    let revision = answer.header().map_or(0, |h| h.revision());
                    return Ok(TargetSet { revision, changed: true });
                }
                Ok(_) => None,
                Err(error) if error.class() == Class::Unknown && !deadline.left().is_zero() => Some(error),
                Err(error) => return Err(error),
            };
            may_be_applied |= lost.is_some();
            let now = match (self.read_keys(&keys, deadline).await, lost) {
                (Ok(now), _) => now,
                (Err(_), Some(lost)) => return Err(lost),
                (Err(error), None) => return Err(error),
            };
            let revision = revision_of(&now);
            if revision != revision_before && may_be_applied {
                if revision > revision_before
                    && now.get(&keys[0]).is_some_and(|entry| entry.value == version.as_str().as_bytes())
                {
                    return Ok(TargetSet { revision, changed: true });
                }
                let detail =
                    "another instruction stands there now; whether this one came before it is not known";
                return Err(StoreError::Unknown { operation, detail: detail.into() });
            }
            before = now;
        }
    }

    /// Accepts the store as it is for the whole fleet: writes the identity with the next epoch and
    /// the desired version in one transaction. `found` holds the identity that the operator saw.
    ///
    /// # Errors
    /// Returns the store's error, or [`StoreError::Refused`] if the identity changed meanwhile.
    pub async fn accept_store(
        &self,
        found: &KeySnapshot,
        identity: StoreIdentity,
        version: &Version,
        deadline: Deadline,
    ) -> Result<Accepted, StoreError> {
        let operation = "accept the store";
        let store = self.full(Key::Store);
        let found_revision = found.get(&Key::Store).map_or(0, |e| e.mod_revision);
        let value = codec::write(&identity);
        let mut lost = false;
        loop {
            let answer = self
                .call(operation, Repeat::IfNotApplied, deadline, |mut client| {
                    let same = Compare::mod_revision(store.clone(), CompareOp::Equal, found_revision);
                    let txn = Txn::new().when([same]).and_then([
                        TxnOp::put(store.clone(), value.clone(), None),
                        TxnOp::put(self.full(Key::CurrentVersion), version.as_str(), None),
                    ]);
                    async move { client.txn(txn).await }
                })
                .await;
            match answer {
                Ok(answer) if answer.succeeded() => {
                    return Ok(Accepted { identity, revision: answer.header().map_or(0, |h| h.revision()) });
                }
                Ok(_) => {}
                Err(error) if error.class() != Class::Unknown || deadline.left().is_zero() => {
                    return Err(error);
                }
                Err(_) => lost = true,
            }
            let now = self.read_keys(&[Key::Store, Key::CurrentVersion], deadline).await?;
            let entry = now.get(&Key::Store);
            let revision = entry.map_or(0, |e| e.mod_revision);
            // Two operators may write the same epoch. The write is ours if our version was written
            // with it.
            let target = now.get(&Key::CurrentVersion).filter(|e| e.mod_revision == revision);
            let ours = entry.is_some_and(|e| e.value == value.as_bytes())
                && target.is_some_and(|e| e.value == version.as_str().as_bytes());
            if lost && ours {
                return Ok(Accepted { identity, revision });
            }
            if revision != found_revision {
                let detail =
                    "the store's identity changed during the command; check it and repeat the command".into();
                return Err(StoreError::Refused { operation, detail });
            }
        }
    }

    /// Puts a host on the roster. Returns the revision of the write.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn add_host(
        &self,
        host: &HostName,
        entry: &RosterEntry,
        deadline: Deadline,
    ) -> Result<i64, StoreError> {
        let operations = vec![TxnOp::put(self.full(Key::Host(host.clone())), codec::write(entry), None)];
        self.write_idempotent("add the host", Vec::new(), operations, deadline)
            .await
            .map(|(_, revision)| revision)
    }

    /// Decommissions a host: withdraws its services, replaces its roster entry by a tombstone, and
    /// deletes its other keys among `found`. Returns the revision of the write.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn decommission_host(
        &self,
        host: &HostName,
        tombstone: &RosterEntry,
        found: &KeySnapshot,
        deadline: Deadline,
    ) -> Result<i64, StoreError> {
        let services: BTreeSet<ServiceName> = found
            .entries
            .keys()
            .filter_map(|key| match Key::parse(key) {
                Ok(Key::Service(service, h) | Key::Health(service, h)) if h == *host => Some(service),
                _ => None,
            })
            .collect();
        let services: Vec<ServiceName> = services.into_iter().collect();
        self.withdraw_all(host, &services, deadline).await?;
        let mut operations =
            vec![TxnOp::put(self.full(Key::Host(host.clone())), codec::write(tombstone), None)];
        for key in found.entries.keys() {
            let of_host = match Key::parse(key) {
                Ok(Key::RunningVersion(_, h) | Key::Status(_, _, h) | Key::Reporting(_, h)) => h == *host,
                Ok(
                    Key::Live(h) | Key::Announced(h) | Key::Report(h) | Key::Retry(h) | Key::Maintenance(h),
                ) => h == *host,
                _ => false,
            };
            if of_host {
                operations.push(TxnOp::delete(self.full(key), None));
            }
        }
        self.write_idempotent("decommission the host", Vec::new(), operations, deadline).await.map(|(_, r)| r)
    }

    /// Writes an operator's request that a host try again. Returns the revision of the write.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn ask_retry(
        &self,
        host: &HostName,
        at: EpochSeconds,
        deadline: Deadline,
    ) -> Result<i64, StoreError> {
        let key = self.full(Key::Retry(host.clone()));
        let operations = vec![TxnOp::put(key, codec::write(&RetryRequest { at }), None)];
        self.write_idempotent("request a retry", Vec::new(), operations, deadline).await.map(|(_, r)| r)
    }

    /// Returns a lease for a host without an agent: the remembered lease, kept alive, if it still
    /// exists, else a new lease of `seconds`.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn lease_for_one_shot(
        &self,
        remembered: Option<i64>,
        seconds: i64,
        deadline: Deadline,
    ) -> Result<i64, StoreError> {
        if let Some(lease) = remembered {
            let kept = self
                .call("lease keep-alive", Repeat::Freely, deadline, |mut c| async move {
                    c.lease_keep_alive(lease).await.map(|_| ())
                })
                .await;
            match kept {
                Ok(()) => return Ok(lease),
                Err(StoreError::LeaseGone { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.call("lease grant", Repeat::Freely, deadline, |mut c| async move {
            c.lease_grant(seconds, None).await
        })
        .await
        .map(|granted| granted.id())
    }

    /// Implements `update_own_info`: lists a host under a version and under no other. `others` are
    /// the versions under which the host is listed now. Returns false if nothing was written
    /// because the agent's claim changed meanwhile.
    ///
    /// # Errors
    /// Returns the store's error.
    #[expect(clippy::too_many_arguments, reason = "the parts of one transaction, with one caller")]
    pub async fn list_one_shot(
        &self,
        shot: &OneShot,
        version: &Version,
        at: EpochSeconds,
        others: &[Version],
        deadline: Deadline,
    ) -> Result<bool, StoreError> {
        let under_lease = || Some(PutOptions::new().with_lease(shot.lease));
        let listing = self.full(Key::RunningVersion(version.clone(), shot.host.clone()));
        let mut operations = vec![
            TxnOp::put(listing, at.0.to_string(), under_lease()),
            TxnOp::put(self.full(Key::Announced(shot.host.clone())), version.as_str(), under_lease()),
        ];
        for other in others.iter().filter(|other| *other != version) {
            operations
                .push(TxnOp::delete(self.full(Key::RunningVersion(other.clone(), shot.host.clone())), None));
        }
        let compares = self.one_shot_fence(shot);
        self.write_idempotent("list the host", compares, operations, deadline).await.map(|(done, _)| done)
    }

    /// Implements `update_own_status`: writes one result and removes the other states of its type,
    /// in one transaction. Returns false if nothing was written because the agent's claim changed
    /// meanwhile. A result under a lease also leaves a durable key, so that a host that stopped
    /// reporting can be told from one that never reported.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn status_one_shot(
        &self,
        shot: &OneShot,
        status: &StatusWrite,
        deadline: Deadline,
    ) -> Result<bool, StoreError> {
        let mut operations = Vec::new();
        let statuses = [(status.kind.clone(), status.state, status.record.clone())];
        if status.lease == 0 {
            add_statuses(self, &shot.host, &statuses, &mut operations);
        } else {
            for state in StatusState::ALL {
                let key = self.full(Key::Status(status.kind.clone(), state, shot.host.clone()));
                operations.push(if state == status.state {
                    let options = PutOptions::new().with_lease(status.lease);
                    TxnOp::put(key, codec::write(&status.record), Some(options))
                } else {
                    TxnOp::delete(key, None)
                });
            }
            let trace = self.full(Key::Reporting(status.kind.clone(), shot.host.clone()));
            let absent = Compare::version(trace.clone(), CompareOp::Equal, 0);
            let leave = TxnOp::put(trace, status.record.at.0.to_string(), None);
            operations.push(TxnOp::txn(Txn::new().when([absent]).and_then([leave])));
        }
        let compares = self.one_shot_fence(shot);
        self.write_idempotent("write the status", compares, operations, deadline).await.map(|(done, _)| done)
    }

    fn one_shot_fence(&self, shot: &OneShot) -> Vec<Compare> {
        let key = self.full(Key::Live(shot.host.clone()));
        vec![Compare::mod_revision(key, CompareOp::Equal, shot.live_revision.unwrap_or(0))]
    }

    /// Commits a transaction that has the same effect when it is sent twice. Returns whether its
    /// comparisons held, and the revision.
    async fn write_idempotent(
        &self,
        operation: &'static str,
        compares: Vec<Compare>,
        operations: Vec<TxnOp>,
        deadline: Deadline,
    ) -> Result<(bool, i64), StoreError> {
        let answer = self
            .call(operation, Repeat::Freely, deadline, |mut client| {
                let txn = Txn::new().when(compares.clone()).and_then(operations.clone());
                async move { client.txn(txn).await }
            })
            .await?;
        let revision = answer.header().map_or(0, |h| h.revision());
        self.note_revision(revision);
        Ok((answer.succeeded(), revision))
    }

    /// Returns the names of the members of the store, for `ping`.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn members(&self, deadline: Deadline) -> Result<Vec<String>, StoreError> {
        let answer = self
            .call("list the members", Repeat::Freely, deadline, |mut c| async move { c.member_list().await })
            .await?;
        Ok(answer.members().iter().map(|m| m.name().to_owned()).collect())
    }

    /// Returns the etcd version of the member that answers, for example `3.5.21`.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn server_version(&self, deadline: Deadline) -> Result<String, StoreError> {
        let answer = self
            .call("ask for the version", Repeat::Freely, deadline, |mut c| async move { c.status().await })
            .await?;
        Ok(answer.version().to_owned())
    }

    /// Returns the names of the raised alarms, for example `NOSPACE`.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn alarms(&self, deadline: Deadline) -> Result<Vec<String>, StoreError> {
        use etcd_client::{AlarmAction, AlarmType};
        let answer = self
            .call("list the alarms", Repeat::Freely, deadline, |mut c| async move {
                c.alarm(AlarmAction::Get, AlarmType::None, None).await
            })
            .await?;
        let name = |alarm: AlarmType| match alarm {
            AlarmType::None => None,
            AlarmType::Nospace => Some("NOSPACE".to_owned()),
            AlarmType::Corrupt => Some("CORRUPT".to_owned()),
        };
        Ok(answer.alarms().iter().filter_map(|a| name(a.alarm())).collect())
    }
}
