//! The ranges of the store that are followed while the rollout keeps this host from starting.

use etcd_session::{Feed, FeedBegin, FeedEvent, FeedOptions, Session};
use schema::keys::Prefix;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Longest time until ranges are followed that a host needs next.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) struct FollowedRanges {
    session: Session,
    events: mpsc::Receiver<(u64, FeedEvent)>,
    sink: mpsc::Sender<(u64, FeedEvent)>,
    /// Each feed has a number of its own.
    feeds: Vec<(Prefix, u64, Feed)>,
    number: u64,
}

impl FollowedRanges {
    pub(crate) fn new(session: Session) -> Self {
        let (sink, events) = mpsc::channel(16);
        Self { session, events, sink, feeds: Vec::new(), number: 0 }
    }

    /// Returns the next event, with the number of its feed.
    pub(crate) async fn next_event(&mut self) -> (u64, FeedEvent) {
        match self.events.recv().await {
            Some(event) => event,
            // This value holds a sender, so the channel does not close.
            None => std::future::pending().await,
        }
    }

    /// True if the feed with this number is still followed.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.feeds.iter().any(|(_, of, _)| *of == number)
    }

    /// Follows nothing any more.
    pub(crate) fn clear(&mut self) {
        self.feeds.clear();
    }

    /// Follows exactly these ranges, the new ones from a revision on.
    pub(crate) fn follow(&mut self, ranges: &[Prefix], revision: i64) {
        self.feeds.retain(|(range, ..)| ranges.contains(range));
        self.begin(ranges, FeedBegin::After(revision));
    }

    /// Follows these ranges too, and waits until each change from now on is seen, so that a read after that misses
    /// nothing. What is not followed in time is given up. Events that arrive meanwhile are dropped, because the read
    /// shows what they say.
    pub(crate) async fn follow_also(&mut self, ranges: &[Prefix]) {
        let first = self.number + 1;
        self.begin(ranges, FeedBegin::Now);
        let mut waits_for: BTreeSet<u64> = (first..=self.number).collect();
        let deadline = Instant::now() + FOLLOW_TIMEOUT;
        while !waits_for.is_empty() {
            match tokio::time::timeout_at(deadline, self.next_event()).await {
                Ok((number, FeedEvent::Connected(true))) => waits_for.remove(&number),
                Ok(_) => continue,
                Err(_) => break,
            };
        }
        self.feeds.retain(|(_, number, _)| !waits_for.contains(number));
    }

    fn begin(&mut self, ranges: &[Prefix], begin: FeedBegin) {
        for range in ranges {
            if self.feeds.iter().any(|(followed, ..)| followed == range) {
                continue;
            }
            self.number += 1;
            let options = FeedOptions { begin, ..FeedOptions::default() };
            let (session, sink) = (self.session.clone(), self.sink.clone());
            let feed = Feed::start(session, range.clone(), options, self.number, sink);
            self.feeds.push((range.clone(), self.number, feed));
        }
    }
}
