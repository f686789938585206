//! What became of the rollouts that the store remembers.

use crate::text::Text;
use planning::calendar::rfc3339;
use planning::rollout::failed_hosts;
use schema::instruction::Instruction;
use schema::keys::{self, Key, Prefix};
use schema::order::InstructionOrder;
use schema::snapshot::KeySnapshot;
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt;

/// The rollouts that the store remembers, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RolloutHistory {
    /// The rollouts.
    pub rollouts: Vec<PastRollout>,
    /// The revision of the store at which they were read.
    pub revision: i64,
}

impl RolloutHistory {
    /// The header of [`PastRollout::row`].
    pub const HEADER: [&'static str; 6] = ["VERSION", "AT", "BY", "FAILED", "OUTCOME", "REASON"];

    /// Reads the history. `found` holds the identity of the store, the desired version, and all rollouts.
    pub fn read(found: &KeySnapshot) -> Self {
        let present = Instruction::find(found).map(|instruction| instruction.order);
        let orders = found.in_range(&Prefix::Rollouts).filter_map(|(key, _)| match Key::parse(key) {
            Ok(Key::RolloutRecord(order)) => Some(order),
            _ => None,
        });
        let mut rollouts: Vec<PastRollout> =
            orders.map(|order| PastRollout::read(order, Some(order) == present, found)).collect();
        rollouts.reverse();
        Self { rollouts, revision: found.revision }
    }
}

impl fmt::Display for RolloutHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Text::default();
        text.table(Self::HEADER, self.rollouts.iter().map(PastRollout::row));
        text.fmt(f)
    }
}

/// What became of a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PastOutcome {
    /// Every host is through with it.
    Ended,
    /// The rollout is the present one, and hosts start.
    GoesOn,
    /// Too many hosts failed, and nobody resumed it.
    Halted,
    /// Its policy could not be used.
    Refused,
    /// Another version was triggered before its end.
    Replaced,
    /// Its record cannot be read.
    Unreadable,
}

impl fmt::Display for PastOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ended => "ended",
            Self::GoesOn => "goes on",
            Self::Halted => "halted",
            Self::Refused => "refused",
            Self::Replaced => "replaced",
            Self::Unreadable => "cannot be read",
        })
    }
}

/// One rollout of the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PastRollout {
    /// What identifies it.
    pub rollout_id: String,
    /// The version; `None` if its record cannot be read.
    pub version: Option<String>,
    /// Who triggered it.
    pub by: Option<String>,
    /// The reason that was given.
    pub reason: Option<String>,
    /// True if it led back to an earlier version.
    pub rollback: bool,
    /// When it was triggered (RFC 3339).
    pub at: Option<String>,
    /// When it ended (RFC 3339); `None` if it did not.
    pub ended_at: Option<String>,
    /// What became of it.
    pub outcome: PastOutcome,
    /// Why it is halted or was refused.
    pub why: Option<String>,
    /// How many hosts failed and were not healed.
    pub failed_count: usize,
}

impl PastRollout {
    fn read(order: InstructionOrder, is_present: bool, found: &KeySnapshot) -> Self {
        let record = found.value_of(keys::RolloutRecord(order));
        let ended = found.read(keys::Ended(order));
        let halt = found.read(keys::Halt(order)).map(Result::ok);
        let refused = record.as_ref().and_then(|record| record.refused.clone());
        let outcome = match (&record, &ended, &halt) {
            (None, ..) => PastOutcome::Unreadable,
            (_, Some(_), _) => PastOutcome::Ended,
            (_, _, Some(_)) => PastOutcome::Halted,
            _ if refused.is_some() => PastOutcome::Refused,
            _ if is_present => PastOutcome::GoesOn,
            _ => PastOutcome::Replaced,
        };
        let ended = ended.and_then(Result::ok);
        Self {
            rollout_id: order.to_string(),
            version: record.as_ref().map(|record| record.version.to_string()),
            by: record.as_ref().and_then(|record| record.by.clone()),
            reason: record.as_ref().and_then(|record| record.reason.clone()),
            rollback: record.as_ref().is_some_and(|record| record.rollback),
            at: record.as_ref().and_then(|record| rfc3339(record.at)),
            ended_at: ended.and_then(|ended| rfc3339(ended.at)),
            outcome,
            why: halt.flatten().map(|halt| halt.why).or(refused),
            // Also those that an operator forgave.
            failed_count: failed_hosts(order, 0, found).count(),
        }
    }

    /// Returns the rollout as the columns of a table: version, time, who, failed hosts, outcome, reason.
    pub fn row(&self) -> [String; 6] {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let outcome = match &self.why {
            Some(why) if self.outcome != PastOutcome::Ended => format!("{}: {why}", self.outcome),
            _ => self.outcome.to_string(),
        };
        let reason = match (self.rollback, text(&self.reason)) {
            (true, reason) if reason.is_empty() => "rollback".to_owned(),
            (true, reason) => format!("rollback: {reason}"),
            (false, reason) => reason,
        };
        [text(&self.version), text(&self.at), text(&self.by), self.failed_count.to_string(), outcome, reason]
    }
}
