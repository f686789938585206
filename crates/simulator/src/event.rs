//! What happens in a simulated fleet: requests to the store, their answers, and events at a time.

use crate::laws::Intent;
use crate::script::Act;
use crate::store::{Change, Committed};
use planning::rollout::Holders;
use schema::instruction::Instruction;
use schema::keys::{Key, Prefix};
use schema::names::{HostName, Token};
use schema::snapshot::KeySnapshot;
use schema::transaction::Transaction;

/// One task of an agent that talks to the store; each waits for at most one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Task {
    Loop,
    Claim,
    Mirror,
    Rollout,
    End,
}

/// A request to the store.
#[derive(Debug, Clone)]
pub(crate) enum Call {
    Commit {
        transaction: Transaction,
        intent: Intent,
    },
    Read(Vec<Key>),
    ReadAll(Vec<Key>, Vec<Prefix>),
    /// What a host reads about its rollout.
    Rollout(HostName, Instruction),
    /// What a host reads about the hosts that keep it waiting.
    Holders(Holders),
    Grant(i64),
    KeepAlive(i64),
    SecondsLeft(i64),
}

/// The answer to a request.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Committed(Committed, i64),
    Read(KeySnapshot),
    Granted(i64),
    KeptAlive(bool),
    SecondsLeft(Option<i64>),
    /// The store could not be reached: the request was certainly not executed.
    NotSent,
    /// No answer came: the request may have been executed, or may be later.
    Lost,
}

/// Who sent a request, and on which connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sender {
    pub(crate) machine: usize,
    pub(crate) process: u64,
    pub(crate) task: Task,
    pub(crate) request: u64,
    pub(crate) connection: u64,
}

/// Something that happens at a time.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// A request reaches the store. `answers` is false if the client has given it up.
    Arrives {
        sender: Sender,
        call: Call,
        answers: bool,
    },
    /// An answer reaches its client.
    Answers {
        sender: Sender,
        answer: Answer,
    },
    /// Changes reach the watch of an agent.
    Delivers {
        machine: usize,
        process: u64,
        connection: u64,
        changes: Vec<Change>,
    },
    /// The agent notices that its connection broke.
    Breaks {
        machine: usize,
        process: u64,
        connection: u64,
    },
    /// A time that a task waits for has come.
    Due {
        machine: usize,
        process: u64,
        task: Task,
        timer: u64,
    },
    StepEnds {
        machine: usize,
        boot: u64,
        run: Token,
    },
    /// Leases may have ended.
    LeasesEnd,
    /// The agent of a machine starts.
    AgentStarts {
        machine: usize,
    },
    Boots {
        machine: usize,
    },
    /// The version of a machine switches it off for this time, if it still runs in this boot.
    Falls {
        machine: usize,
        boot: u64,
        lasts: u64,
    },
    /// The connection of a machine works again.
    LinkHeals {
        machine: usize,
    },
    /// The number of an event of the scenario.
    Scripted(usize),
    /// An operator's transaction reaches the store.
    OperatorCommits(Transaction),
    /// An operator's command writes the record of the rollout.
    OperatorResolves,
    /// The laws about time are checked.
    LawsLook,
    Heals,
    /// The operator looks whether the last instruction stands.
    OperatorLooks,
    /// Something that a task of an agent watches of its rollout has changed.
    RolloutChanged {
        machine: usize,
        process: u64,
        task: Task,
    },
    /// The task that looks for the end of the rollout goes on, which stood still.
    LooksAgain {
        machine: usize,
        process: u64,
    },
    /// What a script says happens.
    Acts(Box<Act>),
}
