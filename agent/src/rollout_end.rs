//! Looks whether the rollout has ended, and opens its stages. One host of the fleet does so at a time: it holds a
//! mark in the store. The others ask now and then whether it still does.

use crate::clock;
use crate::reconcile::{Reconcile, Wake};
use crate::rollout_writes::{halt, look_after, write_missing_record};
use etcd_session::{Deadline, Session, StoreError, jitter};
use planning::host::{EndSearch, Looker};
use planning::rollout::{
    ClosingTask, EndTask, SeenMark, closing_reads, closing_task, end_reads, end_task, unchanged,
};
use schema::names::HostName;
use schema::order::InstructionOrder;
use schema::reads::Read;
use schema::records::{Ended, StageOpening};
use schema::snapshot::KeySnapshot;
use schema::transaction::Transaction;
use schema::writes::Fence;
use schema::writes::rollout::begin_closing;
use schema::writes::stage::time_soak;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// A rollout whose end the host wants to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WantedEnd {
    /// History of the store in which the host wants it.
    pub(crate) history: u64,
    /// The rollout.
    pub(crate) search: EndSearch,
    /// The fence of this host's writes.
    pub(crate) fence: Fence,
}

/// Interval at which the host that holds the mark asks whether something changed.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// Interval at which it reads everything, though nothing says so: no comparison sees that a key is gone.
const READ_INTERVAL: Duration = Duration::from_secs(30);
/// Delay after a change of the stages, which often needs another one.
const NEXT_CHANGE: Duration = Duration::from_secs(1);
/// How many times as long as a read takes it waits before the next one: the more hosts, the longer.
const READ_PAUSE: u32 = 20;
/// Mean interval at which the others try to get the mark.
const ASK_INTERVAL: Duration = Duration::from_secs(300);
/// Delay after a request that failed.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// The task that finds out whether a rollout has ended.
pub(crate) struct RolloutEndTask {
    session: Session,
    host: HostName,
    wanted: watch::Receiver<Option<WantedEnd>>,
    sender: watch::Sender<Option<InstructionOrder>>,
    /// The wish that was followed last.
    known: Option<WantedEnd>,
    /// When it is followed again.
    again_at: Instant,
    /// True while this host holds the mark, or may do so. It goes on looking then, though it has no wish of its
    /// own: nobody else looks.
    holds: bool,
    /// The mark of another host.
    seen: Option<SeenMark>,
    /// What was read last while this host held the mark, and when to read everything again.
    read: Option<(KeySnapshot, Instant)>,
}

impl RolloutEndTask {
    /// Returns the task, and the last rollout that is known to have ended.
    pub(crate) fn new(
        session: Session,
        host: HostName,
        wanted: watch::Receiver<Option<WantedEnd>>,
    ) -> (Self, watch::Receiver<Option<InstructionOrder>>) {
        let (sender, receiver) = watch::channel(None);
        let task = Self {
            session,
            host,
            wanted,
            sender,
            known: None,
            again_at: Instant::now(),
            holds: false,
            seen: None,
            read: None,
        };
        (task, receiver)
    }

    /// Looks once. Returns when to look again; `None` if there is nothing more to find out.
    async fn look(&mut self, wanted: &WantedEnd) -> Result<Option<Duration>, StoreError> {
        let (deadline, WantedEnd { history, search: EndSearch { order, .. }, fence }) =
            (Deadline::of_request(), wanted);
        if let Some((found, _)) = self.read.as_ref().filter(|(_, again_at)| Instant::now() < *again_at)
            && self.session.commit(&unchanged(*order, fence.live_lease, found), deadline).await?.applied
        {
            return Ok(Some(LOOK_INTERVAL));
        }
        self.read = None;
        let reads = Read::all(&closing_reads(*order), &[]);
        let found = self.session.read_judged(*history, &reads, None, deadline).await?;
        let later = ASK_INTERVAL.mul_f64(0.5 + jitter());
        let seen = (&mut self.seen, clock::boot_millis());
        let task = closing_task(*order, fence.live_lease, &found, seen);
        self.holds = task == ClosingTask::Look;
        match task {
            ClosingTask::Stop => return Ok(self.stop(*order)),
            ClosingTask::Wait => return Ok(Some(later)),
            ClosingTask::WriteRecord => {
                let by = (&self.host, *fence);
                let is_written = write_missing_record(&self.session, by, *history, *order).await?;
                return Ok(Some(if is_written { NEXT_CHANGE } else { later }));
            }
            ClosingTask::Begin(mark) => {
                let begin = begin_closing(&self.host, *fence, *order, mark);
                // If the answer is lost, the mark may be there, and nobody else looks.
                self.holds = true;
                self.holds = self.session.commit(&begin, deadline).await?.applied;
                if !self.holds {
                    return Ok(Some(later));
                }
            }
            ClosingTask::Look => {}
        }
        self.holds = true;
        let (keys, ranges) = end_reads(*order);
        let begun = Instant::now();
        let found = self.session.read_judged(*history, &Read::all(&keys, &ranges), None, deadline).await?;
        let pause = begun.elapsed() * READ_PAUSE;
        let ended = Ended { at: clock::now().wall, by: self.host.to_string() };
        match end_task(*order, &found, &ended) {
            EndTask::Stop => return Ok(self.stop(*order)),
            EndTask::Wait => {
                self.read = Some((found, begun + READ_INTERVAL.max(pause)));
            }
            EndTask::Stage(transaction) => {
                if self.change_stage(*fence, transaction).await? {
                    return Ok(Some(NEXT_CHANGE.max(pause)));
                }
            }
            EndTask::Soak(stage, length) => {
                let timer = self.session.grant_lease(length.0.as_secs().cast_signed(), deadline).await?;
                let opening = StageOpening { at: ended.at, by: ended.by };
                self.change_stage(*fence, time_soak((*order, stage), timer, &opening, &found)).await?;
            }
            EndTask::LookAfter(holders) => {
                look_after(&self.session, &self.host, &holders, (*history, *fence)).await?;
            }
            EndTask::Halt(halts) => drop(halt(&self.session, &self.host, halts, *fence).await?),
            EndTask::End(mut transaction) => {
                fence.add_to(&mut transaction, &self.host);
                if self.session.commit(&transaction, deadline).await?.applied {
                    tracing::info!(rollout = %order, "the rollout has ended");
                    return Ok(self.stop(*order));
                }
            }
        }
        Ok(Some(LOOK_INTERVAL.max(pause)))
    }

    /// Returns true if the transaction was applied.
    async fn change_stage(&self, fence: Fence, mut transaction: Transaction) -> Result<bool, StoreError> {
        fence.add_to(&mut transaction, &self.host);
        let changed = self.session.commit(&transaction, Deadline::of_request()).await?;
        tracing::info!(applied = changed.applied, "{}", transaction.name);
        Ok(changed.applied)
    }

    fn stop(&mut self, order: InstructionOrder) -> Option<Duration> {
        self.holds = false;
        self.sender.send_replace(Some(order));
        None
    }
}

impl Reconcile for RolloutEndTask {
    type Event = ();

    async fn next_event(&mut self) -> Option<()> {
        self.wanted.changed().await.ok()
    }

    async fn pass(&mut self, _wake: Wake<()>) -> Option<Instant> {
        let wanted = self.wanted.borrow_and_update().clone();
        let history = self.session.marks().history;
        self.holds &= self.known.as_ref().is_some_and(|known| known.history == history);
        let wanted = wanted.or_else(|| self.known.clone().filter(|_| self.holds));
        if wanted == self.known && Instant::now() < self.again_at {
            return wanted.map(|_| self.again_at);
        }
        let is_new = wanted != self.known;
        self.known.clone_from(&wanted);
        let Some(wanted) = wanted else {
            self.sender.send_if_modified(|ended| ended.take().is_some());
            return None;
        };
        if is_new && wanted.search.looker == Looker::Seen && !self.holds {
            self.again_at = Instant::now() + ASK_INTERVAL.mul_f64(0.5 + jitter());
            return Some(self.again_at);
        }
        let delay = match self.look(&wanted).await {
            Ok(delay) => delay,
            Err(error) => {
                tracing::debug!(%error, "it is not known whether the rollout has ended");
                Some(RETRY_DELAY)
            }
        };
        // When nothing is left to find out, the next wish differs.
        self.again_at = Instant::now() + delay.unwrap_or(ASK_INTERVAL);
        delay.map(|_| self.again_at)
    }
}
