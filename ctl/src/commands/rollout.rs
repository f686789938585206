//! `rollout pause`, `rollout resume` and the other verbs of `rollout`, and what is known of the present rollout.

use super::context::Store;
use super::trigger::{self, TriggerUpdate};
use super::watch::{self, Repeat};
use super::{freezes, rollback, rollout_history, rollout_options, rollout_status};
use crate::exit::{Exit, Failure};
use crate::output::{self, Output, rfc3339};
use clap::Subcommand;
use etcd_session::StoreError;
use planning::rollout::failed_hosts;
use schema::codec;
use schema::freeze::FreezeScope;
use schema::frozen::FrozenBy;
use schema::instruction::Instruction;
use schema::keys::{Key, Prefix};
use schema::names::HostName;
use schema::order::InstructionOrder;
use schema::records::{FailedHost, Halt, RolloutRecord};
use schema::snapshot::KeySnapshot;
use schema::writes::rollout::resume;
use serde_json::{Value, json};
use std::cell::Cell;

/// Verbs of `rollout`.
#[derive(Debug, Subcommand)]
pub(crate) enum RolloutVerb {
    /// Make the fleet run a version, as trigger_update does
    Start(TriggerUpdate),
    /// Keep every host from starting an update, until `rollout resume`
    Pause {
        /// Reason, for others to read
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// End the pause, and the halt of a rollout in which too many hosts failed
    Resume,
    /// Print how far the rollout of the desired version is: 0 it ended, 1 it goes on, 3 it is held
    Status {
        /// Show it again whenever it changes, until it ended or is halted
        #[arg(long, conflicts_with = "wait")]
        watch: bool,
        /// Wait until it ended, is halted or was refused, at most for this long
        #[arg(long, value_name = "DURATION")]
        wait: Option<String>,
    },
    /// List the last rollouts, and what became of them
    History,
    /// List the hosts that wait for a limit, in the order in which they go: 0 none, 1 some
    Queue,
    Set(rollout_options::Set),
    /// Do not wait for this host: another one takes its place if a stage chose it
    Excuse {
        /// The host
        host: String,
        /// Reason, for others to read
        #[arg(long)]
        reason: String,
    },
    /// Make the fleet go back to the last version that worked
    Rollback {
        /// Go back to this version
        #[arg(long, value_name = "V")]
        to: Option<String>,
        /// Reason, for others to read
        #[arg(long, default_value = "")]
        reason: String,
    },
}

/// Runs a verb of `rollout`.
pub(super) async fn rollout(
    verb: RolloutVerb,
    store: &Store<'_>,
    output: &mut Output,
) -> Result<Exit, Failure> {
    match verb {
        RolloutVerb::Start(options) => trigger::trigger_update("rollout start", options, store, output).await,
        RolloutVerb::Set(options) => rollout_options::set(options, store, output).await,
        RolloutVerb::Pause { reason } => pause(reason, store, output).await,
        RolloutVerb::Resume => resume_updates(store, output).await,
        RolloutVerb::Status { watch, wait } => {
            let repeat = Repeat::read(watch, wait.as_deref())?;
            let followed = Cell::new(None);
            watch::repeat(repeat, store, output, async |store, output| {
                rollout_status::status(&followed, store, output).await
            })
            .await
        }
        RolloutVerb::History => rollout_history::history(store, output).await,
        RolloutVerb::Queue => rollout_history::queue(store, output).await,
        RolloutVerb::Excuse { host, reason } => rollout_status::excuse(&host, &reason, store, output).await,
        RolloutVerb::Rollback { to, reason } => {
            rollback::roll_back(to.as_deref(), &reason, store, output).await
        }
    }
}

async fn pause(reason: String, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
    let found = freezes::read(&FreezeScope::Pause, store).await?;
    let Some(pause) = FrozenBy::all(&found).next() else {
        return freezes::add("rollout pause", &FreezeScope::Pause, (None, reason), store, output).await;
    };
    output::note(&format!("nothing was written: {pause}"));
    let mut answer = freezes::json_of(&pause);
    answer["revision"] = json!(found.revision);
    answer["changed"] = json!(false);
    output.answer(&answer, |_| {});
    Ok(Exit::Yes)
}

async fn resume_updates(store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
    let found = freezes::read(&FreezeScope::Pause, store).await?;
    let pauses: Vec<FrozenBy> = FrozenBy::all(&found).collect();
    let was_halted = end_halt(store).await?;
    if !pauses.is_empty() {
        return freezes::remove("rollout resume", &pauses, &found, store, output).await;
    }
    if !was_halted {
        output::note("updates are neither paused nor halted");
    }
    let answer = json!({ "removed": [], "revision": found.revision, "changed": was_halted });
    output.answer(&answer, |_| {});
    freezes::note_freezes(store).await;
    Ok(Exit::Yes)
}

/// What went wrong in the present rollout.
#[derive(Debug)]
pub(super) struct RolloutFailures {
    order: InstructionOrder,
    /// The record; `None` if it cannot be read.
    record: Option<RolloutRecord>,
    /// Why the rollout is halted, if it is; the inner `None` if that cannot be read.
    halt: Option<Option<Halt>>,
    failed: Vec<(HostName, Option<FailedHost>)>,
    found: KeySnapshot,
}

impl RolloutFailures {
    /// Reads the failures of the present rollout, as of a revision if one is given; `None` if it has no
    /// record.
    pub(super) async fn read(at: Option<i64>, store: &Store<'_>) -> Result<Option<Self>, StoreError> {
        let (session, deadline) = (&store.session, store.deadline);
        let found = session.read_all(&[Key::Store, Key::CurrentVersion], &[], at, deadline).await?;
        let Some(Instruction { order, .. }) = Instruction::find(&found) else { return Ok(None) };
        let found = session.read_all(&[], &[Prefix::Rollout(order)], Some(found.revision), deadline).await?;
        let Some(record) = found.get(&Key::RolloutRecord(order)) else { return Ok(None) };
        let record = codec::read::<RolloutRecord>(&record.value).ok();
        let halt = found.get(&Key::Halt(order)).map(|entry| codec::read(&entry.value).ok());
        let counted_from = record.as_ref().map_or(0, |record| record.counted_from);
        let failed = failed_hosts(order, counted_from, &found).collect();
        Ok(Some(Self { order, record, halt, failed, found }))
    }

    /// True if the rollout has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.found.get(&Key::Ended(self.order)).is_some()
    }

    fn budget(&self) -> Option<u32> {
        self.record.as_ref()?.budget
    }

    /// Returns lines for people: that the fleet goes back, that the rollout is halted, and which hosts failed.
    pub(super) fn lines(&self) -> Vec<String> {
        let halted = self.halt.as_ref().map(|halt| match halt {
            Some(Halt { at, by, why, .. }) => {
                let since = rfc3339(*at).map(|at| format!(" at {at}")).unwrap_or_default();
                format!("the rollout is halted: {why}; host {by} saw it{since}; `orchestrate rollout resume`")
            }
            None => "the rollout is halted; `orchestrate rollout resume`".to_owned(),
        });
        let rollback = self.record.as_ref().filter(|record| record.rollback).map(|record| {
            let by = record.by.as_deref().unwrap_or("nobody knows whom");
            let why = record.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            format!("rolled back to {} by {by}{why}", record.version)
        });
        let budget = self.budget().filter(|_| !self.failed.is_empty());
        let budget = budget.map(|budget| format!("failure budget: {} of {budget} used", self.failed.len()));
        let failed = self.failed.iter().filter(|_| budget.is_some()).map(|(host, failed)| match failed {
            Some(failed) => format!("  {host}: {}", failed.reason),
            None => format!("  {host}: its failure cannot be read"),
        });
        let failed: Vec<String> = failed.collect();
        rollback.into_iter().chain(halted).chain(budget).chain(failed).collect()
    }

    pub(super) fn json(&self) -> Value {
        let failed = self.failed.iter().map(|(host, failed)| {
            json!({
                "host": host,
                "kind": failed.as_ref().map(|failed| failed.kind),
                "reason": failed.as_ref().map(|failed| &failed.reason),
                "at": failed.as_ref().and_then(|failed| rfc3339(failed.at)),
            })
        });
        json!({
            "halted": self.halt.is_some(),
            "why": self.halt.as_ref().and_then(|halt| halt.as_ref().map(|halt| &halt.why)),
            "budget": self.budget(),
            "ended": self.has_ended(),
            "good": self.record.as_ref().and_then(|record| record.good.as_ref()),
            "rollback": self.record.as_ref().is_some_and(|record| record.rollback),
            "by": self.record.as_ref().and_then(|record| record.by.as_ref()),
            "reason": self.record.as_ref().and_then(|record| record.reason.as_ref()),
            "failed": failed.collect::<Vec<_>>(),
        })
    }
}

/// Ends the halt of the present rollout. Returns true if there was one.
async fn end_halt(store: &Store<'_>) -> Result<bool, Failure> {
    let Some(RolloutFailures { order, record, failed, found, .. }) =
        RolloutFailures::read(None, store).await?.filter(|failures| failures.halt.is_some())
    else {
        return Ok(false);
    };
    let record = record.ok_or_else(|| {
        Failure::cannot_tell("the rollout is halted, and its record cannot be read; trigger a version")
    })?;
    let act = store.act("rollout resume", None).await?;
    let transaction = resume(order, record, &found, &act);
    if !store.session.commit_act(&transaction, &act, store.deadline).await?.applied {
        return Err(Failure::cannot_tell(
            "the rollout changed during the command; nothing was written, repeat the command",
        ));
    }
    output::note_hosts("the rollout goes on; the failures of these hosts do not count any more", {
        failed.iter().map(|(host, _)| host.as_str())
    });
    Ok(true)
}
