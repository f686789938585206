//! Follows the rollout while it keeps this host from starting. A host that may start, or has nothing to
//! start, does not look at freezes and limits: the start transaction compares them.
//!
//! Everything that a decision needs is read at one revision, and again whenever it changes. Watches only
//! say that something changed. A host far back in a queue watches one ticket, so a release wakes a few
//! hosts and not the fleet.

use super::prefetched_read::{FoundRollout, has_all};
use super::transactions::{JudgedStore, halt, look_after, write_record};
use super::watches::FollowedRanges;
use crate::clock;
use crate::reconcile::{Reconcile, Wake};
use etcd_session::{Deadline, FeedEvent, Session, StoreError, jitter};
use planning::rollout::{
    Author, Holders, RecordTask, RolloutView, WatchedQueue, first_reads, opened_delay, second_reads,
};
use schema::instruction::Instruction;
use schema::keys::{Key, Prefix};
use schema::names::HostName;
use schema::reads::Read;
use schema::snapshot::{Entry, KeySnapshot};
use schema::writes::Fence;
use schema::writes::rollout::begin_resolving;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// What the host wants to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WantedRollout {
    /// History of the store in which it is wanted. A restored store may lack what an earlier one had.
    pub(crate) history: u64,
    /// The instruction that the host is about to start.
    pub(crate) instruction: Instruction,
    /// The fence of this host's writes; `None` without a claim of the host name.
    pub(crate) fence: Option<Fence>,
    /// A revision at which a start was refused, or a ticket was taken: what is known must not be older.
    pub(crate) since: i64,
    /// What the transaction read that was refused, or took the ticket.
    pub(crate) found: Option<Arc<FoundRollout>>,
}

/// What is known of the rollout, and in which history of the store; `None` while it is not wanted, or not
/// known yet.
pub(crate) type KnownRollout = Option<Arc<(u64, RolloutView)>>;

/// Longest time after which everything is read again, though no watch said that it changed.
const READ_INTERVAL: Duration = Duration::from_secs(30);
/// The same for a host far back in a queue, whose turn comes when the ticket that it watches is gone.
const QUEUE_READ_INTERVAL: Duration = Duration::from_secs(300);
/// Interval at which the first host that waits for a limit looks whether the agents of the holders run.
pub(crate) const HOLDERS_INTERVAL: Duration = Duration::from_secs(20);
/// Time after a change in which others that belong to it arrive.
const DEBOUNCE: Duration = Duration::from_millis(20);
/// Longest delay until a host writes a record that is missing. The whole fleet sees that it is missing, and
/// mostly another one has written it by then.
const RECORD_SPREAD: Duration = Duration::from_millis(500);
/// Delay after a read that failed.
const RETRY_DELAY: Duration = Duration::from_secs(2);

/// The task that follows the rollout while that is wanted.
pub(crate) struct RolloutTask {
    session: Session,
    host: HostName,
    wanted: watch::Receiver<Option<WantedRollout>>,
    sender: watch::Sender<KnownRollout>,
    followed: FollowedRanges,
    /// What was wanted when the rollout was read last.
    read_for: Option<WantedRollout>,
    /// The revision at which it was read last.
    read_at: i64,
    /// The revision of the newest change that was received: what was found before it lacks the change.
    changed_at: i64,
    /// The queue in which the host is one of the first, with what changed since then; `None` if each change is news.
    queue: Option<WatchedQueue>,
    /// The ranges that are followed as soon as what is followed now has changed.
    next_ranges: Vec<Prefix>,
    /// What was read then, with the record of the rollout if it was written since.
    found: KeySnapshot,
    /// What was read of limits then.
    limit_reads: Vec<Read>,
    /// Longest delay after a change that may open the stage of this host, if it waited for its stage then. All other
    /// hosts of the stage see it as well.
    stage_delay: Option<Duration>,
    /// When it is read again, though nothing says that it changed.
    again_at: Instant,
    /// Since when the record of the rollout has been missing, and when this host may write it.
    lacks_record: Option<(Instant, Instant)>,
    /// When this host looks again after the holders of the claims that it waits for.
    looks_after_at: Instant,
}

/// What wakes the task.
#[derive(Debug)]
pub(crate) enum RolloutEvent {
    WantedChanged,
    Feed(Box<(u64, FeedEvent)>),
}

impl RolloutTask {
    /// Returns the task, and what it finds.
    pub(crate) fn new(
        session: Session,
        host: HostName,
        wanted: watch::Receiver<Option<WantedRollout>>,
    ) -> (Self, watch::Receiver<KnownRollout>) {
        let (sender, receiver) = watch::channel(None);
        let followed = FollowedRanges::new(session.clone());
        let task = Self {
            session,
            host,
            wanted,
            sender,
            followed,
            read_for: None,
            read_at: 0,
            changed_at: 0,
            queue: None,
            next_ranges: Vec::new(),
            found: KeySnapshot::default(),
            limit_reads: Vec::new(),
            stage_delay: None,
            again_at: Instant::now(),
            lacks_record: None,
            looks_after_at: Instant::now(),
        };
        (task, receiver)
    }

    /// Reads the rollout, all at one revision.
    async fn read(&mut self, wanted: &WantedRollout) -> Result<RolloutView, StoreError> {
        let (deadline, order) = (Deadline::of_request(), wanted.instruction.order);
        let of = &wanted.instruction;
        let first = first_reads(&self.host, order);
        let known = if self.session.marks().history == wanted.history { wanted.found.as_ref() } else { None };
        // What is older than `since` would not be handed out.
        let read_at = self.read_at.max(wanted.since - 1);
        let known = known.filter(|known| known.is_newer(wanted.history, read_at, self.changed_at));
        let (reads, mut found) = match known.and_then(|known| known.with_all(&first)) {
            Some((reads, found)) => (reads.to_vec(), found.clone()),
            None => {
                // Mostly the same limits count the host as before, so that one request is enough.
                let reads = [&first[..], &self.limit_reads].concat();
                let found = self.session.read_judged(wanted.history, &reads, None, deadline).await?;
                (reads, found)
            }
        };
        (self.read_at, self.changed_at) = (found.revision, found.revision);
        let more = second_reads(&self.host, of, &found);
        if !has_all(&reads, &more) {
            let at = Some(found.revision);
            let rest = self.session.read_judged(wanted.history, &more, at, deadline).await?;
            found.entries.extend(rest.entries);
        }
        // Without a record, what may be needed is read the next time too.
        let has_record = found.get(&Key::RolloutRecord(order)).is_some();
        let possible = || reads.iter().filter(|read| !first.contains(read)).cloned().collect();
        self.limit_reads = if has_record { more } else { possible() };
        let view = RolloutView::new(&self.host, of, &found, clock::now());
        self.found = found;
        Ok(view)
    }

    /// Writes the record of the rollout, if this is the host that does. Returns true if it did something,
    /// so that the rollout is to be read again.
    async fn write_record(&self, wanted: &WantedRollout, task: RecordTask) -> Result<bool, StoreError> {
        let (deadline, order) = (Deadline::of_request(), wanted.instruction.order);
        match (task, wanted.fence) {
            (RecordTask::Begin, Some(fence)) => {
                let begun = self.session.commit(&begin_resolving(&self.host, fence, order), deadline).await?;
                if !begun.applied {
                    return Ok(false);
                }
            }
            (RecordTask::Write, _) => {}
            (RecordTask::Begin, None) | (RecordTask::None, _) => return Ok(false),
        }
        write_record(&self.session, wanted.history, &wanted.instruction).await?;
        Ok(true)
    }

    /// Notes a revision up to which a feed showed changes. Returns true if the rollout was read before it.
    fn has_changed(&mut self, revision: i64) -> bool {
        let is_newer = revision > self.read_at;
        if is_newer {
            self.changed_at = self.changed_at.max(revision);
        }
        is_newer
    }

    /// True if these changes may let the host start, or say something else than who waits and who holds.
    fn is_news(&mut self, changes: &[(String, Option<Entry>)]) -> bool {
        let Some(queue) = &mut self.queue else { return true };
        // Each change counts, whatever the others say.
        changes.iter().fold(false, |news, (key, entry)| queue.take(key, entry.is_some()) || news)
    }

    /// True if a ticket is gone that a host far back in a queue watches, so that its turn comes soon.
    fn comes_near(&self, event: &RolloutEvent) -> bool {
        let RolloutEvent::Feed(event) = event else { return false };
        let FeedEvent::Apply(_, changes) = &event.1 else { return false };
        let is_gone = |(key, entry): &(String, Option<Entry>)| {
            entry.is_none() && matches!(Key::parse(key), Ok(Key::Ticket(..)))
        };
        !self.next_ranges.is_empty() && changes.iter().any(is_gone)
    }

    /// Takes over from a new record which limits count this host, so that one request reads them as well.
    fn expect_limits(&mut self, instruction: &Instruction, changes: &[(String, Option<Entry>)]) {
        let record = Key::RolloutRecord(instruction.order).to_string();
        let Some((_, Some(entry))) = changes.iter().find(|(key, _)| *key == record) else { return };
        self.found.entries.insert(record, entry.clone());
        self.limit_reads = second_reads(&self.host, instruction, &self.found);
    }

    /// Takes over from the opening of a stage how long the hosts that waited for it spread.
    fn expect_stage(&mut self, changes: &[(String, Option<Entry>)]) {
        let mut opened = changes.iter().filter_map(|(key, entry)| opened_delay(key, &entry.as_ref()?.value));
        if let (Some(longest), Some(delay)) = (&mut self.stage_delay, opened.next()) {
            *longest = delay;
        }
    }

    /// Reads the rollout and hands it out. Returns when to read it again.
    async fn look(&mut self, wanted: &WantedRollout) -> Result<Duration, StoreError> {
        let mut view = self.read(wanted).await?;
        let now = Instant::now();
        let (since, writes_at) =
            *self.lacks_record.get_or_insert_with(|| (now, now + RECORD_SPREAD.mul_f64(jitter())));
        let task = view.record_task(since.elapsed());
        let task = if now < writes_at { RecordTask::None } else { task };
        if self.write_record(wanted, task).await? {
            view = self.read(wanted).await?;
        }
        if let Some(fence) = wanted.fence {
            let author = Author { by: self.host.to_string(), at: clock::now().wall };
            let halts = view.halts(&wanted.instruction.version, author);
            match halt(&self.session, &self.host, halts, fence).await {
                Ok(false) => {}
                Ok(true) => view = self.read(wanted).await?,
                // What was read still counts: this host does not start.
                Err(error) => tracing::warn!(%error, "the rollout could not be halted"),
            }
        }
        self.lacks_record = if view.lacks_record() { Some((since, writes_at)) } else { None };
        self.stage_delay = if view.waits_for_stage() { Some(view.stage_delay(1.0)) } else { None };
        let interval = if view.is_far_back() { QUEUE_READ_INTERVAL } else { READ_INTERVAL };
        // Before it has a ticket, a host does not know who comes first.
        let holders = if view.is_queued() { view.holders() } else { None };
        let looks_after = holders.is_some();
        // The host may have its turn now, so what it may do about others comes later.
        self.hand_out(wanted, view);
        if let Some(holders) = holders
            && self.looks_after_at <= Instant::now()
        {
            self.look_after(wanted, &holders).await?;
        }
        let interval = interval.mul_f64(0.5 + jitter());
        if self.lacks_record.is_some() && now < writes_at {
            return Ok(writes_at - now);
        }
        // The first host that waits looks after the others.
        Ok(if looks_after { interval.min(HOLDERS_INTERVAL) } else { interval })
    }

    /// Hands out what was read, and follows what may change it.
    fn hand_out(&mut self, wanted: &WantedRollout, view: RolloutView) {
        self.queue = WatchedQueue::of(&view);
        self.next_ranges = view.next_ranges();
        self.followed.follow(&view.ranges(), view.revision);
        let is_of_history = self.session.marks().history == wanted.history;
        if is_of_history && view.revision >= wanted.since {
            self.sender.send_replace(Some(Arc::new((wanted.history, view))));
        }
    }

    /// Looks after the hosts whose claims keep this one waiting, and reads again if it did something.
    async fn look_after(&mut self, wanted: &WantedRollout, holders: &Holders) -> Result<(), StoreError> {
        let Some(fence) = wanted.fence else { return Ok(()) };
        self.looks_after_at = Instant::now() + HOLDERS_INTERVAL;
        let judged = JudgedStore { history: wanted.history, fence };
        match look_after(&self.session, &self.host, holders, judged).await {
            Ok(false) => {}
            Ok(true) => {
                self.looks_after_at = Instant::now();
                let view = self.read(wanted).await?;
                self.hand_out(wanted, view);
            }
            // What was read still counts.
            Err(error) => tracing::warn!(%error, "the holders of claims could not be looked after"),
        }
        Ok(())
    }
}

impl Reconcile for RolloutTask {
    type Event = RolloutEvent;

    async fn next_event(&mut self) -> Option<RolloutEvent> {
        tokio::select! {
            changed = self.wanted.changed() => changed.ok().map(|()| RolloutEvent::WantedChanged),
            event = self.followed.next_event() => Some(RolloutEvent::Feed(Box::new(event))),
        }
    }

    fn reason(event: &RolloutEvent) -> &'static str {
        match event {
            RolloutEvent::WantedChanged => "wanted",
            RolloutEvent::Feed(_) => "store",
        }
    }

    fn debounce(&self, event: &RolloutEvent) -> Duration {
        // One of the first in a queue handles each change at once, because few lead to a read. So does one that is one
        // of the first now.
        if self.queue.is_some() || self.comes_near(event) { Duration::ZERO } else { DEBOUNCE }
    }

    async fn pass(&mut self, wake: Wake<RolloutEvent>) -> Option<Instant> {
        let wanted = self.wanted.borrow_and_update().clone();
        let Some(wanted) = wanted else {
            self.followed.clear();
            self.read_for = None;
            self.lacks_record = None;
            self.queue = None;
            self.next_ranges.clear();
            self.found = KeySnapshot::default();
            self.limit_reads.clear();
            self.sender.send_if_modified(|known| known.take().is_some());
            return None;
        };
        if self.read_for.as_ref().is_some_and(|before| before.history != wanted.history) {
            self.followed.clear();
        }
        let is_event = matches!(wake, Wake::Event(_));
        let comes_near = matches!(&wake, Wake::Event(event) if self.comes_near(event));
        let is_news = match wake {
            Wake::Event(RolloutEvent::Feed(event)) => {
                let (number, event) = *event;
                self.followed.has(number)
                    && match event {
                        FeedEvent::Apply(revision, changes) => {
                            self.has_changed(revision) && {
                                self.expect_limits(&wanted.instruction, &changes);
                                self.expect_stage(&changes);
                                self.is_news(&changes)
                            }
                        }
                        // The range was listed again, and what changed before that is not sent.
                        FeedEvent::InitDone(revision) => self.has_changed(revision),
                        FeedEvent::Connected(_)
                        | FeedEvent::InitApply(_)
                        | FeedEvent::Progress(_)
                        | FeedEvent::UnconfirmedProgress(_)
                        | FeedEvent::Problem(_)
                        | FeedEvent::WentBack(_) => false,
                    }
            }
            Wake::Event(RolloutEvent::WantedChanged) => false,
            Wake::Started | Wake::TimeCame => true,
        };
        // Whatever woke the task, another wish is news: it is marked as seen above.
        if self.read_for.as_ref() == Some(&wanted) {
            if let Some(longest) = self.stage_delay
                && is_news
                && is_event
            {
                self.again_at = self.again_at.min(Instant::now() + longest.mul_f64(jitter()));
            }
            if !is_news || is_event && self.stage_delay.is_some() {
                return Some(self.again_at);
            }
        }
        if is_news && comes_near {
            // What was found before the new ranges are followed is not enough.
            self.changed_at = i64::MAX;
            let ranges = std::mem::take(&mut self.next_ranges);
            self.followed.follow_also(&ranges).await;
        }
        let again = match self.look(&wanted).await {
            Ok(again) => again,
            Err(error) => {
                tracing::debug!(%error, "the rollout could not be read");
                RETRY_DELAY
            }
        };
        self.read_for = Some(wanted);
        self.again_at = Instant::now() + again;
        Some(self.again_at)
    }
}
