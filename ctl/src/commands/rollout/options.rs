//! The options of `trigger_update` and `rollout start` that hold for one rollout, and `rollout set`.

use super::status;
use crate::commands::answers;
use crate::commands::context::Store;
use crate::commands::verb::{About, Answer, Group, Past, Spec, Verb};
use crate::exit::{Exit, Failure};
use crate::numbers::whole;
use crate::output::{self, Output};
use anyhow::anyhow;
use clap::{Args, ValueEnum};
use planning::rollout::{PresentRollout, hosts_of, record_with, unusable, with_options};
use schema::keys::{self, Key, Prefix};
use schema::names::Version;
use schema::records::{
    LimitOption, LimitOptionError, LimitSize, OnHalt, ResolvedLimit, RolloutOptions, RolloutPolicy,
    RosterEntry,
};
use schema::snapshot::KeySnapshot;
use schema::time::{Span, parse_duration};
use schema::writes::rollout::change_record;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

/// What holds for one rollout, in the place of what the policy says.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of the rollout")]
pub(crate) struct RolloutFlags {
    /// How many hosts may update at the same time, for example 3, 10%, role=2 or role/web=25%; may be repeated
    #[arg(long, value_name = "LIMIT")]
    max: Vec<String>,
    /// How many hosts of each role update first, as stage canary
    #[arg(long, value_name = "N", value_parser = whole::<u32>)]
    canary: Option<u32>,
    /// How many failed hosts are tolerated, for example 0 or 5%; one more halts the rollout
    #[arg(long, value_name = "N")]
    budget: Option<String>,
    /// How long the hosts of each stage are observed before the next stage opens
    #[arg(long, value_name = "DURATION")]
    soak: Option<String>,
    /// What happens when more hosts failed than are tolerated
    #[arg(long = "on-halt", value_name = "WHAT", value_enum)]
    on_halt: Option<OnHaltFlag>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum OnHaltFlag {
    /// No host starts
    Stop,
    /// The hosts go back to the last version that worked
    #[value(alias = "roll_back")]
    RollBack,
}

fn limits_of(texts: &[String]) -> Result<Vec<LimitOption>, Failure> {
    let wrong = |error: LimitOptionError| Failure::usage(anyhow!("--max: {error}"));
    texts.iter().map(|text| text.parse().map_err(wrong)).collect()
}

fn size_of(option: &str, text: &str) -> Result<LimitSize, Failure> {
    text.parse::<LimitSize>().map_err(|error| Failure::usage(anyhow!("{option}: {error}")))
}

impl RolloutFlags {
    /// Reads the options.
    pub(crate) fn read(&self) -> Result<RolloutOptions, Failure> {
        let Self { max, canary, budget, soak, on_halt } = self;
        let soak = soak.as_deref().map(parse_duration).transpose();
        let soak = soak.map_err(|error| Failure::usage(anyhow!(error).context("--soak")))?;
        Ok(RolloutOptions {
            limits: limits_of(max)?,
            canary: *canary,
            budget: budget.as_deref().map(|text| size_of("--budget", text)).transpose()?,
            soak: soak.map(Span),
            on_halt: on_halt.map(|on_halt| match on_halt {
                OnHaltFlag::Stop => OnHalt::Stop,
                OnHaltFlag::RollBack => OnHalt::RollBack,
            }),
        })
    }
}

/// Refuses options that would have no effect, or with which no host would start.
pub(crate) async fn check_options(options: &RolloutOptions, store: &Store<'_>) -> Result<(), Failure> {
    if options.is_empty() {
        return Ok(());
    }
    let keys = [Key::RolloutPolicy];
    let found = store.session.read_all(&keys, &[Prefix::Hosts], None, store.deadline).await?;
    let policy = found.read(keys::RolloutPolicy);
    let policy = policy.transpose().map_err(|error| {
        Failure::cannot_tell(format!("{}: {error}; nothing was changed", Key::RolloutPolicy))
    })?;
    check_usable(options, policy.as_ref(), &found)
}

/// The same for a policy that is known. `found` holds the roster.
pub(crate) fn check_usable(
    options: &RolloutOptions,
    policy: Option<&RolloutPolicy>,
    found: &KeySnapshot,
) -> Result<(), Failure> {
    if options.is_empty() {
        return Ok(());
    }
    let Some(policy) = policy.filter(|policy| !policy.is_empty()) else {
        return Err(Failure::refused(
            "these options change the rollout policy for one rollout, and there is none; `orchestrate policy set FILE` writes one; nothing was changed",
        ));
    };
    check_values(&options.limits, found)?;
    let changed = with_options(policy, options);
    if options.soak.is_some() && changed.stages.is_empty() {
        return Err(Failure::refused("--soak: the rollout has no stages; nothing was changed"));
    }
    // The other kind of halt needs a budget by the rules of a policy.
    if options.on_halt == Some(OnHalt::Stop) && changed.failure_budget.is_none() {
        return Err(Failure::refused(
            "--on-halt: without a failure budget nothing halts the rollout; add --budget; nothing was changed",
        ));
    }
    match unusable(&changed) {
        Some(why) => Err(Failure::refused(format!("{why}; nothing was changed"))),
        None => Ok(()),
    }
}

/// Refuses a limit that counts no host of the roster: its value is probably misspelled.
fn check_values(limits: &[LimitOption], found: &KeySnapshot) -> Result<(), Failure> {
    let roster = hosts_of(found);
    for LimitOption { by, value, .. } in limits {
        let is_counted = |entry: &RosterEntry| {
            let of_host = by.of_host(entry).ok().flatten();
            of_host.is_some_and(|limit| value.as_ref().is_none_or(|value| limit.value == *value))
        };
        if let Some(value) = value.as_ref()
            && !roster.values().any(is_counted)
        {
            return Err(Failure::refused(format!(
                "--max: no host of the roster has {by} {value}; nothing was changed"
            )));
        }
    }
    Ok(())
}

/// Change the numbers of the running rollout
#[derive(Debug, Args)]
pub(crate) struct Set {
    /// How many hosts may update at the same time, for example 3, role=2 or role/web=4; may be repeated
    #[arg(long, value_name = "LIMIT")]
    max: Vec<String>,
    /// How many failed hosts are tolerated
    #[arg(long, value_name = "N", value_parser = whole::<u32>)]
    budget: Option<u32>,
    /// Reason, shown to other operators
    #[arg(long, default_value = "")]
    reason: String,
}

impl Verb for Set {
    const SPEC: Spec = Spec {
        name: "rollout set",
        group: Group::Rollout,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[Exit::Refused],
        answer: Answer::Json(answers::of::<SetAnswer<'_>>),
        examples: &[("orchestrate rollout set --max role/db=2", "two hosts of the role db at a time")],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let limits = limits_of(&self.max)?;
        if limits.is_empty() && self.budget.is_none() {
            return Err(Failure::usage(anyhow!("nothing to change; give --max or --budget")));
        }
        store.prepare_act();
        let status::Rollout { present, found } = status::read(store).await?;
        let PresentRollout { instruction, record } = present;
        let refused = |why: &str| Failure::refused(format!("{why}; nothing was changed"));
        if let Some(why) = &record.refused {
            return Err(refused(why));
        }
        if found.get(&Key::Ended(instruction.order)).is_some() {
            return Err(refused("the rollout has ended"));
        }
        check_values(&limits, &found)?;
        let changed =
            record_with(&record, &limits, self.budget).map_err(|error| refused(&error.to_string()))?;
        let act = store.act("rollout set", Some(&self.reason)).await?;
        let transaction = change_record(instruction.order, &changed, &found, &act);
        let committed = store.session.commit_act(&transaction, &act, store.deadline).await?;
        if !committed.applied {
            return Err(Failure::cannot_tell(
                "the rollout changed during the command; nothing was written, repeat the command",
            ));
        }
        let budget = changed.budget.map_or_else(|| "none".to_owned(), |budget| budget.to_string());
        output::note(&format!(
            "the numbers of the rollout of {} changed at revision {}; hosts that are being updated go on",
            instruction.version, committed.revision
        ));
        if found.get(&Key::Halt(instruction.order)).is_some() {
            output::note(
                "the rollout is still halted; `orchestrate rollout rollback` goes back to the last version that worked, `orchestrate rollout resume` goes on with this one",
            );
        }
        let answer = SetAnswer {
            version: &instruction.version,
            limits: &changed.limits,
            failure_budget: changed.budget,
            revision: committed.revision,
        };
        output.sorted_answer(&answer, |output| {
            let rows = changed.limits.iter().flat_map(|limit| {
                let others = (limit.by.to_string(), limit.max);
                let values = limit.values.iter().map(|(value, max)| (format!("{}/{value}", limit.by), *max));
                std::iter::once(others).chain(values)
            });
            output.table(["LIMIT BY", "MAX"], rows.map(|(by, max)| [by, max.to_string()]));
            output.line(&format!("failure budget: {budget}"));
        });
        Ok(Exit::Yes)
    }
}

/// What `rollout set` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SetAnswer<'a> {
    version: &'a Version,
    #[schemars(with = "Vec<Map<String, Value>>")]
    limits: &'a [ResolvedLimit],
    failure_budget: Option<u32>,
    revision: i64,
}
