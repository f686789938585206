//! Where a feed begins, its intervals and its time limits.

use crate::pace::WATCH_BACKOFF;
use std::time::Duration;

/// Where a feed begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeedBegin {
    /// With a complete list.
    List,
    /// With the first change after this revision, up to which the consumer knows the range. A member sends the first
    /// changes up to 100 ms late, if the store has been written since (etcd, `syncWatchersLoop`).
    After(i64),
    /// With the first change after [`FeedEvent::Connected`](super::FeedEvent::Connected). A consumer that reads the range after that misses nothing,
    /// and waits for no change.
    Now,
}

/// Intervals and time limits of a feed.
#[derive(Debug, Clone)]
pub struct FeedOptions {
    /// Mean time between two progress requests.
    pub progress_every: Duration,
    /// Longest wait for the answer to a progress request, and for the first answer of a new watch.
    pub silence_max: Duration,
    /// Bounds of the delay after a failure ([`Backoff::spread`](schema::time::Backoff::spread)).
    pub backoff: (Duration, Duration),
    /// Longest time for one list.
    pub list_timeout: Duration,
    pub begin: FeedBegin,
    /// Whether each revision comes in an event of its own, and progress without changes too. A consumer that puts
    /// several feeds together needs that.
    pub by_revision: bool,
}

impl FeedBegin {
    /// Returns the revision up to which the consumer knows the range; `None` if that is known when it has a list.
    pub(super) fn revision(self) -> Option<i64> {
        match self {
            Self::List => None,
            Self::After(revision) => Some(revision),
            Self::Now => Some(NOW),
        }
    }
}

/// Before the answer to a new watch names it, the revision at which a feed begins that begins now.
pub(super) const NOW: i64 = 0;

impl Default for FeedOptions {
    fn default() -> Self {
        Self {
            progress_every: Duration::from_secs(30),
            silence_max: Duration::from_secs(15),
            backoff: WATCH_BACKOFF,
            list_timeout: Duration::from_secs(60),
            begin: FeedBegin::List,
            by_revision: false,
        }
    }
}
