//! Writes the services of this host into the store, and keeps the lease of their records alive. The
//! store is read before anything is written, so an agent that restarts while its leases are alive
//! writes nothing.
//!
//! This file is long because it is one state machine that owns the service keys of this host and
//! their lease.

use super::addresses::Addresses;
use super::definitions::Loaded;
use super::resolved::Resolved;
use crate::checks::CheckRegistry;
use crate::clock;
use crate::files::Directory;
use crate::reconcile::{Reconcile, Wake};
use catalog::checks::health;
use catalog::definitions::{Definitions, ServiceAddress, ServiceDefinition};
use etcd_session::{
    Contradictions, Deadline, PresenceState, Session, Statement, StoreError, Written, jitter, refused_delay,
    write_backoff,
};
use schema::codec::cut;
use schema::health::Health;
use schema::keys::Key;
use schema::names::{HostName, ServiceName};
use schema::records::{Maintenance, REASON_MAX_BYTES, ServiceRecord, UnpublishedService};
use schema::time::BootMillis;
use schema::writes::services::{SERVICES_IN_WRITE, ServiceChange, ServiceWrite};
use schema::writes::{Fence, WriteRefusal};
use serde::{Deserialize, Serialize};
use settings::Settings;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// What the reconciler tells the publisher about writing to the store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Fencing {
    /// The revision of the store's identity; `None` if the store must not be written.
    pub store_revision: Option<i64>,
    /// The history of the store. A lease is valid only in the history in which it was granted.
    pub history: u64,
    /// True if an operator decommissioned the host, which then withdraws its services.
    pub decommissioned: bool,
    /// The services that an operator set to maintenance or draining.
    pub maintenance: Maintenance,
}

/// The services of this host as they exist in the store, for `/status`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub(crate) struct PublishedServices {
    /// The health of each service in the store, if there is one.
    pub services: BTreeMap<ServiceName, Option<Health>>,
    /// The lease of the records, in hexadecimal.
    pub work_lease: Option<String>,
    /// The services that are defined but not published, each with the reason: the service has no
    /// address that others can use, or its record would be invalid, for example too large.
    pub held_back: BTreeMap<ServiceName, String>,
    /// The names used as addresses that do not resolve now, each with the reason. Their last known
    /// addresses stay.
    pub unresolved: BTreeMap<HostName, String>,
}

impl PublishedServices {
    /// Returns the services that are not published, in the form of the report.
    pub(crate) fn unpublished(&self) -> Vec<UnpublishedService> {
        let reported = |(service, why): (&ServiceName, &String)| UnpublishedService {
            service: service.clone(),
            reason: cut(why, REASON_MAX_BYTES),
        };
        self.held_back.iter().map(reported).collect()
    }
}

/// The state that survives the process: enough to find every key that this host has in the store.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct SavedServices {
    work_lease: i64,
    /// The time to live that the lease was granted with, in seconds.
    #[serde(default)]
    seconds: i64,
    services: BTreeSet<ServiceName>,
}

const MEMORY: &str = "services";
const MEMORY_MAX_BYTES: u64 = 1024 * 1024;
/// Time between two reads of the machine's addresses, and between two comparisons of the store with
/// what was written.
const POLL_INTERVAL: Duration = Duration::from_secs(30);

/// Why services could not be published.
#[derive(Debug, thiserror::Error)]
enum PublishError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The state that survives the process could not be read or written.
    #[error("the state of the services: {0}")]
    Local(#[from] io::Error),
    #[error("refused, because the {0} has changed")]
    Refused(WriteRefusal),
}

/// One service of this host as it exists in the store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct StoredService {
    record: Option<(String, i64)>,
    health: Option<(Health, i64)>,
}

/// What the publisher reads.
pub(crate) struct PublisherInputs {
    pub settings: watch::Receiver<Arc<Settings>>,
    pub loaded: watch::Receiver<Arc<Loaded>>,
    pub registry: Arc<CheckRegistry>,
    pub presence: watch::Receiver<PresenceState>,
    pub contradictions: Contradictions,
    pub fencing: watch::Receiver<Fencing>,
}

/// The task that publishes the services.
pub(crate) struct Publisher {
    host: HostName,
    session: Session,
    directory: Directory,
    inputs: PublisherInputs,
    sender: watch::Sender<Arc<PublishedServices>>,
    saved: SavedServices,
    /// The services in the store; `None` until they have been read.
    stored: Option<BTreeMap<ServiceName, StoredService>>,
    addresses: Addresses,
    resolved: Resolved,
    /// When the lease was last kept alive, on the clock that also counts while the machine sleeps.
    lease_kept: Option<BootMillis>,
    /// The history of the store that the lease belongs to.
    history: u64,
    /// Changes of the results of checks.
    checks: watch::Receiver<u64>,
    /// Number of attempts to write that failed in a row.
    failures: u32,
    /// When addresses and store are read again.
    poll_at: Instant,
}

/// What wakes the publisher.
#[derive(Debug)]
pub(crate) enum PublisherEvent {
    Definitions,
    Fencing,
    Presence,
    Checks,
    /// A name was resolved.
    Resolved,
}

impl Reconcile for Publisher {
    type Event = PublisherEvent;

    async fn next_event(&mut self) -> Option<PublisherEvent> {
        // After a failure, a change of the fencing alone is no reason to write before the delay is
        // over.
        let follows_fencing = self.failures == 0;
        let (loaded, fencing, presence) =
            (&mut self.inputs.loaded, &mut self.inputs.fencing, &mut self.inputs.presence);
        tokio::select! {
            changed = loaded.changed() => changed.ok().map(|()| PublisherEvent::Definitions),
            changed = fencing.changed(), if follows_fencing => {
                changed.ok().map(|()| PublisherEvent::Fencing)
            }
            changed = presence.changed() => changed.ok().map(|()| PublisherEvent::Presence),
            changed = self.checks.changed() => changed.ok().map(|()| PublisherEvent::Checks),
            () = self.resolved.answered() => Some(PublisherEvent::Resolved),
        }
    }

    fn reason(event: &PublisherEvent) -> &'static str {
        match event {
            PublisherEvent::Definitions => "services",
            PublisherEvent::Fencing => "store",
            PublisherEvent::Presence => "claim",
            PublisherEvent::Checks => "checks",
            PublisherEvent::Resolved => "name",
        }
    }

    async fn pass(&mut self, wake: Wake<PublisherEvent>) -> Option<Instant> {
        let definitions = self.inputs.loaded.borrow_and_update().definitions.clone();
        // A change of the claim may have come together with the event that woke the task.
        let claim_changed = self.inputs.presence.borrow_and_update().has_changed();
        if claim_changed || matches!(wake, Wake::Event(PublisherEvent::Presence)) {
            self.stored = None;
        }
        let polls = self.poll_at <= Instant::now();
        if polls {
            self.poll_at = Instant::now() + POLL_INTERVAL;
            // If the addresses cannot be read, the last known ones stay.
            self.addresses = Addresses::read().unwrap_or_else(|| self.addresses.clone());
            // Somebody may have deleted what was written, so the store is read again.
            self.stored = None;
        }
        self.resolved.follow(&definitions, polls);
        self.inputs.fencing.borrow_and_update();
        self.checks.borrow_and_update();
        let pause = match self.publish().await {
            Ok(true) => {
                self.failures = 0;
                self.until_next()
            }
            // The event that makes writing possible wakes the task.
            Ok(false) => {
                self.failures = 0;
                POLL_INTERVAL
            }
            Err(error) => {
                self.failures += 1;
                tracing::debug!(%error, "services could not be published");
                // Whether the write took effect is not known, so the store is read again.
                self.stored = None;
                let refused = match &error {
                    PublishError::Store(error) => refused_delay(error),
                    _ => Duration::ZERO,
                };
                write_backoff().delay(self.failures, jitter()).max(refused)
            }
        };
        self.show();
        Some(self.poll_at.min(Instant::now() + pause))
    }
}

impl Publisher {
    /// Creates the task and loads the saved state.
    pub(crate) fn new(
        host: HostName,
        session: Session,
        directory: Directory,
        inputs: PublisherInputs,
    ) -> (Self, watch::Receiver<Arc<PublishedServices>>) {
        let (sender, receiver) = watch::channel(Arc::new(PublishedServices::default()));
        let memory = directory
            .read(MEMORY, MEMORY_MAX_BYTES)
            .ok()
            .flatten()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
        let checks = inputs.registry.changes();
        let publisher = Self {
            host,
            session,
            directory,
            inputs,
            sender,
            saved: memory,
            stored: None,
            addresses: Addresses::read().unwrap_or_default(),
            resolved: Resolved::default(),
            lease_kept: None,
            history: 0,
            checks,
            failures: 0,
            poll_at: Instant::now(),
        };
        (publisher, receiver)
    }

    /// Returns the time until the lease must be kept alive or a check changes through time alone.
    fn until_next(&self) -> Duration {
        let now = clock::boot_millis();
        let times = self.lease_due().into_iter().chain(self.inputs.registry.next_change());
        let next = times.map(|at| at.since(now)).min();
        next.unwrap_or(Duration::from_secs(3600)).max(Duration::from_millis(10))
    }

    /// Returns when the lease must be kept alive next: three times within its time to live.
    fn lease_due(&self) -> Option<BootMillis> {
        let third = Duration::from_secs(u64::try_from(self.saved.seconds).unwrap_or(0)) / 3;
        self.lease_kept.map(|at| at.plus(third))
    }

    fn work_lease_seconds(&self) -> i64 {
        i64::try_from(self.inputs.settings.borrow().services.work_lease.as_secs()).unwrap_or(900)
    }

    /// Makes the store match the definitions. Returns false if the store may not be written now, or
    /// if there is nothing to publish.
    async fn publish(&mut self) -> Result<bool, PublishError> {
        let PresenceState::Held { lease: live_lease, live_revision } = self.inputs.presence.borrow().clone()
        else {
            self.stored = None;
            return Ok(false);
        };
        let fencing = self.inputs.fencing.borrow().clone();
        let Some(store_revision) = fencing.store_revision else { return Ok(false) };
        if fencing.history != self.history {
            // A lease that came back with a restored store is left to expire. Its keys move to a
            // new lease.
            self.forget_lease();
            self.stored = None;
            self.save(self.saved.services.clone())?;
            self.history = fencing.history;
        }
        self.keep_lease().await?;
        let definitions = self.inputs.loaded.borrow().definitions.clone();
        let wanted: BTreeMap<ServiceName, ServiceRecord> = if fencing.decommissioned {
            BTreeMap::new()
        } else {
            definitions
                .services
                .values()
                .filter_map(|s| Some((s.name.clone(), self.record(s).ok()?)))
                .collect()
        };
        self.read(&wanted).await?;
        if wanted.is_empty() && self.saved.services.is_empty() {
            return Ok(false);
        }
        // Noted before anything is written, because that may be impossible.
        let changes = self.changes(&wanted, &definitions, &fencing.maintenance, live_lease);
        self.note_health(&changes, live_lease);
        let fence = Fence { live_revision, live_lease, store_revision };
        let written = async {
            self.ensure_lease(&wanted).await?;
            // The lease of the records may be a new one.
            let changes = self.changes(&wanted, &definitions, &fencing.maintenance, live_lease);
            for part in changes.chunks(SERVICES_IN_WRITE) {
                self.write(part, fence).await?;
            }
            Ok(())
        };
        let written = written.await;
        if let Err(PublishError::Store(StoreError::NoSpace { .. })) = &written {
            self.take_back_health(&changes, fence).await;
        }
        self.note_health(&changes, live_lease);
        written?;
        // A service is marked as withdrawn before its keys are removed.
        for part in self.removals(&wanted).chunks(SERVICES_IN_WRITE) {
            self.write(part, fence).await?;
        }
        Ok(true)
    }

    /// Returns the record of a service, or the reason why it has none.
    fn record(&self, service: &ServiceDefinition) -> Result<ServiceRecord, String> {
        let settings = self.inputs.settings.borrow().services.clone();
        let addresses = self.addresses.for_service(service, &settings, &self.resolved);
        if addresses.is_empty() {
            return Err(self.addresses.unusable_reason(service, &settings));
        }
        let record = ServiceRecord {
            host: Some(self.host.clone()),
            addresses,
            port: service.port,
            tags: service.tags.clone(),
            meta: service.meta.clone(),
            ..ServiceRecord::of_interfaces(self.addresses.by_interface().clone())
        };
        // A record that readers refuse is of no use.
        ServiceRecord::read(&self.host, record.write().as_bytes()).map_err(|error| error.to_string())?;
        Ok(record)
    }

    /// Reads from the store the services that are not known yet.
    async fn read(&mut self, wanted: &BTreeMap<ServiceName, ServiceRecord>) -> Result<(), PublishError> {
        let known = self.stored.as_ref();
        let services: BTreeSet<ServiceName> = wanted.keys().chain(&self.saved.services).cloned().collect();
        let missing: Vec<&ServiceName> = services
            .iter()
            .filter(|service| known.is_none_or(|known_services| !known_services.contains_key(*service)))
            .collect();
        if missing.is_empty() {
            self.stored.get_or_insert_default();
            return Ok(());
        }
        let deadline = Deadline::of_request();
        let snapshot = self.session.read_services(&self.host, missing.iter().copied(), deadline).await?;
        let known_services = self.stored.get_or_insert_default();
        for service in missing {
            let (service, host) = (service.clone(), self.host.clone());
            let record = snapshot.get(&Key::Service(service.clone(), host.clone()));
            let health = snapshot.get(&Key::Health(service.clone(), host));
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let in_store = StoredService {
                record: record.map(|entry| (text(&entry.value), entry.lease)),
                health: health.and_then(|entry| Some((Health::read(&entry.value)?, entry.lease))),
            };
            known_services.insert(service, in_store);
        }
        Ok(())
    }

    /// Ensures that the records have a lease: the saved one only if it still holds a key of this
    /// host, else a new one.
    async fn ensure_lease(
        &mut self,
        wanted: &BTreeMap<ServiceName, ServiceRecord>,
    ) -> Result<(), PublishError> {
        let lease = self.saved.work_lease;
        let holds = |known_services: &StoredService| {
            known_services.record.as_ref().is_some_and(|(_, l)| *l == lease && *l != 0)
        };
        let is_ours = self.stored.iter().flat_map(BTreeMap::values).any(holds);
        // A lease with another time to live than the settings say is given up. Its keys move to a
        // new lease.
        let fits = self.saved.seconds == self.work_lease_seconds();
        if lease != 0 && fits && (is_ours || self.lease_kept.is_some()) {
            if self.lease_kept.is_none() {
                self.keep(lease).await?;
            }
            return self.remember(wanted.keys());
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let seconds = self.work_lease_seconds();
        let deadline = Deadline::of_request();
        self.saved.work_lease = self.session.grant_lease(seconds, deadline).await?;
        self.saved.seconds = seconds;
        self.lease_kept = Some(clock::boot_millis());
        self.remember(wanted.keys())
    }

    async fn keep_lease(&mut self) -> Result<(), PublishError> {
        let due = self.lease_due().is_some_and(|at| clock::boot_millis() >= at);
        if due { self.keep(self.saved.work_lease).await } else { Ok(()) }
    }

    async fn keep(&mut self, lease: i64) -> Result<(), PublishError> {
        match self.session.keep_own_lease(lease, Deadline::of_request()).await {
            Ok(()) => {
                self.lease_kept = Some(clock::boot_millis());
                Ok(())
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Returns the error. Forgets a lease that is gone, so that the next attempt grants a new one,
    /// after the store was read again.
    fn failed(&mut self, error: StoreError) -> PublishError {
        if matches!(error, StoreError::LeaseGone { .. }) {
            tracing::info!("the lease of this host's records is gone: they are written again");
            self.forget_lease();
        }
        error.into()
    }

    fn forget_lease(&mut self) {
        self.saved.work_lease = 0;
        self.lease_kept = None;
    }

    /// Saves the names on disk before the store is written, so that a later agent finds every key
    /// that exists there.
    fn remember<'a>(&mut self, wanted: impl Iterator<Item = &'a ServiceName>) -> Result<(), PublishError> {
        let mut services = self.saved.services.clone();
        services.extend(wanted.cloned());
        self.save(services)
    }

    fn save(&mut self, services: BTreeSet<ServiceName>) -> Result<(), PublishError> {
        let memory = SavedServices { services, ..self.saved };
        let text = serde_json::to_vec(&memory).map_err(io::Error::other)?;
        let on_disk = self.directory.read(MEMORY, MEMORY_MAX_BYTES)?;
        if on_disk.as_deref() != Some(&text[..]) {
            self.directory.replace(MEMORY, &text, 0o600)?;
        }
        self.saved = memory;
        Ok(())
    }

    /// Returns the removals of services in the store that are not wanted any more.
    fn removals(&self, wanted: &BTreeMap<ServiceName, ServiceRecord>) -> Vec<(ServiceName, ServiceChange)> {
        let stored = self.stored.iter().flatten();
        let gone = stored.filter(|(name, in_store)| {
            !wanted.contains_key(*name) && (in_store.record.is_some() || in_store.health.is_some())
        });
        gone.map(|(name, _)| (name.clone(), ServiceChange::Remove)).collect()
    }

    /// Returns the changes of records and health to write.
    fn changes(
        &self,
        wanted: &BTreeMap<ServiceName, ServiceRecord>,
        definitions: &Definitions,
        maintenance: &Maintenance,
        live_lease: i64,
    ) -> Vec<(ServiceName, ServiceChange)> {
        let mut changes = Vec::new();
        for (name, in_store) in self.stored.iter().flatten() {
            let (record, health) = match (wanted.get(name), definitions.services.get(name)) {
                (Some(record), Some(definition)) => {
                    let text = record.write();
                    let lease = self.saved.work_lease;
                    let is_written = in_store.record.as_ref().is_some_and(|(t, l)| *t == text && *l == lease);
                    let before = in_store.health.filter(|(_, lease)| *lease == live_lease);
                    let mode = maintenance.of(name).map(|o| o.how);
                    let health = self.inputs.registry.with(definition, &definitions.host_checks, |checks| {
                        health(checks, mode, in_store.health.map(|(h, _)| h), clock::boot_millis())
                    });
                    // If nothing new is known, the last health stays, under the current lease.
                    let health = health.or(in_store.health.map(|(h, _)| h));
                    let differs = health.filter(|health| before.map(|(h, _)| h) != Some(*health));
                    ((!is_written).then_some(text), differs)
                }
                _ if in_store.health.is_some_and(|(h, _)| h != Health::Withdrawn) => {
                    (None, Some(Health::Withdrawn))
                }
                _ => (None, None),
            };
            if record.is_some() || health.is_some() {
                changes.push((name.clone(), ServiceChange::Say { record, health }));
            }
        }
        changes
    }

    /// Tells the task that keeps the live lease whether the store says of a service that it works, although it does
    /// not.
    fn note_health(&self, changes: &[(ServiceName, ServiceChange)], live_lease: i64) {
        let works = |name: &ServiceName| {
            let health = self.stored.as_ref().and_then(|stored| stored.get(name)?.health);
            health.is_some_and(|(health, lease)| health.is_functional() && lease == live_lease)
        };
        let is_untrue = |(name, change): &(ServiceName, ServiceChange)| match change {
            ServiceChange::Say { health: Some(health), .. } => !health.is_functional() && works(name),
            _ => false,
        };
        let is_untrue = changes.iter().any(is_untrue);
        self.inputs.contradictions.note(Statement::Health, live_lease, is_untrue);
    }

    /// Deletes the health that got worse from a full store, whatever the store refused before.
    async fn take_back_health(&mut self, changes: &[(ServiceName, ServiceChange)], fence: Fence) {
        let host = self.host.clone();
        for part in changes.chunks(SERVICES_IN_WRITE) {
            let write = ServiceWrite { host: &host, fence, work_lease: 0, changes: part.to_vec() };
            if !self.session.take_back_health(&write, Deadline::of_request()).await {
                continue;
            }
            for service in write.worsened() {
                if let Some(in_store) = self.stored.as_mut().and_then(|stored| stored.get_mut(service)) {
                    in_store.health = None;
                }
            }
        }
    }

    async fn write(
        &mut self,
        changes: &[(ServiceName, ServiceChange)],
        fence: Fence,
    ) -> Result<(), PublishError> {
        let work_lease = self.saved.work_lease;
        let host = self.host.clone();
        let write = ServiceWrite { host: &host, fence, work_lease, changes: changes.to_vec() };
        let written = self.session.write_services(&write, Deadline::of_request()).await;
        match written.map_err(|error| self.failed(error))? {
            Written::Done(_) => {}
            Written::Refused(refusal) => return Err(PublishError::Refused(refusal)),
        }
        let known_services = self.stored.get_or_insert_default();
        let mut services = self.saved.services.clone();
        for (name, change) in changes {
            match change {
                ServiceChange::Say { record, health } => {
                    let in_store = known_services.entry(name.clone()).or_default();
                    if let Some(record) = record {
                        in_store.record = Some((record.clone(), work_lease));
                    }
                    if let Some(health) = health {
                        tracing::info!(service = %name, %health, "published");
                        in_store.health = Some((*health, fence.live_lease));
                    }
                }
                ServiceChange::Remove => {
                    tracing::info!(service = %name, "withdrawn");
                    known_services.remove(name);
                    services.remove(name);
                }
            }
        }
        self.save(services)
    }

    fn show(&self) {
        let known_services = self.stored.iter().flatten();
        let loaded = self.inputs.loaded.borrow().clone();
        // A name whose lookup is still running may well resolve.
        let is_asked = |s: &&ServiceDefinition| match &s.address {
            Some(ServiceAddress::Name(name)) => !self.resolved.is_answered(name),
            _ => false,
        };
        let defined = loaded.definitions.services.values().filter(|s| !is_asked(s));
        let without = defined.filter_map(|s| Some((s.name.clone(), self.record(s).err()?)));
        let published = PublishedServices {
            services: known_services
                .filter(|(_, known_services)| known_services.record.is_some())
                .map(|(name, known_services)| (name.clone(), known_services.health.map(|(health, _)| health)))
                .collect(),
            work_lease: (self.saved.work_lease != 0).then(|| format!("{:x}", self.saved.work_lease)),
            held_back: without.collect(),
            unresolved: self.resolved.problems(),
        };
        // While the store is not known, the state that was last shown stays.
        if self.stored.is_none() {
            return;
        }
        self.sender.send_if_modified(|old| {
            let differs = **old != published;
            if differs {
                if old.held_back != published.held_back {
                    warn_of(&published.held_back, &loaded.definitions);
                }
                *old = Arc::new(published);
            }
            differs
        });
    }
}

/// Logs the services that are not published, once for each reason. Names that do not resolve are
/// logged where they are looked up.
fn warn_of(held_back: &BTreeMap<ServiceName, String>, definitions: &Definitions) {
    let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (service, why) in held_back {
        let definition = definitions.services.get(service);
        let is_name = matches!(definition.and_then(|d| d.address.as_ref()), Some(ServiceAddress::Name(_)));
        if !is_name {
            by_reason.entry(why).or_default().push(service.as_str());
        }
    }
    for (why, services) in by_reason {
        tracing::warn!(services = services.join(", "), why, "services are not published");
    }
}
