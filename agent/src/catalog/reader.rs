//! Snapshots of the catalog for everybody else on this host, who says by asking which services are of interest.

use super::claims::Claims;
use super::config::ConfigValues;
use catalog::{Claim, Retained, View};
use schema::names::{HostName, ServiceName};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// Most services that are followed because somebody asked; a bound, because anybody on this machine may ask.
const FOLLOWED_MAX: usize = 10_000;

/// The catalog as it is served now.
#[derive(Debug, Clone, Default)]
pub struct CatalogSnapshot {
    /// What there is.
    pub view: View,
    /// The revision of the store at which this was last different.
    pub revision: i64,
    /// The watch on the store stands.
    pub connected: bool,
    /// When the store last confirmed it; `None`: it comes from the disk.
    pub confirmed: Option<Instant>,
    /// How old it was when it was read from the disk.
    pub age_on_disk: Duration,
    /// Served though it went silent.
    pub retained: Vec<Retained>,
    /// Records that could not be read, or are not of the host that they stand under.
    pub refused: usize,
    /// The store has more than is taken in: this is how it was before.
    pub is_over: bool,
    /// The values that operators keep for files, if they are followed and have been read; `Err` says what is wrong with one.
    pub config: Option<Arc<ConfigValues>>,
    /// Goes up with every difference.
    pub generation: u64,
}

impl CatalogSnapshot {
    /// For how long the store has not confirmed this.
    pub fn age(&self, since_start: Duration) -> Duration {
        match self.confirmed {
            _ if self.connected => Duration::ZERO,
            Some(at) => at.elapsed(),
            None => self.age_on_disk + since_start,
        }
    }
}

/// Which services are asked for, and when last.
#[derive(Debug, Default)]
pub(super) struct Interest {
    pub(super) times: Mutex<BTreeMap<ServiceName, Instant>>,
    /// Somebody wants the values that operators keep.
    pub(super) config: AtomicBool,
    pub(super) changed: Notify,
}

impl Interest {
    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<ServiceName, Instant>> {
        // Nothing panics while it is held.
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reader of the catalog; cheap to clone.
#[derive(Debug, Clone)]
pub struct Reader {
    pub(super) snapshots: watch::Receiver<Arc<CatalogSnapshot>>,
    pub(super) interest: Arc<Interest>,
    pub(super) claims: Arc<Claims>,
    pub(super) started: Instant,
}

impl Reader {
    /// The catalog now.
    pub fn snapshot(&self) -> Arc<CatalogSnapshot> {
        self.snapshots.borrow().clone()
    }

    /// For how long the store has not confirmed the catalog.
    pub fn age(&self) -> Duration {
        self.snapshots.borrow().age(self.started.elapsed())
    }

    /// A way to wait for the next difference.
    pub fn changes(&self) -> watch::Receiver<Arc<CatalogSnapshot>> {
        self.snapshots.clone()
    }

    /// Says that the health of a service is of interest.
    pub fn follow(&self, service: &ServiceName) {
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

    /// Says that the values that operators keep are of interest.
    pub fn follow_config(&self) {
        if !self.interest.config.swap(true, Ordering::Relaxed) {
            self.interest.changed.notify_one();
        }
    }

    /// The catalog with the values that operators keep, if those come in time.
    pub async fn with_config(&self, most: Duration) -> Arc<CatalogSnapshot> {
        self.follow_config();
        self.wait_for(most, |shown| shown.config.is_some()).await
    }

    /// The catalog with the health of a service, if that comes in time.
    pub async fn with_health(&self, service: &ServiceName, most: Duration) -> Arc<CatalogSnapshot> {
        self.follow(service);
        self.wait_for(most, |shown| shown.view.health_known(service)).await
    }

    /// The claim of a host that the catalog does not have, if it was read a moment ago.
    pub fn known_claim(&self, host: &HostName) -> Option<Claim> {
        self.claims.known(host)
    }

    /// The claim of a host that the catalog does not have; it is read if need be.
    pub async fn claim(&self, host: &HostName) -> Claim {
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
            // Not in time, or the agent stops.
            _ => self.snapshot(),
        }
    }
}
