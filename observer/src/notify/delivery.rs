//! The delivery of messages to one receiver: each until it has it.

use super::metrics::NotifyMetrics;
use crate::incidents::{KeptIncidents, Message, Receiver};
use std::sync::Arc;
use std::time::Duration;

/// Shortest and longest wait before a failed message is sent again.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(5 * 60);

/// What the delivery to one receiver needs.
pub(super) struct Delivery {
    pub(super) receiver: Receiver,
    pub(super) kept: Arc<KeptIncidents>,
    metrics: NotifyMetrics,
    /// Attempts that failed since the last that did not.
    failures: u32,
}

impl Delivery {
    pub(super) fn new(receiver: Receiver, kept: &Arc<KeptIncidents>, metrics: &NotifyMetrics) -> Self {
        Self { receiver, kept: kept.clone(), metrics: metrics.clone(), failures: 0 }
    }

    /// Notes how an attempt to send these messages ended, and waits if it failed.
    pub(super) async fn note(&mut self, messages: Vec<Message>, result: Result<(), String>) {
        let name = self.receiver.name.clone();
        self.metrics.count(&name, result.is_ok());
        match result {
            Ok(()) => {
                if std::mem::take(&mut self.failures) > 0 {
                    tracing::info!(receiver = name, "the receiver gets messages again");
                }
                let (kept, receiver) = (self.kept.clone(), self.receiver.clone());
                // If this fails, the messages are sent twice.
                let _ = tokio::task::spawn_blocking(move || kept.confirm(&receiver, &messages)).await;
            }
            Err(why) => {
                if self.failures == 0 {
                    tracing::warn!(receiver = name, "a message was not delivered; it is sent again: {why}");
                } else {
                    tracing::debug!(receiver = name, failures = self.failures, "not delivered: {why}");
                }
                tokio::time::sleep(retry_after(self.failures)).await;
                self.failures += 1;
            }
        }
    }
}

/// Returns the wait after this many failures and one more.
fn retry_after(failures: u32) -> Duration {
    RETRY_MIN.saturating_mul(1 << failures.min(16)).min(RETRY_MAX)
}

/// Sends messages, the oldest first, each until the receiver has it.
pub(super) async fn deliver<F: Future<Output = Result<(), String>>>(
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

    #[test]
    fn a_receiver_that_is_away_is_tried_ever_less_often() {
        let waits = [0, 1, 2, 8, 9, 100].map(|failures| retry_after(failures).as_secs());
        assert_eq!(waits, [1, 2, 4, 256, 300, 300]);
    }
}
