//! Follows the store and owns the catalog snapshot. All records are followed. Health is followed
//! for each service that somebody asks for.
//!
//! This file is long because it is one state machine that owns the catalog.

use super::claims::Claims;
use super::config::{ConfigFeed, ConfigValues};
use super::reader::{CatalogSnapshot, Interest, Reader};
use super::trust::Trust;
use crate::clock;
use crate::reconcile::{Reconcile, Wake};
use catalog::{CachedCatalog, Catalog, CatalogFact, Common, StoredRecord};
use etcd_session::{Collected, Collector, Feed, FeedEvent, FeedOptions, Session};
use schema::health::Health;
use schema::keys::{Key, Prefix};
use schema::names::{HostName, ServiceName};
use schema::records::ServiceRecord;
use schema::snapshot::Entry;
use settings::CatalogSettings;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Capacity of the channel for the events of all feeds.
const EVENTS_MAX: usize = 16;
/// Maximum number of waiting events that are applied before consumers see the result.
const EVENTS_AT_ONCE: usize = 256;
/// Time between two searches for services that nobody asks for any more, and between two listings
/// while the store holds too many instances.
const FORGET_INTERVAL: Duration = Duration::from_secs(30);
const RECORDS: u64 = 0;

/// The feed of the health of one service.
struct HealthFeed {
    service: ServiceName,
    feed: Feed,
    collector: Collector<HostName, Health>,
    connected: bool,
}

/// The task that follows the store.
pub(crate) struct Follower {
    session: Session,
    settings: CatalogSettings,
    interest: Arc<Interest>,
    trust: watch::Receiver<Trust>,
    sender: watch::Sender<Arc<CatalogSnapshot>>,
    catalog: Catalog,
    config: Option<Arc<ConfigValues>>,
    config_differs: bool,
    /// The revision up to which drop-stale requests have been handled.
    released: i64,
    /// The epoch of the store that is followed; `None` if the store is not trusted.
    epoch: Option<u64>,
    /// When to look next for services that nobody asks for any more.
    forget_at: Instant,
    feeds: Feeds,
}

/// The feeds, which run while the store is trusted.
struct Feeds {
    events: mpsc::Receiver<(u64, FeedEvent)>,
    sink: mpsc::Sender<(u64, FeedEvent)>,
    next_number: u64,
    records: Option<(u64, Feed)>,
    collector: Collector<(ServiceName, HostName), StoredRecord>,
    health: BTreeMap<u64, HealthFeed>,
    config: Option<ConfigFeed>,
    common: Common,
    connected: bool,
    refused: usize,
    refused_in_listing: usize,
    /// True if the store holds more instances than the limit. The served view then stays until a
    /// listing is within the limit.
    is_over: bool,
    listing_is_over: bool,
    revision: i64,
}

/// What wakes the follower.
#[derive(Debug)]
pub(crate) enum FollowerEvent {
    /// An event of the feed with this number.
    Feed(u64, FeedEvent),
    Trust,
    /// Somebody asks for a service.
    Interest,
}

impl Reconcile for Follower {
    type Event = FollowerEvent;

    async fn next_event(&mut self) -> Option<FollowerEvent> {
        tokio::select! {
            Some((number, event)) = self.feeds.events.recv() => Some(FollowerEvent::Feed(number, event)),
            changed = self.trust.changed() => changed.ok().map(|()| FollowerEvent::Trust),
            () = self.interest.changed.notified() => Some(FollowerEvent::Interest),
        }
    }

    fn reason(event: &FollowerEvent) -> &'static str {
        match event {
            FollowerEvent::Feed(..) => "store",
            FollowerEvent::Trust => "trust",
            FollowerEvent::Interest => "question",
        }
    }

    async fn pass(&mut self, wake: Wake<FollowerEvent>) -> Option<Instant> {
        if let Wake::Event(FollowerEvent::Feed(number, event)) = wake {
            self.take(number, event);
            for _ in 0..EVENTS_AT_ONCE {
                let Ok((number, event)) = self.feeds.events.try_recv() else { break };
                self.take(number, event);
            }
        }
        if self.forget_at <= Instant::now() {
            self.forget_at = Instant::now() + FORGET_INTERVAL;
            assert!(!self.feeds.has_fault(), "a feed of the catalog has ended");
            self.forget();
            if self.epoch.is_some() && self.feeds.is_over {
                self.feeds.start_records(&self.session);
            }
        }
        let trust = *self.trust.borrow_and_update();
        if trust.epoch != self.epoch {
            // Nothing is believed in a store that went back or belongs to another fleet; the
            // served view stays.
            self.feeds.stop();
            if trust.epoch.is_some() {
                self.feeds.start_records(&self.session);
            }
            // Earlier drop-stale requests belong to another history.
            self.released = trust.release;
            self.epoch = trust.epoch;
        }
        if self.epoch.is_some() {
            self.follow_interest();
        }
        self.publish(trust);
        let next_check = self.catalog.next_check();
        let next_check = next_check.map(|at| Instant::now() + at.since(clock::boot_millis()));
        Some(next_check.map_or(self.forget_at, |at| at.min(self.forget_at)))
    }
}

impl Follower {
    /// Prepares to follow the store. The catalog from disk is shown at once.
    pub(crate) fn new(
        session: Session,
        settings: CatalogSettings,
        trust: watch::Receiver<Trust>,
        on_disk: Option<(CachedCatalog, Duration)>,
    ) -> (Self, Reader) {
        let (cached, age_on_disk) = on_disk.unwrap_or_default();
        let revision = cached.revision;
        let was_kept = !cached.services.is_empty();
        let catalog = if was_kept {
            cached.restore(settings.guard, clock::boot_millis())
        } else {
            Catalog::new(settings.guard)
        };
        let shown = CatalogSnapshot {
            view: catalog.view().clone(),
            revision,
            age_on_disk,
            ..CatalogSnapshot::default()
        };
        let (sender, receiver) = watch::channel(Arc::new(shown));
        let interest = Arc::new(Interest::default());
        // Services that were followed before the restart stay of interest until nobody has asked
        // for them for a while.
        let followed = catalog.view().health_known_services();
        interest.lock().extend(followed.map(|service| (service.clone(), Instant::now())));
        let claims = Arc::new(Claims::new(session.clone(), trust.clone()));
        let reader =
            Reader { snapshots: receiver, interest: interest.clone(), claims, started: Instant::now() };
        let (sink, events) = mpsc::channel(EVENTS_MAX);
        let feeds = Feeds {
            events,
            sink,
            next_number: RECORDS,
            records: None,
            collector: Collector::default(),
            health: BTreeMap::new(),
            config: None,
            common: Common::default(),
            connected: false,
            refused: 0,
            refused_in_listing: 0,
            is_over: false,
            listing_is_over: false,
            revision,
        };
        let follower = Self {
            session,
            settings,
            interest,
            trust,
            sender,
            catalog,
            config: None,
            config_differs: false,
            released: revision,
            epoch: None,
            forget_at: Instant::now() + FORGET_INTERVAL,
            feeds,
        };
        (follower, reader)
    }

    /// Ends the tasks of all feeds, as only a fault does.
    #[cfg(test)]
    pub(super) fn end_feeds(&mut self) {
        self.feeds.events.close();
    }

    fn follow_interest(&mut self) {
        let mut wanted: BTreeSet<ServiceName> = self.interest.lock().keys().cloned().collect();
        wanted.extend(self.settings.follow.iter().cloned());
        for service in wanted {
            if !self.feeds.health.values().any(|feed| feed.service == service) {
                self.feeds.start_health(&self.session, service);
            }
        }
        if self.interest.config.load(Ordering::Relaxed) && self.feeds.config.is_none() {
            let (number, feed) = self.feeds.start(&self.session, Prefix::Config);
            self.feeds.config = Some(ConfigFeed::new(number, feed));
        }
    }

    /// Stops following services that nobody asked for in a while. While the store is not connected,
    /// all known health is kept, because it could not be read again.
    fn forget(&mut self) {
        if !self.feeds.is_connected() {
            return;
        }
        let most = self.settings.forget_after;
        self.interest.lock().retain(|_, at| at.elapsed() < most);
        let interest: BTreeSet<ServiceName> = self.interest.lock().keys().cloned().collect();
        let follow = &self.settings.follow;
        let is_wanted = |service: &ServiceName| interest.contains(service) || follow.contains(service);
        let known = self.catalog.view().health_known_services();
        let dropped: Vec<ServiceName> = known.filter(|service| !is_wanted(service)).cloned().collect();
        self.feeds.health.retain(|_, feed| is_wanted(&feed.service));
        dropped.iter().for_each(|service| self.catalog.drop_health(service));
    }

    fn take(&mut self, number: u64, event: FeedEvent) {
        let now = clock::boot_millis();
        if self.feeds.records.as_ref().is_some_and(|(known, _)| *known == number) {
            self.take_records(event, now);
        } else if self.feeds.health.contains_key(&number) {
            self.take_health(number, event, now);
        } else if let Some(feed) = self.feeds.config.as_mut().filter(|feed| feed.number == number) {
            self.config_differs |= feed.take(event, &mut self.config);
        }
    }

    fn take_records(&mut self, event: FeedEvent, now: schema::time::BootMillis) {
        if let FeedEvent::InitApply(part) = &event {
            self.check_limit(self.feeds.collector.len() + part.len());
            if self.feeds.listing_is_over {
                return;
            }
        }
        let mut collector = std::mem::take(&mut self.feeds.collector);
        let collected = collector.take(event, |key, entry| self.feeds.read_record(key, entry));
        self.feeds.collector = collector;
        match collected {
            None => {}
            Some(Collected::Replaced(..)) if self.feeds.listing_is_over => {}
            Some(Collected::Replaced(records, revision)) => {
                self.feeds.is_over = false;
                // Otherwise the names and addresses of hosts that are gone would stay in memory
                // forever.
                self.feeds.common.forget();
                self.catalog.replace_records(records, now);
                // Hosts that were cut off together with this one get the full time to come back,
                // from now on.
                self.catalog.wait_again(now);
                self.feeds.refused = std::mem::take(&mut self.feeds.refused_in_listing);
                self.feeds.revision = self.feeds.revision.max(revision);
            }
            // Applying only a part of the changes would give neither the old catalog nor the new
            // one.
            Some(Collected::Changed(..)) if self.feeds.is_over => {}
            Some(Collected::Changed(changes, revision)) => {
                for ((service, host), record) in changes {
                    self.catalog.apply(&service, &host, CatalogFact::Record(record), now);
                }
                self.feeds.revision = self.feeds.revision.max(revision);
                self.check_limit(self.catalog.records());
            }
            Some(Collected::Connected(connected)) => {
                self.feeds.connected = connected;
                self.feeds.begin_listing();
            }
        }
    }

    fn check_limit(&mut self, count: usize) {
        let most = self.settings.entries_max;
        if count <= most {
            return;
        }
        if !self.feeds.is_over {
            tracing::error!(
                "the catalog has more than {most} instances (catalog.entries_max): an earlier state is served"
            );
        }
        self.feeds.is_over = true;
        self.feeds.listing_is_over = true;
        self.feeds.collector.clear();
    }

    fn take_health(&mut self, number: u64, event: FeedEvent, now: schema::time::BootMillis) {
        let Some(feed) = self.feeds.health.get_mut(&number) else { return };
        let service = feed.service.clone();
        let collected = feed.collector.take(event, |key, entry| match Key::parse(key) {
            Ok(Key::Health(_, host)) => Some((host, entry.and_then(|entry| Health::read(&entry.value)))),
            _ => None,
        });
        match collected {
            None => {}
            Some(Collected::Replaced(healths, revision)) => {
                self.catalog.replace_health(&service, healths, now);
                self.feeds.revision = self.feeds.revision.max(revision);
            }
            Some(Collected::Changed(changes, revision)) => {
                for (host, health) in changes {
                    self.catalog.apply(&service, &host, CatalogFact::Health(health), now);
                }
                self.feeds.revision = self.feeds.revision.max(revision);
            }
            Some(Collected::Connected(connected)) => feed.connected = connected,
        }
    }

    /// Publishes the snapshot, if it changed.
    fn publish(&mut self, trust: Trust) {
        if trust.release > self.released {
            tracing::warn!("the retained instances are dropped, because an operator requested it");
            self.catalog.release();
            self.released = trust.release;
        }
        let connected = self.feeds.is_connected();
        let differs = self.catalog.settle(clock::boot_millis(), connected);
        let config_differs = std::mem::take(&mut self.config_differs);
        let retained = self.catalog.retained();
        let Feeds { refused, is_over, revision, .. } = self.feeds;
        self.sender.send_if_modified(|shown| {
            let same = !differs
                && !config_differs
                && shown.connected == connected
                && shown.retained == retained
                && shown.refused == refused
                && shown.is_over == is_over
                && shown.view.is_known_as(self.catalog.view());
            if same {
                return false;
            }
            if shown.retained != retained {
                tracing::warn!(
                    ?retained,
                    "instances stopped reporting together: their last known state is served"
                );
            }
            let was = shown.connected;
            *shown = Arc::new(CatalogSnapshot {
                view: self.catalog.view().clone(),
                revision: if differs { revision } else { shown.revision },
                connected,
                confirmed: if connected || was { Some(Instant::now()) } else { shown.confirmed },
                age_on_disk: shown.age_on_disk,
                retained,
                refused,
                is_over,
                config: self.config.clone(),
                generation: shown.generation + 1,
            });
            true
        });
    }
}

impl Feeds {
    /// True if the task of a feed has ended, which only a fault can cause.
    fn has_fault(&self) -> bool {
        let records = self.records.iter().map(|(_, feed)| feed);
        let config = self.config.iter().map(|config| &config.feed);
        records.chain(config).chain(self.health.values().map(|health| &health.feed)).any(Feed::has_ended)
    }

    /// True while every watch on the catalog is connected and the catalog is within its limit. The
    /// values of operators are not part of the catalog: an agent that may not read them must not
    /// count as disconnected.
    fn is_connected(&self) -> bool {
        self.connected && !self.is_over && self.health.values().all(|feed| feed.connected)
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn start(&mut self, session: &Session, prefix: Prefix) -> (u64, Feed) {
        let number = self.number();
        let feed = Feed::start(session.clone(), prefix, FeedOptions::default(), number, self.sink.clone());
        (number, feed)
    }

    /// Discards a listing that did not complete.
    fn begin_listing(&mut self) {
        self.collector.clear();
        self.listing_is_over = false;
        self.refused_in_listing = 0;
    }

    fn start_records(&mut self, session: &Session) {
        self.begin_listing();
        self.records = Some(self.start(session, Prefix::Services));
    }

    fn start_health(&mut self, session: &Session, service: ServiceName) {
        let (number, feed) = self.start(session, Prefix::Health(service.clone()));
        self.health
            .insert(number, HealthFeed { service, feed, collector: Collector::default(), connected: false });
    }

    fn stop(&mut self) {
        self.records = None;
        self.health.clear();
        self.config = None;
        self.collector.clear();
        self.connected = false;
    }

    /// Reads a key and its record. Counts a record that cannot be read.
    fn read_record(
        &mut self,
        key: &str,
        entry: Option<&Entry>,
    ) -> Option<((ServiceName, HostName), Option<StoredRecord>)> {
        let Ok(Key::Service(mut service, mut host)) = Key::parse(key) else {
            self.count_refused(key, "the key is not valid");
            return None;
        };
        let Some(entry) = entry else { return Some(((service, host), None)) };
        let record = match ServiceRecord::read(&host, &entry.value) {
            Ok(mut record) => {
                self.common.share(&mut service, &mut host, &mut record);
                Some(StoredRecord::new(record, entry.lease != 0))
            }
            Err(error) => {
                self.count_refused(key, &error.to_string());
                None
            }
        };
        Some(((service, host), record))
    }

    fn count_refused(&mut self, key: &str, error: &str) {
        tracing::debug!(key = schema::names::quoted(key), error, "a record is ignored");
        self.refused_in_listing += 1;
    }
}
