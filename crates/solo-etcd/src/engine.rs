//! The single writer. Commands queue here. A thread takes the queued commands as a batch, writes
//! them to disk with one sync, applies them and answers. Readers use the state at the same time; it
//! holds nothing that is not on disk.
//!
//! This file is long because the writer thread and its handle are two ends of one protocol.

use crate::core::{Command, CommandResult, REQUEST_BYTES_MAX, Refusal, Store};
use crate::journal::{Directory, Identity, Journal, is_full, write_command};
use etcd_client::proto::PbResponseHeader;
use std::io;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::Instant;

/// Largest number of commands in the queue. Further commands wait for a place.
const QUEUE_MAX: usize = 1024;
/// Memory that all waiting commands may take, in the queue or before it, in bytes. Commands beyond
/// that are refused, as etcd refuses commands when it cannot keep up.
const WAITING_MAX_BYTES: usize = 128 * 1024 * 1024;
/// Memory that a waiting command takes besides twice its record, in bytes.
const WAITING_BYTES: usize = 1024;
/// Largest number of leases that one batch ends. The next batch ends the others.
const LEASES_IN_BATCH: usize = 10_000;
/// Size from which a batch takes no more commands, in bytes. A batch is written with one sync.
const BATCH_MAX_BYTES: usize = 2 * 1024 * 1024;

/// A clock that never goes back. It is tokio's clock, which tests can pause.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn millis(self) -> u64 {
        u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// The channel for the answer to a command, and the memory reserved for the waiting command.
struct Reply {
    answer: oneshot::Sender<Result<(CommandResult, i64), Refusal>>,
    _waits: OwnedSemaphorePermit,
}

enum Work {
    /// A command with its record, and the channel for its answer.
    Command(Command, Vec<u8>, Reply),
    /// End the leases whose time is over.
    EndLeases,
    /// Rewrite the store file.
    Rewrite(oneshot::Sender<io::Result<()>>),
    /// Stop after this batch and take no more commands.
    Stop,
}

/// A handle to the store. It is cheap to clone.
#[derive(Clone)]
pub(crate) struct Engine {
    store: Arc<RwLock<Store>>,
    work: mpsc::Sender<Work>,
    permits: Arc<Semaphore>,
    revision: watch::Receiver<i64>,
    file_bytes: watch::Receiver<u64>,
    clock: Clock,
    identity: Identity,
    quota_bytes: u64,
    raft_term: u64,
}

/// The writer thread. It ends after a stop, when the journal is broken, or when every handle is
/// dropped.
pub(crate) type WriterThread = std::thread::JoinHandle<()>;

/// An open store, which no other process can open.
pub(crate) struct OpenStore {
    pub(crate) store: Store,
    /// `None` if all data is only in memory.
    pub(crate) journal: Option<Journal<Directory>>,
    /// Held as long as the writer exists.
    pub(crate) lock: Option<std::fs::File>,
    pub(crate) identity: Identity,
    pub(crate) clock: Clock,
}

impl OpenStore {
    /// Returns a store that is only in memory.
    pub(crate) fn in_memory(mut store: Store) -> Self {
        let clock = Clock::new();
        // The command `Start` is never refused.
        let _ = store.apply(Command::Start, clock.millis());
        Self { store, journal: None, lock: None, identity: Identity::random(), clock }
    }
}

impl Engine {
    /// Starts the writer thread.
    pub(crate) fn start(open: OpenStore, quota_bytes: u64) -> io::Result<(Self, WriterThread)> {
        let (engine, writer, queue) = Self::new(open, quota_bytes);
        let thread = std::thread::Builder::new().name("store-writer".into()).spawn(|| writer.run(queue))?;
        Ok((engine, thread))
    }

    /// Starts the writer as a task, so that a paused clock waits for it. The store must be in
    /// memory: a task must not wait for a disk.
    #[cfg(feature = "in-process")]
    pub(crate) fn start_task(store: Store, quota_bytes: u64) -> Self {
        let (engine, mut writer, mut queue) = Self::new(OpenStore::in_memory(store), quota_bytes);
        tokio::spawn(async move {
            while let Some(first) = queue.recv().await {
                if !writer.handle(first, &mut queue) {
                    return;
                }
            }
        });
        engine
    }

    fn new(open: OpenStore, quota_bytes: u64) -> (Self, Writer, mpsc::Receiver<Work>) {
        let OpenStore { store, journal, lock, identity, clock } = open;
        let (work, queue) = mpsc::channel(QUEUE_MAX);
        let (revision_sender, revision) = watch::channel(store.revision());
        let raft_term = store.raft_term();
        let bytes = journal.as_ref().map_or(0, Journal::bytes);
        let (file_bytes_sender, file_bytes) = watch::channel(bytes);
        let store = Arc::new(RwLock::new(store));
        let writer = Writer {
            store: store.clone(),
            journal,
            _lock: lock,
            clock,
            quota_bytes,
            revision: revision_sender,
            file_bytes: file_bytes_sender,
            is_failing: false,
        };
        let permits = Arc::new(Semaphore::new(WAITING_MAX_BYTES));
        let engine =
            Self { store, work, permits, revision, file_bytes, clock, identity, quota_bytes, raft_term };
        (engine, writer, queue)
    }

    /// Returns the state, all of which is on disk. Hold the guard only briefly, and never across an
    /// await.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Store> {
        // The writer does not panic in the middle of a change, so a poisoned lock holds a
        // consistent state.
        self.store.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Commits a command. Returns its answer and the revision after it.
    pub(crate) async fn commit(&self, command: Command) -> Result<(CommandResult, i64), Refusal> {
        let mut record = Vec::new();
        write_command(&command, &mut record);
        if record.len() > REQUEST_BYTES_MAX {
            return Err(Refusal::RequestTooLarge);
        }
        command.check()?;
        let bytes = u32::try_from(2 * record.len() + WAITING_BYTES).unwrap_or(u32::MAX);
        let waits =
            self.permits.clone().try_acquire_many_owned(bytes).map_err(|_| Refusal::TooManyRequests)?;
        let (sender, answer) = oneshot::channel();
        let reply = Reply { answer: sender, _waits: waits };
        self.work.send(Work::Command(command, record, reply)).await.map_err(|_| Refusal::Stopped)?;
        answer.await.unwrap_or(Err(Refusal::Stopped))
    }

    /// Keeps a lease alive and returns its time to live in seconds, or `None` if it does not exist
    /// or its time is over.
    pub(crate) fn keep_alive(&self, id: i64) -> Option<i64> {
        self.read().keep_alive(id, self.clock.millis())
    }

    /// Rewrites the store file as a snapshot of the present state.
    pub(crate) async fn rewrite(&self) -> Result<io::Result<()>, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.work.send(Work::Rewrite(reply)).await.map_err(|_| Refusal::Stopped)?;
        answer.await.map_err(|_| Refusal::Stopped)
    }

    /// Ends leases when their time is over. Returns when the writer has ended.
    pub(crate) async fn end_leases(self) {
        // Interval of the checks, the same as in etcd. A lease that ends earlier is checked when it
        // ends.
        const LEASE_POLL_MILLIS: u64 = 500;
        const LEASE_RETRY_MILLIS: u64 = 50;
        loop {
            let next = self.read().next_lease_end_millis();
            let wait = next.map_or(LEASE_POLL_MILLIS, |at| at.saturating_sub(self.clock.millis()));
            tokio::time::sleep(Duration::from_millis(wait.clamp(1, LEASE_POLL_MILLIS))).await;
            let is_due = self.read().next_lease_end_millis().is_some_and(|at| at <= self.clock.millis());
            if is_due {
                if self.work.send(Work::EndLeases).await.is_err() {
                    return;
                }
                // If the journal cannot be written, the lease stays due; the delay avoids a busy
                // loop.
                tokio::time::sleep(Duration::from_millis(LEASE_RETRY_MILLIS)).await;
            }
        }
    }

    /// Returns a receiver of the newest revision, which can also wait for the next one.
    pub(crate) fn revisions(&self) -> watch::Receiver<i64> {
        self.revision.clone()
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// Returns the size of the store file in bytes; 0 for a store in memory.
    pub(crate) fn file_bytes(&self) -> u64 {
        *self.file_bytes.borrow()
    }

    pub(crate) fn quota_bytes(&self) -> u64 {
        self.quota_bytes
    }

    /// Stops the writer after it has handled the commands in the queue. Later commands are refused.
    pub(crate) async fn stop(&self) {
        // An error means that the writer has already ended.
        let _ = self.work.send(Work::Stop).await;
        self.stopped().await;
    }

    /// Returns when the writer has ended.
    pub(crate) async fn stopped(&self) {
        self.work.closed().await;
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.work.is_closed()
    }

    /// Returns the complete header of an answer with this revision.
    pub(crate) fn header(&self, revision: i64) -> PbResponseHeader {
        PbResponseHeader {
            cluster_id: self.identity.cluster_id,
            member_id: self.identity.member_id,
            revision,
            raft_term: self.raft_term,
        }
    }
}

struct Writer {
    store: Arc<RwLock<Store>>,
    journal: Option<Journal<Directory>>,
    _lock: Option<std::fs::File>,
    clock: Clock,
    quota_bytes: u64,
    revision: watch::Sender<i64>,
    file_bytes: watch::Sender<u64>,
    /// True if the last write failed and this has been logged.
    is_failing: bool,
}

/// The work that arrived while the previous batch was being written.
#[derive(Default)]
struct Batch {
    commands: Vec<(Command, Option<Reply>)>,
    records: Vec<u8>,
    rewrite: Vec<oneshot::Sender<io::Result<()>>>,
    stops: bool,
}

impl Writer {
    fn run(mut self, mut queue: mpsc::Receiver<Work>) {
        while let Some(first) = queue.blocking_recv() {
            if !self.handle(first, &mut queue) {
                return;
            }
        }
    }

    /// Handles this command and those that are queued behind it. Returns false if the writer ends.
    fn handle(&mut self, first: Work, queue: &mut mpsc::Receiver<Work>) -> bool {
        let mut batch = Batch::default();
        let mut next = Some(first);
        while let Some(work) = next {
            self.add(work, &mut batch);
            next = if batch.records.len() < BATCH_MAX_BYTES { queue.try_recv().ok() } else { None };
        }
        let stops = batch.stops;
        self.commit(batch);
        // If the content of the disk is unknown, no command can be acknowledged any more.
        !stops && !self.journal.as_ref().is_some_and(Journal::is_broken)
    }

    fn add(&self, work: Work, batch: &mut Batch) {
        match work {
            Work::Command(command, record, reply) => {
                if let Err(refusal) = self.check_quota(&command, batch) {
                    answer_to(Some(reply), Err(refusal));
                    return;
                }
                batch.records.extend_from_slice(&record);
                batch.commands.push((command, Some(reply)));
            }
            Work::EndLeases => {
                // A lease that was kept alive meanwhile is not among them.
                for id in self.read().ended_leases(self.clock.millis(), LEASES_IN_BATCH) {
                    batch.push(Command::LeaseRevoke(id));
                }
            }
            Work::Rewrite(reply) => batch.rewrite.push(reply),
            Work::Stop => batch.stops = true,
        }
    }

    /// Refuses commands that take space if the quota is used up. The first refusal raises the
    /// alarm.
    fn check_quota(&self, command: &Command, batch: &mut Batch) -> Result<(), Refusal> {
        let cost = command.cost_bytes();
        if cost == 0 {
            return Ok(());
        }
        let store = self.read();
        let (no_space, used) = (store.no_space(), store.bytes() + batch.records.len() as u64);
        drop(store);
        if no_space {
            return Err(Refusal::NoSpace);
        }
        if used + cost > self.quota_bytes {
            batch.push(Command::NoSpace(true));
            return Err(Refusal::NoSpace);
        }
        Ok(())
    }

    fn read(&self) -> RwLockReadGuard<'_, Store> {
        self.store.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn commit(&mut self, batch: Batch) {
        let Batch { commands, records, rewrite, .. } = batch;
        if !commands.is_empty() {
            match self.journal.as_mut().map_or(Ok(()), |journal| journal.append(&records)) {
                Ok(()) => {
                    self.is_failing = false;
                    self.apply(commands);
                }
                Err(error) => self.refuse(commands, &error),
            }
        }
        if !rewrite.is_empty() || self.journal.as_ref().is_some_and(Journal::should_rewrite) {
            let result = self.rewrite();
            for reply in rewrite {
                let result = match &result {
                    Ok(()) => Ok(()),
                    Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
                };
                // The requester may be gone.
                let _ = reply.send(result);
            }
        }
        self.file_bytes.send_replace(self.journal.as_ref().map_or(0, Journal::bytes));
    }

    fn apply(&mut self, commands: Vec<(Command, Option<Reply>)>) {
        let mut store = self.store.write().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.millis();
        let mut answers = Vec::with_capacity(commands.len());
        for (command, reply) in commands {
            let answer = store.apply(command, now);
            let revision = store.revision();
            answers.push((reply, answer.map(|answer| (answer, revision))));
        }
        let revision = store.revision();
        drop(store);
        for (reply, answer) in answers {
            answer_to(reply, answer);
        }
        self.revision.send_if_modified(|old| std::mem::replace(old, revision) != revision);
    }

    /// Refuses a batch that could not be written. A full disk is reported as a full store. After
    /// any other error the content of the disk is unknown.
    fn refuse(&mut self, commands: Vec<(Command, Option<Reply>)>, error: &io::Error) {
        let full = is_full(error) && !self.journal.as_ref().is_some_and(Journal::is_broken);
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::error!(%error, "the journal cannot be written");
        }
        if full {
            let mut store = self.store.write().unwrap_or_else(PoisonError::into_inner);
            // The alarm is not in the journal, which has no room for it. After a restart the next
            // write that fails raises it again.
            let _ = store.apply(Command::NoSpace(true), self.clock.millis());
        }
        let refusal = if full { Refusal::NoSpace } else { Refusal::Stopped };
        for (_, reply) in commands {
            answer_to(reply, Err(refusal));
        }
    }

    fn rewrite(&mut self) -> io::Result<()> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        // The read lock lets readers and keep-alives continue during the rewrite.
        let store = self.store.read().unwrap_or_else(PoisonError::into_inner);
        let result = journal.rewrite(&store);
        if let Err(error) = &result {
            tracing::error!(%error, "the store file could not be rewritten");
        }
        result
    }
}

fn answer_to(reply: Option<Reply>, answer: Result<(CommandResult, i64), Refusal>) {
    if let Some(reply) = reply {
        // The requester may be gone.
        let _ = reply.answer.send(answer);
    }
}

impl Batch {
    fn push(&mut self, command: Command) {
        write_command(&command, &mut self.records);
        self.commands.push((command, None));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etcd_client::proto::PbPutRequest;

    #[tokio::test]
    async fn what_finds_no_room_to_wait_is_refused_as_etcd_does_it() {
        let (engine, writer) =
            Engine::start(OpenStore::in_memory(Store::default()), 1 << 30).expect("a thread");
        let put = || Command::Put(PbPutRequest { key: b"k".to_vec(), ..PbPutRequest::default() });
        let others =
            engine.permits.clone().acquire_many_owned(WAITING_MAX_BYTES as u32).await.expect("all of it");
        assert_eq!(engine.commit(put()).await, Err(Refusal::TooManyRequests));
        drop(others);
        engine.commit(put()).await.expect("is written");
        // The command does not wait any more, so its memory is released shortly after the answer.
        let all = engine.permits.acquire_many(WAITING_MAX_BYTES as u32).await.expect("all of it");
        drop(all);
        engine.stop().await;
        drop(engine);
        writer.join().expect("ends");
    }
}
