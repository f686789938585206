//! The cliff guard (invariant I15) decides which losses in the catalog are true and which are the
//! result of a fault. A put is a statement and takes effect at once, even for the only instance. A
//! key that vanishes with its lease says nothing. When many instances of a service stop reporting
//! together, a fault of the store or of the network is more likely than the failure of all of them,
//! so the guard retains them: their last known state is served.
//!
//! An instance is retained until one of these happens: its host reports again; its record is gone
//! as well (the work lease outlives a reboot) and the linger time has passed, in which a host that
//! was cut off would have come back; or an operator drops the retained state.
//!
//! A host whose record vanished while its health says that the service works has not stopped
//! reporting. Only its addresses were lost, for example because a lease expired in a bad network.
//! Such an instance is retained however few there are, until its host reports something else or
//! stops reporting.

use crate::instance::{Instance, InstanceFacts};
use schema::names::{HostName, ServiceName};
use schema::time::BootMillis;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The settings that decide when missing reports are taken for a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuardSettings {
    /// Part of the instances of a service, in percent. More than this part must stop reporting.
    pub percent: usize,
    /// Smallest number of instances of a service that must stop reporting.
    pub at_least: usize,
    /// The time within which these instances must stop reporting.
    pub window: Duration,
    /// How long a retained instance is served after both of its keys are gone from the store. Hosts
    /// that were cut off together come back spread over 45 seconds.
    pub linger: Duration,
}

impl Default for GuardSettings {
    fn default() -> Self {
        Self { percent: 34, at_least: 3, window: Duration::from_secs(60), linger: Duration::from_secs(60) }
    }
}

impl GuardSettings {
    /// True if the loss of `lost` out of `of` instances or addresses is taken for a fault.
    pub fn is_cliff(&self, lost: usize, of: usize) -> bool {
        lost >= self.at_least && lost * 100 > self.percent * of
    }
}

/// The instances of one service that the guard retains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Retained {
    /// Name of the service.
    pub service: ServiceName,
    /// Hosts of the retained instances.
    pub hosts: Vec<HostName>,
}

/// A functional instance whose host stopped reporting.
#[derive(Debug, Clone)]
struct LostInstance {
    last: Arc<Instance>,
    at: BootMillis,
    /// When both keys of the instance were gone from the store.
    gone: Option<BootMillis>,
    /// The health says that the service works; only the record is gone.
    works: bool,
}

#[derive(Debug, Clone, Default)]
struct ServiceGuard {
    vanished: BTreeMap<HostName, LostInstance>,
    /// Too many instances vanished together: all of them are retained.
    holding: bool,
}

impl ServiceGuard {
    fn retains(&self, vanished: &LostInstance) -> bool {
        self.holding || vanished.works
    }

    fn retained_hosts(&self) -> impl Iterator<Item = &HostName> {
        self.vanished.iter().filter(|(_, vanished)| self.retains(vanished)).map(|(host, _)| host)
    }

    /// Forgets instances that vanished before the window: they did not vanish together with those
    /// that vanish now.
    fn forget_old(&mut self, window: Duration, now: BootMillis) {
        if !self.holding {
            self.vanished.retain(|_, v| v.works || now.since(v.at) < window);
        }
    }
}

/// The hosts, by service, whose instances in the catalog snapshot have to be updated.
type Touched = Vec<(ServiceName, Vec<HostName>)>;

/// The content of the store for one service on one host, before and after a change.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change<'a> {
    pub(super) before: &'a InstanceFacts,
    pub(super) after: &'a InstanceFacts,
    /// True if the health of the service is followed.
    pub(super) followed: bool,
    /// The number of instances of the service after the change; where health is followed, only
    /// functional ones count.
    pub(super) left: usize,
}

/// The vanished instances, and which of them are retained.
#[derive(Debug, Clone)]
pub struct Guard {
    settings: GuardSettings,
    services: BTreeMap<ServiceName, ServiceGuard>,
}

impl Guard {
    /// Returns a guard without vanished instances.
    pub fn new(settings: GuardSettings) -> Self {
        Self { settings, services: BTreeMap::new() }
    }

    /// Records a change. Returns the hosts of the service whose instances are retained because of
    /// it.
    pub(super) fn note(
        &mut self,
        service: &ServiceName,
        host: &HostName,
        change: Change<'_>,
        now: BootMillis,
    ) -> Vec<HostName> {
        let Change { before, after, followed, left } = change;
        if after.health.is_some_and(|health| after.record.is_some() || !health.is_functional()) {
            self.note_report(service, host);
            return Vec::new();
        }
        // Where health is not followed, a leased record is all that is known of an instance.
        let stood = !followed && before.record.as_ref().is_some_and(|stored| stored.leased);
        let was_functional = before.health.map_or(stood, |health| health.is_functional());
        let is_silent = followed && after.health.is_none() && was_functional;
        if !followed && after.record.is_some() {
            self.note_report(service, host);
            return Vec::new();
        }
        let lost_record = before.record.is_some() && after.record.is_none();
        if lost_record && before.health.is_some_and(|health| !health.is_functional()) {
            // The last report said that the service does not work, so the instance need not be
            // retained.
            self.note_report(service, host);
            return Vec::new();
        }
        let settings = self.settings;
        let watched = self.services.entry(service.clone()).or_default();
        let gone = (after.record.is_none() && after.health.is_none()).then_some(now);
        let works = followed && after.health.is_some();
        if let Some(known) = watched.vanished.get_mut(host) {
            let worked = std::mem::replace(&mut known.works, works);
            known.gone = if works { None } else { known.gone.or(gone) };
            if works || !worked {
                return Vec::new();
            }
            known.at = now;
            watched.forget_old(settings.window, now);
        } else {
            let may_retain = is_silent || (lost_record && was_functional);
            let last = if may_retain { before.instance() } else { None };
            let Some(last) = last else {
                if watched.vanished.is_empty() {
                    self.services.remove(service);
                }
                return Vec::new();
            };
            let last = Arc::new(Instance { retained: true, ..last.as_ref().clone() });
            watched.forget_old(settings.window, now);
            watched.vanished.insert(host.clone(), LostInstance { last, at: now, gone, works });
        }
        let silent = watched.vanished.len();
        if watched.holding || !settings.is_cliff(silent, left + silent) {
            return Vec::new();
        }
        watched.holding = true;
        watched.vanished.keys().cloned().collect()
    }

    /// Forgets a vanished instance, because its host reports again.
    fn note_report(&mut self, service: &ServiceName, host: &HostName) {
        let Some(watched) = self.services.get_mut(service) else { return };
        watched.vanished.remove(host);
        if watched.vanished.is_empty() {
            self.services.remove(service);
        }
    }

    /// Returns the last known state of an instance, if the guard retains it.
    pub(super) fn retained_instance(&self, service: &ServiceName, host: &HostName) -> Option<Arc<Instance>> {
        let watched = self.services.get(service)?;
        let vanished = watched.vanished.get(host).filter(|vanished| watched.retains(vanished))?;
        Some(vanished.last.clone())
    }

    /// Returns everything that the guard retains.
    pub(super) fn retained(&self) -> Vec<Retained> {
        let held = self.services.iter().map(|(service, watched)| Retained {
            service: service.clone(),
            hosts: watched.retained_hosts().cloned().collect(),
        });
        held.filter(|held| !held.hosts.is_empty()).collect()
    }

    /// Ends the retained state of all instances.
    pub(super) fn release(&mut self) -> Touched {
        let all = std::mem::take(&mut self.services);
        all.into_iter().map(|(service, watched)| (service, watched.vanished.into_keys().collect())).collect()
    }

    /// Forgets a service whose health nobody requests any more.
    pub(super) fn forget(&mut self, service: &ServiceName) {
        self.services.remove(service);
    }

    /// Ends the retained state of instances whose linger time is over, and forgets instances that
    /// vanished before the window.
    pub(super) fn expire(&mut self, now: BootMillis) -> Touched {
        let settings = self.settings;
        let mut touched = Touched::new();
        for (service, watched) in &mut self.services {
            if !watched.holding {
                watched.forget_old(settings.window, now);
                continue;
            }
            let over = |v: &LostInstance| v.gone.is_some_and(|gone| now >= gone.plus(settings.linger));
            let gone: Vec<HostName> =
                watched.vanished.iter().filter(|(_, v)| over(v)).map(|(host, _)| host.clone()).collect();
            gone.iter().for_each(|host| drop(watched.vanished.remove(host)));
            if !gone.is_empty() {
                touched.push((service.clone(), gone));
            }
        }
        self.services.retain(|_, watched| !watched.vanished.is_empty());
        touched
    }

    /// Restarts the linger time of all instances that are gone from the store.
    pub(super) fn wait_again(&mut self, now: BootMillis) {
        for vanished in self.services.values_mut().flat_map(|watched| watched.vanished.values_mut()) {
            vanished.gone = vanished.gone.map(|_| now);
        }
    }

    /// Returns when [`Guard::expire`] has something to do next.
    pub(super) fn next_check(&self) -> Option<BootMillis> {
        let settings = self.settings;
        let ends = self.services.values().flat_map(|watched| {
            watched.vanished.values().filter_map(|v| {
                if watched.retains(v) {
                    v.gone.map(|gone| gone.plus(settings.linger))
                } else {
                    Some(v.at.plus(settings.window))
                }
            })
        });
        ends.min()
    }
}
