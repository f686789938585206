//! The delivery of messages to one receiver: each until it has it.

use super::http_client::SendError;
use super::metrics::NotifyMetrics;
use crate::incidents::{IncidentStore, Message, Receiver};
use std::sync::Arc;
use std::time::Duration;

/// Shortest and longest wait before a failed message is sent again.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(5 * 60);

/// A message that was refused so often is dropped, so that others need not wait for it. That takes about an hour.
const REFUSALS_MAX: u32 = 20;

/// What the delivery to one receiver needs.
pub(super) struct Delivery {
    pub(super) receiver: Receiver,
    pub(super) kept: Arc<IncidentStore>,
    metrics: NotifyMetrics,
    /// Attempts that failed since the last that did not.
    failures: u32,
}

impl Delivery {
    pub(super) fn new(receiver: Receiver, kept: &Arc<IncidentStore>, metrics: &NotifyMetrics) -> Self {
        Self { receiver, kept: kept.clone(), metrics: metrics.clone(), failures: 0 }
    }

    /// Notes how an attempt to send these messages ended, and waits if it failed.
    pub(super) async fn note(&mut self, messages: Vec<Message>, result: Result<(), SendError>) {
        let name = self.receiver.name.clone();
        self.metrics.count(&name, if result.is_ok() { "sent" } else { "failed" });
        match result {
            Ok(()) => {
                if std::mem::take(&mut self.failures) > 0 {
                    tracing::info!(receiver = name, "the receiver gets messages again");
                }
                self.confirm(messages).await;
            }
            Err(SendError::Gone(why)) => {
                self.metrics.count(&name, "dropped");
                tracing::error!(
                    receiver = name,
                    "the receiver says that it is no more, a message was dropped: {why}"
                );
                self.confirm(messages).await;
            }
            Err(SendError::Refused(why)) if self.failures + 1 >= REFUSALS_MAX => {
                self.failures = 0;
                self.metrics.count(&name, "dropped");
                tracing::error!(receiver = name, "what the receiver refuses was dropped: {why}");
                self.confirm(messages).await;
            }
            Err(why) => {
                if self.failures == 0 {
                    tracing::warn!(receiver = name, "a message was not delivered; it is sent again: {why}");
                } else {
                    tracing::debug!(receiver = name, failures = self.failures, "not delivered: {why}");
                }
                let wanted = if let SendError::Busy(_, wait) = why { wait } else { Duration::ZERO };
                tokio::time::sleep(retry_after(self.failures).max(wanted)).await;
                self.failures += 1;
            }
        }
    }

    async fn confirm(&self, messages: Vec<Message>) {
        let (kept, receiver) = (self.kept.clone(), self.receiver.clone());
        // If this fails, the messages are sent twice.
        let _ = tokio::task::spawn_blocking(move || kept.confirm(&receiver, &messages)).await;
    }
}

/// Returns the wait after this many failures and one more.
fn retry_after(failures: u32) -> Duration {
    RETRY_MIN.saturating_mul(1 << failures.min(16)).min(RETRY_MAX)
}

/// Sends messages, the oldest first, each until the receiver has it.
pub(super) async fn deliver<F: Future<Output = Result<(), SendError>>>(
    mut delivery: Delivery,
    send: impl Fn(Message) -> F,
) {
    let mut added = delivery.kept.subscribe();
    loop {
        added.mark_unchanged();
        match delivery.kept.oldest(&delivery.receiver) {
            Some(message) => {
                let result = send(message.clone()).await;
                delivery.note(vec![message], result).await;
            }
            None if added.changed().await.is_err() => return,
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet::incidents::{Incident, IncidentId, IncidentKind, IncidentTimes, Severity, Situation};
    use schema::time::EpochSeconds;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn a_receiver_that_is_away_is_tried_ever_less_often() {
        let waits = [0, 1, 2, 8, 9, 100].map(|failures| retry_after(failures).as_secs());
        assert_eq!(waits, [1, 2, 4, 256, 300, 300]);
    }

    /// Checks how often a message is sent within an hour, and whether it still waits, if each attempt ends so.
    async fn check(result: Result<(), SendError>, (sent, waiting): (u32, usize)) {
        let directory = tempfile::tempdir().unwrap();
        let receiver = Receiver { name: "a".into(), min_severity: Severity::Info };
        let kept = IncidentStore::open_file(directory.path(), vec![receiver.clone()]).unwrap();
        let kind = IncidentKind::Failed;
        let incident = Incident {
            incident_id: IncidentId::new("l", None, kind, "x"),
            kind,
            severity: kind.severity(),
            summary: String::new(),
            hint: String::new(),
            hosts: Vec::new(),
            rollout_id: None,
        };
        let situation = Situation { incidents: vec![incident], ..Situation::default() };
        let times = IncidentTimes { hold_for: Duration::ZERO, clear_for: Duration::ZERO };
        kept.advance(Some(situation), EpochSeconds(10), &times);
        let (kept, count) = (Arc::new(kept), AtomicU32::new(0));
        let delivery = Delivery::new(receiver, &kept, &NotifyMetrics::default());
        let send = |_| {
            count.fetch_add(1, Ordering::Relaxed);
            let result = result.clone();
            async move { result }
        };
        let _ = tokio::time::timeout(Duration::from_secs(3600), deliver(delivery, send)).await;
        assert_eq!(
            (count.into_inner(), kept.waiting_counts()),
            (sent, vec![("a".into(), waiting)]),
            "{result:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_is_dropped_and_what_fails_is_not() {
        check(Ok(()), (1, 0)).await;
        check(Err(SendError::Refused("400".into())), (REFUSALS_MAX, 0)).await;
        // After 1 + 2 + … + 256 s it is sent each 300 s.
        check(Err(SendError::Failed("500".into())), (9 + 1 + 10, 1)).await;
        check(Err(SendError::Gone("410".into())), (1, 0)).await;
        // It asks for a longer wait each time.
        check(Err(SendError::Busy("429".into(), Duration::from_secs(700))), (6, 1)).await;
    }
}
