//! A service on a host.

use schema::health::{Health, Level};
use schema::records::ServiceRecord;
use std::sync::Arc;

/// A service on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// Where it is.
    pub record: Arc<ServiceRecord>,
    /// The record hangs on a lease: an agent keeps it. One without is of a host that has none.
    pub leased: bool,
    /// What the host said last, if it stands in the store.
    pub health: Option<Health>,
    /// The host went silent together with others; this is its last word, held back by the guard.
    pub retained: bool,
}

impl Instance {
    /// It can be used: it says so, or nobody checks it.
    pub fn is_functional(&self) -> bool {
        match self.health {
            Some(health) => health.is_functional(),
            None => self.is_unchecked(),
        }
    }

    /// An instance of a host without an agent: nobody checks it, and nobody says that it is gone.
    pub fn is_unchecked(&self) -> bool {
        !self.leased && self.health.is_none()
    }

    /// It is being taken away.
    pub fn is_withdrawn(&self) -> bool {
        self.health == Some(Health::Withdrawn)
    }

    /// It counts at this level.
    pub fn is_at(&self, level: Level) -> bool {
        match level {
            Level::Addressable => !self.is_withdrawn(),
            Level::Functional => self.is_functional(),
        }
    }

    /// Its state in one word.
    pub fn health_str(&self) -> &'static str {
        match self.health {
            Some(health) => health.as_str(),
            None if self.leased => "unknown",
            None => "unchecked",
        }
    }
}

/// A change of what the store says of one service on one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CatalogFact {
    /// The record was written, or is gone. The flag says whether it hangs on a lease.
    Record(Option<(Arc<ServiceRecord>, bool)>),
    /// The health was written, or is gone.
    Health(Option<Health>),
}

/// What stands in the store of one service on one host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct InstanceFacts {
    pub(super) record: Option<(Arc<ServiceRecord>, bool)>,
    pub(super) health: Option<Health>,
}

impl InstanceFacts {
    pub(super) fn is_functional(&self) -> bool {
        self.instance().is_some_and(|instance| instance.is_functional())
    }

    pub(super) fn instance(&self) -> Option<Arc<Instance>> {
        let (record, leased) = self.record.clone()?;
        Some(Arc::new(Instance { record, leased, health: self.health, retained: false }))
    }
}
