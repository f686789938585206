//! The transactions of operators and of one-shot verbs, each under its own name.

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

/// The instruction that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TargetSet {
    /// Its revision.
    pub revision: i64,
    /// Something was written.
    pub changed: bool,
}

/// True if this version is the instruction that counts: what was written before the store was accepted does not, nor can
/// that be known while its identity cannot be read.
fn is_current_version(snapshot: &KeySnapshot, version: &Version) -> bool {
    let identity = snapshot.get(&Key::Store);
    let epoch =
        identity.map_or(Ok(0), |e| codec::read::<StoreIdentity>(&e.value).map(|identity| identity.epoch));
    let accepted_at = identity.map_or(0, |e| e.mod_revision);
    let is_this = |e: &&Entry| e.value == version.as_str().as_bytes();
    let found = snapshot.get(&Key::CurrentVersion).filter(is_this);
    found.zip(epoch.ok()).is_some_and(|(e, epoch)| !predates_epoch(epoch, accepted_at, e.mod_revision))
}

/// The identity that was written by `store accept`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// The identity.
    pub identity: StoreIdentity,
    /// The revision of identity and instruction.
    pub revision: i64,
}

/// How a one-shot verb writes on behalf of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OneShot {
    /// The host.
    pub host: HostName,
    /// The lease that the listing hangs on.
    pub lease: i64,
    /// Compared when a live agent holds the name: revision of its claim.
    pub live_revision: Option<i64>,
}

/// One result to write, with the lease that it hangs on (0: durable).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusWrite {
    /// The type.
    pub kind: StatusType,
    /// The state.
    pub state: StatusState,
    /// The record.
    pub record: StatusRecord,
    /// The lease; 0 for none.
    pub lease: i64,
}

impl Session {
    /// Writes the desired version. When the answer is lost it reads back: only the value together with a
    /// newer revision is success. It is sent again only while nobody else wrote meanwhile: a newer
    /// instruction of another operator is never overwritten by a repeated older one.
    ///
    /// `if_different`: nothing is written if the version stands there and counts. What is written then takes the place
    /// of what was looked at, and of nothing else.
    ///
    /// # Errors
    /// As the store answers; [`Class::Unknown`] if nobody can tell, also when somebody else's instruction
    /// stands there after the answer was lost.
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

    /// Accepts the store as it is for the whole fleet: the identity with the next epoch, and the desired
    /// version, in one transaction. `found` is the identity as the operator saw it.
    ///
    /// # Errors
    /// As the store answers; [`StoreError::Refused`] if the identity changed meanwhile.
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
            // Two operators may write the same epoch: ours is the one that wrote our version with it.
            let target = now.get(&Key::CurrentVersion).filter(|e| e.mod_revision == revision);
            let ours = entry.is_some_and(|e| e.value == value.as_bytes())
                && target.is_some_and(|e| e.value == version.as_str().as_bytes());
            if lost && ours {
                return Ok(Accepted { identity, revision });
            }
            if revision != found_revision {
                let detail = "the store's identity changed meanwhile; look at it again".into();
                return Err(StoreError::Refused { operation, detail });
            }
        }
    }

    /// Puts a host on the roster.
    ///
    /// # Errors
    /// As the store answers.
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

    /// Takes a host out: its roster entry becomes a tombstone, everything else that it wrote goes.
    ///
    /// # Errors
    /// As the store answers.
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

    /// Writes an operator's request that a host try again.
    ///
    /// # Errors
    /// As the store answers.
    pub async fn ask_retry(
        &self,
        host: &HostName,
        at: EpochSeconds,
        deadline: Deadline,
    ) -> Result<i64, StoreError> {
        let key = self.full(Key::Retry(host.clone()));
        let operations = vec![TxnOp::put(key, codec::write(&RetryRequest { at }), None)];
        self.write_idempotent("ask for a retry", Vec::new(), operations, deadline).await.map(|(_, r)| r)
    }

    /// A lease for a host without an agent: the remembered one if it lives, else a new one.
    ///
    /// # Errors
    /// As the store answers.
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

    /// `update_own_info`: lists a host under a version and under no other. `others` are the versions that
    /// it is found under. True if it was written, false if the agent's claim changed meanwhile.
    ///
    /// # Errors
    /// As the store answers.
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

    /// `update_own_status`: writes one result, removing the other states of its type, in one transaction.
    /// True if it was written, false if the agent's claim changed meanwhile. A result under a lease leaves
    /// a durable trace, so that a host that stops reporting can be told from one that never did.
    ///
    /// # Errors
    /// As the store answers.
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

    /// A transaction that says the same when it is sent twice.
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

    /// The members of the store, by name; for `ping`.
    ///
    /// # Errors
    /// As the store answers.
    pub async fn members(&self, deadline: Deadline) -> Result<Vec<String>, StoreError> {
        let answer = self
            .call("list the members", Repeat::Freely, deadline, |mut c| async move { c.member_list().await })
            .await?;
        Ok(answer.members().iter().map(|m| m.name().to_owned()).collect())
    }

    /// The version of etcd that the member runs which is asked, for example `3.5.21`.
    ///
    /// # Errors
    /// As the store answers.
    pub async fn server_version(&self, deadline: Deadline) -> Result<String, StoreError> {
        let answer = self
            .call("ask for the version", Repeat::Freely, deadline, |mut c| async move { c.status().await })
            .await?;
        Ok(answer.version().to_owned())
    }

    /// Names of alarms that are raised, for example `NOSPACE`.
    ///
    /// # Errors
    /// As the store answers.
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
