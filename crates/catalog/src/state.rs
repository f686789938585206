//! The content of the store for all services, and the catalog snapshot that results from it.

use crate::guard::{self, Guard, GuardSettings, Retained};
use crate::instance::{CatalogFact, InstanceFacts, StoredRecord};
use crate::view::View;
use schema::health::Health;
use schema::keys::Key;
use schema::names::{HostName, ServiceName};
use schema::records::ServiceRecord;
use schema::time::BootMillis;
use std::collections::{BTreeMap, BTreeSet};

/// The content of the store for one service.
#[derive(Debug, Clone, Default)]
struct Service {
    hosts: BTreeMap<HostName, InstanceFacts>,
    /// Number of hosts with a record.
    records: usize,
    /// Number of hosts with a functional instance.
    functional: usize,
}

/// The content of the store for all services, and the catalog snapshot that results from it. The
/// same facts in any order give the same catalog; only what the guard retains depends on when keys
/// vanished.
#[derive(Debug, Clone)]
pub struct Catalog {
    services: BTreeMap<ServiceName, Service>,
    guard: Guard,
    /// The hosts, by service, whose instances changed since the last [`Catalog::settle`].
    changed: BTreeMap<ServiceName, BTreeSet<HostName>>,
    pub(super) view: View,
}

impl Catalog {
    /// Returns an empty catalog.
    pub fn new(guard: GuardSettings) -> Self {
        Self {
            services: BTreeMap::new(),
            guard: Guard::new(guard),
            changed: BTreeMap::new(),
            view: View::default(),
        }
    }

    /// Returns the catalog snapshot, as of the last [`Catalog::settle`].
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Returns the instances that the guard retains.
    pub fn retained(&self) -> Vec<Retained> {
        self.guard.retained()
    }

    pub fn apply(&mut self, service: &ServiceName, host: &HostName, fact: CatalogFact, now: BootMillis) {
        let known = self.services.entry(service.clone()).or_default();
        let facts = known.hosts.entry(host.clone()).or_default();
        let before = facts.clone();
        match fact {
            CatalogFact::Record(record) => facts.record = record,
            CatalogFact::Health(health) => facts.health = health,
        }
        let after = facts.clone();
        if after == before {
            if after == InstanceFacts::default() {
                self.remove_if_silent(service, host);
            }
            return;
        }
        known.records -= usize::from(before.record.is_some());
        known.records += usize::from(after.record.is_some());
        known.functional -= usize::from(before.is_functional());
        known.functional += usize::from(after.is_functional());
        // Where health is not followed, every instance with a record counts.
        let followed = self.view.health_known(service);
        let left = if followed { known.functional } else { known.records };
        let change = guard::Change { before: &before, after: &after, followed, left };
        let held = self.guard.note(service, host, change, now);
        let changed = self.changed.entry(service.clone()).or_default();
        changed.insert(host.clone());
        changed.extend(held);
        self.remove_if_silent(service, host);
    }

    fn remove_if_silent(&mut self, service: &ServiceName, host: &HostName) {
        let Some(known) = self.services.get_mut(service) else { return };
        if known.hosts.get(host) == Some(&InstanceFacts::default()) {
            known.hosts.remove(host);
        }
        if known.hosts.is_empty() {
            self.services.remove(service);
        }
    }

    /// Applies a complete list of the records. Records that are not in the list are gone.
    pub fn replace_records(
        &mut self,
        mut listed: BTreeMap<(ServiceName, HostName), StoredRecord>,
        now: BootMillis,
    ) {
        let known: Vec<(ServiceName, HostName)> = self
            .services
            .iter()
            .flat_map(|(service, known)| known.hosts.keys().map(|host| (service.clone(), host.clone())))
            .collect();
        for (service, host) in known {
            let record = listed.remove(&(service.clone(), host.clone()));
            self.apply(&service, &host, CatalogFact::Record(record), now);
        }
        for ((service, host), record) in listed {
            self.apply(&service, &host, CatalogFact::Record(Some(record)), now);
        }
        self.view.note_records_known();
    }

    /// Applies a complete list of the health of one service. Hosts that are not in the list have no
    /// health.
    pub fn replace_health(
        &mut self,
        service: &ServiceName,
        mut listed: BTreeMap<HostName, Health>,
        now: BootMillis,
    ) {
        let known: Vec<HostName> =
            self.services.get(service).map(|known| known.hosts.keys().cloned().collect()).unwrap_or_default();
        for host in known {
            let health = listed.remove(&host);
            self.apply(service, &host, CatalogFact::Health(health), now);
        }
        for (host, health) in listed {
            self.apply(service, &host, CatalogFact::Health(Some(health)), now);
        }
        self.view.note_health_known(service);
    }

    /// Forgets the health of a service that nobody requests any more.
    pub fn drop_health(&mut self, service: &ServiceName) {
        self.guard.forget(service);
        self.view.forget_health(service);
        let Some(known) = self.services.get_mut(service) else { return };
        known.hosts.values_mut().for_each(|facts| facts.health = None);
        known.hosts.retain(|_, facts| facts.record.is_some());
        known.functional = known.hosts.values().filter(|facts| facts.is_functional()).count();
        let hosts = known.hosts.keys().cloned();
        self.changed.entry(service.clone()).or_default().extend(hosts);
        if known.hosts.is_empty() {
            self.services.remove(service);
        }
    }

    /// Restarts the linger time of all instances that are gone from the store, because the store
    /// was not connected and their hosts may have been cut off as well.
    pub fn wait_again(&mut self, now: BootMillis) {
        self.guard.wait_again(now);
    }

    /// Ends the retained state of all instances.
    pub fn release(&mut self) {
        for (service, hosts) in self.guard.release() {
            self.changed.entry(service).or_default().extend(hosts);
        }
    }

    /// Returns the number of records that the store contains. Unlike the view, it is up to date before
    /// [`Catalog::settle`].
    pub fn records(&self) -> usize {
        self.services.values().map(|service| service.records).sum()
    }

    /// Updates the catalog snapshot with everything that changed. If the store is connected
    /// (`seen`), also ends the retained state of instances whose linger time is over. Returns true
    /// if consumers see a difference.
    pub fn settle(&mut self, now: BootMillis, seen: bool) -> bool {
        for (service, hosts) in if seen { self.guard.expire(now) } else { Vec::new() } {
            self.changed.entry(service).or_default().extend(hosts);
        }
        let mut differs = false;
        for (service, hosts) in std::mem::take(&mut self.changed) {
            let facts = self.services.get(&service);
            let shown = hosts.into_iter().map(|host| {
                let instance = match self.guard.retained_instance(&service, &host) {
                    Some(last) => Some(last),
                    None => facts.and_then(|known| known.hosts.get(&host)).and_then(InstanceFacts::instance),
                };
                (host, instance)
            });
            let shown: Vec<_> = shown.collect();
            differs |= self.view.change(&service, shown);
        }
        differs
    }

    /// Returns when [`Catalog::settle`] may make a difference next though nothing was reported.
    pub fn next_check(&self) -> Option<BootMillis> {
        self.guard.next_check()
    }
}

/// Returns the catalog snapshot of one moment, without a history: for programs that read the store
/// once.
pub fn catalog_at_once(
    records: BTreeMap<(ServiceName, HostName), StoredRecord>,
    health: impl IntoIterator<Item = ((ServiceName, HostName), Health)>,
) -> View {
    let mut catalog = Catalog::new(GuardSettings::default());
    let now = BootMillis(0);
    let mut services: BTreeSet<ServiceName> = records.keys().map(|(service, _)| service.clone()).collect();
    catalog.replace_records(records, now);
    for ((service, host), health) in health {
        catalog.apply(&service, &host, CatalogFact::Health(Some(health)), now);
        services.insert(service);
    }
    services.iter().for_each(|service| catalog.view.note_health_known(service));
    catalog.settle(now, true);
    catalog.view
}

/// Returns the catalog snapshot of one moment from entries of the store, each with its key, its
/// value and whether it has a lease. Also returns how many entries were ignored because their key
/// or their record cannot be read.
pub fn catalog_from_store<'a>(entries: impl IntoIterator<Item = (&'a str, &'a [u8], bool)>) -> (View, usize) {
    let mut records = BTreeMap::new();
    let mut healths = Vec::new();
    let mut refused = 0;
    for (key, value, leased) in entries {
        match Key::parse(key) {
            Ok(Key::Service(service, host)) => match ServiceRecord::read(&host, value) {
                Ok(record) => drop(records.insert((service, host), StoredRecord::new(record, leased))),
                Err(_) => refused += 1,
            },
            Ok(Key::Health(service, host)) => {
                healths.extend(Health::read(value).map(|health| ((service, host), health)));
            }
            Ok(_) => {}
            Err(_) => refused += 1,
        }
    }
    (catalog_at_once(records, healths), refused)
}
