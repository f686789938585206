//! The parts of a reason: who holds a limit, for how long a stage stays closed, who waits in a loop.

use crate::limit::{HEADS, Limit};
use crate::names::{HostName, ServiceName};
use crate::time::{EpochSeconds, Span};
use serde::{Deserialize, Serialize};

/// Number of holders that a text names.
const HOLDERS_NAMED: usize = 3;

/// What keeps a host from taking a number of a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LimitDetail {
    /// As many hosts are unavailable as the limit allows.
    Full {
        /// How many hosts may be unavailable.
        max: u32,
        /// How many others hold a claim of it.
        used: usize,
        /// Holders whose claims can be read.
        holders: Vec<HostName>,
    },
    /// Other hosts wait for the same limit and come first.
    Queue {
        /// How many of them there are; more than a few are not counted.
        ahead: usize,
    },
    /// An earlier agent did not write it.
    Unknown {
        /// True if the limit is 0: no host of it starts, whoever is done.
        is_zero: bool,
    },
}

impl LimitDetail {
    /// True if the limit is 0: no host of it starts, whoever is done.
    pub fn is_zero(&self) -> bool {
        match self {
            Self::Full { max, .. } => *max == 0,
            Self::Queue { .. } => false,
            Self::Unknown { is_zero } => *is_zero,
        }
    }

    pub(super) fn text(&self, limit: &Limit) -> String {
        match self {
            Self::Full { max: 0, .. } | Self::Unknown { is_zero: true } => {
                format!("the limit of {limit} is 0")
            }
            Self::Unknown { is_zero: false } => format!("the limit of {limit} is reached"),
            Self::Full { max, used, holders } => {
                let named: Vec<&str> = holders.iter().take(HOLDERS_NAMED).map(HostName::as_str).collect();
                let more = match used.saturating_sub(named.len()) {
                    0 => String::new(),
                    more if named.is_empty() => format!("{more} whose claims cannot be read"),
                    more => format!(" and {more} more"),
                };
                let named = named.join(", ");
                format!("{used} of at most {max} hosts of {limit} are unavailable: {named}{more}")
            }
            Self::Queue { ahead: 0 } => {
                format!("it takes its place among the hosts that wait for the limit of {limit}")
            }
            Self::Queue { ahead: 1 } => format!("1 host waits for the limit of {limit} before it"),
            Self::Queue { ahead } => {
                let at_least = if *ahead < HEADS as usize { "" } else { "at least " };
                format!("{at_least}{ahead} hosts wait for the limit of {limit} before it")
            }
        }
    }
}

/// A soak that has begun: all hosts up to a stage are through, and are observed before the next stage opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageSoak {
    /// When it ends, by the clock of the host that started its timer; `None` before that. A failure ends it earlier,
    /// and a new leader of the store delays it: it grants each lease again.
    pub ends: Option<EpochSeconds>,
}

/// The hosts that a stage waits for all keep their claims after their proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageHold {
    /// The one that was proven last.
    pub host: HostName,
    /// Number of the others.
    pub others: usize,
    /// How long they keep their claims.
    pub length: Span,
    /// When that is over for the last one, by its clock. Then it validates once more.
    pub ends: EpochSeconds,
}

/// A host that waits for a service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaitingHost {
    pub host: HostName,
    pub service: ServiceName,
}

/// Says how many hosts failed.
pub fn over_budget(failed: usize, budget: u32) -> String {
    let hosts = if failed == 1 { "host" } else { "hosts" };
    format!("{failed} {hosts} failed, {budget} tolerated")
}

/// Returns a text like `a waits for x on b, b waits for y on a`.
pub fn describe_loop(hosts: &[WaitingHost]) -> String {
    let next = hosts.iter().cycle().skip(1);
    let parts = hosts.iter().zip(next);
    let parts: Vec<String> = parts
        .map(|(waiting, next)| format!("{} waits for {} on {}", waiting.host, waiting.service, next.host))
        .collect();
    parts.join(", ")
}
