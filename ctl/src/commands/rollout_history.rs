//! `rollout history` and `rollout queue`: what became of the last rollouts, and which hosts wait for their turn.

use super::context::Store;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use planning::rollout::failed_hosts;
use planning::text::rfc3339;
use schema::codec;
use schema::instruction::Instruction;
use schema::keys::{Key, Prefix};
use schema::limit::Limit;
use schema::names::HostName;
use schema::order::InstructionOrder;
use schema::records::{Ended, Halt, RolloutRecord};
use schema::snapshot::KeySnapshot;
use serde::Serialize;
use serde_json::json;
use std::fmt;

/// What became of a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    /// Every host is through with it.
    Ended,
    /// It is the present one, and hosts start.
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

impl fmt::Display for Outcome {
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
#[derive(Debug, Serialize)]
struct Past {
    rollout_id: String,
    version: Option<String>,
    by: Option<String>,
    reason: Option<String>,
    rollback: bool,
    at: Option<String>,
    ended_at: Option<String>,
    outcome: Outcome,
    /// Why it is halted or was refused.
    why: Option<String>,
    /// How many hosts counted as failed.
    failed_count: usize,
}

impl Past {
    fn read(order: InstructionOrder, is_present: bool, found: &KeySnapshot) -> Self {
        let value = |key: Key| found.get(&key).map(|entry| entry.value.clone());
        let record =
            value(Key::RolloutRecord(order)).and_then(|value| codec::read::<RolloutRecord>(&value).ok());
        let ended = value(Key::Ended(order));
        let halt = value(Key::Halt(order)).map(|value| codec::read::<Halt>(&value).ok());
        let refused = record.as_ref().and_then(|record| record.refused.clone());
        let outcome = match (&record, &ended, &halt) {
            (None, ..) => Outcome::Unreadable,
            (_, Some(_), _) => Outcome::Ended,
            (_, _, Some(_)) => Outcome::Halted,
            _ if refused.is_some() => Outcome::Refused,
            _ if is_present => Outcome::GoesOn,
            _ => Outcome::Replaced,
        };
        let counted_from = record.as_ref().map_or(0, |record| record.counted_from);
        let ended = ended.and_then(|value| codec::read::<Ended>(&value).ok());
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
            failed_count: failed_hosts(order, counted_from, found).count(),
        }
    }

    fn row(&self) -> [String; 6] {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let outcome = match &self.why {
            Some(why) if self.outcome != Outcome::Ended => format!("{}: {why}", self.outcome),
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

/// Prints what became of the rollouts that the store remembers, the newest first.
pub(super) async fn history(store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
    let keys = [Key::Store, Key::CurrentVersion];
    let found = store.session.read_all(&keys, &[Prefix::Rollouts], None, store.deadline).await?;
    let present = Instruction::find(&found).map(|instruction| instruction.order);
    let orders = found.entries.keys().rev().filter_map(|key| match Key::parse(key) {
        Ok(Key::RolloutRecord(order)) => Some(order),
        _ => None,
    });
    let rollouts: Vec<Past> = orders.map(|order| Past::read(order, Some(order) == present, &found)).collect();
    let is_some = !rollouts.is_empty();
    output.answer(&json!({ "rollouts": rollouts, "revision": found.revision }), |output| {
        let header = ["VERSION", "AT", "BY", "FAILED", "OUTCOME", "REASON"];
        output.table(header, rollouts.iter().map(Past::row));
    });
    if !is_some {
        return Err(Failure::no("no rollout has a record; a rollout policy governs none yet"));
    }
    Ok(Exit::Yes)
}

/// A host that waits for its turn.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    limit: Limit,
    /// Its position in the queue; the first one is 1.
    turn: usize,
    host: HostName,
}

/// Prints which hosts wait for a limit of the present rollout, in the order in which they go.
pub(super) async fn queue(store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
    let (session, deadline) = (&store.session, store.deadline);
    let found = session.read_all(&[Key::Store, Key::CurrentVersion], &[], None, deadline).await?;
    let Some(Instruction { order, version }) = Instruction::find(&found) else {
        return Err(Failure::refused("the fleet has no desired version"));
    };
    let tickets = [Prefix::QueuesOf(order)];
    let tickets = session.read_all(&[], &tickets, Some(found.revision), deadline).await?;
    let mut waiting: Vec<Waiting> = Vec::new();
    // The last key of a queue is that of the host that goes first.
    for key in tickets.entries.keys().rev() {
        if let Ok(Key::Ticket(_, limit, _, host)) = Key::parse(key) {
            let turn = waiting.iter().rev().take_while(|before| before.limit == limit).count() + 1;
            waiting.push(Waiting { limit, turn, host });
        }
    }
    waiting.sort();
    let hosts = waiting
        .iter()
        .map(|Waiting { limit, turn, host }| json!({ "limit": limit.path(), "turn": turn, "host": host }));
    let answer = json!({
        "version": version,
        "rollout_id": order.to_string(),
        "queue": hosts.collect::<Vec<_>>(),
        "revision": found.revision,
    });
    output.answer(&answer, |output| {
        let row =
            |Waiting { limit, turn, host }: &Waiting| [limit.to_string(), turn.to_string(), host.to_string()];
        output.table(["LIMIT", "TURN", "HOST"], waiting.iter().map(row));
    });
    Ok(Exit::of(waiting.is_empty()))
}
