//! `/orchestrate/progress/<id>/<host>`, and `closing` and `ended` of `/orchestrate/rollouts/<id>/`: how far the hosts
//! got in a rollout, which of them looks for its end, and that it has ended.

use crate::codec;
use crate::time::{EpochSeconds, Span};
use serde::{Deserialize, Serialize};

/// `/orchestrate/progress/<id>/<host>`: how far a host got in a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostProgress {
    pub state: ProgressState,
    pub at: EpochSeconds,
    /// How long the host was not available until then, by its own clock; `None` before its proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took: Option<Span>,
    /// How long its validation took, if the host keeps its claims after its proof: it validates once more before it
    /// releases them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation: Option<Span>,
    /// True if an agent wrote it: while the host runs, its agent is live. Scripts leave the host without one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub agent: bool,
}

impl HostProgress {
    /// Returns the progress of a host that a script updates, since this time.
    pub fn new(state: ProgressState, at: EpochSeconds) -> Self {
        Self { state, at, took: None, validation: None, agent: false }
    }

    /// Returns the progress of a host that its agent updates, since this time.
    pub fn of_agent(state: ProgressState, at: EpochSeconds) -> Self {
        Self { agent: true, ..Self::new(state, at) }
    }
}

/// How far a host got in a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgressState {
    /// The host started, and neither is proven nor gave up.
    Started,
    /// The host was proven.
    Proven,
    /// The host gave up. It tries again only after an hour or more, or when an operator asks.
    GaveUp,
}

/// `/orchestrate/rollouts/<id>/ended`: every host of the rollout has the version, or
/// will not get it without help.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// When that was noticed.
    pub at: EpochSeconds,
    /// The host that noticed it.
    pub by: String,
}

/// `/orchestrate/rollouts/<id>/closing`: the host that opens the stages of the rollout and notices its end. The lease
/// of the key is kept alive only while that host does so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closing {
    /// Since when, by the clock of that host.
    pub at: EpochSeconds,
    pub by: String,
    /// How many agents ran when it read the fleet; 0 before that. The more there are, the less often each of them asks
    /// whether the mark is still there.
    #[serde(default)]
    pub hosts: u32,
}

impl Closing {
    /// Returns what a mark says. That of an older agent is only the name of its host.
    pub fn read(value: &[u8]) -> Self {
        codec::read(value).unwrap_or_else(|_| Self {
            at: EpochSeconds(0),
            by: String::from_utf8_lossy(value).into_owned(),
            hosts: 0,
        })
    }
}
