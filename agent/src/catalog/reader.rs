//! Catalog snapshots for all other parts of the agent. A reader registers interest in the services
//! that it asks for.

use super::claims::Claims;
use super::config::ConfigValues;
use catalog::{Claim, Retained, View};
use schema::names::{HostName, ServiceName};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// Maximum number of services that are followed because somebody asked for them. It is bounded
/// because any user of this machine may ask.
const FOLLOWED_MAX: usize = 10_000;

/// The catalog as it is served at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct CatalogSnapshot {
    /// The services and their instances.
    pub view: View,
    /// The revision of the store at which the view last changed.
    pub revision: i64,
    /// True while all watches on the catalog are connected and the catalog is within its limit.
    pub connected: bool,
    /// When the store last confirmed the view; `None` if the view comes from disk.
    pub confirmed: Option<Instant>,
    /// The age of the view when it was read from disk.
    pub age_on_disk: Duration,
    /// The instances that the guard keeps although they stopped reporting.
    pub retained: Vec<Retained>,
    /// The number of records that could not be read or that belong to another host than their key
    /// says.
    pub refused: usize,
    /// True if the store holds more instances than the limit, so that an earlier view is served.
    pub is_over: bool,
    /// The values that operators keep for files, if they are followed and have been read; `Err`
    /// says what is wrong with a value.
    pub config: Option<Arc<ConfigValues>>,
    /// A counter that grows with every change of the snapshot.
    pub generation: u64,
}

impl CatalogSnapshot {
    /// Returns how long the store has not confirmed this snapshot.
    pub(crate) fn age(&self, since_start: Duration) -> Duration {
        match self.confirmed {
            _ if self.connected => Duration::ZERO,
            Some(at) => at.elapsed(),
            None => self.age_on_disk + since_start,
        }
    }
}

/// The services that were asked for, and when each was last asked for.
#[derive(Debug, Default)]
pub(super) struct Interest {
    pub(super) times: Mutex<BTreeMap<ServiceName, Instant>>,
    /// True once somebody asked for the values that operators keep.
    pub(super) config: AtomicBool,
    pub(super) changed: Notify,
}

impl Interest {
    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<ServiceName, Instant>> {
        // No code panics while it holds the lock.
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reader of the catalog; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Reader {
    pub(super) snapshots: watch::Receiver<Arc<CatalogSnapshot>>,
    pub(super) interest: Arc<Interest>,
    pub(super) claims: Arc<Claims>,
    pub(super) started: Instant,
}

impl Reader {
    /// Returns the current snapshot.
    pub(crate) fn snapshot(&self) -> Arc<CatalogSnapshot> {
        self.snapshots.borrow().clone()
    }

    /// Returns how long the store has not confirmed the catalog.
    pub(crate) fn age(&self) -> Duration {
        self.snapshots.borrow().age(self.started.elapsed())
    }

    /// Returns a channel that signals the next change of the snapshot.
    pub(crate) fn changes(&self) -> watch::Receiver<Arc<CatalogSnapshot>> {
        self.snapshots.clone()
    }

    /// Registers interest in the health of a service.
    pub(crate) fn follow(&self, service: &ServiceName) {
        let mut times = self.interest.lock();
        let is_new = !times.contains_key(service);
        if is_new && times.len() >= FOLLOWED_MAX {
            return;
        }
        times.insert(service.clone(), Instant::now());
        drop(times);
        if is_new {
            self.interest.changed.notify_one();
        }
    }

    /// Registers interest in the values that operators keep.
    pub(crate) fn follow_config(&self) {
        if !self.interest.config.swap(true, Ordering::Relaxed) {
            self.interest.changed.notify_one();
        }
    }

    /// Waits for the values that operators keep, for at most this time, and returns the snapshot.
    pub(crate) async fn with_config(&self, most: Duration) -> Arc<CatalogSnapshot> {
        self.follow_config();
        self.wait_for(most, |shown| shown.config.is_some()).await
    }

    /// Waits for the health of a service, for at most this time, and returns the snapshot.
    pub(crate) async fn with_health(&self, service: &ServiceName, most: Duration) -> Arc<CatalogSnapshot> {
        self.follow(service);
        self.wait_for(most, |shown| shown.view.health_known(service)).await
    }

    /// Returns the claim of a host that the catalog does not have, if the claim is cached.
    pub(crate) fn known_claim(&self, host: &HostName) -> Option<Claim> {
        self.claims.known(host)
    }

    /// Returns the claim of a host that the catalog does not have; reads the claim if necessary.
    pub(crate) async fn claim(&self, host: &HostName) -> Claim {
        self.claims.read(host).await
    }

    async fn wait_for(
        &self,
        most: Duration,
        is_known: impl Fn(&CatalogSnapshot) -> bool,
    ) -> Arc<CatalogSnapshot> {
        let mut shown = self.snapshots.clone();
        match tokio::time::timeout(most, shown.wait_for(|shown| is_known(shown))).await {
            Ok(Ok(found)) => found.clone(),
            // The time is over, or the agent stops.
            _ => self.snapshot(),
        }
    }
}
