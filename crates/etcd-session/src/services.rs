//! Writes a host's services and keeps the leases alive that their keys are attached to. Every write
//! of an agent is fenced by the host's claim and the store's identity.

use crate::error::{Class, StoreError};
use crate::host_write::{Fence, WriteRefusal, Written};
use crate::key_snapshot::KeySnapshot;
use crate::request::{Deadline, Repeat};
use crate::session::Session;
use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp};
use schema::codec;
use schema::health::Health;
use schema::keys::Key;
use schema::names::{HostName, ServiceName};
use schema::records::{DropStaleRequest, Maintenance};
use schema::time::EpochSeconds;

/// Largest number of services in one transaction. Each may take two operations, and etcd allows
/// 128.
pub const SERVICES_IN_WRITE: usize = 60;

/// Change of one service in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceChange {
    /// Writes the record, the health, or both.
    Say {
        /// Record as JSON; `None` to leave it unchanged.
        record: Option<String>,
        /// Health; `None` to leave it unchanged.
        health: Option<Health>,
    },
    /// Deletes the record and the health. The health must have been `withdrawn` before.
    Remove,
}

/// One transaction that changes services of a host.
#[derive(Debug, Clone)]
pub struct ServiceWrite<'a> {
    /// Name of the host.
    pub host: &'a HostName,
    /// Revisions that must be unchanged.
    pub fence: Fence,
    /// Work lease, to which records are attached.
    pub work_lease: i64,
    /// Live lease, to which the health is attached.
    pub live_lease: i64,
    /// Services to change, at most [`SERVICES_IN_WRITE`].
    pub changes: Vec<(ServiceName, ServiceChange)>,
}

impl Session {
    /// Grants a lease of this many seconds and returns its id.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn grant_lease(&self, seconds: i64, deadline: Deadline) -> Result<i64, StoreError> {
        let granted = self
            .call("lease grant", Repeat::Freely, deadline, |mut client| async move {
                client.lease_grant(seconds, None).await
            })
            .await?;
        Ok(granted.id())
    }

    /// Keeps a lease of this host alive, but only on a connection on which the host's claim was
    /// found unchanged. On another connection the store may have gone back, and the keep-alive
    /// would preserve outdated keys. Waits until the presence task has checked the connection.
    ///
    /// # Errors
    /// Returns the store's error; [`StoreError::LeaseGone`] if the lease does not exist any more.
    pub async fn keep_own_lease(&self, lease: i64, deadline: Deadline) -> Result<(), StoreError> {
        let operation = "lease keep-alive";
        let unreachable = |detail: &str| StoreError::Unreachable { operation, detail: detail.into() };
        let limit = deadline.left().min(self.config().attempt_timeout);
        let kept = tokio::time::timeout(limit, async {
            let (mut client, generation) = self.client().await?;
            if self.proven().wait_for(|proven| *proven == generation).await.is_err() {
                return Err(unreachable("the claim is not kept any more"));
            }
            // Opening the stream sends one keep-alive and waits for its answer.
            let kept = client.lease_keep_alive(lease).await.map_err(|e| self.error(operation, &e));
            if kept.as_ref().is_err_and(|e| e.class() != Class::Fatal) {
                self.move_on(generation).await;
            }
            kept.map(drop)
        });
        kept.await.unwrap_or_else(|_| Err(unreachable("the claim could not be read in time")))
    }

    /// Reads the records and the health of these services of a host.
    ///
    /// # Errors
    /// Returns the store's error; a partial result is never returned.
    pub async fn read_services(
        &self,
        host: &HostName,
        services: impl IntoIterator<Item = &ServiceName>,
        deadline: Deadline,
    ) -> Result<KeySnapshot, StoreError> {
        let of = |service: &ServiceName| {
            [Key::Service(service.clone(), host.clone()), Key::Health(service.clone(), host.clone())]
        };
        let keys: Vec<Key> = services.into_iter().flat_map(of).collect();
        if keys.is_empty() {
            return Ok(KeySnapshot::default());
        }
        self.read_keys(&keys, deadline).await
    }

    /// Commits a transaction that changes services. It has the same effect when it is repeated, so
    /// a lost answer does no harm.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn write_services(
        &self,
        write: &ServiceWrite<'_>,
        deadline: Deadline,
    ) -> Result<Written, StoreError> {
        let host = write.host;
        let revision_is =
            |key: Key, revision| Compare::mod_revision(self.full(key), CompareOp::Equal, revision);
        let compares = vec![
            revision_is(Key::Live(host.clone()), write.fence.live_revision),
            revision_is(Key::Store, write.fence.store_revision),
        ];
        let mut operations = Vec::new();
        let under = |lease| Some(PutOptions::new().with_lease(lease));
        for (service, change) in &write.changes {
            let record_key = self.full(Key::Service(service.clone(), host.clone()));
            let health_key = self.full(Key::Health(service.clone(), host.clone()));
            match change {
                ServiceChange::Say { record, health } => {
                    if let Some(record) = record {
                        operations.push(TxnOp::put(record_key, record.clone(), under(write.work_lease)));
                    }
                    if let Some(health) = health {
                        operations.push(TxnOp::put(health_key, health.as_str(), under(write.live_lease)));
                    }
                }
                ServiceChange::Remove => {
                    operations.push(TxnOp::delete(record_key, None));
                    operations.push(TxnOp::delete(health_key, None));
                }
            }
        }
        let live = self.full(Key::Live(host.clone()));
        let answer = self
            .call("write services", Repeat::Freely, deadline, |mut client| {
                let txn = Txn::new().when(compares.clone()).and_then(operations.clone());
                let txn = txn.or_else([TxnOp::get(live.clone(), None)]);
                async move { client.txn(txn).await }
            })
            .await?;
        let revision = answer.header().map_or(0, |h| h.revision());
        if answer.succeeded() {
            self.note_revision(revision);
            return Ok(Written::Done(revision));
        }
        let mut snapshot = KeySnapshot::default();
        self.merge(&answer, &mut snapshot)?;
        let live = snapshot.get(&Key::Live(host.clone())).map_or(0, |entry| entry.mod_revision);
        let refusal =
            if live == write.fence.live_revision { WriteRefusal::Store } else { WriteRefusal::Claim };
        Ok(Written::Refused(refusal))
    }
}

/// Services of a host that a one-shot verb publishes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OneShotService {
    /// Name of the host.
    pub host: HostName,
    /// Record of every service, as JSON.
    pub record: String,
    /// Names of the services to publish.
    pub services: Vec<ServiceName>,
}

impl Session {
    /// Writes which services of a host are in maintenance. `read_at` is the revision at which the
    /// key was last written, 0 if it did not exist. Returns the revision, and false if nothing was
    /// written because the key changed meanwhile.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn set_maintenance(
        &self,
        host: &HostName,
        out: &Maintenance,
        read_at: i64,
        deadline: Deadline,
    ) -> Result<(bool, i64), StoreError> {
        let key = self.full(Key::Maintenance(host.clone()));
        let compare = Compare::mod_revision(key.clone(), CompareOp::Equal, read_at);
        let operation =
            if out.is_empty() { TxnOp::delete(key, None) } else { TxnOp::put(key, codec::write(out), None) };
        let answer = self
            .call("change the maintenance marks", Repeat::IfNotApplied, deadline, |mut client| {
                let txn = Txn::new().when([compare.clone()]).and_then([operation.clone()]);
                async move { client.txn(txn).await }
            })
            .await?;
        Ok((answer.succeeded(), answer.header().map_or(0, |h| h.revision())))
    }

    /// Requests that agents stop serving retained instances (`drop-stale`). Returns the revision of
    /// the write.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn request_drop_stale(&self, at: EpochSeconds, deadline: Deadline) -> Result<i64, StoreError> {
        // If the store cannot be read, nothing is written.
        self.read_keys(&[Key::DropStale], deadline).await?;
        let (key, value) = (self.full(Key::DropStale), codec::write(&DropStaleRequest { at }));
        // A repeated request has the same effect.
        let answer = self
            .call("release the view", Repeat::Freely, deadline, |mut client| {
                let (key, value) = (key.clone(), value.clone());
                async move { client.put(key, value, None).await }
            })
            .await?;
        Ok(answer.header().map_or(0, |h| h.revision()))
    }

    /// Publishes services of a host once. If an agent holds the host name, the keys are attached to
    /// its live lease and the services count as functional; services that the agent itself
    /// publishes are left unchanged. Without an agent the keys have no lease. Returns false if an
    /// agent came or went meanwhile: nothing, or only a part, was written, and the call can be
    /// repeated.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn publish_one_shot(
        &self,
        shot: &OneShotService,
        deadline: Deadline,
    ) -> Result<bool, StoreError> {
        let live_key = Key::Live(shot.host.clone());
        for services in shot.services.chunks(SERVICES_IN_WRITE) {
            let mut keys = vec![live_key.clone()];
            keys.extend(services.iter().map(|service| Key::Service(service.clone(), shot.host.clone())));
            let snapshot = self.read_keys(&keys, deadline).await?;
            let live = snapshot.get(&live_key);
            let (lease, revision) = live.map_or((0, 0), |entry| (entry.lease, entry.mod_revision));
            let under = || (lease != 0).then(|| PutOptions::new().with_lease(lease));
            let mut operations = Vec::new();
            for service in services {
                let key = Key::Service(service.clone(), shot.host.clone());
                let of_agent = snapshot.get(&key).is_some_and(|e| e.lease != 0 && e.lease != lease);
                if of_agent && live.is_some() {
                    continue;
                }
                operations.push(TxnOp::put(self.full(&key), shot.record.clone(), under()));
                if lease != 0 {
                    let health = self.full(Key::Health(service.clone(), shot.host.clone()));
                    operations.push(TxnOp::put(health, Health::Passing.as_str(), under()));
                }
            }
            let compare = Compare::mod_revision(self.full(&live_key), CompareOp::Equal, revision);
            let answer = self
                .call("publish services", Repeat::Freely, deadline, |mut client| {
                    let txn = Txn::new().when([compare.clone()]).and_then(operations.clone());
                    async move { client.txn(txn).await }
                })
                .await?;
            if !answer.succeeded() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Withdraws every given service of a host that is decommissioned: first sets the health to
    /// `withdrawn`, then deletes the keys.
    ///
    /// # Errors
    /// Returns the store's error; the call can be repeated.
    pub(crate) async fn withdraw_all(
        &self,
        host: &HostName,
        services: &[ServiceName],
        deadline: Deadline,
    ) -> Result<(), StoreError> {
        for services in services.chunks(SERVICES_IN_WRITE) {
            let key = |service: &ServiceName| self.full(Key::Health(service.clone(), host.clone()));
            let put = |service: &ServiceName| TxnOp::put(key(service), Health::Withdrawn.as_str(), None);
            let gone = |service: &ServiceName| {
                [
                    TxnOp::delete(key(service), None),
                    TxnOp::delete(self.full(Key::Service(service.clone(), host.clone())), None),
                ]
            };
            let puts: Vec<TxnOp> = services.iter().map(put).collect();
            let gone: Vec<TxnOp> = services.iter().flat_map(gone).collect();
            for operations in [puts, gone] {
                self.call("withdraw services", Repeat::Freely, deadline, |mut client| {
                    let txn = Txn::new().and_then(operations.clone());
                    async move { client.txn(txn).await }
                })
                .await?;
            }
        }
        Ok(())
    }
}
