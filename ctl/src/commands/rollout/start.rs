//! `rollout start`, `rollout pause` and `rollout resume`, and what is known of the present rollout.

use super::freeze_list::note_freezes;
use super::freezes;
use super::freezes::{FreezeAnswer, UnfreezeAnswer};
use super::trigger::{self, TriggerUpdate};
use crate::commands::answers;
use crate::commands::context::Store;
use crate::commands::verb::{About, Answer, Group, Past, Spec, Verb};
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use clap::Args;
use etcd_session::StoreError;
use fleet::views::FreezeView;
use planning::rollout::RolloutFailures;
use schema::freeze::FreezeScope;
use schema::frozen::FrozenBy;
use schema::instruction::Instruction;
use schema::keys::{Key, Prefix};
use schema::snapshot::KeySnapshot;
use schema::writes::rollout::resume;

/// Make the fleet run a version, as trigger_update does
#[derive(Debug, Args)]
pub(crate) struct Start {
    #[command(flatten)]
    update: TriggerUpdate,
}

impl Verb for Start {
    const SPEC: Spec = Spec {
        name: "rollout start",
        group: Group::Rollout,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[],
        answer: Answer::OfOther,
        examples: &[("orchestrate rollout start v43", "the same as trigger_update v43")],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        trigger::trigger_update("rollout start", self.update, store, output).await
    }
}

/// Keep every host from starting an update, until `rollout resume`
#[derive(Debug, Args)]
pub(crate) struct Pause {
    /// Reason, shown to other operators
    #[arg(long, default_value = "")]
    reason: String,
}

impl Verb for Pause {
    const SPEC: Spec = Spec {
        name: "rollout pause",
        group: Group::Rollout,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[Exit::Refused],
        answer: Answer::Json(answers::of::<crate::commands::rollout::freezes::FreezeAnswer>),
        examples: &[("orchestrate rollout pause --reason 'db is slow'", "no host starts an update")],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let found = freezes::read(&FreezeScope::Pause, store).await?;
        let Some(pause) = FrozenBy::all(&found).next() else {
            return freezes::add("rollout pause", &FreezeScope::Pause, None, self.reason, store, output)
                .await;
        };
        output::note(&format!("nothing was written: {pause}"));
        let answer = FreezeAnswer { freeze: FreezeView(pause), revision: found.revision, changed: false };
        output.answer(&answer, |_| {});
        Ok(Exit::Yes)
    }
}

/// End the pause, or the halt of a rollout in which too many hosts failed
#[derive(Debug, Args)]
pub(crate) struct Resume {
    /// End the pause, and leave a halt as it is
    #[arg(long, conflicts_with = "halt")]
    pause: bool,
    /// End the halt, and leave a pause as it is
    #[arg(long)]
    halt: bool,
}

impl Verb for Resume {
    const SPEC: Spec = Spec {
        name: "rollout resume",
        group: Group::Rollout,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[Exit::Refused],
        answer: Answer::Json(answers::of::<crate::commands::rollout::freezes::UnfreezeAnswer>),
        examples: &[("orchestrate rollout resume", "hosts start again")],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let only = match (self.pause, self.halt) {
            (true, _) => Some(Stop::Pause),
            (_, true) => Some(Stop::Halt),
            _ => None,
        };
        resume_updates(only, store, output).await
    }
}

/// What `rollout resume` ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    Pause,
    Halt,
}

/// Ends the pause or the halt. If both stand, the operator says which: who ends a pause has not looked at failures
/// that came since.
async fn resume_updates(only: Option<Stop>, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
    let found = freezes::read(&FreezeScope::Pause, store).await?;
    let pauses: Vec<FrozenBy> = FrozenBy::all(&found).collect();
    let failures = read_failures(Some(found.revision), store).await?;
    let halted = failures.filter(|(failures, _)| failures.halt.is_some());
    if let (Some((failures, _)), None, false) = (&halted, only, pauses.is_empty()) {
        pauses.iter().for_each(|pause| output::note(&pause.to_string()));
        failures.lines().iter().for_each(|line| output::note(line));
        return Err(Failure::refused(
            "updates are paused, and the rollout is halted; nothing was changed. `orchestrate rollout resume --pause` ends the pause, `--halt` the halt: then the hosts that failed do not count any more",
        ));
    }
    if only != Some(Stop::Halt) && !pauses.is_empty() {
        let exit = freezes::remove("rollout resume", &pauses, &found, store, output).await?;
        if let Some((failures, _)) = &halted {
            failures.lines().iter().for_each(|line| output::note(&format!("still: {line}")));
        }
        return Ok(exit);
    }
    let was_halted = match halted {
        Some((failures, found)) if only != Some(Stop::Pause) => {
            end_halt(failures, &found, store).await?;
            true
        }
        _ => {
            output::note(match only {
                None => "updates are neither paused nor halted",
                Some(Stop::Pause) => "updates are not paused",
                Some(Stop::Halt) => "the rollout is not halted",
            });
            false
        }
    };
    let answer = UnfreezeAnswer { removed: Vec::new(), revision: found.revision, changed: was_halted };
    output.sorted_answer(&answer, |_| {});
    note_freezes(store).await;
    Ok(Exit::Yes)
}

/// Reads the failures of the present rollout, as of a revision if one is given; `None` if it has no record. Also
/// returns all keys of the rollout.
pub(crate) async fn read_failures(
    at: Option<i64>,
    store: &Store<'_>,
) -> Result<Option<(RolloutFailures, KeySnapshot)>, StoreError> {
    let (session, deadline) = (&store.session, store.deadline);
    let found = session.read_all(&[Key::Store, Key::CurrentVersion], &[], at, deadline).await?;
    let Some(Instruction { order, .. }) = Instruction::find(&found) else { return Ok(None) };
    let found = session.read_all(&[], &[Prefix::Rollout(order)], Some(found.revision), deadline).await?;
    Ok(RolloutFailures::read(order, &found).map(|failures| (failures, found)))
}

/// Ends the halt of a rollout, if nothing changed since it was read.
async fn end_halt(failures: RolloutFailures, found: &KeySnapshot, store: &Store<'_>) -> Result<(), Failure> {
    let RolloutFailures { order, record, failed, .. } = failures;
    let record = record.ok_or_else(|| {
        Failure::cannot_tell("the rollout is halted, and its record cannot be read; trigger a version")
    })?;
    let act = store.act("rollout resume", None).await?;
    let transaction = resume(order, record, found, &act);
    if !store.session.commit_act(&transaction, &act, store.deadline).await?.applied {
        return Err(Failure::cannot_tell(
            "the rollout changed during the command; nothing was written, repeat the command",
        ));
    }
    output::note_hosts(
        "the rollout is not halted any more; the failures of these hosts do not count any more",
        failed.iter().map(|(host, _)| host.as_str()),
    );
    Ok(())
}
