//! The service Watch.
//!
//! Nothing is queued for a watcher: the history is the queue. Each watcher remembers the next
//! revision that it has to see. After a write it reads the changes that it missed in bounded
//! batches, as fast as its client receives them. A watcher that falls behind a compaction is
//! cancelled, as in etcd.

use crate::core::{Span, Store};
use crate::engine::Engine;
use etcd_client::proto::{PbEvent, PbWatchRequest, PbWatchRequestUnion, PbWatchResponse, PbWatchService};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

pub(super) struct Watch(pub(super) Engine);

/// Largest number of answers on one stream that the client has not received yet.
const ANSWERS_MAX: usize = 16;
/// Limits of one answer, in events and in bytes. An answer ends with the revision that reaches one
/// of them.
const EVENTS_IN_ANSWER: usize = 1000;
const BYTES_IN_ANSWER: usize = 1024 * 1024;
/// Number of changes that are inspected at once, whether a watcher wants them or not. Writers wait
/// meanwhile.
const CHANGES_AT_ONCE: usize = 20_000;
/// Interval of progress notifications for watchers that want them; etcd's own value.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(600);
/// Watch id of an answer that belongs to no watcher.
const NO_WATCHER: i64 = -1;
/// Values of `WatchCreateRequest.FilterType`.
const NO_PUT: i32 = 0;
const NO_DELETE: i32 = 1;

#[tonic::async_trait]
impl PbWatchService for Watch {
    type WatchStream = ReceiverStream<Result<PbWatchResponse, Status>>;

    async fn watch(
        &self,
        request: Request<Streaming<PbWatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (answers, stream) = mpsc::channel(ANSWERS_MAX);
        let watching = Watching {
            engine: self.0.clone(),
            answers,
            watchers: BTreeMap::new(),
            next_id: 0,
            is_behind: false,
            progress_asked: 0,
            progress_is_due: false,
        };
        tokio::spawn(watching.run(request.into_inner()));
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

struct Watcher {
    key: Vec<u8>,
    end: Vec<u8>,
    /// First revision that the watcher has not seen.
    next: i64,
    no_put: bool,
    no_delete: bool,
    with_previous: bool,
    may_fragment: bool,
    wants_progress: bool,
    /// True if something was sent since the last progress notification.
    spoken: bool,
    /// True if a compaction cancelled the watcher. It gets no more answers, but its id stays in use
    /// until the client cancels it as well, as in etcd.
    compacted: bool,
}

/// State of one stream with its watchers.
struct Watching {
    engine: Engine,
    answers: mpsc::Sender<Result<PbWatchResponse, Status>>,
    watchers: BTreeMap<i64, Watcher>,
    next_id: i64,
    /// True if some watcher has not been sent everything.
    is_behind: bool,
    /// Number of open progress requests of the client. They are answered when no watcher is behind.
    progress_asked: usize,
    /// True if it is time for progress notifications. They are sent when no watcher is behind.
    progress_is_due: bool,
}

/// The client disconnected, or the store stops.
struct ClientGone;

impl Watching {
    async fn run(mut self, mut requests: Streaming<PbWatchRequest>) {
        let mut revisions = self.engine.revisions();
        let mut progress = tokio::time::interval(PROGRESS_INTERVAL);
        progress.reset();
        let mut asks_on = true;
        loop {
            let went_on = tokio::select! {
                // No arm loses data when another one is ready first.
                request = requests.message(), if asks_on => match request {
                    Ok(Some(PbWatchRequest { request_union: Some(union) })) => self.take(union).await,
                    Ok(Some(_)) => Ok(()),
                    // A client that ends its requests may still receive events.
                    Ok(None) => {
                        asks_on = false;
                        Ok(())
                    }
                    Err(_) => Err(ClientGone),
                },
                () = self.answers.closed() => Err(ClientGone),
                changed = revisions.changed() => match changed {
                    Ok(()) => {
                        self.is_behind = true;
                        Ok(())
                    }
                    // The store stops.
                    Err(_) => Err(ClientGone),
                },
                _ = progress.tick() => {
                    self.progress_is_due = true;
                    Ok(())
                }
                // This arm lets requests be handled between the batches.
                () = std::future::ready(()), if self.is_behind => Ok(()),
            };
            if went_on.is_err() || self.catch_up().await.is_err() {
                return;
            }
        }
    }

    async fn send(&self, answer: PbWatchResponse) -> Result<(), ClientGone> {
        self.answers.send(Ok(answer)).await.map_err(|_| ClientGone)
    }

    fn answer(&self, watch_id: i64, revision: i64) -> PbWatchResponse {
        let header = Some(self.engine.header(revision));
        PbWatchResponse { header, watch_id, ..PbWatchResponse::default() }
    }

    /// Returns an answer that reports progress up to the revision `seen`. Later writes may not have
    /// been sent.
    fn answer_up_to(&self, watch_id: i64, seen: Option<i64>) -> PbWatchResponse {
        let revision = self.engine.read().revision();
        self.answer(watch_id, seen.map_or(revision, |seen| seen.min(revision)))
    }

    async fn take(&mut self, request: PbWatchRequestUnion) -> Result<(), ClientGone> {
        match request {
            PbWatchRequestUnion::CreateRequest(request) => {
                let revision = self.engine.read().revision();
                let watcher = Watcher {
                    key: if request.key.is_empty() { vec![0] } else { request.key },
                    end: request.range_end,
                    next: if request.start_revision == 0 { revision + 1 } else { request.start_revision },
                    no_put: request.filters.contains(&NO_PUT),
                    no_delete: request.filters.contains(&NO_DELETE),
                    with_previous: request.prev_kv,
                    may_fragment: request.fragment,
                    wants_progress: request.progress_notify,
                    spoken: false,
                    compacted: false,
                };
                let refused = match () {
                    () if !matches!(watcher.end.as_slice(), [] | [0]) && watcher.key >= watcher.end => {
                        Some("mvcc: watcher range is empty")
                    }
                    () if request.watch_id != 0 && self.watchers.contains_key(&request.watch_id) => {
                        Some("mvcc: duplicate watch ID provided on the WatchStream")
                    }
                    () => None,
                };
                if let Some(why) = refused {
                    let (created, canceled, cancel_reason) = (true, true, why.to_owned());
                    let answer = self.answer(NO_WATCHER, revision);
                    return self.send(PbWatchResponse { created, canceled, cancel_reason, ..answer }).await;
                }
                let id = if request.watch_id == 0 { self.free_id() } else { request.watch_id };
                self.watchers.insert(id, watcher);
                self.is_behind = true;
                self.send(PbWatchResponse { created: true, ..self.answer(id, revision) }).await
            }
            PbWatchRequestUnion::CancelRequest(request) => {
                if self.watchers.remove(&request.watch_id).is_none() {
                    return Ok(());
                }
                let answer = self.answer(request.watch_id, self.engine.read().revision());
                self.send(PbWatchResponse { canceled: true, ..answer }).await
            }
            PbWatchRequestUnion::ProgressRequest(_) => {
                self.progress_asked += 1;
                // Everything written before the progress request must be sent before it is
                // answered.
                self.is_behind = true;
                Ok(())
            }
        }
    }

    fn free_id(&mut self) -> i64 {
        while self.watchers.contains_key(&self.next_id) {
            self.next_id += 1;
        }
        self.next_id += 1;
        self.next_id - 1
    }

    /// Sends every watcher one batch of what it has not seen, so that no watcher waits until
    /// another has seen everything. Then sends progress, if no watcher is behind.
    async fn catch_up(&mut self) -> Result<(), ClientGone> {
        if std::mem::take(&mut self.is_behind) {
            let ids: Vec<i64> = self.watchers.keys().copied().collect();
            for id in ids {
                self.send_batch(id).await?;
            }
        }
        if !self.is_behind {
            self.send_progress().await?;
        }
        Ok(())
    }

    async fn send_batch(&mut self, id: i64) -> Result<(), ClientGone> {
        let Some(watcher) = self.watchers.get_mut(&id).filter(|w| !w.compacted) else { return Ok(()) };
        let (piece, revision) = {
            let store = self.engine.read();
            (next_batch(&store, watcher), store.revision())
        };
        match piece {
            Batch::Compacted(compact_revision) => {
                watcher.compacted = true;
                // etcd sends no revision with this answer.
                self.send(PbWatchResponse { canceled: true, compact_revision, ..self.answer(id, 0) }).await
            }
            Batch::Events(events, next) => {
                watcher.next = watcher.next.max(next);
                self.is_behind |= next <= revision;
                if events.is_empty() {
                    return Ok(());
                }
                watcher.spoken = true;
                let may_fragment = watcher.may_fragment;
                self.send_events(id, events, revision, may_fragment).await
            }
        }
    }

    async fn send_events(
        &self,
        id: i64,
        events: Vec<PbEvent>,
        revision: i64,
        may_fragment: bool,
    ) -> Result<(), ClientGone> {
        let pieces = if may_fragment { fragments(events) } else { vec![events] };
        let last = pieces.len() - 1;
        for (index, events) in pieces.into_iter().enumerate() {
            let fragment = index < last;
            self.send(PbWatchResponse { events, fragment, ..self.answer(id, revision) }).await?;
        }
        Ok(())
    }

    async fn send_progress(&mut self) -> Result<(), ClientGone> {
        for _ in 0..std::mem::take(&mut self.progress_asked) {
            let seen = self.watchers.values().filter(|w| !w.compacted).map(|w| w.next - 1).min();
            self.send(self.answer_up_to(NO_WATCHER, seen)).await?;
        }
        if !std::mem::take(&mut self.progress_is_due) {
            return Ok(());
        }
        let mut silent = Vec::new();
        for (id, watcher) in &mut self.watchers {
            if watcher.wants_progress && !watcher.compacted && !std::mem::take(&mut watcher.spoken) {
                silent.push(*id);
            }
        }
        for id in silent {
            let seen = self.watchers.get(&id).map(|watcher| watcher.next - 1);
            self.send(self.answer_up_to(id, seen)).await?;
        }
        Ok(())
    }
}

/// The next thing to send to a watcher.
enum Batch {
    /// The needed history was compacted at this revision.
    Compacted(i64),
    /// Events of whole revisions, and the first revision that they do not include.
    Events(Vec<PbEvent>, i64),
}

fn next_batch(store: &Store, watcher: &Watcher) -> Batch {
    if watcher.next < store.compacted() {
        return Batch::Compacted(store.compacted());
    }
    let span = Span::new(&watcher.key, &watcher.end);
    let (mut events, mut bytes, mut last) = (Vec::new(), 0, 0);
    for (looked_at, event) in store.events(watcher.next).enumerate() {
        let is_full =
            events.len() >= EVENTS_IN_ANSWER || bytes >= BYTES_IN_ANSWER || looked_at >= CHANGES_AT_ONCE;
        if is_full && event.revision() != last {
            return Batch::Events(events, event.revision());
        }
        last = event.revision();
        let unwanted = if event.is_delete() { watcher.no_delete } else { watcher.no_put };
        if !unwanted && span.contains(event.key()) {
            bytes += event.bytes(watcher.with_previous);
            events.push(event.message(watcher.with_previous));
        }
    }
    Batch::Events(events, store.revision() + 1)
}

/// Splits the events of an answer that is too large for one message.
fn fragments(events: Vec<PbEvent>) -> Vec<Vec<PbEvent>> {
    let size = |event: &PbEvent| prost::Message::encoded_len(event);
    let mut pieces = vec![Vec::new()];
    let mut bytes = 0;
    for event in events {
        let more = size(&event);
        if bytes + more > crate::core::REQUEST_BYTES_MAX && bytes > 0 {
            pieces.push(Vec::new());
            bytes = 0;
        }
        bytes += more;
        if let Some(piece) = pieces.last_mut() {
            piece.push(event);
        }
    }
    pieces
}
