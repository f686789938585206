//! `/orchestrate/freezes/…`: why hosts start nothing.

use crate::time::EpochSeconds;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freeze {
    /// Who wrote it.
    pub by: String,
    /// Why, for others to read.
    pub reason: String,
    /// When it was written.
    pub at: EpochSeconds,
    /// When its lease ends at the earliest; `None` if it stands until somebody removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<EpochSeconds>,
}

impl Freeze {
    /// How much longer than it says a freeze may stand before somebody is told: the time of requests, and clocks that
    /// differ a little.
    const MARGIN_SECONDS: u64 = 60;

    /// True if the freeze stands for longer than it says. A new leader of the store lets a lease begin again, and
    /// etcd without a known fix lets every user keep it alive.
    pub fn is_overdue(&self, now: EpochSeconds) -> bool {
        self.until.is_some_and(|until| until.0.saturating_add_unsigned(Self::MARGIN_SECONDS) < now.0)
    }
}
