//! Follows a range of keys: first every key at one revision, in parts, then each change in order.
//! Nothing is kept here, so a range of 100,000 keys costs one copy, which the consumer holds.
//!
//! An open watch alone does not prove that the connection works. Every 30 s ± 50 % the feed
//! requests the progress of the member, that is, up to which revision it has sent every change; a
//! member that does not answer is left for the next one. A list older than a revision seen before
//! is not handed out, because that store went back.

use super::options::{FeedOptions, NOW};
use crate::error::{Class, StoreError};
use crate::random::jitter;
use crate::read::{ANSWER_MAX_BYTES, entry_of};
use crate::request::Deadline;
use crate::session::Session;
use etcd_client::{Client, EventType, WatchOptions, WatchResponse, WatchStream};
use schema::reads::Keys;
use schema::server_version::progress_is_in_order;
use schema::snapshot::Entry;
use schema::time::Backoff;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

/// A key, and its entry; `None` if it was deleted.
pub type Change = (String, Option<Entry>);

/// What a feed sends: the parts of a list, the end of the list, then changes. A new list may begin
/// at any time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FeedEvent {
    /// A part of a complete list.
    InitApply(Vec<(String, Entry)>),
    /// The list is complete, as of this revision: keys that were not in its parts do not exist.
    InitDone(i64),
    /// Changes up to this revision, the one of the last of them. The entry is `None` for a deleted key.
    Apply(i64, Vec<Change>),
    /// Every change up to this revision was sent, as the member says. Only for a consumer that wants the changes
    /// by revision.
    Progress(i64),
    /// The same of a member whose word has to be confirmed by a read, because its progress can overtake changes
    /// ([`progress_is_in_order`]), or because its version is not known.
    UnconfirmedProgress(i64),
    /// Why there is no contact with the store; `Connected(false)` follows. Only for a consumer that wants the changes
    /// by revision.
    Problem(String),
    /// The store answers with this revision, which is lower than one that it answered with before: it was
    /// restored. The feed goes on only with a store of a new history ([`Session::begin_history`]).
    WentBack(i64),
    /// True if the watch is connected, false if it is not.
    Connected(bool),
}

/// A running feed. It ends when this is dropped.
pub struct Feed {
    task: tokio::task::JoinHandle<()>,
    progress_wanted: Arc<Notify>,
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Feed {
    /// Starts to follow a range. Several feeds may send into one channel. Each event carries the
    /// number of its feed, because events of a dropped feed may still be in the channel.
    pub fn start(
        session: Session,
        keys: impl Into<Keys>,
        options: FeedOptions,
        number: u64,
        sender: mpsc::Sender<(u64, FeedEvent)>,
    ) -> Self {
        let keys = keys.into();
        let progress_wanted = Arc::new(Notify::new());
        let wanted = progress_wanted.clone();
        let follower = FeedTask {
            session,
            keys,
            known: options.begin.revision(),
            options,
            number,
            sender,
            progress_wanted: wanted,
            progress_in_order: false,
        };
        Self { task: tokio::spawn(follower.run()), progress_wanted }
    }

    /// Requests the progress of the member now. A member that still has changes to send answers with those instead.
    pub fn request_progress(&self) {
        self.progress_wanted.notify_one();
    }

    /// True if the task of the feed has ended. While its receiver exists, only a fault ends it.
    pub fn has_ended(&self) -> bool {
        self.task.is_finished()
    }
}

struct FeedTask {
    session: Session,
    keys: Keys,
    options: FeedOptions,
    number: u64,
    sender: mpsc::Sender<(u64, FeedEvent)>,
    /// Revision up to which every change was sent; `None` if a list is needed first.
    known: Option<i64>,
    /// Somebody wants to know the progress now.
    progress_wanted: Arc<Notify>,
    /// Whether the progress of the member that is watched can be believed.
    progress_in_order: bool,
}

/// Why a watch ended.
enum WatchEnd {
    Disconnected(StoreError),
    Compacted,
    /// The receiver of the events is gone.
    Done,
}

/// What an open watch waits for.
enum WatchInput {
    Answer(Result<Option<WatchResponse>, etcd_client::Error>),
    /// A progress request is due.
    ProgressDue,
    /// The member has not answered in time.
    Silence,
    /// The receiver of the events is gone.
    Closed,
}

impl FeedTask {
    async fn run(mut self) {
        let backoff = Backoff::new(self.options.backoff.0, self.options.backoff.1);
        let mut failures = 0u32;
        loop {
            let left = match self.known {
                None => match self.list().await {
                    Ok(revision) => {
                        self.known = Some(revision);
                        self.follow(&mut failures).await
                    }
                    Err(left) => left,
                },
                Some(_) => self.follow(&mut failures).await,
            };
            match left {
                WatchEnd::Done => return,
                WatchEnd::Compacted => self.known = None,
                WatchEnd::Disconnected(error) => {
                    tracing::debug!(%error, keys = %self.keys, "feed: no contact with the store");
                    let problem = FeedEvent::Problem(format!("{}: {error}", self.keys));
                    if self.options.by_revision && self.send(problem).await.is_err() {
                        return;
                    }
                }
            }
            failures += 1;
            if self.send(FeedEvent::Connected(false)).await.is_err() {
                return;
            }
            tokio::time::sleep(backoff.spread(failures, jitter())).await;
        }
    }

    async fn send(&self, event: FeedEvent) -> Result<(), WatchEnd> {
        self.sender.send((self.number, event)).await.map_err(|_| WatchEnd::Done)
    }

    async fn list(&self) -> Result<i64, WatchEnd> {
        // A list older than a revision seen before the request belongs to a store that went back.
        let floor = self.session.marks().revision;
        let deadline = Deadline::within(self.options.list_timeout);
        let mut listing = self.session.listing(&self.keys);
        while let Some(part) = listing.next(deadline).await.map_err(WatchEnd::Disconnected)? {
            if listing.revision() < floor {
                self.send(FeedEvent::WentBack(listing.revision())).await?;
                let detail = format!("revision {} after {floor}", listing.revision());
                return Err(WatchEnd::Disconnected(StoreError::BadAnswer { operation: "list", detail }));
            }
            self.send(FeedEvent::InitApply(part)).await?;
        }
        self.send(FeedEvent::InitDone(listing.revision())).await?;
        Ok(listing.revision())
    }

    /// Opens a watch that begins with the last known revision, although its events were sent
    /// before. A compaction at a revision removes the deletions of that revision. An etcd without
    /// the fix of its issue 18089 then accepts a watch from that revision and sends no deletions. A
    /// watch from the revision before is refused as compacted.
    async fn open(&mut self, known: i64) -> Result<(WatchStream, u64), StoreError> {
        let (client, generation) = self.session.client().await?;
        let opened = self.open_with(client, known).await;
        if opened.is_err() {
            self.session.move_on(generation).await;
        }
        Ok((opened?, generation))
    }

    async fn open_with(&mut self, client: Client, known: i64) -> Result<WatchStream, StoreError> {
        self.progress_in_order = self.options.by_revision && self.is_in_order(client.clone()).await?;
        // Zero is now.
        let options = WatchOptions::new().with_start_revision(known);
        let options = match &self.keys {
            Keys::One(_) => options,
            Keys::Below(_) => options.with_prefix(),
        };
        // Missed changes arrive in few, large answers.
        let mut watches = client.watch_client().max_decoding_message_size(ANSWER_MAX_BYTES);
        let opening = watches.watch(self.session.full(&self.keys), Some(options));
        match tokio::time::timeout(self.session.config().attempt_timeout, opening).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(self.session.error("watch", &error)),
            Err(_) => Err(StoreError::Unreachable { operation: "watch", detail: "no answer in time".into() }),
        }
    }

    /// True if the progress of a member can be believed. It is the one that is watched, because another one may be
    /// older. A member that does not give its version counts as old.
    async fn is_in_order(&self, mut client: Client) -> Result<bool, StoreError> {
        let limit = self.session.config().attempt_timeout;
        let failed = match tokio::time::timeout(limit, client.status()).await {
            Ok(Ok(status)) => return Ok(progress_is_in_order(status.version())),
            Ok(Err(error)) => self.session.error("status", &error),
            Err(_) => StoreError::Unreachable { operation: "status", detail: "no answer in time".into() },
        };
        if failed.class() == Class::Fatal { Ok(false) } else { Err(failed) }
    }

    async fn follow(&mut self, failures: &mut u32) -> WatchEnd {
        let Some(known) = self.known else { return WatchEnd::Compacted };
        let (mut stream, generation) = match self.open(known).await {
            Ok(opened) => opened,
            Err(error) => return WatchEnd::Disconnected(error),
        };
        let cut = |detail: &str| StoreError::Unreachable { operation: "watch", detail: detail.to_owned() };
        let mut ask_at = Instant::now() + self.options.progress_every.mul_f64(0.5 + jitter());
        // Time by which the member must answer; `None` if no answer is expected.
        let mut silent_at: Option<Instant> = Some(Instant::now() + self.options.silence_max);
        loop {
            let silence = silent_at.unwrap_or_else(|| ask_at + Duration::from_secs(3600));
            let input = tokio::select! {
                // Cancelling `message` loses nothing: the stream keeps what it has not returned.
                // The other arms hold no data.
                message = stream.message() => WatchInput::Answer(message),
                () = tokio::time::sleep_until(ask_at) => WatchInput::ProgressDue,
                () = self.progress_wanted.notified() => WatchInput::ProgressDue,
                () = tokio::time::sleep_until(silence) => WatchInput::Silence,
                () = self.sender.closed() => WatchInput::Closed,
            };
            let end = match input {
                WatchInput::Answer(Ok(Some(answer))) => {
                    silent_at = None;
                    match self.take(&answer, known, failures).await {
                        Some(end) => end,
                        None => continue,
                    }
                }
                WatchInput::Answer(Ok(None)) => WatchEnd::Disconnected(cut("the stream ended")),
                WatchInput::Answer(Err(error)) => WatchEnd::Disconnected(self.session.error("watch", &error)),
                WatchInput::ProgressDue => match stream.request_progress().await {
                    Ok(()) => {
                        silent_at = silent_at.or(Some(Instant::now() + self.options.silence_max));
                        ask_at = Instant::now() + self.options.progress_every.mul_f64(0.5 + jitter());
                        continue;
                    }
                    Err(_) => WatchEnd::Disconnected(cut("the stream ended")),
                },
                WatchInput::Silence => {
                    WatchEnd::Disconnected(cut("the member does not send progress notifications"))
                }
                WatchInput::Closed => WatchEnd::Done,
            };
            if matches!(end, WatchEnd::Disconnected(_)) {
                self.session.move_on(generation).await;
            }
            return end;
        }
    }

    async fn take(&mut self, answer: &WatchResponse, known: i64, failures: &mut u32) -> Option<WatchEnd> {
        let revision = answer.header().map_or(0, |h| h.revision());
        if answer.compact_revision() > 0 {
            tracing::info!(keys = %self.keys, "feed: the history was compacted, listing again");
            return Some(WatchEnd::Compacted);
        }
        if answer.canceled() {
            let detail = format!("cancelled: {}", answer.cancel_reason());
            return Some(WatchEnd::Disconnected(StoreError::Unreachable { operation: "watch", detail }));
        }
        if answer.created() {
            // A watch on a store that went back would stay silent for ever. A list detects this.
            if revision < known {
                return Some(WatchEnd::Compacted);
            }
            *failures = 0;
            if known == NOW {
                self.known = self.known.max(Some(revision));
            }
            return self.send(FeedEvent::Connected(true)).await.err();
        }
        let revision_of = |event: &etcd_client::Event| event.kv().map_or(0, |kv| kv.mod_revision());
        let new = answer.events().iter().filter(|event| self.known < Some(revision_of(event)));
        // Parts that are sent together, each with the revision of its last change. That is not the revision of the
        // answer: a member that sends what was missed names one up to which it has not sent yet.
        let mut parts: Vec<(i64, Vec<Change>)> = Vec::new();
        for event in new {
            let (at, Some(change)) = (revision_of(event), self.change(event)) else { continue };
            match parts.last_mut().filter(|(last, _)| *last == at || !self.options.by_revision) {
                Some((last, changes)) => {
                    *last = at.max(*last);
                    changes.push(change);
                }
                None => parts.push((at, vec![change])),
            }
        }
        if answer.events().is_empty() && self.options.by_revision {
            self.session.note_revision(revision);
            let progress = if self.progress_in_order {
                FeedEvent::Progress(revision)
            } else {
                FeedEvent::UnconfirmedProgress(revision)
            };
            return self.send(progress).await.err();
        }
        if !parts.is_empty() {
            self.session.note_revision(revision);
        }
        for (last, changes) in parts {
            self.known = self.known.max(Some(last));
            if let Err(end) = self.send(FeedEvent::Apply(last, changes)).await {
                return Some(end);
            }
        }
        None
    }

    fn change(&self, event: &etcd_client::Event) -> Option<Change> {
        let kv = event.kv()?;
        let key = self.session.strip(kv.key())?.to_owned();
        let entry = (event.event_type() == EventType::Put).then(|| entry_of(kv));
        Some((key, entry))
    }
}
