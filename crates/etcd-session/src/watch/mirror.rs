//! Mirrors a few keys: lists them at one revision, watches from the next revision, resumes after an
//! interruption, and lists again after a compaction. An open watch alone does not prove that the
//! connection works, so every 30 s ± 50 % one linearizable read checks the same keys. That read
//! also detects a store that went back, on which a watch stays silent for ever.
//!
//! This file is long because it is one state machine.

use crate::error::StoreError;
use crate::pace::WATCH_BACKOFF;
use crate::random::jitter;
use crate::read::entry_of;
use crate::request::Deadline;
use crate::session::Session;
use etcd_client::{EventType, WatchOptions, WatchResponse, WatchStream};
use schema::followed::{FollowedKeys, Scope};
use schema::keys::Key;
use schema::snapshot::KeySnapshot;
use schema::store_marks::Regress;
use schema::time::Backoff;
use schema::transaction::OPERATIONS_MAX;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Intervals and time limits of a mirror.
#[derive(Debug, Clone)]
pub struct MirrorOptions {
    /// Mean time between two linearizable reads. Each wait is drawn at random between 0.5 and 1.5
    /// times this value.
    pub backstop: Duration,
    /// Bounds of the delay after a failure ([`Backoff::spread`]).
    pub backoff: (Duration, Duration),
    /// Longest time for one list.
    pub list_timeout: Duration,
}

impl Default for MirrorOptions {
    fn default() -> Self {
        Self {
            backstop: Duration::from_secs(30),
            backoff: WATCH_BACKOFF,
            list_timeout: Duration::from_secs(10),
        }
    }
}

/// An immutable snapshot of the mirrored keys.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// What is known of the mirrored keys.
    pub followed: FollowedKeys,
    /// True if the watch is connected and the last read succeeded.
    pub connected: bool,
    /// Time of the store's last answer.
    pub last_contact: Option<Instant>,
    /// Last error; `None` as soon as the store answers again.
    pub error: Option<StoreError>,
}

/// A mirror, as its readers see it.
pub struct Mirror {
    snapshots: watch::Receiver<Arc<Snapshot>>,
    resync_requests: tokio::sync::mpsc::Sender<()>,
    polled_also: watch::Sender<Vec<Key>>,
}

impl Mirror {
    /// Prepares to follow the keys of the scope. Returns the mirror and its task, which runs until
    /// it is dropped. Readers that wait for the next snapshot get an error then.
    pub fn new(
        session: Session,
        scope: Scope,
        options: MirrorOptions,
    ) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let (sender, snapshots) = watch::channel(Arc::new(Snapshot::default()));
        let (resync_requests, requests) = tokio::sync::mpsc::channel(1);
        let (polled_also, also) = watch::channel(scope.polled_also.clone());
        let task = MirrorTask { session, scope, options, sender, resync_requests: requests, also };
        (Self { snapshots, resync_requests, polled_also }, task.run())
    }

    /// Returns a receiver of the newest snapshot, which can also wait for the next one.
    pub fn snapshots(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.snapshots.clone()
    }

    /// Sets the keys that are polled besides the scope, from the next read on. They replace all
    /// keys named here before.
    pub fn poll_also(&self, keys: &[Key]) {
        self.polled_also.send_if_modified(|old| {
            let differs = old != keys;
            if differs {
                *old = keys.to_vec();
            }
            differs
        });
    }

    /// Requests a resync now. Requests that arrive together cause one read.
    pub fn request_resync(&self) {
        // A full queue already holds the same request.
        let _ = self.resync_requests.try_send(());
    }
}

struct MirrorTask {
    session: Session,
    scope: Scope,
    options: MirrorOptions,
    sender: watch::Sender<Arc<Snapshot>>,
    resync_requests: tokio::sync::mpsc::Receiver<()>,
    /// Keys that are polled besides the scope.
    also: watch::Receiver<Vec<Key>>,
}

/// What the mirror does next. The numbers are, for each watched key, the revision from which its
/// watch continues.
enum State {
    List,
    /// Watches from the revision after a list.
    Watch(Vec<i64>),
    /// Watches again after an interruption. The watch is trusted only after a read, because it would
    /// stay silent in a store that went back.
    Resume(Vec<i64>),
}

/// Why a watch ended.
enum WatchEnd {
    /// The connection broke, or the watch missed a change: open a new watch at the resume
    /// revisions.
    Disconnected(StoreError),
    /// The history was compacted, or the store went back: list again.
    Compacted,
}

/// What a linearizable read showed.
struct ReadOutcome {
    revision: i64,
    /// False if a watched key differs from what the watch had reported, or the store went back.
    agrees: bool,
}

/// What an open watch waits for.
enum WatchInput {
    Answer(Result<Option<WatchResponse>, etcd_client::Error>),
    /// A resync is due or was requested.
    Resync,
}

impl MirrorTask {
    async fn run(mut self) {
        let backoff = Backoff::new(self.options.backoff.0, self.options.backoff.1);
        let mut failures = 0u32;
        let mut state = State::List;
        loop {
            let (listed, mut resume) = match state {
                State::List => match self.read().await {
                    Ok(read) => {
                        state = State::Watch(vec![read.revision + 1; self.scope.watched.len()]);
                        continue;
                    }
                    Err(error) => {
                        failures += 1;
                        self.record_error(error);
                        tokio::time::sleep(backoff.spread(failures, jitter())).await;
                        continue;
                    }
                },
                State::Watch(resume) => (true, resume),
                State::Resume(resume) => (false, resume),
            };
            let end = self.follow(&mut resume, &mut failures, listed).await;
            failures += 1;
            match end {
                WatchEnd::Compacted => {
                    if failures > 1 {
                        tokio::time::sleep(backoff.spread(failures - 1, jitter())).await;
                    }
                    state = State::List;
                }
                WatchEnd::Disconnected(error) => {
                    self.record_error(error);
                    tokio::time::sleep(backoff.spread(failures, jitter())).await;
                    state = State::Resume(resume);
                }
            }
        }
    }

    fn record_error(&self, error: StoreError) {
        tracing::debug!(%error, "mirror: no contact with the store");
        self.sender.send_modify(|snapshot| {
            let snapshot = Arc::make_mut(snapshot);
            snapshot.connected = false;
            snapshot.error = Some(error);
        });
    }

    /// Reads all keys at one revision and updates the snapshot.
    async fn read(&self) -> Result<ReadOutcome, StoreError> {
        // The marks are taken before each read: an answer behind them comes from a store that went
        // back. A member that campaigned alone may have answered with a higher raft term, so only a
        // regress that two reads show counts.
        let scope = Scope { polled_also: self.also.borrow().clone(), ..self.scope.clone() };
        let keys = scope.keys();
        debug_assert!(keys.len() <= OPERATIONS_MAX, "one transaction, one revision");
        let mut regress = Regress::default();
        let mut key_snapshot = KeySnapshot::default();
        for attempt in 0..2 {
            let marks = self.session.marks();
            key_snapshot = self.session.read_keys(&keys, Deadline::within(self.options.list_timeout)).await?;
            regress = marks.regress(&key_snapshot);
            if regress.is_none() || attempt == 1 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(300).mul_f64(0.5 + jitter())).await;
        }
        let revision = key_snapshot.revision;
        let mut deaf = false;
        self.sender.send_modify(|snapshot| {
            let snapshot = Arc::make_mut(snapshot);
            deaf = snapshot.followed.take_read(key_snapshot, regress, &scope);
            snapshot.last_contact = Some(Instant::now());
            snapshot.error = None;
        });
        Ok(ReadOutcome { revision, agrees: !deaf && regress.is_none() })
    }

    async fn open(&self, resume: &[i64]) -> Result<(WatchStream, u64), StoreError> {
        let (client, generation) = self.session.client().await?;
        let opened = async {
            let mut stream: Option<WatchStream> = None;
            for (index, (key, from)) in self.scope.watched.iter().zip(resume).enumerate() {
                let options = WatchOptions::new().with_start_revision(*from).with_watch_id(index as i64 + 1);
                let key = self.session.full(key);
                match &mut stream {
                    None => stream = Some(client.watch_client().watch(key, Some(options)).await?),
                    Some(stream) => stream.watch(key, Some(options)).await?,
                }
            }
            Ok(stream)
        };
        let opened = tokio::time::timeout(self.session.config().attempt_timeout, opened).await;
        let failed = match opened {
            Ok(Ok(Some(stream))) => return Ok((stream, generation)),
            Ok(Ok(None)) => StoreError::BadAnswer { operation: "watch", detail: "nothing to watch".into() },
            Ok(Err(error)) => self.session.error("watch", &error),
            Err(_) => StoreError::Unreachable { operation: "watch", detail: "no answer in time".into() },
        };
        self.session.move_on(generation).await;
        Err(failed)
    }

    /// Follows the watch until it ends. A resumed watch is trusted only after a read, because it
    /// would stay silent in a store that went back.
    async fn follow(&mut self, resume: &mut [i64], failures: &mut u32, listed: bool) -> WatchEnd {
        let (mut stream, generation) = match self.open(resume).await {
            Ok(opened) => opened,
            Err(error) => return WatchEnd::Disconnected(error),
        };
        let mut created = 0;
        // Answers of a resumed watch that arrived before that read. If the store went back, their
        // events would be mistaken for new changes of the earlier history.
        let mut early: Vec<WatchResponse> = Vec::new();
        let mut trusted = listed;
        let mut backstop = Instant::now() + self.backstop();
        loop {
            let input = tokio::select! {
                // Cancelling `message` loses nothing: the stream keeps what it has not returned.
                // The other arms hold no data.
                message = stream.message() => WatchInput::Answer(message),
                () = tokio::time::sleep_until(backstop) => WatchInput::Resync,
                Some(()) = self.resync_requests.recv() => WatchInput::Resync,
            };
            let answer = match input {
                WatchInput::Resync => {
                    // A watch that has not begun yet may still deliver what the read shows.
                    let has_begun = created == self.scope.watched.len();
                    let end = if has_begun && trusted {
                        self.resync(resume).await
                    } else {
                        self.resync_after_resume(resume).await
                    };
                    if let Some(end) = end {
                        return end;
                    }
                    backstop = Instant::now() + self.backstop();
                    continue;
                }
                WatchInput::Answer(message) => match self.usable(message) {
                    Ok(answer) => answer,
                    Err(end) => {
                        if matches!(end, WatchEnd::Disconnected(_)) {
                            self.session.move_on(generation).await;
                        }
                        return end;
                    }
                },
            };
            created += usize::from(answer.created());
            let complete = created == self.scope.watched.len();
            if complete && !trusted {
                if let Some(end) = self.resync_after_resume(resume).await {
                    return end;
                }
                trusted = true;
            }
            if !trusted {
                early.push(answer);
                continue;
            }
            if complete {
                *failures = 0;
            }
            for answer in early.drain(..).chain([answer]) {
                self.apply(&answer, resume, complete);
            }
        }
    }

    /// Returns an answer of the watch that is not its end.
    fn usable(
        &self,
        message: Result<Option<WatchResponse>, etcd_client::Error>,
    ) -> Result<WatchResponse, WatchEnd> {
        let cut =
            |detail: String| WatchEnd::Disconnected(StoreError::Unreachable { operation: "watch", detail });
        let answer = message
            .map_err(|error| WatchEnd::Disconnected(self.session.error("watch", &error)))?
            .ok_or_else(|| cut("the stream ended".into()))?;
        if answer.compact_revision() > 0 {
            tracing::info!(
                compacted = answer.compact_revision(),
                "mirror: the history was compacted, listing again"
            );
            return Err(WatchEnd::Compacted);
        }
        if answer.canceled() {
            return Err(cut(format!("cancelled: {}", answer.cancel_reason())));
        }
        Ok(answer)
    }

    fn backstop(&self) -> Duration {
        self.options.backstop.mul_f64(0.5 + jitter())
    }

    /// Reads all keys and compares them with what the watch should have shown.
    async fn resync(&self, resume: &mut [i64]) -> Option<WatchEnd> {
        match self.read().await {
            Err(error) => Some(WatchEnd::Disconnected(error)),
            Ok(read) if !read.agrees => {
                resume.fill(read.revision + 1);
                Some(WatchEnd::Disconnected(StoreError::Unreachable {
                    operation: "watch",
                    detail: "a read returned changes that the watch had not delivered".into(),
                }))
            }
            Ok(_) => None,
        }
    }

    /// Reads all keys after a watch was resumed. The watch also delivers the changes that happened
    /// during the interruption, so the watch ends only if the store went back.
    async fn resync_after_resume(&self, resume: &mut [i64]) -> Option<WatchEnd> {
        match self.read().await {
            Err(error) => Some(WatchEnd::Disconnected(error)),
            Ok(read) if resume.iter().any(|from| *from > read.revision + 1) => Some(WatchEnd::Compacted),
            Ok(_) => None,
        }
    }

    fn apply(&self, answer: &WatchResponse, resume: &mut [i64], connected: bool) {
        let events = answer.events();
        let seen = answer.header().map_or(0, |h| h.revision());
        if !events.is_empty() {
            self.session.note_revision(seen);
        }
        self.sender.send_if_modified(|shared| {
            let changes = !events.is_empty() || shared.connected != connected;
            let snapshot = Arc::make_mut(shared);
            snapshot.last_contact = Some(Instant::now());
            snapshot.connected = connected;
            if connected {
                snapshot.error = None;
            }
            for event in events {
                let Some(kv) = event.kv() else { continue };
                let Some(key) = self.session.strip(kv.key()) else { continue };
                if let Some(from) =
                    usize::try_from(answer.watch_id() - 1).ok().and_then(|i| resume.get_mut(i))
                {
                    *from = (*from).max(kv.mod_revision() + 1);
                }
                let entry = (event.event_type() == EventType::Put).then(|| entry_of(kv));
                snapshot.followed.take_event(key, kv.mod_revision(), entry);
            }
            changes
        });
    }
}
