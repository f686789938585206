//! Writes what this host has into the store, and keeps the lease that its addresses hang on. What stands there
//! is read before anything is written, so an agent that restarts with its leases alive writes nothing.

use super::addresses::Addresses;
use super::definitions::Loaded;
use super::resolved::Resolved;
use crate::checks::CheckRegistry;
use crate::clock;
use crate::files::Directory;
use catalog::checks::health;
use catalog::definitions::{Definitions, ServiceAddress, ServiceDefinition};
use etcd_session::{
    Deadline, Fence, PresenceState, SERVICES_IN_WRITE, ServiceChange, ServiceWrite, Session, StoreError,
    Written, jitter,
};
use planning::settings::Settings;
use schema::codec::cut;
use schema::health::Health;
use schema::keys::Key;
use schema::names::{HostName, ServiceName};
use schema::records::{Maintenance, REASON_MAX_BYTES, ServiceRecord, UnpublishedService};
use schema::time::{Backoff, BootMillis};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// What the reconciler says of writing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Fencing {
    /// The store may be written; the revision of its identity.
    pub store_revision: Option<i64>,
    /// The history of the store: a lease is valid in the one that it was granted in.
    pub history: u64,
    /// An operator took the host out: it withdraws what it has.
    pub decommissioned: bool,
    /// What an operator took out of use.
    pub maintenance: Maintenance,
}

/// What stands in the store of this host, for `/status`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub(crate) struct PublishedServices {
    /// The health of each service.
    pub services: BTreeMap<ServiceName, Option<Health>>,
    /// The lease of the records.
    pub work_lease: Option<String>,
    /// Services that are defined and not published, and why: they have no address that others could use, or more to
    /// say than a record holds.
    pub held_back: BTreeMap<ServiceName, String>,
    /// Addresses of services that are names and do not resolve now, and why; what they stood for before stays.
    pub unresolved: BTreeMap<HostName, String>,
}

impl PublishedServices {
    /// The services that are held back, as a report says them.
    pub(crate) fn unpublished(&self) -> Vec<UnpublishedService> {
        let reported = |(service, why): (&ServiceName, &String)| UnpublishedService {
            service: service.clone(),
            reason: cut(why, REASON_MAX_BYTES),
        };
        self.held_back.iter().map(reported).collect()
    }
}

/// What outlives the process: enough to find everything that this host has in the store.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct SavedServices {
    work_lease: i64,
    /// The time to live that it was granted with.
    #[serde(default)]
    seconds: i64,
    services: BTreeSet<ServiceName>,
}

const MEMORY: &str = "services";
const MEMORY_MAX_BYTES: u64 = 1024 * 1024;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(8);
/// Addresses of the machine are read this often; the store is compared with what was written as well.
const POLL_INTERVAL: Duration = Duration::from_secs(30);

/// One service as it stands in the store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct StoredService {
    record: Option<(String, i64)>,
    health: Option<(Health, i64)>,
}

/// The task.
pub(crate) struct Publisher {
    host: HostName,
    session: Session,
    directory: Directory,
    settings: watch::Receiver<Arc<Settings>>,
    loaded: watch::Receiver<Arc<Loaded>>,
    registry: Arc<CheckRegistry>,
    presence: watch::Receiver<PresenceState>,
    fencing: watch::Receiver<Fencing>,
    sender: watch::Sender<Arc<PublishedServices>>,
    memory: SavedServices,
    /// What stands in the store; `None` until it has been read.
    stored: Option<BTreeMap<ServiceName, StoredService>>,
    addresses: Addresses,
    resolved: Resolved,
    /// When the lease was kept alive last, on the clock that counts sleep.
    lease_kept: Option<BootMillis>,
    /// The history of the store that the lease belongs to.
    history: u64,
}

impl Publisher {
    /// Prepares to publish.
    #[allow(clippy::too_many_arguments, reason = "the parts of the agent, put together once")]
    pub(crate) fn new(
        host: HostName,
        session: Session,
        directory: Directory,
        settings: watch::Receiver<Arc<Settings>>,
        loaded: watch::Receiver<Arc<Loaded>>,
        registry: Arc<CheckRegistry>,
        presence: watch::Receiver<PresenceState>,
        fencing: watch::Receiver<Fencing>,
    ) -> (Self, watch::Receiver<Arc<PublishedServices>>) {
        let (sender, receiver) = watch::channel(Arc::new(PublishedServices::default()));
        let memory = directory
            .read(MEMORY, MEMORY_MAX_BYTES)
            .ok()
            .flatten()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
        let publisher = Self {
            host,
            session,
            directory,
            settings,
            loaded,
            registry,
            presence,
            fencing,
            sender,
            memory,
            stored: None,
            addresses: Addresses::read().unwrap_or_default(),
            resolved: Resolved::default(),
            lease_kept: None,
            history: 0,
        };
        (publisher, receiver)
    }

    /// Runs until it is dropped.
    pub(crate) async fn run(mut self) {
        let backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
        let mut failures = 0u32;
        let mut checks = self.registry.changes();
        let mut poll = tokio::time::interval(POLL_INTERVAL);
        loop {
            let definitions = self.loaded.borrow_and_update().definitions.clone();
            self.resolved.follow(&definitions, false);
            self.fencing.borrow_and_update();
            self.presence.borrow_and_update();
            checks.borrow_and_update();
            let pause = match self.publish().await {
                Ok(true) => {
                    failures = 0;
                    self.until_next()
                }
                // What it waits for wakes it.
                Ok(false) => {
                    failures = 0;
                    POLL_INTERVAL
                }
                Err(error) => {
                    failures += 1;
                    tracing::debug!(error, "services could not be published");
                    // Whether it was written is not known: what stands there is read again.
                    self.stored = None;
                    backoff.delay(failures, jitter())
                }
            };
            self.show();
            tokio::select! {
                // Channels and timers lose nothing when another is ready first.
                changed = self.loaded.changed() => if changed.is_err() { return },
                changed = self.fencing.changed(), if failures == 0 => if changed.is_err() { return },
                changed = self.presence.changed() => if changed.is_err() { return } else { self.stored = None },
                _ = checks.changed() => {}
                () = self.resolved.answered() => {}
                () = tokio::time::sleep(pause) => {}
                _ = poll.tick() => {
                    // Where they cannot be read they are what they were.
                    self.addresses = Addresses::read().unwrap_or_else(|| self.addresses.clone());
                    self.resolved.follow(&definitions, true);
                    // Somebody may have deleted what was written.
                    self.stored = None;
                }
            }
        }
    }

    /// Until the lease has to be kept alive, or a check changes by time alone.
    fn until_next(&self) -> Duration {
        let now = clock::boot_millis();
        let times = self.lease_due().into_iter().chain(self.registry.next_change());
        let next = times.map(|at| at.since(now)).min();
        next.unwrap_or(Duration::from_secs(3600)).max(Duration::from_millis(10))
    }

    /// When the lease has to be kept alive: three times within the life that it was granted.
    fn lease_due(&self) -> Option<BootMillis> {
        let third = Duration::from_secs(u64::try_from(self.memory.seconds).unwrap_or(0)) / 3;
        self.lease_kept.map(|at| at.plus(third))
    }

    fn work_lease_seconds(&self) -> i64 {
        i64::try_from(self.settings.borrow().services.work_lease.as_secs()).unwrap_or(900)
    }

    /// Brings the store to what is true; false if it may not be written now.
    async fn publish(&mut self) -> Result<bool, String> {
        let PresenceState::Held { lease: live_lease, live_revision } = self.presence.borrow().clone() else {
            self.stored = None;
            return Ok(false);
        };
        let fencing = self.fencing.borrow().clone();
        let Some(store_revision) = fencing.store_revision else { return Ok(false) };
        if fencing.history != self.history {
            // One that came back with a restored store runs out; its keys move to a new one.
            self.forget_lease();
            self.stored = None;
            self.save(self.memory.services.clone())?;
            self.history = fencing.history;
        }
        self.keep_lease().await?;
        let definitions = self.loaded.borrow().definitions.clone();
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
        if wanted.is_empty() && self.memory.services.is_empty() {
            return Ok(false);
        }
        self.ensure_lease(&wanted).await?;
        let fence = Fence { live_revision, store_revision };
        // What goes is said before it is gone.
        for removing in [false, true] {
            let changes = self.changes(&wanted, &definitions, &fencing.maintenance, live_lease, removing);
            for part in changes.chunks(SERVICES_IN_WRITE) {
                self.write(part, fence, live_lease).await?;
            }
        }
        Ok(true)
    }

    /// The record of a service; or why it has none.
    fn record(&self, service: &ServiceDefinition) -> Result<ServiceRecord, String> {
        let settings = self.settings.borrow().services.clone();
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
        // One that readers refuse helps nobody.
        ServiceRecord::read(&self.host, record.write().as_bytes()).map_err(|error| error.to_string())?;
        Ok(record)
    }

    /// Reads what stands in the store, if that is not known.
    async fn read(&mut self, wanted: &BTreeMap<ServiceName, ServiceRecord>) -> Result<(), String> {
        let known = self.stored.as_ref();
        let services: BTreeSet<ServiceName> = wanted.keys().chain(&self.memory.services).cloned().collect();
        let missing: Vec<&ServiceName> = services
            .iter()
            .filter(|service| known.is_none_or(|known_services| !known_services.contains_key(*service)))
            .collect();
        if missing.is_empty() {
            self.stored.get_or_insert_default();
            return Ok(());
        }
        let deadline = Deadline::within(REQUEST_TIMEOUT);
        let snapshot = self
            .session
            .read_services(&self.host, missing.iter().copied(), deadline)
            .await
            .map_err(|e| e.to_string())?;
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

    /// The lease of the records: the one of before only if it still holds a key of ours, else a new one.
    async fn ensure_lease(&mut self, wanted: &BTreeMap<ServiceName, ServiceRecord>) -> Result<(), String> {
        let lease = self.memory.work_lease;
        let holds = |known_services: &StoredService| {
            known_services.record.as_ref().is_some_and(|(_, l)| *l == lease && *l != 0)
        };
        let is_ours = self.stored.iter().flat_map(BTreeMap::values).any(holds);
        // One of another length than is wanted now is given up: its keys move to a new one.
        let fits = self.memory.seconds == self.work_lease_seconds();
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
        let deadline = Deadline::within(REQUEST_TIMEOUT);
        self.memory.work_lease =
            self.session.grant_lease(seconds, deadline).await.map_err(|e| e.to_string())?;
        self.memory.seconds = seconds;
        self.lease_kept = Some(clock::boot_millis());
        self.remember(wanted.keys())
    }

    async fn keep_lease(&mut self) -> Result<(), String> {
        let due = self.lease_due().is_some_and(|at| clock::boot_millis() >= at);
        if due { self.keep(self.memory.work_lease).await } else { Ok(()) }
    }

    async fn keep(&mut self, lease: i64) -> Result<(), String> {
        match self.session.keep_own_lease(lease, Deadline::within(REQUEST_TIMEOUT)).await {
            Ok(()) => {
                self.lease_kept = Some(clock::boot_millis());
                Ok(())
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// A lease that is gone is replaced by a new one at the next turn, after what stands in the store was read again.
    fn failed(&mut self, error: &StoreError) -> String {
        if matches!(error, StoreError::LeaseGone { .. }) {
            tracing::info!("the lease of this host's addresses is gone: they are written again");
            self.forget_lease();
        }
        error.to_string()
    }

    fn forget_lease(&mut self) {
        self.memory.work_lease = 0;
        self.lease_kept = None;
    }

    /// On disk before the store: nothing is left there that a later agent would not find.
    fn remember<'a>(&mut self, wanted: impl Iterator<Item = &'a ServiceName>) -> Result<(), String> {
        let mut services = self.memory.services.clone();
        services.extend(wanted.cloned());
        self.save(services)
    }

    fn save(&mut self, services: BTreeSet<ServiceName>) -> Result<(), String> {
        let memory = SavedServices { services, ..self.memory };
        let text = serde_json::to_vec(&memory).map_err(|e| e.to_string())?;
        let on_disk = self.directory.read(MEMORY, MEMORY_MAX_BYTES).map_err(|e| e.to_string())?;
        if on_disk.as_deref() != Some(&text[..]) {
            self.directory.replace(MEMORY, &text, 0o600).map_err(|e| e.to_string())?;
        }
        self.memory = memory;
        Ok(())
    }

    /// What has to be written: first what is said, then what goes.
    fn changes(
        &self,
        wanted: &BTreeMap<ServiceName, ServiceRecord>,
        definitions: &Definitions,
        maintenance: &Maintenance,
        live_lease: i64,
        removing: bool,
    ) -> Vec<(ServiceName, ServiceChange)> {
        let none = BTreeMap::new();
        let known_services = self.stored.as_ref().unwrap_or(&none);
        let mut changes = Vec::new();
        if removing {
            let gone = known_services.iter().filter(|(name, known_services)| {
                !wanted.contains_key(*name)
                    && (known_services.record.is_some() || known_services.health.is_some())
            });
            changes.extend(gone.map(|(name, _)| (name.clone(), ServiceChange::Remove)));
            return changes;
        }
        for (name, in_store) in known_services {
            let (record, health) = match (wanted.get(name), definitions.services.get(name)) {
                (Some(record), Some(definition)) => {
                    let text = record.write();
                    let lease = self.memory.work_lease;
                    let is_written = in_store.record.as_ref().is_some_and(|(t, l)| *t == text && *l == lease);
                    let before = in_store.health.filter(|(_, lease)| *lease == live_lease);
                    let mode = maintenance.of(name).map(|o| o.how);
                    let health = self.registry.with(definition, &definitions.host_checks, |checks| {
                        health(checks, mode, in_store.health.map(|(h, _)| h), clock::boot_millis())
                    });
                    // Nothing new is known: what was said before is said on, under the lease of now.
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

    async fn write(
        &mut self,
        changes: &[(ServiceName, ServiceChange)],
        fence: Fence,
        live_lease: i64,
    ) -> Result<(), String> {
        let work_lease = self.memory.work_lease;
        let host = self.host.clone();
        let write = ServiceWrite { host: &host, fence, work_lease, live_lease, changes: changes.to_vec() };
        let written = self.session.write_services(&write, Deadline::within(REQUEST_TIMEOUT)).await;
        match written.map_err(|error| self.failed(&error))? {
            Written::Done(_) => {}
            Written::Refused(refusal) => return Err(format!("refused: {refusal:?}")),
        }
        let known_services = self.stored.get_or_insert_default();
        let mut services = self.memory.services.clone();
        for (name, change) in changes {
            match change {
                ServiceChange::Say { record, health } => {
                    let in_store = known_services.entry(name.clone()).or_default();
                    if let Some(record) = record {
                        in_store.record = Some((record.clone(), work_lease));
                    }
                    if let Some(health) = health {
                        tracing::info!(service = %name, %health, "published");
                        in_store.health = Some((*health, live_lease));
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
        let loaded = self.loaded.borrow().clone();
        // A name that is still being asked for may well resolve.
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
            work_lease: (self.memory.work_lease != 0).then(|| format!("{:x}", self.memory.work_lease)),
            held_back: without.collect(),
            unresolved: self.resolved.problems(),
        };
        // Between two reads nothing is known; what was shown stays.
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

/// Says which services are held back, once for each reason. Of names that do not resolve it was said where they were
/// asked for.
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
