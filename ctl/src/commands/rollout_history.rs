//! `rollout history` and `rollout queue`: what became of the last rollouts, and which hosts wait for their turn.

use super::context::Store;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use planning::rollout::RolloutHistory;
use schema::instruction::Instruction;
use schema::keys::{Key, Prefix};
use schema::limit::Limit;
use schema::names::HostName;
use serde_json::json;

/// Prints what became of the rollouts that the store remembers, the newest first.
pub(super) async fn history(store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
    let keys = [Key::Store, Key::CurrentVersion];
    let found = store.session.read_all(&keys, &[Prefix::Rollouts], None, store.deadline).await?;
    let history = RolloutHistory::read(&found);
    output.view(&history);
    if history.rollouts.is_empty() {
        return Err(Failure::no(
            "no rollout has a record yet, because only rollouts under a policy have one; `orchestrate events` shows who triggered what",
        ));
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
