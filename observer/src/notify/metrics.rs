//! Counts what was sent to whom.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    receiver: String,
    result: &'static str,
}

/// The attempts to send messages. Copies count together.
#[derive(Debug, Clone, Default)]
pub(crate) struct NotifyMetrics(Family<Labels, Counter>);

impl NotifyMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let help = "Attempts to send messages about incidents, by receiver and result: `sent`, `failed` or `dropped`";
        registry.register("observer_notifications", help, self.0.clone());
    }

    /// Counts an attempt, or what was dropped after many.
    pub(super) fn count(&self, receiver: &str, result: &'static str) {
        self.0.get_or_create(&Labels { receiver: receiver.to_owned(), result }).inc();
    }
}
