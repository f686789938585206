//! One service on one host.

use schema::digest::Digest;
use schema::health::{Health, Level};
use schema::names::HostName;
use schema::records::ServiceRecord;
use std::sync::Arc;

/// One service on one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// The addresses, port, tags and metadata of the instance.
    pub record: Arc<ServiceRecord>,
    /// True if the record has a lease: an agent maintains it. A record without a lease belongs to a
    /// host without an agent.
    pub leased: bool,
    /// The health that the host reported last, if it exists in the store.
    pub health: Option<Health>,
    /// True if the guard retains the instance, for example because its host stopped reporting
    /// together with others: this is the last known state.
    pub retained: bool,
}

impl Instance {
    /// True if the instance can be used: its health says so, or nobody checks it.
    pub fn is_functional(&self) -> bool {
        match self.health {
            Some(health) => health.is_functional(),
            None => self.is_unchecked(),
        }
    }

    /// True if the instance belongs to a host without an agent: nobody checks it, and nobody
    /// reports that it is gone.
    pub fn is_unchecked(&self) -> bool {
        !self.leased && self.health.is_none()
    }

    /// True if the host says that it does not have the service any more.
    pub fn is_withdrawn(&self) -> bool {
        self.health == Some(Health::Withdrawn)
    }

    /// True if the instance counts at this level.
    pub fn is_at(&self, level: Level) -> bool {
        match level {
            Level::Addressable => !self.is_withdrawn(),
            Level::Functional => self.is_functional(),
        }
    }

    /// Adds to a digest where the instance is: its host, addresses and port.
    pub(crate) fn add_place(&self, host: &HostName, digest: &mut Digest) {
        digest.text(host.as_str()).number(self.record.addresses.len() as u64);
        for address in &self.record.addresses {
            digest.address(address);
        }
        digest.number(self.record.port.map_or(u64::MAX, u64::from));
    }

    /// Returns the health in one word: `unknown` if an agent has not reported it, `unchecked` if
    /// the host has no agent.
    pub fn health_str(&self) -> &'static str {
        match self.health {
            Some(health) => health.as_str(),
            None if self.leased => "unknown",
            None => "unchecked",
        }
    }
}

/// A record as the store has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRecord {
    pub record: Arc<ServiceRecord>,
    /// True if the record has a lease.
    pub leased: bool,
}

impl StoredRecord {
    /// Returns a record with or without a lease.
    pub fn new(record: impl Into<Arc<ServiceRecord>>, leased: bool) -> Self {
        Self { record: record.into(), leased }
    }
}

/// A change in the store to one service on one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CatalogFact {
    /// The record was written, or is gone.
    Record(Option<StoredRecord>),
    /// The health was written, or is gone.
    Health(Option<Health>),
}

/// The content of the store for one service on one host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct InstanceFacts {
    pub(super) record: Option<StoredRecord>,
    pub(super) health: Option<Health>,
}

impl InstanceFacts {
    pub(super) fn is_functional(&self) -> bool {
        self.instance().is_some_and(|instance| instance.is_functional())
    }

    pub(super) fn instance(&self) -> Option<Arc<Instance>> {
        let StoredRecord { record, leased } = self.record.clone()?;
        Some(Arc::new(Instance { record, leased, health: self.health, retained: false }))
    }
}
