//! `rollout history` and `rollout queue`: what became of the last rollouts, and which hosts wait for their turn.

use crate::commands::answers;
use crate::commands::context::Store;
use crate::commands::verb::{About, Answer, Group, Past, Spec, Verb};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use clap::Args;
use fleet::views::RolloutHistory;
use schema::instruction::Instruction;
use schema::keys::{Key, Prefix};
use schema::limit::Limit;
use schema::names::{HostName, Version};
use schemars::JsonSchema;
use serde::Serialize;

/// List the last rollouts and their outcomes
#[derive(Debug, Args)]
pub(crate) struct History;

impl Verb for History {
    const SPEC: Spec = Spec {
        name: "rollout history",
        group: Group::Rollout,
        about: About::Hosts,
        past: Past::Answers,
        exits: &[Exit::No],
        answer: Answer::Json(answers::of::<RolloutHistory>),
        examples: &[("orchestrate rollout history", "who triggered what, and how it ended")],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
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
}

/// What `rollout queue` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct QueueAnswer<'a> {
    version: &'a Version,
    rollout_id: String,
    queue: Vec<QueuedHost<'a>>,
    revision: i64,
}

/// A host of the queue.
#[derive(Debug, Serialize, JsonSchema)]
struct QueuedHost<'a> {
    limit: String,
    turn: usize,
    host: &'a HostName,
}

/// A host that waits for its turn.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    limit: Limit,
    /// Its position in the queue; the first one is 1.
    turn: usize,
    host: HostName,
}

/// List the hosts that wait for a limit, in the order in which they go
#[derive(Debug, Args)]
pub(crate) struct Queue;

impl Verb for Queue {
    const SPEC: Spec = Spec {
        name: "rollout queue",
        group: Group::Rollout,
        about: About::Hosts,
        past: Past::Answers,
        exits: &[Exit::No, Exit::Refused],
        answer: Answer::Json(answers::of::<QueueAnswer<'_>>),
        examples: &[("orchestrate rollout queue", "which hosts wait for a limit")],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
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
        let hosts = waiting.iter().map(|Waiting { limit, turn, host }| QueuedHost {
            limit: limit.path(),
            turn: *turn,
            host,
        });
        let answer = QueueAnswer {
            version: &version,
            rollout_id: order.to_string(),
            queue: hosts.collect(),
            revision: found.revision,
        };
        output.sorted_answer(&answer, |output| {
            let row = |Waiting { limit, turn, host }: &Waiting| {
                [limit.to_string(), turn.to_string(), host.to_string()]
            };
            output.table(["LIMIT", "TURN", "HOST"], waiting.iter().map(row));
        });
        Ok(Exit::of(waiting.is_empty()))
    }
}
