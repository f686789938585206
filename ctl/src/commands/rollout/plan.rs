//! `plan`: how a version would be rolled out.

use super::options::{RolloutFlags, check_usable};
use super::policy::read_file;
use crate::commands::answers;
use crate::commands::context::{Store, host_of, now, version_of};
use crate::commands::verb::{About, Answer, Group, Past, Spec, Verb};
use crate::completion;
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use anyhow::anyhow;
use clap::Args;
use fleet::views::FreezeView;
use planning::rollout::{
    Durations, Forecast, ForecastHost, ForecastInput, Outcome, absent_values, forecast, forecast_reads,
    hosts_of, resolve,
};
use schema::codec;
use schema::freeze::FreezeScope;
use schema::frozen::FrozenBy;
use schema::instruction::{Epoch, Instruction};
use schema::keys::{self, Key, Prefix};
use schema::names::{HostName, StepName, Version};
use schema::order::InstructionOrder;
use schema::records::{RolloutPolicy, RolloutRecord, Trigger};
use schema::snapshot::{Entry, KeySnapshot};
use schema::time::{format_duration, parse_duration};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

/// Show how a version would be rolled out; changes nothing
#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// Version whose rollout is planned; it need not be triggered
    #[arg(add = completion::versions())]
    version: String,
    /// Plan with the policy in this file, in the place of the one in the store
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Assume that this host fails; may be repeated
    #[arg(long = "assume-fail", value_name = "HOST", add = completion::hosts())]
    assume_fail: Vec<String>,
    /// Assume that a step takes this long, for example packages=10m; may be repeated
    #[arg(long = "duration", value_name = "STEP=D")]
    durations: Vec<String>,
    /// List all hosts, and not only the first ones
    #[arg(long = "all-hosts")]
    all_hosts: bool,
    #[command(flatten)]
    rollout: RolloutFlags,
}

/// Number of hosts that are listed.
const HOSTS_LISTED: usize = 20;

/// What is planned.
struct Planned {
    version: Version,
    from: Option<Version>,
    record: RolloutRecord,
    has_policy: bool,
    durations: Durations,
    forecast: Forecast,
    /// What holds every host; the forecast begins when it ends.
    freezes: Vec<FreezeView>,
    revision: i64,
}

impl Verb for Plan {
    const SPEC: Spec = Spec {
        name: "plan",
        group: Group::Rollout,
        about: About::Hosts,
        past: Past::Answers,
        exits: &[Exit::No, Exit::Refused],
        answer: Answer::Json(answers::of::<PlanAnswer<'_>>),
        examples: &[
            ("orchestrate plan v43", "when each stage opens and each host starts"),
            (
                "orchestrate plan v43 --policy new.toml --assume-fail web-1",
                "the same with another policy and a failure",
            ),
        ],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let version = version_of(&self.version)?;
        let failing: Vec<HostName> =
            self.assume_fail.iter().map(|host| host_of(host)).collect::<Result<_, _>>()?;
        let durations = durations_of(&self.durations)?;
        let mut policy = self.policy.as_deref().map(read_file).transpose()?;
        let rollout = self.rollout.read()?;
        let found = read(store).await?;
        let stored = found.value_of(keys::RolloutPolicy);
        if let (Some(policy), Some(stored)) = (&mut policy, &stored) {
            // Which versions worked is known as before.
            policy.since = stored.since;
        }
        let planned_with = policy.clone().or(stored);
        check_usable(&rollout, planned_with.as_ref(), &found)?;
        let roster = hosts_of(&found);
        if let Some(unknown) = failing.iter().find(|host| !roster.contains_key(*host)) {
            return Err(Failure::no(format!("host {unknown} is not on the roster")));
        }
        let durations = Durations::of_reports(&roster, &durations, &found);
        check_steps(&self.durations, &durations)?;
        let from = found.value_of(keys::CurrentVersion);
        let trigger = Trigger {
            at: now(),
            by: String::new(),
            reason: None,
            from: None,
            options: rollout,
            rollback: false,
        };
        let (found, instruction) = as_triggered(found, &version, policy.as_ref(), &trigger)?;
        let record = resolve(&instruction, &found, now());
        if let Some(why) = &record.refused {
            return Err(Failure::refused(format!("no host would start {version}: {why}")));
        }
        let held = |frozen: &FrozenBy| matches!(frozen.scope, FreezeScope::Fleet | FreezeScope::Pause);
        let freezes = FrozenBy::all(&found).filter(held).map(FreezeView).collect();
        let policy = found.read(keys::RolloutPolicy);
        let failing: BTreeSet<HostName> = failing.into_iter().collect();
        let input = ForecastInput {
            order: instruction.order,
            record: &record,
            found: &found,
            durations: &durations,
            failing: &failing,
            now: now(),
        };
        let absent = policy.iter().flatten().flat_map(|policy| absent_values(policy, &roster));
        for limit in absent {
            output::warn(&format!("a limit names {limit}, and no host of the roster has it"));
        }
        let planned = Planned {
            version,
            from,
            has_policy: policy.is_some_and(|policy| policy.is_ok_and(|policy| !policy.is_empty())),
            forecast: forecast(&input),
            record,
            durations,
            freezes,
            revision: found.revision,
        };
        print(&planned, self.all_hosts, output);
        let assumed = planned.forecast.hosts.iter().filter(|host| failing.contains(&host.host));
        for host in assumed.filter(|host| host.outcome != Outcome::Failed) {
            let (word, why) = outcome(&host.outcome);
            output::warn(&format!("host {} would not fail: {}", host.host, why.as_deref().unwrap_or(word)));
        }
        Ok(Exit::of(planned.forecast.ends.is_some()))
    }
}

/// Reads everything that a plan follows from, at one revision.
async fn read(store: &Store<'_>) -> Result<KeySnapshot, Failure> {
    // No rollout has this order, so only what all rollouts have in common is read.
    let (keys, mut ranges) = forecast_reads(InstructionOrder { epoch: 0, revision: 0 });
    ranges.extend([Prefix::Rollouts, Prefix::Reports]);
    Ok(store.session.read_all(&keys, &ranges, None, store.deadline).await?)
}

/// Reads the durations of steps that an operator assumes.
fn durations_of(texts: &[String]) -> Result<BTreeMap<StepName, Duration>, Failure> {
    let read = |text: &String| {
        let (step, took) = text.split_once('=').ok_or_else(|| format!("{text:?} is not STEP=DURATION"))?;
        let step = StepName::new(step).map_err(|error| error.to_string())?;
        Ok::<_, String>((step, parse_duration(took).map_err(|error| error.to_string())?))
    };
    let durations = texts.iter().map(read).collect::<Result<_, _>>();
    durations.map_err(|why| Failure::usage(anyhow!("--duration: {why}")))
}

/// A duration of a step that no host has would change nothing.
fn check_steps(texts: &[String], durations: &Durations) -> Result<(), Failure> {
    let names = texts.iter().filter_map(|text| text.split_once('=')).map(|(step, _)| step);
    let unknown = |step: &&str| !durations.steps().iter().any(|known| known.as_str() == *step);
    let Some(unknown) = names.into_iter().find(unknown) else { return Ok(()) };
    let known: Vec<&str> = durations.steps().iter().map(StepName::as_str).collect();
    Err(Failure::no(format!("no host has reported a step {unknown}; they have: {}", known.join(" "))))
}

/// Returns what the store would hold if the version was triggered now.
fn as_triggered(
    mut found: KeySnapshot,
    version: &Version,
    policy: Option<&RolloutPolicy>,
    trigger: &Trigger,
) -> Result<(KeySnapshot, Instruction), Failure> {
    let epoch =
        Epoch::read(found.get(&Key::Store)).map_err(|error| Failure::cannot_tell(error.to_string()))?;
    let revision = found.revision + 1;
    let mut put = |key: &Key, value: String| {
        let entry = Entry {
            value: value.into(),
            create_revision: revision,
            mod_revision: revision,
            lease: 0,
            version: 1,
        };
        found.entries.insert(key.to_string(), entry);
    };
    put(&Key::CurrentVersion, version.to_string());
    put(&Key::Trigger, codec::write(trigger));
    if let Some(policy) = policy {
        put(&Key::RolloutPolicy, codec::write(policy));
    }
    let order = InstructionOrder { epoch: epoch.number, revision };
    Ok((found, Instruction { order, version: version.clone() }))
}

fn outcome(outcome: &Outcome) -> (&'static str, Option<String>) {
    match outcome {
        Outcome::Proven => ("proven", None),
        Outcome::Failed => ("failed", None),
        Outcome::Running => ("running", None),
        Outcome::Off => ("off", Some("its agent does not run".into())),
        Outcome::Excused => ("excused", None),
        Outcome::Held(why) => ("held", Some(why.clone())),
        Outcome::Waits(limit) => ("waits", Some(format!("the limit of {limit} is reached"))),
    }
}

/// What `plan` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PlanAnswer<'a> {
    version: &'a Version,
    from_version: Option<&'a Version>,
    has_policy: bool,
    good_version: Option<&'a Version>,
    stages: Vec<PlannedStage<'a>>,
    hosts: Vec<PlannedHost<'a>>,
    halt: Option<PlannedHalt<'a>>,
    ends_after_seconds: Option<u64>,
    why: Option<&'a str>,
    host_takes_seconds: Option<u64>,
    freezes: &'a [FreezeView],
    revision: i64,
}

/// What happens to a stage.
#[derive(Debug, Serialize, JsonSchema)]
struct PlannedStage<'a> {
    name: &'a str,
    host_count: usize,
    opens_after_seconds: Option<u64>,
    ends_after_seconds: Option<u64>,
}

/// What happens to a host.
#[derive(Debug, Serialize, JsonSchema)]
struct PlannedHost<'a> {
    host: &'a HostName,
    stage: &'a str,
    starts_after_seconds: Option<u64>,
    ends_after_seconds: Option<u64>,
    outcome: &'static str,
    why: Option<String>,
}

/// Where the plan halts.
#[derive(Debug, Serialize, JsonSchema)]
struct PlannedHalt<'a> {
    after_seconds: u64,
    why: &'a str,
}

fn print(planned: &Planned, all_hosts: bool, output: &mut Output) {
    let Planned { version, from, record, has_policy, durations, forecast, freezes, revision } = planned;
    let seconds = |duration: Option<Duration>| duration.map(|duration| duration.as_secs());
    let hosts = forecast.hosts.iter().map(|host| {
        let (outcome, why) = outcome(&host.outcome);
        PlannedHost {
            host: &host.host,
            stage: &forecast.stages[host.stage as usize].name,
            starts_after_seconds: seconds(host.starts),
            ends_after_seconds: seconds(host.ends),
            outcome,
            why,
        }
    });
    let stages = forecast.stages.iter().map(|stage| PlannedStage {
        name: &stage.name,
        host_count: stage.hosts,
        opens_after_seconds: seconds(stage.opens),
        ends_after_seconds: seconds(stage.ends),
    });
    let halt = forecast.halt.as_ref();
    let answer = PlanAnswer {
        version,
        from_version: from.as_ref(),
        has_policy: *has_policy,
        good_version: record.good.as_ref(),
        stages: stages.collect(),
        hosts: hosts.collect(),
        halt: halt.map(|(after, why)| PlannedHalt { after_seconds: after.as_secs(), why }),
        ends_after_seconds: seconds(forecast.ends),
        why: forecast.why.as_deref(),
        host_takes_seconds: seconds(durations.median()),
        freezes,
        revision: *revision,
    };
    output.sorted_answer(&answer, |output| {
        let from = from.as_ref().map(|from| format!(", from {from}")).unwrap_or_default();
        output.line(&format!("{version}{from}"));
        print_stages(forecast, output);
        output.line("");
        print_hosts(forecast, all_hosts, output);
        output.line("");
        print_end(planned, output);
    });
}

fn after(duration: Option<Duration>) -> String {
    let whole = duration.map(|duration| format_duration(Duration::from_secs(duration.as_secs())));
    whole.unwrap_or_else(|| "never".into())
}

fn print_stages(forecast: &Forecast, output: &mut Output) {
    let rows = forecast
        .stages
        .iter()
        .map(|stage| [stage.name.clone(), stage.hosts.to_string(), after(stage.opens), after(stage.ends)]);
    output.table(["STAGE", "HOSTS", "OPENS AFTER", "THROUGH AFTER"], rows);
}

fn print_hosts(forecast: &Forecast, all_hosts: bool, output: &mut Output) {
    let most = if all_hosts { usize::MAX } else { HOSTS_LISTED };
    let row = |host: &ForecastHost| {
        let (outcome, why) = outcome(&host.outcome);
        let stage = forecast.stages[host.stage as usize].name.clone();
        let outcome = why.map_or_else(|| outcome.to_owned(), |why| format!("{outcome}: {why}"));
        let there = host.outcome == Outcome::Proven && host.starts.is_none();
        let starts = if there { "has it".into() } else { after(host.starts) };
        [host.host.to_string(), stage, starts, outcome]
    };
    let header = ["HOST", "STAGE", "STARTS AFTER", "OUTCOME"];
    output.table(header, forecast.hosts.iter().take(most).map(row));
    if forecast.hosts.len() > most {
        output.line(&format!("and {} more; --all-hosts lists them", forecast.hosts.len() - most));
    }
}

/// True if hosts of a stage start later than others of it.
fn waits_for_others(forecast: &Forecast) -> bool {
    let mut first = BTreeMap::new();
    forecast
        .hosts
        .iter()
        .any(|host| host.starts.is_some_and(|starts| *first.entry(host.stage).or_insert(starts) < starts))
}

fn print_end(planned: &Planned, output: &mut Output) {
    let Planned { record, has_policy, durations, forecast, freezes, .. } = planned;
    if !has_policy {
        output::note("there is no rollout policy: every host updates as soon as it can");
    }
    for held in freezes {
        output::note(&format!("nothing starts before this ends: {held}"));
    }
    match durations.median() {
        Some(median) if median < Duration::from_secs(1) => output::note("a host takes less than a second"),
        Some(median) => output::note(&format!("a host takes about {}", after(Some(median)))),
        None => output::note(
            "no host has reported how long its steps take; the plan assumes one minute. Set --duration STEP=D",
        ),
    }
    if waits_for_others(forecast) {
        output::note(
            "which hosts of a stage are the first is not certain: those that are ready first. The others go in this order",
        );
    }
    let started = forecast.hosts.iter().filter(|host| host.starts.is_some()).count();
    match (&forecast.halt, forecast.ends, &forecast.why) {
        (Some((at, why)), ..) => {
            let at = after(Some(*at));
            output.line(&format!(
                "the rollout would halt after {at}, when {started} hosts have started: {why}"
            ));
            if let Some(good) = &record.good
                && record.on_halt == schema::records::OnHalt::RollBack
            {
                output.line(&format!("the hosts would go back to {good}"));
            }
        }
        (None, Some(ends), _) => {
            output.line(&format!("the rollout would end after about {}", after(Some(ends))))
        }
        (None, None, why) => {
            let why = why.as_deref().unwrap_or("no host gets the version");
            output.line(&format!("the rollout would not end: {why}"));
        }
    }
}
