//! Looks whether the rollout has ended, and opens its stages. One host of the fleet does so at a time: it holds a
//! mark in the store, and watches the rollout. The others ask now and then whether the mark is still there. The mark is
//! kept alive by the passes of this task alone, so it ends if they do.

use super::transactions::{JudgedStore, halt, look_after, write_missing_record};
use super::watches::FollowedRanges;
use crate::clock;
use crate::reconcile::{Reconcile, Wake};
use etcd_session::{Deadline, FeedEvent, Session, StoreError, jitter};
use planning::host::RolloutDriver;
use planning::rollout::{
    ClosingTask, EndTask, MARK_INTERVAL, MARK_SECONDS, NEWS_DELAY, ask_delay, closing_reads, closing_task,
    end_reads, end_task,
};
use schema::keys::Key;
use schema::names::HostName;
use schema::order::InstructionOrder;
use schema::reads::Read;
use schema::records::{Closing, Ended, StageOpening};
use schema::snapshot::KeySnapshot;
use schema::transaction::Transaction;
use schema::writes::Fence;
use schema::writes::rollout::begin_closing;
use schema::writes::stage::{RolloutStage, time_soak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// What the host may do about the end of its rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WantedDriver {
    /// History of the store for which this is said.
    pub(crate) history: u64,
    /// The rollout whose end the host wants to know; `None` if it wants to know nothing. If it holds the mark, it goes
    /// on looking: nobody else does.
    pub(crate) search: Option<RolloutDriver>,
    /// The fence of this host's writes.
    pub(crate) fence: Fence,
}

/// Delay after a request that failed.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// The mark of this host.
#[derive(Debug, Clone, Copy)]
struct Mark {
    lease: i64,
    history: u64,
    /// When it is kept alive again.
    keep_at: Instant,
    /// The revision at which the fleet was read last; 0 before that.
    read_at: i64,
    /// When the fleet may be read again, and when it is.
    read_again: [Instant; 2],
}

/// The task that finds out whether a rollout has ended.
pub(crate) struct RolloutDriverTask {
    session: Session,
    host: HostName,
    wanted: watch::Receiver<Option<WantedDriver>>,
    sender: watch::Sender<Option<InstructionOrder>>,
    /// The rollout that it looks after.
    search: Option<RolloutDriver>,
    /// When it does something again.
    again_at: Instant,
    /// The mark while this host holds it, or may do so.
    mark: Option<Mark>,
    /// What is followed while this host holds the mark.
    followed: FollowedRanges,
}

impl RolloutDriverTask {
    /// Returns the task, and the last rollout that is known to have ended.
    pub(crate) fn new(
        session: Session,
        host: HostName,
        wanted: watch::Receiver<Option<WantedDriver>>,
    ) -> (Self, watch::Receiver<Option<InstructionOrder>>) {
        let (sender, receiver) = watch::channel(None);
        let followed = FollowedRanges::new(session.clone());
        let (search, again_at, mark) = (None, Instant::now(), None);
        (Self { session, host, wanted, sender, search, again_at, mark, followed }, receiver)
    }

    /// Looks once. Returns when to look again; `None` if there is nothing more to find out.
    async fn look(
        &mut self,
        order: InstructionOrder,
        judged: JudgedStore,
    ) -> Result<Option<Duration>, StoreError> {
        if self.mark.is_none()
            && let Some(found) = self.take_mark(order, judged).await?
        {
            return Ok(found.map(|hosts| ask_delay(hosts, jitter())));
        }
        let Some(mark) = self.mark else { return Ok(Some(RETRY_DELAY)) };
        if mark.read_again[1] <= Instant::now() && !self.look_at_fleet(order, mark, judged).await? {
            return Ok(None);
        }
        self.keep_mark().await
    }

    /// Takes the mark if no other host has it. Returns `None` if it has taken it; else how many agents run, or nothing
    /// if there is nothing more to find out.
    async fn take_mark(
        &mut self,
        order: InstructionOrder,
        judged: JudgedStore,
    ) -> Result<Option<Option<u32>>, StoreError> {
        let JudgedStore { history, fence } = judged;
        let deadline = Deadline::of_request();
        let reads = Read::all(&closing_reads(order), &[]);
        let found = self.session.read_judged(history, &reads, None, deadline).await?;
        let (revision, hosts) = match closing_task(order, &self.host, None, &found) {
            ClosingTask::Stop => {
                self.stop(order);
                return Ok(Some(None));
            }
            ClosingTask::Wait(hosts) => return Ok(Some(Some(hosts))),
            ClosingTask::WriteRecord => {
                let is_written = write_missing_record(&self.session, &self.host, judged, order).await?;
                // With the record it looks soon, as in a fleet of one host.
                return Ok(Some(Some(u32::from(is_written))));
            }
            ClosingTask::Begin(revision, hosts) => (revision, hosts),
            ClosingTask::Look => (found.revision_of(&Key::Closing(order)), 0),
        };
        let lease = self.session.grant_lease(MARK_SECONDS, deadline).await?;
        let now = Instant::now();
        let mark = Mark { lease, history, keep_at: now + MARK_INTERVAL, read_at: 0, read_again: [now; 2] };
        let applied = self.write_mark(order, revision, hosts, &mark, fence).await?;
        if applied {
            self.mark = Some(mark);
            Ok(None)
        } else {
            self.mark = None;
            Ok(Some(Some(hosts)))
        }
    }

    /// Writes the mark. Returns false if another host was faster. If the answer is lost, the mark may be there: the
    /// host finds its own name in it then.
    async fn write_mark(
        &self,
        order: InstructionOrder,
        revision: i64,
        hosts: u32,
        mark: &Mark,
        fence: Fence,
    ) -> Result<bool, StoreError> {
        let closing = Closing { at: clock::now().wall, by: self.host.to_string(), hosts };
        let begin = begin_closing(&self.host, fence, order, revision, mark.lease, &closing);
        Ok(self.session.commit(&begin, Deadline::of_request()).await?.applied)
    }

    /// Keeps the mark alive if that is due. It is called after a look, never instead of one. Returns when to look
    /// again.
    async fn keep_mark(&mut self) -> Result<Option<Duration>, StoreError> {
        let Some(mark) = &mut self.mark else { return Ok(Some(RETRY_DELAY)) };
        let now = Instant::now();
        if mark.keep_at <= now {
            match self.session.keep_own_lease(mark.lease, Deadline::of_request()).await {
                Ok(()) => mark.keep_at = now + MARK_INTERVAL,
                Err(StoreError::LeaseGone { .. }) => {
                    tracing::info!("the mark of the host that looks for the end of the rollout is gone");
                    self.drop_mark();
                    return Ok(Some(ask_delay(0, jitter())));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Some(mark.keep_at.min(mark.read_again[1]).saturating_duration_since(now)))
    }

    /// Reads the fleet and does what follows from that. Returns false if there is nothing more to do.
    async fn look_at_fleet(
        &mut self,
        order: InstructionOrder,
        mark: Mark,
        judged: JudgedStore,
    ) -> Result<bool, StoreError> {
        let deadline = Deadline::of_request();
        let (keys, ranges) = end_reads(order);
        let begun = Instant::now();
        let reads = Read::all(&keys, &ranges);
        let found = self.session.read_judged(judged.history, &reads, None, deadline).await?;
        let took = begun.elapsed();
        if closing_task(order, &self.host, Some(mark.lease), &found) != ClosingTask::Look {
            // It ended while nobody looked, or the rollout has.
            self.drop_mark();
            return Ok(true);
        }
        let ended = Ended { at: clock::now().wall, by: self.host.to_string() };
        let task = end_task(order, &found, &ended);
        self.followed.follow(&task.follows(order), found.revision);
        let again = task.read_again_after(took).map(|delay| begun + took + delay);
        if let Some(mark) = &mut self.mark {
            (mark.read_at, mark.read_again) = (found.revision, again);
        }
        self.perform(order, task, ended, &found, judged).await
    }

    /// Does what follows from what was read. Returns false if there is nothing more to do.
    async fn perform(
        &mut self,
        order: InstructionOrder,
        task: EndTask,
        ended: Ended,
        found: &KeySnapshot,
        judged: JudgedStore,
    ) -> Result<bool, StoreError> {
        let fence = judged.fence;
        let Some(mark) = self.mark else { return Ok(true) };
        match task {
            EndTask::Stop => {
                self.stop(order);
                return Ok(false);
            }
            EndTask::Wait(_) => {}
            EndTask::Tell(hosts) => {
                let revision = found.revision_of(&Key::Closing(order));
                self.write_mark(order, revision, hosts, &mark, fence).await?;
            }
            EndTask::Stage(transaction) => self.change_stage(fence, transaction).await?,
            EndTask::Soak(stage, length) => {
                let seconds = length.0.as_secs().cast_signed();
                let timer = self.session.grant_lease(seconds, Deadline::of_request()).await?;
                let opening = StageOpening { at: ended.at, by: ended.by, hosts: 0 };
                self.change_stage(fence, time_soak(RolloutStage { order, stage }, timer, &opening, found))
                    .await?;
            }
            EndTask::LookAfter(holders) => {
                look_after(&self.session, &self.host, &holders, judged).await?;
            }
            EndTask::Halt(halts) => drop(halt(&self.session, &self.host, halts, fence).await?),
            EndTask::End(mut transaction) => {
                fence.add_to(&mut transaction, &self.host);
                if self.session.commit(&transaction, Deadline::of_request()).await?.applied {
                    tracing::info!(rollout = %order, "the rollout has ended");
                    self.stop(order);
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    async fn change_stage(&self, fence: Fence, mut transaction: Transaction) -> Result<(), StoreError> {
        fence.add_to(&mut transaction, &self.host);
        let changed = self.session.commit(&transaction, Deadline::of_request()).await?;
        tracing::info!(applied = changed.applied, "{}", transaction.name);
        Ok(())
    }

    fn drop_mark(&mut self) {
        self.mark = None;
        self.followed.clear();
    }

    fn stop(&mut self, order: InstructionOrder) {
        self.drop_mark();
        self.sender.send_replace(Some(order));
    }

    /// Takes over that something has changed at a revision: the fleet is read soon.
    fn note_change(&mut self, number: u64, event: &FeedEvent) {
        let (FeedEvent::Apply(revision, _) | FeedEvent::InitDone(revision)) = event else { return };
        let Some(mark) = self.mark.as_mut().filter(|mark| *revision > mark.read_at) else { return };
        if self.followed.has(number) {
            let [earliest, latest] = mark.read_again;
            mark.read_again[1] = latest.min(earliest.max(Instant::now() + NEWS_DELAY));
            self.again_at = self.again_at.min(mark.read_again[1]);
        }
    }

    /// Takes over what the host wants to know. Returns what it may do; `None` if there is nothing to do.
    fn take_wanted(&mut self) -> Option<(InstructionOrder, JudgedStore)> {
        let wanted = self.wanted.borrow_and_update().clone();
        let history = wanted.as_ref().map(|wanted| wanted.history);
        // A host without a claim of its name can write nothing, and a restored store lacks what an earlier one had.
        if self.mark.is_some_and(|mark| Some(mark.history) != history) {
            self.drop_mark();
        }
        let searched = wanted.as_ref().and_then(|wanted| wanted.search);
        let search = if self.mark.is_some() { searched.or(self.search) } else { searched };
        if search != self.search {
            let is_same =
                |search: &RolloutDriver| search.order == self.search.map_or(search.order, |s| s.order);
            let holds = self.mark.is_some() && search.as_ref().is_some_and(is_same);
            if !holds {
                self.drop_mark();
                let delay =
                    search.map_or(Duration::ZERO, |search| search.driver_seen.first_ask_delay(jitter()));
                self.again_at = Instant::now() + delay;
            }
            self.search = search;
        }
        let WantedDriver { history, fence, .. } = wanted?;
        Some((search?.order, JudgedStore { history, fence }))
    }
}

impl Reconcile for RolloutDriverTask {
    type Event = Option<(u64, FeedEvent)>;

    async fn next_event(&mut self) -> Option<Self::Event> {
        tokio::select! {
            changed = self.wanted.changed() => changed.ok().map(|()| None),
            event = self.followed.next_event() => Some(Some(event)),
        }
    }

    fn reason(event: &Self::Event) -> &'static str {
        if event.is_some() { "store" } else { "wanted" }
    }

    async fn pass(&mut self, wake: Wake<Self::Event>) -> Option<Instant> {
        if let Wake::Event(Some((number, event))) = &wake {
            self.note_change(*number, event);
        }
        let Some((order, judged)) = self.take_wanted() else {
            self.sender.send_if_modified(|ended| ended.take().is_some());
            return None;
        };
        if Instant::now() < self.again_at {
            return Some(self.again_at);
        }
        let delay = match self.look(order, judged).await {
            Ok(delay) => delay,
            Err(error) => {
                tracing::debug!(%error, "it is not known whether the rollout has ended");
                Some(RETRY_DELAY)
            }
        };
        // When nothing is left to find out, the next wish differs.
        self.again_at = Instant::now() + delay.unwrap_or_else(|| ask_delay(0, jitter()));
        delay.map(|_| self.again_at)
    }
}
