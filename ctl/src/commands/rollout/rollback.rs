//! `rollout rollback`: makes the fleet go back to a version that worked.

use super::trigger;
use crate::commands::answers;
use crate::commands::context::{Store, version_of};
use crate::commands::verb::{About, Answer, Group, Past, Spec, Verb};
use crate::completion;
use crate::exit::{Exit, Failure};
use crate::local::LocalState;
use crate::output::{self, Output};
use clap::Args;
use fleet::views::{PastOutcome, RolloutHistory};
use planning::rollout::good_version;
use schema::instruction::Instruction;
use schema::keys::{self, Key, Prefix};
use schema::names::Version;
use schema::records::Trigger;
use schema::snapshot::KeySnapshot;
use schema::writes::operator;
use schemars::JsonSchema;
use serde::Serialize;

/// Make the fleet go back to the last version that worked
#[derive(Debug, Args)]
pub(crate) struct Rollback {
    /// Go back to this version
    #[arg(long, value_name = "V", add = completion::versions())]
    to: Option<String>,
    /// Reason, shown to other operators
    #[arg(long, default_value = "")]
    reason: String,
}

impl Verb for Rollback {
    const SPEC: Spec = Spec {
        name: "rollout rollback",
        group: Group::Rollout,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[Exit::Refused],
        answer: Answer::Json(answers::of::<RollbackAnswer<'_>>),
        examples: &[
            ("orchestrate rollout rollback", "back to the last version whose rollout ended"),
            ("orchestrate rollout rollback --to v42", "back to v42"),
        ],
    };

    /// Without a version the fleet goes back to the last one whose rollout ended.
    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let to = self.to.as_deref().map(version_of).transpose()?;
        store.prepare_act();
        let keys = [Key::CurrentVersion, Key::Store, Key::RolloutPolicy, Key::Trigger];
        let found = store.session.read_all(&keys, &[Prefix::Rollouts], None, store.deadline).await?;
        let Some(instruction) = Instruction::find(&found) else {
            return Err(Failure::refused("the fleet has no desired version; nothing was changed"));
        };
        let from = &instruction.version;
        let target = to.or_else(|| good_of(&instruction, &found)).ok_or_else(|| {
        let example = version_before(from, &found);
        let example = example.map(|before| format!(", such as --to {before} for the version before it"));
        Failure::refused(format!(
            "no version before {from} is known to have worked, because none ended its rollout under the policy; use --to{}. Nothing was changed",
            example.unwrap_or_default()
        ))
    })?;
        if target == *from {
            output::note(&format!("{target} is the desired version already; nothing was written"));
            let revision = instruction.order.revision;
            let answer = RollbackAnswer { version: &target, from_version: from, revision, changed: false };
            output.sorted_answer(&answer, |_| {});
            return Ok(Exit::Yes);
        }
        let act = store.act("rollout rollback", Some(&self.reason)).await?;
        let transaction = operator::roll_back(&target, &found, &act);
        let committed = store.session.commit_act(&transaction, &act, store.deadline).await?;
        if !committed.applied {
            return Err(Failure::cannot_tell(
                "the desired version changed during the command; nothing was written, repeat the command",
            ));
        }
        LocalState::of(store.settings).keep_current_version(&target);
        let record = trigger::write_record(committed.revision, None, store).await;
        output::note(&format!("rolling back from {from} to {target} at revision {}", committed.revision));
        let revision = committed.revision;
        let answer = RollbackAnswer { version: &target, from_version: from, revision, changed: true };
        output.sorted_answer(&answer, |_| {});
        trigger::if_started(&target, record)
    }
}

/// What `rollout rollback` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RollbackAnswer<'a> {
    version: &'a Version,
    from_version: &'a Version,
    revision: i64,
    changed: bool,
}

/// Returns the version that was desired before, unless a rollout of it was halted.
fn version_before(version: &Version, found: &KeySnapshot) -> Option<Version> {
    let before = Trigger::find(found)?.from.filter(|before| before != version)?;
    let rollouts = RolloutHistory::read(found).rollouts;
    let mut of_it = rollouts.iter().filter(|rollout| rollout.version.as_deref() == Some(before.as_str()));
    let is_halted = of_it.any(|rollout| rollout.outcome == PastOutcome::Halted);
    (!is_halted).then_some(before)
}

/// Returns the version to go back to, as the record of the present rollout has it. Without a record it is the
/// one that the record would have.
fn good_of(instruction: &Instruction, found: &KeySnapshot) -> Option<Version> {
    match found.get(&Key::RolloutRecord(instruction.order)) {
        Some(record) => keys::RolloutRecord::read(&record.value).ok()?.good,
        None => good_version(instruction, found),
    }
}
