//! The shape of the agent's loops. A pass brings everything up to date, whatever woke the loop. Then
//! the loop waits until an event comes or the time that the pass named. Passes never overlap.
//! The wait for events does no work, so that it can be dropped at any time without losing an event.
//! Events that come during a pass are handled after it.

use crate::clock;
use schema::time::EpochSeconds;
use std::fmt::Debug;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Why a pass runs.
#[derive(Debug)]
pub(crate) enum Wake<E> {
    Started,
    /// The time that the last pass named has come.
    TimeCame,
    Event(E),
}

/// A loop of the agent.
pub(crate) trait Reconcile: Send {
    /// What can wake the loop.
    type Event: Debug + Send;

    /// Waits for the next event. `None` means that a task on which this one depends has ended. The
    /// future is dropped if the time of the next pass or the stop comes first, so it must not lose
    /// an event then.
    fn next_event(&mut self) -> impl Future<Output = Option<Self::Event>> + Send;

    /// Names the event for `/status`, in one or two words.
    fn reason(event: &Self::Event) -> &'static str;

    /// Returns how long to wait after an event, so that one pass handles those that follow as well.
    fn debounce(&self, _event: &Self::Event) -> Duration {
        Duration::ZERO
    }

    /// Runs one pass. Returns when to run the next one if no event comes before.
    fn pass(&mut self, wake: Wake<Self::Event>) -> impl Future<Output = Option<Instant>> + Send;
}

/// The last pass of a loop, as `/status` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LastPass {
    pub at: EpochSeconds,
    pub reason: &'static str,
    /// Number of passes since this process started.
    pub count: u64,
}

/// Where a loop notes its passes. Nobody waits for them.
pub(crate) type Passes = watch::Sender<Option<LastPass>>;

/// Runs a loop until a task on which it depends has ended.
pub(crate) async fn run<R: Reconcile>(mut task: R, passes: Passes) {
    run_until(&mut task, &passes, std::future::pending::<()>()).await;
}

/// Runs a loop until `stop` resolves, and returns what it resolves to; `None` if a task on which the
/// loop depends has ended. A pass is never interrupted.
pub(crate) async fn run_until<R: Reconcile, S>(
    task: &mut R,
    passes: &Passes,
    stop: impl Future<Output = S>,
) -> Option<S> {
    let mut stop = std::pin::pin!(stop);
    let mut wake = Wake::Started;
    let mut count = 0;
    loop {
        count += 1;
        let reason = match &wake {
            Wake::Started => "start",
            Wake::TimeCame => "timer",
            Wake::Event(event) => R::reason(event),
        };
        passes.send_replace(Some(LastPass { at: clock::now().wall, reason, count }));
        let requeue_at = task.pass(wake).await;
        let next = async {
            tokio::select! {
                event = task.next_event() => event.map(Wake::Event),
                () = sleep_until(requeue_at) => Some(Wake::TimeCame),
            }
        };
        let next = tokio::select! {
            // Stopping comes first, because the signal to stop also ends some tasks.
            biased;
            stopped = stop.as_mut() => return Some(stopped),
            next = next => next?,
        };
        if let Wake::Event(event) = &next {
            let debounce = task.debounce(event);
            if !debounce.is_zero() {
                tokio::time::sleep(debounce).await;
            }
        }
        wake = next;
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc;

    /// A loop that notes why each pass ran, and at which second.
    struct Notes {
        events: mpsc::Receiver<&'static str>,
        notes: mpsc::UnboundedSender<String>,
        began: Instant,
    }

    impl Reconcile for Notes {
        type Event = &'static str;

        async fn next_event(&mut self) -> Option<&'static str> {
            self.events.recv().await
        }

        fn reason(event: &&'static str) -> &'static str {
            event
        }

        fn debounce(&self, event: &&'static str) -> Duration {
            Duration::from_secs(if *event == "slow" { 5 } else { 0 })
        }

        async fn pass(&mut self, wake: Wake<&'static str>) -> Option<Instant> {
            let _ = self.notes.send(format!("{wake:?} {}", self.began.elapsed().as_secs()));
            Some(Instant::now() + Duration::from_secs(60))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_runs_for_events_and_times_and_ends_with_its_events() {
        let (sender, events) = mpsc::channel(4);
        let (notes, mut seen) = mpsc::unbounded_channel();
        let passes = Passes::default();
        let last = passes.subscribe();
        let task = tokio::spawn(run(Notes { events, notes, began: Instant::now() }, passes));
        tokio::time::sleep(Duration::from_secs(70)).await;
        sender.send("fast").await.unwrap();
        sender.send("slow").await.unwrap();
        tokio::time::sleep(Duration::from_secs(10)).await;
        drop(sender);
        task.await.unwrap();
        let mut all = Vec::new();
        while let Ok(note) = seen.try_recv() {
            all.push(note);
        }
        assert_eq!(all, ["Started 0", "TimeCame 60", "Event(\"fast\") 70", "Event(\"slow\") 75"]);
        let last = last.borrow().expect("a pass");
        assert_eq!((last.reason, last.count), ("slow", 4));
    }
}
