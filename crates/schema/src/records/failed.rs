//! `/orchestrate/rollouts/<id>/failed/<host>` and `/orchestrate/rollouts/<id>/halt`: what went wrong in a
//! rollout, and that it stopped for that reason.

use crate::codec;
use crate::entry::Entry;
use crate::names::Version;
use crate::records::Cause;
use crate::time::EpochSeconds;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a host failed in a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// An attempt failed.
    Attempt,
    /// The host was proven and stopped working soon after.
    Withdrawal,
    /// The host vanished while it was being updated.
    Lost,
}

/// `/orchestrate/rollouts/<id>/failed/<host>`: the host failed in this rollout. It counts against the failure
/// budget from its first write on, until it is healed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedHost {
    /// When it failed.
    pub at: EpochSeconds,
    /// How.
    pub kind: FailureKind,
    /// What failed, for people.
    pub reason: String,
    /// The cause, if a step failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// True if the host is proven since. Then it does not count.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub healed: bool,
    /// Set if the host failed again after it was healed. Then it does not count from the first write of its key on, but
    /// from this revision on; 0 stands for that of this write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<i64>,
}

impl FailedHost {
    /// Returns this failure as one that is written over another one of the same host, which was written at a revision.
    /// It is no new failure unless the host was healed.
    #[must_use]
    pub fn over(self, before: &Self, written_at: i64) -> Self {
        let again = match before.again {
            _ if before.healed => Some(0),
            Some(0) => Some(written_at),
            earlier => earlier,
        };
        Self { again, ..self }
    }

    /// Returns the revision from which the failure counts that an entry of the store has.
    pub fn counts_from(&self, entry: &Entry) -> i64 {
        match self.again {
            None => entry.create_revision,
            Some(0) => entry.mod_revision,
            Some(earlier) => earlier,
        }
    }
}

/// `/orchestrate/rollouts/<id>/halt`: no host starts in this rollout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Halt {
    /// When it was halted.
    pub at: EpochSeconds,
    /// The host that saw it, or the script.
    pub by: String,
    /// Why, for people.
    pub why: String,
    /// The version to which the hosts let the fleet go back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolled_back_to: Option<Version>,
}

impl Halt {
    /// Returns why a rollout is halted, from the value of its key. The halt stands whatever the value says.
    pub fn reason(value: &[u8]) -> String {
        match codec::read::<Self>(value) {
            Ok(halt) => halt.why,
            Err(error) => format!("its reason cannot be read: {error}"),
        }
    }
}
