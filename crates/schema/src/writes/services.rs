//! The transactions that write the services of a host.

use super::{Fence, WriteRefusal};
use crate::health::Health;
use crate::keys::Key;
use crate::names::{HostName, ServiceName};
use crate::snapshot::KeySnapshot;
use crate::transaction::{Compare, Transaction};

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

/// Content of one transaction that changes services of a host. The transaction has the same effect
/// when it is repeated.
#[derive(Debug, Clone)]
pub struct ServiceWrite<'a> {
    /// Name of the host.
    pub host: &'a HostName,
    /// Revisions that must be unchanged.
    pub fence: Fence,
    /// Work lease, to which records are attached.
    pub work_lease: i64,
    /// Services to change, at most [`SERVICES_IN_WRITE`].
    pub changes: Vec<(ServiceName, ServiceChange)>,
}

impl ServiceWrite<'_> {
    pub fn transaction(&self) -> Transaction {
        let mut transaction = Transaction::idempotent("write services");
        self.fence.add_to(&mut transaction, self.host);
        for (service, change) in &self.changes {
            let [record_key, health_key] = keys_of(service, self.host);
            match change {
                ServiceChange::Say { record, health } => {
                    if let Some(record) = record {
                        transaction.put(record_key, record.as_str(), self.work_lease);
                    }
                    if let Some(health) = health {
                        transaction.put(health_key, health.as_str(), self.fence.live_lease);
                    }
                }
                ServiceChange::Remove => {
                    transaction.delete(record_key);
                    transaction.delete(health_key);
                }
            }
        }
        transaction.reads = vec![Key::Live(self.host.clone()), Key::Store];
        transaction
    }

    /// Returns the transaction that only takes back health which is not true any more, for a store that accepts no
    /// puts; `None` if no service of the write got worse.
    pub fn retraction(&self) -> Option<Transaction> {
        let mut transaction = Transaction::idempotent("take back the health of services");
        self.fence.add_to(&mut transaction, self.host);
        for service in self.worsened() {
            transaction.delete(Key::Health(service.clone(), self.host.clone()));
        }
        (!transaction.operations.is_empty()).then_some(transaction)
    }

    /// Returns the services that do not work after the write.
    pub fn worsened(&self) -> impl Iterator<Item = &ServiceName> {
        let stops = |change: &ServiceChange| match change {
            ServiceChange::Say { health, .. } => health.is_some_and(|health| !health.is_functional()),
            ServiceChange::Remove => true,
        };
        self.changes.iter().filter(move |(_, change)| stops(change)).map(|(service, _)| service)
    }

    /// Returns which comparison did not hold, by the keys that the transaction read.
    pub fn refusal(&self, found: &KeySnapshot) -> WriteRefusal {
        // Read by the same transaction, so one of the two must differ.
        self.fence.broken(self.host, found).unwrap_or(WriteRefusal::Store)
    }
}

/// Services of a host that a one-shot verb publishes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OneShotServices<'a> {
    /// Name of the host.
    pub host: &'a HostName,
    /// Record of every service, as JSON.
    pub record: &'a str,
    /// Names of the services to publish, at most [`SERVICES_IN_WRITE`].
    pub services: &'a [ServiceName],
}

impl OneShotServices<'_> {
    /// Returns the keys that [`OneShotServices::transaction`] needs to have read.
    pub fn keys(&self) -> Vec<Key> {
        let records = self.services.iter().map(|service| Key::Service(service.clone(), self.host.clone()));
        std::iter::once(Key::Live(self.host.clone())).chain(records).collect()
    }

    /// Returns the transaction that publishes the services. If an agent holds the host name, the
    /// keys are attached to its live lease and the services count as functional; services that the
    /// agent itself publishes are left unchanged. Without an agent the keys have no lease.
    pub fn transaction(&self, found: &KeySnapshot) -> Transaction {
        let live_key = Key::Live(self.host.clone());
        let live = found.get(&live_key);
        let (lease, revision) = live.map_or((0, 0), |entry| (entry.lease, entry.mod_revision));
        let mut transaction =
            Transaction::idempotent("publish services").when(Compare::Revision(live_key, revision));
        for service in self.services {
            let [record_key, health_key] = keys_of(service, self.host);
            let of_agent = found.get(&record_key).is_some_and(|e| e.lease != 0 && e.lease != lease);
            if of_agent && live.is_some() {
                continue;
            }
            transaction.put(record_key, self.record, lease);
            if lease != 0 {
                transaction.put(health_key, Health::Passing.as_str(), lease);
            }
        }
        transaction
    }
}

/// Returns the transactions that withdraw services of a host that is decommissioned, in order: the
/// health is `withdrawn` before the keys are deleted.
pub fn withdraw_all(host: &HostName, services: &[ServiceName]) -> Vec<Transaction> {
    let mut transactions = Vec::new();
    for services in services.chunks(SERVICES_IN_WRITE) {
        let mut withdrawn = Transaction::idempotent("withdraw services");
        let mut gone = Transaction::idempotent("withdraw services");
        for service in services {
            let [record_key, health_key] = keys_of(service, host);
            withdrawn.put(health_key.clone(), Health::Withdrawn.as_str(), 0);
            gone.delete(health_key);
            gone.delete(record_key);
        }
        transactions.extend([withdrawn, gone]);
    }
    transactions
}

/// Returns the keys of the record and the health of an instance.
fn keys_of(service: &ServiceName, host: &HostName) -> [Key; 2] {
    [Key::Service(service.clone(), host.clone()), Key::Health(service.clone(), host.clone())]
}
