//! What the follower of the store tells the recorder. Nothing here waits for it.

use super::times::Times;
use archive::recording::Between;
use etcd_session::{Advance, Change};
use schema::names::Token;
use schema::snapshot::KeySnapshot;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// Time between two marks that the store is still at a revision.
const MARK_INTERVAL: Duration = Duration::from_secs(5);

/// What the recorder is told.
#[derive(Debug)]
pub(super) enum Observation {
    /// Everything, because it is not known how the store came there.
    Whole(Whole),
    /// The changes of the next revision.
    Revision(i64, Between, Vec<Change>),
    /// The store was still at the last revision at this time, in milliseconds since 1970.
    Still(i64),
    /// Everything, for the next segment.
    Next(KeySnapshot, Between),
}

/// Everything in the store.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) snapshot: KeySnapshot,
    /// The lineage and the epoch; `None` if the store has no identity.
    pub(super) identity: Option<(Token, u64)>,
    pub(super) between: Between,
    /// True if the store was restored, so that this is another history.
    pub(super) is_restored: bool,
    /// Why what was before it is missing.
    pub(super) gap: Option<String>,
}

/// What the recorder wants besides changes.
#[derive(Debug, Default)]
pub(super) struct Wants(AtomicU8);

impl Wants {
    const NEXT: u8 = 1;
    const WHOLE: u8 = 2;

    /// Asks for everything, because a segment is long enough.
    pub(super) fn ask_for_next(&self) {
        let _ = self.0.compare_exchange(0, Self::NEXT, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Asks for everything, because what was told could not be written.
    pub(super) fn ask_for_whole(&self) {
        self.0.store(Self::WHOLE, Ordering::Relaxed);
    }

    fn is_any(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    fn take(&self) -> u8 {
        self.0.swap(0, Ordering::Relaxed)
    }
}

/// Tells the recorder what the follower sees.
pub(crate) struct RecorderFeed {
    sender: SyncSender<Observation>,
    wants: Arc<Wants>,
    times: Times,
    is_restored: bool,
    /// Why everything has to be told next; the reason is empty at the start.
    whole_because: Option<String>,
    marked_at: Option<Instant>,
    has_ended: bool,
}

impl RecorderFeed {
    pub(super) fn new(sender: SyncSender<Observation>, wants: Arc<Wants>) -> Self {
        Self {
            sender,
            wants,
            times: Times::default(),
            is_restored: false,
            whole_because: Some(String::new()),
            marked_at: None,
            has_ended: false,
        }
    }

    /// True if the recorder has ended, which only a fault causes.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Notes a read of the store that began at a time and showed a revision.
    pub(crate) fn note_reading(&mut self, revision: i64, began: Instant) {
        self.times.note(revision, millis_at(began));
    }

    /// Notes that the store has another history, because it was restored.
    pub(crate) fn note_restored(&mut self) {
        self.is_restored = true;
        self.times.clear();
        self.note_lost("the store was restored");
    }

    /// Notes that changes are missing.
    pub(crate) fn note_lost(&mut self, why: &str) {
        self.whole_because = Some(why.to_owned());
    }

    /// True if the recorder asks for everything, or if something is missing.
    pub(crate) fn is_asked(&self) -> bool {
        self.whole_because.is_some() || self.wants.is_any()
    }

    /// Tells how the store came to this snapshot.
    pub(crate) fn tell(&mut self, advance: Advance, snapshot: &KeySnapshot, identity: Option<&(Token, u64)>) {
        if advance.is_listed && self.whole_because.is_none() {
            self.note_lost("the history of the store was compacted while it could not be followed");
        }
        let by = millis_at(Instant::now());
        match self.wants.take() {
            Wants::WHOLE => self.note_lost("the recording could not be written"),
            Wants::NEXT if self.whole_because.is_none() => {
                self.tell_revisions(advance.revisions, by);
                let between = self.times.between(snapshot.revision, by);
                self.send(Observation::Next(snapshot.clone(), between));
                return;
            }
            _ => {}
        }
        let Some(why) = self.whole_because.take() else { return self.tell_revisions(advance.revisions, by) };
        let whole = Whole {
            snapshot: snapshot.clone(),
            identity: identity.cloned(),
            between: self.times.between(snapshot.revision, by),
            is_restored: std::mem::take(&mut self.is_restored),
            gap: Some(why).filter(|why| !why.is_empty()),
        };
        self.send(Observation::Whole(whole));
    }

    fn tell_revisions(&mut self, revisions: Vec<(i64, Vec<Change>)>, by: i64) {
        for (revision, changes) in revisions {
            self.send(Observation::Revision(revision, self.times.between(revision, by), changes));
        }
    }

    /// Tells that the store was still at its revision at the begin of a read.
    pub(crate) fn tell_still(&mut self, began: Instant) {
        if self.whole_because.is_none() && self.marked_at.is_none_or(|at| at.elapsed() >= MARK_INTERVAL) {
            self.marked_at = Some(Instant::now());
            self.send(Observation::Still(millis_at(began)));
        }
    }

    fn send(&mut self, observation: Observation) {
        let is_restored = matches!(&observation, Observation::Whole(whole) if whole.is_restored);
        // After a loss, only everything helps.
        if self.whole_because.is_some() {
            return;
        }
        match self.sender.try_send(observation) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                self.note_lost("the recorder was too slow");
                self.is_restored |= is_restored;
            }
            Err(TrySendError::Disconnected(_)) => self.has_ended = true,
        }
    }
}

/// Returns a time of the recent past in milliseconds since 1970.
fn millis_at(instant: Instant) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.saturating_sub(instant.elapsed()).as_millis()).unwrap_or(i64::MAX)
}
