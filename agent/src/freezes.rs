//! Follows the freezes in the store while one keeps the host from starting. A host that may start, or
//! has nothing to start, does not look at them: the start transaction compares them.

use crate::reconcile::{Reconcile, Wake};
use etcd_session::{Collected, Collector, Feed, FeedEvent, FeedOptions, Session};
use schema::codec;
use schema::freeze::FreezeScope;
use schema::frozen::FrozenBy;
use schema::keys::{Prefix, read_freeze};
use schema::names::Token;
use schema::records::Freeze;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// The freezes that stand at a revision.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KnownFreezes {
    /// History of the store in which they were read.
    pub(crate) history: u64,
    pub(crate) revision: i64,
    pub(crate) freezes: Vec<FrozenBy>,
}

/// What is known of the freezes; `None` while they are not followed, or not known yet.
pub(crate) type Freezes = Option<Arc<KnownFreezes>>;

/// The token is `None` in a key that has no valid one, which holds nevertheless.
type FreezeKey = (FreezeScope, Option<Token>);

/// Whether the freezes are to be followed: the history of the store in which they are wanted.
pub(crate) type Wanted = Option<u64>;

/// The task that follows the freezes while that is wanted. In a new history of the store it begins anew,
/// because a restored store may lack what an earlier one had.
pub(crate) struct FreezesTask {
    session: Session,
    wanted: watch::Receiver<Wanted>,
    sender: watch::Sender<Freezes>,
    events: mpsc::Receiver<(u64, FeedEvent)>,
    sink: mpsc::Sender<(u64, FeedEvent)>,
    /// The feed, and the history of the store for which it was started.
    feed: Option<(Feed, u64)>,
    /// Number of the feed.
    number: u64,
    collector: Collector<FreezeKey, Option<Freeze>>,
    /// `None` until a list is complete. A value that cannot be read holds nevertheless.
    known: Option<(BTreeMap<FreezeKey, Option<Freeze>>, i64)>,
}

/// What wakes the task.
#[derive(Debug)]
pub(crate) enum FreezesEvent {
    WantedChanged,
    Feed(Box<(u64, FeedEvent)>),
}

impl FreezesTask {
    /// Returns the task, and what it finds.
    pub(crate) fn new(session: Session, wanted: watch::Receiver<Wanted>) -> (Self, watch::Receiver<Freezes>) {
        let (sender, receiver) = watch::channel(None);
        let (sink, events) = mpsc::channel(16);
        let (collector, known) = (Collector::default(), None);
        (Self { session, wanted, sender, events, sink, feed: None, number: 0, collector, known }, receiver)
    }

    fn take(&mut self, event: FeedEvent) {
        let read = |key: &str, entry: Option<&schema::snapshot::Entry>| {
            let (scope, token) = read_freeze(key)?;
            Some(((scope, token), entry.map(|entry| codec::read(&entry.value).ok())))
        };
        match self.collector.take(event, read) {
            Some(Collected::Replaced(freezes, revision)) => self.known = Some((freezes, revision)),
            Some(Collected::Changed(changes, now)) => {
                let (known, revision) = self.known.get_or_insert_default();
                *revision = now;
                for (key, freeze) in changes {
                    match freeze {
                        Some(freeze) => known.insert(key, freeze),
                        None => known.remove(&key),
                    };
                }
            }
            Some(Collected::Connected(_)) | None => {}
        }
    }

    fn publish(&self) {
        let found = |((scope, token), freeze): (&FreezeKey, &Option<Freeze>)| FrozenBy {
            scope: scope.clone(),
            token: token.clone(),
            freeze: freeze.clone(),
        };
        let history = self.feed.as_ref().map(|(_, history)| *history);
        let freezes: Freezes = self.known.as_ref().zip(history).map(|((known, revision), history)| {
            let freezes = known.iter().map(found).collect();
            Arc::new(KnownFreezes { history, revision: *revision, freezes })
        });
        self.sender.send_if_modified(|old| {
            let differs = *old != freezes;
            *old = freezes;
            differs
        });
    }
}

impl Reconcile for FreezesTask {
    type Event = FreezesEvent;

    async fn next_event(&mut self) -> Option<FreezesEvent> {
        tokio::select! {
            changed = self.wanted.changed() => changed.ok().map(|()| FreezesEvent::WantedChanged),
            // This task holds a sender, so the channel does not close.
            Some(event) = self.events.recv() => Some(FreezesEvent::Feed(Box::new(event))),
        }
    }

    async fn pass(&mut self, wake: Wake<FreezesEvent>) -> Option<Instant> {
        if let Wake::Event(FreezesEvent::Feed(event)) = wake {
            let (number, event) = *event;
            if number == self.number && self.feed.is_some() {
                self.take(event);
            }
        }
        let wanted = *self.wanted.borrow_and_update();
        if wanted != self.feed.as_ref().map(|(_, history)| *history) {
            self.number += 1;
            self.collector.clear();
            self.known = None;
            self.feed = wanted.map(|history| {
                let (session, options) = (self.session.clone(), FeedOptions::default());
                (Feed::start(session, Prefix::Freezes, options, self.number, self.sink.clone()), history)
            });
        }
        self.publish();
        None
    }
}
