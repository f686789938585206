//! What the follower of the store tells the recorder. Nothing here waits for it.
//!
//! What was seen is told only after a read of the store that began later has shown that the store was not restored: a watch
//! may go on with a restored store before anybody notices.

use super::times::Times;
use crate::clock::now_millis;
use archive::recording::Between;
use etcd_session::{Advance, Change};
use schema::names::Token;
use schema::snapshot::KeySnapshot;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;
use tokio::time::Instant;

/// Time between two marks that the store is still at a revision.
const MARK_INTERVAL: Duration = Duration::from_secs(5);
/// Bytes of changes that wait for the recorder or for a read.
const WAITING_MAX_BYTES: usize = 64 * 1024 * 1024;

/// What the recorder is told.
#[derive(Debug)]
pub(super) enum Observation {
    /// Everything, because it is not known how the store came there.
    FullSnapshot(FullSnapshot),
    /// The changes of the next revision, and their length in bytes.
    Revision { revision: i64, between: Between, changes: Vec<Change>, bytes: usize },
    /// The store was at this revision at this time, in milliseconds since 1970, and nothing has changed since the last one.
    Still(i64, i64),
    /// Everything, for the next segment.
    Next(KeySnapshot, Between),
}

/// Everything in the store.
#[derive(Debug)]
pub(super) struct FullSnapshot {
    pub(super) snapshot: KeySnapshot,
    /// The lineage and the epoch; `None` if the store has no identity.
    pub(super) identity: Option<(Token, u64)>,
    pub(super) between: Between,
    /// True if the store was restored, so that this is another history.
    pub(super) is_restored: bool,
    /// Why what was before it is missing; `None` at the start.
    pub(super) gap: Option<String>,
}

/// What the recorder wants, and how much waits for it.
#[derive(Debug, Default)]
pub(super) struct Wants {
    /// The recorder wants everything, because a segment is long enough.
    next: AtomicBool,
    /// The recorder wants everything, because something could not be written or told.
    whole: AtomicBool,
    /// Something could not be told.
    is_lost: AtomicBool,
    bytes: AtomicUsize,
}

impl Wants {
    /// Asks for everything, because a segment is long enough.
    pub(super) fn ask_for_next(&self) {
        self.next.store(true, Ordering::Relaxed);
    }

    /// Asks for everything, because what was told could not be written.
    pub(super) fn ask_for_whole(&self) {
        self.whole.store(true, Ordering::Relaxed);
    }

    /// Asks for everything if something was lost. The recorder does so when nothing waits for it any more.
    pub(super) fn note_idle(&self) {
        if self.is_lost.swap(false, Ordering::Relaxed) {
            self.ask_for_whole();
        }
    }

    /// Notes that so many bytes wait no longer.
    pub(super) fn note_taken(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Tells the recorder what the follower sees.
pub(crate) struct RecorderFeed {
    sender: SyncSender<Observation>,
    wants: Arc<Wants>,
    times: Times,
    is_restored: bool,
    /// What follows belongs to another branch, and nothing is missing.
    is_other_branch: bool,
    /// Why everything has to be told next; the reason is empty at the start.
    whole_because: Option<String>,
    /// Nothing is told until the recorder asks for everything.
    is_waiting: bool,
    /// What waits for a read that began after it was seen.
    unconfirmed: VecDeque<(Instant, Observation)>,
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
            is_other_branch: false,
            whole_because: Some(String::new()),
            is_waiting: false,
            unconfirmed: VecDeque::new(),
            marked_at: None,
            has_ended: false,
        }
    }

    /// True if the recorder has ended, which only a fault causes.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Notes a read of the store that began at a time and showed a revision of the same history.
    pub(crate) fn note_reading(&mut self, revision: i64, began: Instant) {
        self.times.note(revision, millis_at(began));
        while self.unconfirmed.front().is_some_and(|(seen, _)| *seen < began) {
            if let Some((_, observation)) = self.unconfirmed.pop_front() {
                self.send(observation);
            }
        }
    }

    /// Notes that the store has another history, because it was restored.
    pub(crate) fn note_restored(&mut self) {
        self.is_restored = true;
        self.note_other_history("the store was restored");
    }

    /// Notes that the store has another history. What was not confirmed may belong to either.
    pub(crate) fn note_other_history(&mut self, why: &str) {
        self.times.clear();
        self.forget_unconfirmed();
        self.note_lost(why);
    }

    /// Notes that the store has an identity from now on, so that what follows belongs to another branch.
    pub(crate) fn note_identity(&mut self) {
        self.is_other_branch = true;
    }

    /// Notes that changes are missing.
    pub(crate) fn note_lost(&mut self, why: &str) {
        self.whole_because = Some(why.to_owned());
    }

    fn forget_unconfirmed(&mut self) {
        let bytes = self.unconfirmed.drain(..).map(|(_, observation)| bytes_of(&observation)).sum();
        self.wants.note_taken(bytes);
    }

    /// True if the recorder asks for everything, or if something is missing and it can be told.
    pub(crate) fn is_asked(&self) -> bool {
        let whole = self.wants.whole.load(Ordering::Relaxed);
        whole || !self.is_waiting && (self.whole_because.is_some() || self.wants.next.load(Ordering::Relaxed))
    }

    /// Tells how the store came to this snapshot.
    pub(crate) fn tell(&mut self, advance: Advance, snapshot: &KeySnapshot, identity: Option<&(Token, u64)>) {
        if self.wants.whole.swap(false, Ordering::Relaxed) {
            self.is_waiting = false;
            if self.whole_because.is_none() {
                self.note_lost("the recording could not be written");
            }
        }
        if self.is_waiting {
            return;
        }
        if advance.is_listed && self.whole_because.is_none() {
            self.note_lost("the history of the store was compacted while it could not be followed");
        }
        let by = millis_at(Instant::now());
        let whole_because = self.whole_because.take();
        let is_next = self.wants.next.swap(false, Ordering::Relaxed);
        let is_other_branch = std::mem::take(&mut self.is_other_branch);
        if whole_because.is_none() {
            for (revision, changes) in advance.revisions {
                let bytes = bytes_of_changes(&changes);
                let between = self.times.between(revision, by);
                self.add(Observation::Revision { revision, between, changes, bytes });
            }
        }
        let between = self.times.between(snapshot.revision, by);
        if whole_because.is_some() || is_other_branch {
            let whole = FullSnapshot {
                snapshot: snapshot.clone(),
                identity: identity.cloned(),
                between,
                is_restored: std::mem::take(&mut self.is_restored),
                gap: whole_because.filter(|why| !why.is_empty()),
            };
            self.add(Observation::FullSnapshot(whole));
        } else if is_next {
            self.add(Observation::Next(snapshot.clone(), between));
        }
    }

    /// Tells that the store was at a revision, whose changes were told, at the start of a read.
    pub(crate) fn tell_still(&mut self, revision: i64, began: Instant) {
        let is_told = !self.is_waiting && self.whole_because.is_none();
        if is_told && self.marked_at.is_none_or(|at| at.elapsed() >= MARK_INTERVAL) {
            self.marked_at = Some(Instant::now());
            self.add(Observation::Still(revision, millis_at(began)));
        }
    }

    /// Keeps an observation until a read confirms it.
    fn add(&mut self, observation: Observation) {
        if self.is_waiting {
            return;
        }
        let bytes = bytes_of(&observation);
        if self.wants.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > WAITING_MAX_BYTES {
            self.wants.note_taken(bytes);
            return self.wait_for_recorder();
        }
        self.unconfirmed.push_back((Instant::now(), observation));
    }

    fn send(&mut self, observation: Observation) {
        match self.sender.try_send(observation) {
            Ok(()) => {}
            Err(TrySendError::Full(lost)) => {
                self.is_restored |= matches!(&lost, Observation::FullSnapshot(whole) if whole.is_restored);
                self.wants.note_taken(bytes_of(&lost));
                self.wait_for_recorder();
            }
            Err(TrySendError::Disconnected(_)) => self.has_ended = true,
        }
    }

    /// Tells nothing more until the recorder has taken everything that waits for it.
    fn wait_for_recorder(&mut self) {
        let restored = |(_, waiting): &(Instant, Observation)| matches!(waiting, Observation::FullSnapshot(whole) if whole.is_restored);
        self.is_restored |= self.unconfirmed.iter().any(restored);
        self.forget_unconfirmed();
        self.note_lost("the recorder was too slow");
        self.is_waiting = true;
        self.wants.is_lost.store(true, Ordering::Relaxed);
    }
}

/// Returns how much of what may wait an observation takes. Of those with everything few wait at a time.
pub(super) fn bytes_of(observation: &Observation) -> usize {
    match observation {
        Observation::Revision { bytes, .. } => *bytes,
        Observation::FullSnapshot(_) | Observation::Still(..) | Observation::Next(..) => 0,
    }
}

fn bytes_of_changes(changes: &[Change]) -> usize {
    changes.iter().map(|(key, entry)| key.len() + entry.as_ref().map_or(0, |entry| entry.value.len())).sum()
}

/// Returns a time of the recent past in milliseconds since 1970.
fn millis_at(instant: Instant) -> i64 {
    now_millis().saturating_sub(i64::try_from(instant.elapsed().as_millis()).unwrap_or(i64::MAX)).max(0)
}
