//! A snapshot of chosen keys that follows the store: list at one revision, watch from the next, resume
//! after a cut, list again after compaction. A watch alone is never a proof of life, so every 30 s ± 50 %
//! one linearizable read looks at the same keys; it also shows a store that went back, on which a watch
//! stays silent for ever.

use crate::error::StoreError;
use crate::key_snapshot::{Entry, KeySnapshot};
use crate::marks::Regress;
use crate::random::jitter;
use crate::read::OPERATIONS_MAX;
use crate::request::Deadline;
use crate::session::Session;
use etcd_client::{EventType, WatchOptions, WatchResponse, WatchStream};
use schema::keys::Key;
use schema::time::Backoff;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Which keys.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// Watched: a change is seen at once.
    pub watched: Vec<Key>,
    /// Looked at with each list and each backstop read: keys that hardly anybody else writes.
    pub polled: Vec<Key>,
    /// Looked at like these at first; [`Mirror::poll_also`] names others later.
    pub polled_also: Vec<Key>,
}

/// Paces of a mirror.
#[derive(Debug, Clone)]
pub struct MirrorOptions {
    /// Mean time between two linearizable reads; each wait is drawn from half to one and a half of it.
    pub backstop: Duration,
    /// Bounds of the delay after a failure ([`Backoff::spread`]).
    pub backoff: (Duration, Duration),
    /// Most time for one list.
    pub list_timeout: Duration,
}

impl Default for MirrorOptions {
    fn default() -> Self {
        Self {
            backstop: Duration::from_secs(30),
            backoff: (Duration::from_millis(200), Duration::from_secs(45)),
            list_timeout: Duration::from_secs(10),
        }
    }
}

/// An immutable snapshot of the keys.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The keys and their entries.
    pub keys: KeySnapshot,
    /// Goes up with each linearizable read; 0 before the first: nothing is known yet.
    pub reads: u64,
    /// Revision of the last linearizable read: polled keys are known as of this.
    pub read_revision: i64,
    /// The keys of [`Mirror::poll_also`] that the last read looked at.
    pub polled_also: Vec<Key>,
    /// How the last read fell behind an answer seen before it: the store went back.
    pub regress: Regress,
    /// The watch stands and the last read succeeded.
    pub connected: bool,
    /// When the store last answered.
    pub last_contact: Option<Instant>,
    /// What went wrong last, while it is wrong.
    pub error: Option<StoreError>,
}

/// A running mirror; it ends when this is dropped.
pub struct Mirror {
    snapshots: watch::Receiver<Arc<Snapshot>>,
    resync_requests: tokio::sync::mpsc::Sender<()>,
    polled_also: watch::Sender<Vec<Key>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Mirror {
    /// Starts a mirror.
    pub fn start(session: Session, scope: Scope, options: MirrorOptions) -> Self {
        let (sender, snapshots) = watch::channel(Arc::new(Snapshot::default()));
        let (resync_requests, requests) = tokio::sync::mpsc::channel(1);
        let (polled_also, also) = watch::channel(scope.polled_also.clone());
        let task =
            tokio::spawn(Follower { session, scope, options, sender, resync_requests: requests, also }.run());
        Self { snapshots, resync_requests, polled_also, task }
    }

    /// The newest snapshot, and a way to wait for the next.
    pub fn snapshots(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.snapshots.clone()
    }

    /// These keys, and none that was named here before, are polled as well from the next read on.
    pub fn poll_also(&self, keys: &[Key]) {
        self.polled_also.send_if_modified(|old| {
            let differs = old != keys;
            if differs {
                *old = keys.to_vec();
            }
            differs
        });
    }

    /// Ends following; whoever waits for the next snapshot is told that there is none.
    pub fn end(&self) {
        self.task.abort();
    }

    /// Asks for a linearizable read now; requests that come together are one.
    pub fn request_resync(&self) {
        // A full queue holds the same request already.
        let _ = self.resync_requests.try_send(());
    }
}

struct Follower {
    session: Session,
    scope: Scope,
    options: MirrorOptions,
    sender: watch::Sender<Arc<Snapshot>>,
    resync_requests: tokio::sync::mpsc::Receiver<()>,
    /// What is polled besides the scope.
    also: watch::Receiver<Vec<Key>>,
}

/// Why the watch is left.
enum WatchEnd {
    /// The connection broke: resume after the last event.
    Disconnected(StoreError),
    /// History is gone, or the watch is deaf: list again.
    Compacted,
}

impl Follower {
    async fn run(mut self) {
        let backoff = Backoff::new(self.options.backoff.0, self.options.backoff.1);
        let mut failures = 0u32;
        // For each watched key the revision from which its watch goes on; empty: list first.
        let mut resume: Vec<i64> = Vec::new();
        loop {
            let listed = resume.is_empty();
            if listed {
                match self.list().await {
                    Ok(revision) => resume = vec![revision + 1; self.scope.watched.len()],
                    Err(error) => {
                        failures += 1;
                        self.record_error(error);
                        tokio::time::sleep(backoff.spread(failures, jitter())).await;
                        continue;
                    }
                }
            }
            match self.follow(&mut resume, &mut failures, listed).await {
                WatchEnd::Compacted => {
                    resume.clear();
                    failures += 1;
                    if failures > 1 {
                        tokio::time::sleep(backoff.spread(failures - 1, jitter())).await;
                    }
                }
                WatchEnd::Disconnected(error) => {
                    failures += 1;
                    self.record_error(error);
                    tokio::time::sleep(backoff.spread(failures, jitter())).await;
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

    /// Reads everything at one revision and replaces the snapshot. True in the second place if a watched
    /// key was not as the watch had said.
    async fn read(&self) -> Result<(i64, bool), StoreError> {
        // Marks are taken before the read starts: an answer older than these is a store that went back.
        // A member may have campaigned alone, so a regress must show twice.
        let also = self.also.borrow().clone();
        let polled = || self.scope.polled.iter().chain(&also);
        let keys: Vec<Key> = self.scope.watched.iter().chain(polled()).cloned().collect();
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
            // An event may have come in while the read was under way; the newer snapshot stays.
            let newer = !regress.is_none() || key_snapshot.revision >= snapshot.keys.revision;
            if newer {
                deaf = self.scope.watched.iter().any(|key| {
                    let of = |p: &KeySnapshot| p.get(key).map(|e| e.mod_revision);
                    of(&key_snapshot) != of(&snapshot.keys)
                });
                snapshot.keys = key_snapshot;
            } else {
                for key in polled().map(Key::to_string) {
                    match key_snapshot.entries.get(&key) {
                        Some(entry) => snapshot.keys.entries.insert(key, entry.clone()),
                        None => snapshot.keys.entries.remove(&key),
                    };
                }
            }
            snapshot.reads += 1;
            snapshot.read_revision = revision;
            snapshot.polled_also.clone_from(&also);
            snapshot.regress = regress;
            snapshot.last_contact = Some(Instant::now());
            snapshot.error = None;
        });
        Ok((revision, deaf || !regress.is_none()))
    }

    async fn list(&self) -> Result<i64, StoreError> {
        self.read().await.map(|(revision, _)| revision)
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

    /// Follows the watch until it breaks. One that resumes is trusted only after a read: in a store that went
    /// back it would stay silent.
    async fn follow(&mut self, resume: &mut [i64], failures: &mut u32, listed: bool) -> WatchEnd {
        let (mut stream, generation) = match self.open(resume).await {
            Ok(opened) => opened,
            Err(error) => return WatchEnd::Disconnected(error),
        };
        let mut created = 0;
        // Events of a resumed watch that came before that read: of a store that went back they would be taken for news
        // of the one before.
        let mut early: Vec<WatchResponse> = Vec::new();
        let mut trusted = listed;
        let mut backstop = Instant::now() + self.backstop();
        loop {
            tokio::select! {
                // `message` reads from a stream that keeps what it has not handed out; the other arms hold nothing.
                message = stream.message() => {
                    let answer = match message {
                        Ok(Some(answer)) => answer,
                        Ok(None) => {
                            self.session.move_on(generation).await;
                            let detail = "the stream ended".into();
                            return WatchEnd::Disconnected(StoreError::Unreachable { operation: "watch", detail });
                        }
                        Err(error) => {
                            self.session.move_on(generation).await;
                            return WatchEnd::Disconnected(self.session.error("watch", &error));
                        }
                    };
                    if answer.compact_revision() > 0 {
                        tracing::info!(compacted = answer.compact_revision(), "mirror: history is gone, listing again");
                        return WatchEnd::Compacted;
                    }
                    if answer.canceled() {
                        self.session.move_on(generation).await;
                        let detail = format!("cancelled: {}", answer.cancel_reason());
                        return WatchEnd::Disconnected(StoreError::Unreachable { operation: "watch", detail });
                    }
                    created += usize::from(answer.created());
                    let complete = created == self.scope.watched.len();
                    if complete && !trusted {
                        if let Some(left) = self.resync_after_resume(resume).await {
                            return left;
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
                () = tokio::time::sleep_until(backstop) => {
                    if let Some(left) = self.resync(resume).await {
                        return left;
                    }
                    backstop = Instant::now() + self.backstop();
                }
                _ = self.resync_requests.recv() => {
                    if let Some(left) = self.resync(resume).await {
                        return left;
                    }
                    backstop = Instant::now() + self.backstop();
                }
            }
        }
    }

    fn backstop(&self) -> Duration {
        self.options.backstop.mul_f64(0.5 + jitter())
    }

    /// The backstop: a read that shows what the watch should have shown.
    async fn resync(&self, resume: &mut [i64]) -> Option<WatchEnd> {
        match self.read().await {
            Err(error) => Some(WatchEnd::Disconnected(error)),
            Ok((revision, true)) => {
                resume.fill(revision + 1);
                Some(WatchEnd::Disconnected(StoreError::Unreachable {
                    operation: "watch",
                    detail: "a read showed what the watch had not".into(),
                }))
            }
            Ok((_, false)) => None,
        }
    }

    /// What happened during the cut comes by the watch as well; only a store that went back changes the course.
    async fn resync_after_resume(&self, resume: &mut [i64]) -> Option<WatchEnd> {
        match self.read().await {
            Err(error) => Some(WatchEnd::Disconnected(error)),
            Ok((revision, _)) if resume.iter().any(|from| *from > revision + 1) => {
                resume.fill(revision + 1);
                Some(WatchEnd::Compacted)
            }
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
                apply_event(&mut snapshot.keys.entries, key, event.event_type(), kv);
                snapshot.keys.revision = snapshot.keys.revision.max(kv.mod_revision());
            }
            changes
        });
    }
}

/// A snapshot that came by a read may be newer than an event: an older event changes nothing.
fn apply_event(
    entries: &mut BTreeMap<String, Entry>,
    key: &str,
    event: EventType,
    kv: &etcd_client::KeyValue,
) {
    if entries.get(key).is_some_and(|known| known.mod_revision > kv.mod_revision()) {
        return;
    }
    match event {
        EventType::Put => {
            entries.insert(key.to_owned(), Entry::from(kv));
        }
        EventType::Delete => {
            entries.remove(key);
        }
    }
}
