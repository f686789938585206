//! The rollout policy: `policy show`, `policy set` and `policy check`.

use super::freezes::refuse_older_agents;
use crate::commands::answers;
use crate::commands::context::Store;
use crate::commands::store::identity;
use crate::commands::verb::{About, Answer, Group, Past, Spec, Verb};
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use anyhow::Context;
use clap::Args;
use planning::rollout::read_policy;
use schema::keys::{self, Key, Prefix};
use schema::limit::LimitBy;
use schema::names::StageName;
use schema::records::{
    CHARGE_FOR, LOST_AFTER, LimitRule, LimitSize, OnHalt, PROGRESS_DEADLINE, RolloutPolicy, StageRule, Window,
};
use schema::time::Span;
use schema::writes::rollout::set_policy;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Reads the file of a policy.
pub(crate) fn read_file(file: &Path) -> Result<RolloutPolicy, Failure> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).with_context(|| name.clone())?;
    read_policy(&name, &text).map_err(|error| Failure::no(error.to_string()))
}

/// Check a file without the store
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// File with the policy, in TOML
    file: PathBuf,
}

impl Verb for Check {
    const SPEC: Spec = Spec {
        name: "policy check",
        group: Group::Rollout,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[Exit::No],
        answer: Answer::Json(answers::of::<PolicyAnswer<'_>>),
        examples: &[("orchestrate policy check policy.toml", "find mistakes, without the store")],
    };

    async fn run(self, _: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let policy = read_file(&self.file)?;
        answer(&policy, &PolicyAnswer::new(&policy), output);
        Ok(Exit::Yes)
    }
}

/// Print the policy
#[derive(Debug, Args)]
pub(crate) struct Show;

impl Verb for Show {
    const SPEC: Spec = Spec {
        name: "policy show",
        group: Group::Rollout,
        about: About::Operators,
        past: Past::Answers,
        exits: &[Exit::No],
        answer: Answer::Json(answers::of::<StoredPolicyAnswer<'_>>),
        examples: &[("orchestrate policy show", "print the policy of the store")],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let found = store.session.read_keys(&[Key::RolloutPolicy], store.deadline).await?;
        let Some(entry) = found.get(&Key::RolloutPolicy) else {
            return Err(Failure::no("there is no rollout policy; every host updates as soon as it can"));
        };
        let policy = keys::RolloutPolicy::read(&entry.value)
            .map_err(|error| Failure::cannot_tell(format!("{}: {error}", Key::RolloutPolicy)))?;
        let revision = entry.mod_revision;
        answer(&policy, &StoredPolicyAnswer { policy: PolicyAnswer::new(&policy), revision }, output);
        Ok(Exit::of(!policy.is_empty()))
    }
}

/// Replace the policy with the one in this file
#[derive(Debug, Args)]
pub(crate) struct Set {
    /// File with the policy, in TOML
    file: PathBuf,
    /// Why, for the event
    #[arg(long)]
    reason: Option<String>,
}

impl Verb for Set {
    const SPEC: Spec = Spec {
        name: "policy set",
        group: Group::Rollout,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[Exit::No, Exit::Refused],
        answer: Answer::Json(answers::of::<StoredPolicyAnswer<'_>>),
        examples: &[("orchestrate policy set policy.toml", "use this policy from the next version on")],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let policy = read_file(&self.file)?;
        store.prepare_act();
        let keys = [Key::Store, Key::RolloutPolicy];
        let revision = loop {
            let found = store.session.read_all(&keys, &[Prefix::Lives], None, store.deadline).await?;
            let identity = identity::of_store(&found, store).await?;
            if !identity.has_brakes {
                refuse_older_agents(&found)?;
            }
            let act = store.act("policy set", self.reason.as_deref()).await?;
            let transaction = set_policy(&policy, &identity, &found, &act);
            let committed = store.session.commit_act(&transaction, &act, store.deadline).await?;
            if committed.applied {
                break committed.revision;
            }
            if !identity::is_new(&found) {
                return Err(Failure::cannot_tell(
                    "the policy or the store's identity changed during the command; nothing was written, repeat the command",
                ));
            }
        };
        output::note(
            "the policy applies to every version that is triggered from now on, and to a running rollout whose record is not written yet",
        );
        answer(&policy, &StoredPolicyAnswer { policy: PolicyAnswer::new(&policy), revision }, output);
        Ok(Exit::Yes)
    }
}

/// What `policy check` answers. Limits, stages and windows have the names of the file.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PolicyAnswer<'a> {
    #[schemars(with = "Vec<AsInFile>")]
    limits: &'a [LimitRule],
    #[schemars(with = "Vec<AsInFile>")]
    stages: &'a [StageRule],
    #[schemars(with = "Vec<AsInFile>")]
    windows: &'a [Window],
    lost_after: Span,
    progress_deadline: Span,
    failure_budget: Option<LimitSize>,
    reaches_at_most: Option<u32>,
    charge_for: Span,
    on_halt: OnHalt,
    hold: Option<Span>,
}

/// A part of a policy, whose names are those of its file.
type AsInFile = Map<String, Value>;

/// What `policy show` and `policy set` answer.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct StoredPolicyAnswer<'a> {
    #[serde(flatten)]
    policy: PolicyAnswer<'a>,
    revision: i64,
}

impl<'a> PolicyAnswer<'a> {
    fn new(policy: &'a RolloutPolicy) -> Self {
        Self {
            limits: &policy.limits,
            stages: &policy.stages,
            windows: &policy.windows,
            lost_after: policy.lost_after.unwrap_or(LOST_AFTER),
            progress_deadline: policy.progress_deadline.unwrap_or(PROGRESS_DEADLINE),
            failure_budget: policy.failure_budget,
            reaches_at_most: reach(policy),
            charge_for: policy.charge_for.unwrap_or(CHARGE_FOR),
            on_halt: policy.on_halt,
            hold: policy.hold,
        }
    }
}

/// Returns how many hosts a version reaches at most that fails everywhere: those that are updated at the same time,
/// and those that may fail. `None` if that depends on the fleet, or if nothing halts a rollout.
fn reach(policy: &RolloutPolicy) -> Option<u32> {
    let of_fleet = policy.limits.iter().find(|limit| limit.by == LimitBy::Fleet)?;
    match (of_fleet.max, policy.failure_budget?) {
        (LimitSize::Hosts(at_once), LimitSize::Hosts(failed)) => Some(at_once.saturating_add(failed)),
        _ => None,
    }
}

/// The time that an update takes in the examples of [`later_reach`], and within which a failure of a host that works no
/// more is seen.
const EXAMPLE_UPDATE: Duration = Duration::from_secs(60);
/// How long a version of these examples works.
const EXAMPLE_TIMES: [Duration; 2] = [EXAMPLE_UPDATE, Duration::from_secs(10 * 60)];

/// Returns how many hosts a version reaches at most, in a stage with hosts enough, that works for this time after its
/// proof: if it fails then, and if it switches its machine off. `None` as for [`reach`].
fn later_reach(policy: &RolloutPolicy, works_for: Duration) -> Option<(u64, u64)> {
    let at_first = u64::from(reach(policy)?);
    if policy.hold.is_some_and(|hold| works_for <= hold.0) {
        return Some((at_first, at_first));
    }
    let of_fleet = policy.limits.iter().find(|limit| limit.by == LimitBy::Fleet)?;
    let LimitSize::Hosts(at_once) = of_fleet.max else { return None };
    // With a hold, each host keeps its place for that much longer.
    let takes = EXAMPLE_UPDATE + policy.hold.map_or(Duration::ZERO, |hold| hold.0);
    let until = |seen_after: Duration| {
        let rounds = (works_for + seen_after).as_secs().div_ceil(takes.as_secs());
        at_first.saturating_add(rounds.saturating_mul(u64::from(at_once)))
    };
    let lost_after = policy.lost_after.unwrap_or(LOST_AFTER).0;
    Some((until(EXAMPLE_UPDATE), until(EXAMPLE_UPDATE + lost_after)))
}

fn stage_row(stage: &StageRule) -> [String; 4] {
    let hosts = match (stage.count, stage.share) {
        (Some(count), _) => format!("{count} of each role"),
        (None, Some(share)) => format!("{share}%"),
        (None, None) => "all".to_owned(),
    };
    let of = stage.select.iter().map(|(by, values)| {
        let values: Vec<&str> = values.iter().map(|value| value.as_str()).collect();
        format!("{by} {}", values.join(", "))
    });
    let of: Vec<String> = of.collect();
    let of = if of.is_empty() { "the fleet".to_owned() } else { of.join(" and ") };
    [stage.name.to_string(), hosts, of, stage.soak.map_or_else(|| "none".to_owned(), |soak| soak.to_string())]
}

fn answer(policy: &RolloutPolicy, answer: &impl Serialize, output: &mut Output) {
    output.sorted_answer(answer, |_| {});
    if output.is_json() {
        return;
    }
    let row = |rule: &LimitRule| {
        let values: Vec<String> = rule.values.iter().map(|(value, max)| format!("{value}={max}")).collect();
        let keeps = match rule.keep_failed {
            Some(true) => "yes",
            Some(false) => "no",
            None => "where max is 1",
        };
        [rule.by.to_string(), rule.max.to_string(), values.join(" "), keeps.to_owned()]
    };
    output.table(["LIMIT BY", "MAX", "VALUES", "KEEP FAILED"], policy.limits.iter().map(row));
    if !policy.stages.is_empty() {
        output.line("");
        output.table(["STAGE", "HOSTS", "OF", "SOAK"], policy.stages.iter().map(stage_row));
        output::note(&format!("the other hosts come last, as stage {}", StageName::rest()));
    }
    for window in &policy.windows {
        output::note(&format!("hosts start {window}"));
    }
    let lost_after = policy.lost_after.unwrap_or(LOST_AFTER);
    let deadline = policy.progress_deadline.unwrap_or(PROGRESS_DEADLINE);
    output::note(&format!(
        "a host gives up if it is not done within {deadline}; a host is lost if its agent does not run for {lost_after}"
    ));
    let charge_for = policy.charge_for.unwrap_or(CHARGE_FOR);
    let then = match policy.on_halt {
        OnHalt::Stop => "one more halts it",
        OnHalt::RollBack => "one more halts it, and the hosts go back to the last version that worked",
    };
    output::note(&match policy.failure_budget {
        Some(budget) => format!(
            "failed hosts that a rollout tolerates: {budget}; {then}; one that stops working within {charge_for} after its proof counts"
        ),
        None => "no number of failed hosts halts a rollout".to_owned(),
    });
    if let Some(budget) = policy.failure_budget {
        let hosts = match reach(policy) {
            Some(hosts) => format!("{hosts} hosts"),
            None => format!("as many hosts as are updated at the same time, and {budget} more"),
        };
        let when = policy.hold.map_or_else(String::new, |hold| format!(" or within {hold} after it"));
        output::note(&format!(
            "a version that fails everywhere, before its proof{when}, reaches at most {hosts}; a version that fails later, or switches its machine off, also reaches the hosts that start in the meantime"
        ));
        for works_for in EXAMPLE_TIMES {
            if let Some((fails, off)) = later_reach(policy, works_for) {
                let (works_for, takes) = (Span(works_for), Span(EXAMPLE_UPDATE));
                output::note(&format!(
                    "if an update takes {takes}, a version that works for {works_for} after its proof reaches at most {fails} hosts of one stage if it fails then, and {off} if it switches its machine off"
                ));
            }
        }
    }
    if let Some(hold) = policy.hold {
        output::note(&format!("a host keeps its claims until its validation has passed for {hold}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_works_for_longer_than_the_hold_reaches_more_hosts() {
        let check = |text: &str, seconds: u64, expected: Option<(u64, u64)>| {
            let limit = "failure_budget = 1\n[[limit]]\nby = \"fleet\"\nmax = 2\n";
            let policy = read_policy("policy", &format!("{text}{limit}")).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(later_reach(&policy, Duration::from_secs(seconds)), expected, "{text} {seconds}");
        };
        // Two rounds of two hosts until the failure is seen; twelve until the machine is lost.
        check("", 60, Some((3 + 4, 3 + 24)));
        check("lost_after = \"1m\"\n", 60, Some((3 + 4, 3 + 6)));
        check("hold = \"1m\"\n", 60, Some((3, 3)));
        check("hold = \"1m\"\n", 61, Some((3 + 4, 3 + 14)));
        let unknown = "failure_budget = \"5%\"\n[[limit]]\nby = \"fleet\"\nmax = 2\n";
        let policy = read_policy("policy", unknown).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(later_reach(&policy, Duration::from_secs(60)), None);
    }
}
