//! `trigger_update`: makes the fleet run a version.

use super::look_after;
use super::options::{RolloutFlags, check_options};
use super::record;
use crate::commands::answers;
use crate::commands::context::{Store, version_of};
use crate::commands::fleet;
use crate::commands::store::identity::has_brakes;
use crate::commands::verb::{About, Answer, Group, Past, Spec, Verb};
use crate::completion;
use crate::exit::{Exit, Failure};
use crate::local::LocalState;
use crate::output::{self, Output};
use ::fleet::{Fleet, FleetVerdict};
use clap::Args;
use etcd_session::{Deadline, StoreError, TARGET_KEYS};
use planning::rollout::governs;
use schema::instruction::Instruction;
use schema::keys::Key;
use schema::names::Version;
use schema::order::InstructionOrder;
use schema::records::RolloutRecord;
use schema::snapshot::KeySnapshot;
use schema::why_not::WhyNot;
use schema::writes::operator::TargetRequest;
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Duration;

/// Time limit of counting unsettled hosts, which happens after the version is written.
const COUNT_MAX: Duration = Duration::from_secs(3);

/// Make the fleet run a version
#[derive(Debug, Args)]
pub(crate) struct TriggerUpdate {
    /// Version that every host is to run, for example v43
    #[arg(add = completion::versions())]
    version: String,
    /// Refuse (exit 3) unless every host runs the version that is desired now
    #[arg(long = "require-settled")]
    require_settled: bool,
    /// Write nothing if this version is already the current instruction
    #[arg(long = "if-different")]
    if_different: bool,
    /// Reason, shown to other operators
    #[arg(long, default_value = "")]
    reason: String,
    #[command(flatten)]
    rollout: RolloutFlags,
}

impl Verb for TriggerUpdate {
    const SPEC: Spec = Spec {
        name: "trigger_update",
        group: Group::Rollout,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[Exit::Refused],
        answer: Answer::Json(answers::of::<TriggerAnswer<'_>>),
        examples: &[
            ("orchestrate trigger_update v43", "make every host run v43"),
            (
                "orchestrate trigger_update v43 --require-settled --if-different",
                "the same from a job: only if the fleet is settled, and only once",
            ),
            (
                "orchestrate trigger_update v43 --canary 1 --budget 0 --max 25%",
                "one host of each role first, stop at the first failure, a quarter at a time",
            ),
        ],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        trigger_update("trigger_update", self, store, output).await
    }
}

/// Makes the fleet run a version. `verb` is the name under which the operator called it.
pub(crate) async fn trigger_update(
    verb: &'static str,
    options: TriggerUpdate,
    store: &Store<'_>,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let TriggerUpdate { version, require_settled, if_different, reason, rollout } = options;
    let version = &version_of(&version)?;
    let rollout = rollout.read()?;
    check_options(&rollout, store).await?;
    if require_settled {
        let (fleet, _) = fleet::read(store, None, store.deadline).await?;
        refuse_unsettled(&fleet)?;
    }
    let has_options = !rollout.is_empty();
    store.prepare_act();
    let before = store.session.read_keys(&TARGET_KEYS, store.deadline).await?;
    let has_brakes = has_brakes(&before);
    if has_brakes && let Err(error) = look_after::note_end(store).await {
        output::warn(&format!("it is not known whether the rollout before has ended: {error}"));
    }
    let rollout_reads = if has_brakes { record::reads() } else { Vec::new() };
    let request = TargetRequest { version: version.clone(), options: rollout, if_different, rollout_reads };
    let act = store.act(verb, Some(&reason)).await?;
    let set = store.session.set_target(&request, before, &act, store.deadline).await?;
    LocalState::of(store.settings).keep_current_version(version);
    if !set.changed {
        output::note(&format!(
            "{version} is the desired version since revision {}; nothing was written",
            set.revision
        ));
        if has_options {
            output::warn(
                "the options do not apply to the running rollout; use `orchestrate rollout set` to change it",
            );
        }
        let answer = TriggerAnswer { version, revision: set.revision, changed: false, unsettled_count: None };
        output.sorted_answer(&answer, |_| {});
        return Ok(Exit::Yes);
    }
    let record = if set.has_brakes { write_record(set.revision, set.found, store).await } else { None };
    if has_options && record.is_none() {
        output::warn("the options may not apply: the record of the rollout was not written");
    }
    // The fleet is read as it was just before the write, because no host has acted on the new
    // instruction yet.
    let deadline = Deadline::within(COUNT_MAX.min(store.deadline.left()));
    let before = fleet::read(store, Some(set.revision - 1), deadline).await;
    let unsettled = before.as_ref().ok().map(|(fleet, _)| unsettled(fleet));
    match (&before, unsettled) {
        (Ok((fleet, _)), Some(unsettled)) => output::note(&format!(
            "triggered {version} at revision {}; {unsettled} of {} hosts were unsettled",
            set.revision,
            fleet.hosts().len()
        )),
        (Err(error), _) => {
            output::note(&format!("triggered {version} at revision {}", set.revision));
            output::warn(&format!("unsettled hosts could not be counted: {error}"));
        }
        _ => {}
    }
    let answer = TriggerAnswer { version, revision: set.revision, changed: true, unsettled_count: unsettled };
    output.sorted_answer(&answer, |_| {});
    if_started(version, record)
}

/// What `trigger_update` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TriggerAnswer<'a> {
    version: &'a Version,
    revision: i64,
    changed: bool,
    unsettled_count: Option<usize>,
}

/// Returns yes, unless the record of the rollout lets no host start.
pub(crate) fn if_started(version: &Version, record: Option<RolloutRecord>) -> Result<Exit, Failure> {
    match record.and_then(|record| record.refused) {
        Some(why) => Err(Failure::refused(format!("no host starts {version}: {why}"))),
        None => Ok(Exit::Yes),
    }
}

/// Writes the record of the rollout, if a policy governs it, and returns it. `known` is what was read with the version.
/// The version is written by then, so failures are only warnings: a host writes the record then.
pub(crate) async fn write_record(
    revision: i64,
    known: Option<KeySnapshot>,
    store: &Store<'_>,
) -> Option<RolloutRecord> {
    let written = async {
        let keys = [Key::RolloutPolicy, Key::CurrentVersion, Key::Store];
        let read;
        let found = match &known {
            Some(known) => known,
            None => {
                read = store.session.read_keys(&keys, store.deadline).await?;
                &read
            }
        };
        let is_ours = |order: InstructionOrder| order.revision == revision && governs(order, found);
        match Instruction::find(found).filter(|instruction| is_ours(instruction.order)) {
            Some(instruction) => record::write_record(&instruction, known, store).await.map(Some),
            None => Ok::<_, StoreError>(None),
        }
    };
    written.await.unwrap_or_else(|error| {
        output::warn(&format!("the record of the rollout was not written; a host will write it: {error}"));
        None
    })
}

/// True for a host that is ok. A host that waits for its first instruction is settled too, because
/// it has not started anything.
fn is_settled(verdict: &FleetVerdict) -> bool {
    matches!(verdict, FleetVerdict::Ok | FleetVerdict::Held(WhyNot::Instruction))
}

fn unsettled(fleet: &Fleet) -> usize {
    fleet.verdicts().values().filter(|verdict| !is_settled(verdict)).count()
}

fn refuse_unsettled(fleet: &Fleet) -> Result<(), Failure> {
    fleet::print_warnings(fleet);
    let verdicts = fleet.verdicts();
    let names: Vec<&str> =
        verdicts.iter().filter(|(_, v)| !is_settled(v)).map(|(host, _)| host.as_str()).collect();
    if !names.is_empty() {
        output::note_hosts("unsettled", names.iter().copied());
        return Err(Failure::refused(format!("{} hosts are not settled; nothing was changed", names.len())));
    }
    // A fleet without a desired version is not refused: its first instruction has nothing to wait
    // for.
    if fleet.unreadable().is_empty() {
        Ok(())
    } else {
        Err(Failure::cannot_tell("some values cannot be read; nothing was changed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::fleet::FleetTarget;
    use schema::names::Version;

    fn check(target: Option<i64>, facts: &[(&str, &str)], expected: Option<Exit>) {
        let version = || Version::new("v1").unwrap();
        let target = target.map_or(FleetTarget::NotSet, |revision| FleetTarget::Known {
            version: version(),
            order: InstructionOrder { epoch: 0, revision },
        });
        let fleet = Fleet::new(target, facts.iter().map(|(k, v)| (*k, v.as_bytes())));
        assert_eq!(refuse_unsettled(&fleet).err().map(|f| f.exit), expected, "{facts:?}");
    }

    #[test]
    fn an_unsettled_fleet_is_left_alone() {
        check(Some(1), &[("/running_version/v1/h", "1")], None);
        check(Some(1), &[("/running_version/v0/h", "1")], Some(Exit::Refused));
        check(
            Some(1),
            &[("/running_version/v1/h", "1"), ("/orchestrate/hosts/h", "?")],
            Some(Exit::CannotTell),
        );
    }

    #[test]
    fn a_first_instruction_has_nothing_to_wait_for() {
        check(None, &[], None);
        check(None, &[("/status/provisioned/success/h", "1")], None);
        check(None, &[("/orchestrate/hosts/h", r#"{"since":1}"#)], Some(Exit::Refused));
    }
}
