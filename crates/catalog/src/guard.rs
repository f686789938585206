//! The cliff guard (I15) tells truth from fault. A put is a statement and passes at once, even for the only
//! instance. A key that vanishes with its lease is silence: when many instances of a service go silent
//! together, a fault of the store or of the network is more likely than that they all died, so their last
//! word is served on.
//!
//! It is held back until the host speaks again, until its record is gone as well (the work lease outlives a
//! reboot) and a while has passed in which a host that was cut off would have come back, or until an
//! operator lets it through.
//!
//! A host whose record vanished while its health says that it works is no silent one, however few they are: it says so
//! itself, and only where it is got lost, as with a lease that ran out in a bad network. It is served on until it says
//! otherwise or nothing more.

use crate::instance::{Instance, InstanceFacts};
use schema::names::{HostName, ServiceName};
use schema::time::BootMillis;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// When silence is taken for a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuardSettings {
    /// More than this part of a view, in percent,
    pub percent: usize,
    /// and at least so many instances,
    pub at_least: usize,
    /// went silent within this time.
    pub window: Duration,
    /// How long an instance is served after nothing of it is left in the store: hosts that were cut off
    /// together come back spread over three quarters of a minute.
    pub linger: Duration,
}

impl Default for GuardSettings {
    fn default() -> Self {
        Self { percent: 34, at_least: 3, window: Duration::from_secs(60), linger: Duration::from_secs(60) }
    }
}

impl GuardSettings {
    /// So many of so many are more than are believed.
    pub fn is_cliff(&self, lost: usize, of: usize) -> bool {
        lost >= self.at_least && lost * 100 > self.percent * of
    }
}

/// Instances that are served though they went silent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Retained {
    /// Of this service.
    pub service: ServiceName,
    /// On these hosts.
    pub hosts: Vec<HostName>,
}

/// A functional instance that went silent.
#[derive(Debug, Clone)]
struct LostInstance {
    last: Arc<Instance>,
    at: BootMillis,
    /// When nothing of it was left in the store.
    gone: Option<BootMillis>,
    /// Its health says that it works; only its record is gone.
    works: bool,
}

#[derive(Debug, Clone, Default)]
struct ServiceGuard {
    vanished: BTreeMap<HostName, LostInstance>,
    /// Too many at once: their last word is served.
    holding: bool,
}

impl ServiceGuard {
    fn retains(&self, vanished: &LostInstance) -> bool {
        self.holding || vanished.works
    }

    fn retained_hosts(&self) -> impl Iterator<Item = &HostName> {
        self.vanished.iter().filter(|(_, vanished)| self.retains(vanished)).map(|(host, _)| host)
    }

    /// What went silent long ago did not go together with what goes now.
    fn forget_old(&mut self, window: Duration, now: BootMillis) {
        if !self.holding {
            self.vanished.retain(|_, v| v.works || now.since(v.at) < window);
        }
    }
}

/// The hosts of services whose view has to be made anew.
type Touched = Vec<(ServiceName, Vec<HostName>)>;

/// What the store said of one service on one host, and says now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change<'a> {
    pub(super) before: &'a InstanceFacts,
    pub(super) after: &'a InstanceFacts,
    /// The health of the service is followed.
    pub(super) followed: bool,
}

/// What went silent, and what of it is held back.
#[derive(Debug, Clone)]
pub struct Guard {
    settings: GuardSettings,
    services: BTreeMap<ServiceName, ServiceGuard>,
}

impl Guard {
    /// A guard that has seen nothing.
    pub fn new(settings: GuardSettings) -> Self {
        Self { settings, services: BTreeMap::new() }
    }

    /// Takes note of a change; gives other hosts of the service whose view changes with it. `left` is how many
    /// instances of the service there are after the change, functional ones where health is followed.
    pub(super) fn note(
        &mut self,
        service: &ServiceName,
        host: &HostName,
        change: Change<'_>,
        left: usize,
        now: BootMillis,
    ) -> Vec<HostName> {
        let Change { before, after, followed } = change;
        if after.health.is_some_and(|health| after.record.is_some() || !health.is_functional()) {
            self.note_report(service, host);
            return Vec::new();
        }
        // A record of a host with an agent is all that is known where health is not followed.
        let stood = !followed && before.record.as_ref().is_some_and(|(_, leased)| *leased);
        let was_functional = before.health.map_or(stood, |health| health.is_functional());
        let is_silent = followed && after.health.is_none() && was_functional;
        if !followed && after.record.is_some() {
            self.note_report(service, host);
            return Vec::new();
        }
        let lost_record = before.record.is_some() && after.record.is_none();
        if lost_record && before.health.is_some_and(|health| !health.is_functional()) {
            // What it said last was that it does not work: it may go.
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
            let Some(last) = before.instance().filter(|_| is_silent || (lost_record && was_functional))
            else {
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

    /// The host says something: that counts.
    fn note_report(&mut self, service: &ServiceName, host: &HostName) {
        let Some(watched) = self.services.get_mut(service) else { return };
        watched.vanished.remove(host);
        if watched.vanished.is_empty() {
            self.services.remove(service);
        }
    }

    /// The last word of an instance, if it is held back.
    pub(super) fn retained_instance(&self, service: &ServiceName, host: &HostName) -> Option<Arc<Instance>> {
        let watched = self.services.get(service)?;
        let vanished = watched.vanished.get(host).filter(|vanished| watched.retains(vanished))?;
        Some(vanished.last.clone())
    }

    /// Everything that is held back.
    pub(super) fn retained(&self) -> Vec<Retained> {
        let held = self.services.iter().map(|(service, watched)| Retained {
            service: service.clone(),
            hosts: watched.retained_hosts().cloned().collect(),
        });
        held.filter(|held| !held.hosts.is_empty()).collect()
    }

    /// Lets everything through.
    pub(super) fn release(&mut self) -> Touched {
        let all = std::mem::take(&mut self.services);
        all.into_iter().map(|(service, watched)| (service, watched.vanished.into_keys().collect())).collect()
    }

    /// Nobody asks for this service any more.
    pub(super) fn forget(&mut self, service: &ServiceName) {
        self.services.remove(service);
    }

    /// Lets through what was held back long enough, and forgets what is none of its business.
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

    /// Whoever is gone has his while from now on.
    pub(super) fn wait_again(&mut self, now: BootMillis) {
        for vanished in self.services.values_mut().flat_map(|watched| watched.vanished.values_mut()) {
            vanished.gone = vanished.gone.map(|_| now);
        }
    }

    /// When [`Guard::expire`] has something to do.
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
