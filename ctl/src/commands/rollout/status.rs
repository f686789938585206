//! `rollout status` and `rollout excuse`: how far the rollout of the desired version is, and which host it does not wait
//! for.

use super::text::{HOSTS_NAMED, failures, heading};
use crate::commands::answers;
use crate::commands::context::{Store, host_of, now};
use crate::commands::verb::{About, Answer, Group, Past, Spec, Verb};
use crate::commands::watch::{self, Repeat};
use crate::completion;
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use clap::Args;
use etcd_session::StoreError;
use fleet::text::rough;
use planning::rollout::{
    HostResult, NoRollout, Outlook, PresentRollout, RolloutStatus, RolloutWord, StageState, StageSummary,
    forecast_reads, hosts_of, record_without, results, stage_name,
};
use schema::instruction::Instruction;
use schema::keys::Key;
use schema::names::HostName;
use schema::order::InstructionOrder;
use schema::records::Excuse as ExcuseRecord;
use schema::snapshot::KeySnapshot;
use schema::writes::stage;
use schemars::JsonSchema;
use serde::Serialize;
use std::cell::Cell;

/// The rollout of the desired version.
pub(crate) struct Rollout {
    pub(crate) present: PresentRollout,
    /// Everything that was read, at one revision.
    pub(crate) found: KeySnapshot,
}

/// Reads the rollout of the desired version.
pub(crate) async fn read(store: &Store<'_>) -> Result<Rollout, Failure> {
    let (present, found) = read_at(None, store).await?;
    let present = present.map_err(|why| match why {
        NoRollout::NoVersion | NoRollout::NotGoverned(_) => Failure::refused(why.to_string()),
        NoRollout::NotWritten(_) => Failure::cannot_tell(format!("{why}; repeat the command")),
        NoRollout::Unreadable(_) => Failure::cannot_tell(why.to_string()),
    })?;
    Ok(Rollout { present, found })
}

/// Reads the rollout of the desired version, as of a revision if one is given.
async fn read_at(
    at: Option<i64>,
    store: &Store<'_>,
) -> Result<(Result<PresentRollout, NoRollout>, KeySnapshot), StoreError> {
    let (session, deadline) = (&store.session, store.deadline);
    let keys = [Key::Store, Key::CurrentVersion, Key::RolloutPolicy, Key::Trigger];
    let mut found = session.read_all(&keys, &[], at, deadline).await?;
    if let Some(instruction) = Instruction::find(&found) {
        let (keys, ranges) = forecast_reads(instruction.order);
        let more = session.read_all(&keys, &ranges, Some(found.revision), deadline).await?;
        found.entries.extend(more.entries);
    }
    Ok((PresentRollout::find(&found), found))
}

/// Returns how the present rollout goes on, as of a revision; `None` if it has no record.
pub(crate) async fn outlook(revision: i64, store: &Store<'_>) -> Result<Option<Outlook>, StoreError> {
    let (present, found) = read_at(Some(revision), store).await?;
    // What cannot be read was said with the failures.
    Ok(present.ok().map(|present| present.outlook(&found, now())))
}

/// Print how far the rollout of the desired version is
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Show it again whenever it changes, until it ended or is halted
    #[arg(long, conflicts_with = "wait")]
    watch: bool,
    /// Wait until it ended, is halted or was refused, at most for this long
    #[arg(long, value_name = "DURATION")]
    wait: Option<String>,
}

impl Verb for Status {
    const SPEC: Spec = Spec {
        name: "rollout status",
        group: Group::Rollout,
        about: About::SelfChecked,
        past: Past::Answers,
        exits: &[Exit::No, Exit::Refused],
        answer: Answer::Json(answers::of::<RolloutStatus>),
        examples: &[
            ("orchestrate rollout status --watch", "show the rollout until it has ended or is halted"),
            ("orchestrate rollout status --wait 30m", "wait for its end, for a job"),
        ],
    };

    fn past(&self) -> Past {
        if self.watch || self.wait.is_some() { Past::Waits } else { Self::SPEC.past }
    }

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let repeat = Repeat::read(self.watch, self.wait.as_deref())?;
        let followed = Cell::new(None);
        watch::repeat(repeat, store, output, async |store, output| status(&followed, store, output).await)
            .await
    }
}

/// Prints how far the rollout is. `followed` is the one that was shown first: an answer about another one would be
/// taken for its end.
async fn status(
    followed: &Cell<Option<InstructionOrder>>,
    store: &Store<'_>,
    output: &mut Output,
) -> Result<watch::Answer, Failure> {
    let rollout = read(store).await?;
    let Rollout { present: PresentRollout { instruction, record }, found } = &rollout;
    if followed.get().is_some_and(|followed| followed != instruction.order) {
        let by = record.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
        let what = if record.rollback { "rolled back to" } else { "replaced by" };
        let version = &instruction.version;
        return Err(Failure::refused(format!("the rollout was {what} {version}{by} before its end")));
    }
    followed.set(Some(instruction.order));
    let now = now();
    let status = RolloutStatus::new(&rollout.present, found, now);
    let exit = match status.state {
        RolloutWord::Ended => Exit::Yes,
        RolloutWord::Refused | RolloutWord::Halted | RolloutWord::Frozen => Exit::Refused,
        RolloutWord::GoesOn => Exit::No,
    };
    // Somebody has to resume a halted rollout, and a refused one never starts.
    let is_final = matches!(status.state, RolloutWord::Ended | RolloutWord::Halted | RolloutWord::Refused);
    output.answer(&status, |_| {});
    if output.is_json() {
        return Ok(watch::Answer { exit, is_final });
    }
    output.line(&heading(record, status.from_version.as_ref(), &status.stages));
    let row = |(number, stage): (usize, &StageSummary)| {
        let soak = record.stages.get(number).and_then(|stage| stage.rule.soak);
        let state = match (stage.state, soak) {
            (StageState::Closed, _) => "closed".to_owned(),
            (StageState::Soaking, Some(soak)) => match stage.soak_ends_at {
                Some(ends) if ends > now => {
                    format!("observed for {soak}, {} left", rough(ends.0.abs_diff(now.0)))
                }
                _ => format!("observed for {soak}"),
            },
            (StageState::Open | StageState::Soaking, _) => "open".to_owned(),
        };
        let counts = [
            stage.host_count,
            stage.proven_count,
            stage.running_count,
            stage.failed_count,
            stage.waiting_count,
            stage.absent_count,
        ];
        let [hosts, proven, running, failed, waiting, absent] = counts.map(|count| count.to_string());
        [
            stage.name.clone(),
            state,
            hosts,
            proven,
            running,
            failed,
            waiting,
            absent,
            stage.excused_count.to_string(),
        ]
    };
    let header = ["STAGE", "STATE", "HOSTS", "PROVEN", "RUNNING", "FAILED", "WAITING", "OFF", "EXCUSED"];
    output.table(header, status.stages.iter().enumerate().map(row));
    status.numbers().iter().for_each(|line| output.line(line));
    failures(&status.failed).iter().for_each(|line| output.line(line));
    match (&status.why, exit) {
        (Some(why), _) => output.line(why),
        (None, Exit::Yes) => output.line("the rollout has ended"),
        _ => {}
    }
    let hosts: Vec<&str> = status.waits_for.iter().take(HOSTS_NAMED).map(|host| host.as_str()).collect();
    let more = status.waits_for.len() - hosts.len();
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    if !hosts.is_empty() {
        output.line(&format!("it waits for {}{more}; `orchestrate why HOST` says more", hosts.join(" ")));
    }
    status.outlook.to_go().iter().for_each(|to_go| output.line(to_go));
    Ok(watch::Answer { exit, is_final })
}

/// Do not wait for this host any more
#[derive(Debug, Args)]
pub(crate) struct Excuse {
    /// Host for which the rollout does not wait any more
    #[arg(add = completion::hosts())]
    host: String,
    /// Reason, shown to other operators
    #[arg(long)]
    reason: String,
}

impl Verb for Excuse {
    const SPEC: Spec = Spec {
        name: "rollout excuse",
        group: Group::Rollout,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[Exit::No, Exit::Refused],
        answer: Answer::Json(|generator| {
            let excused = answers::of::<Excused<'_>>(generator);
            answers::either([excused, answers::of::<ExcusedAlready<'_>>(generator)])
        }),
        examples: &[(
            "orchestrate rollout excuse web-7 --reason 'disk is replaced'",
            "go on without this host",
        )],
    };

    /// If a stage chose the host, another one takes its place.
    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let host = host_of(&self.host)?;
        store.prepare_act();
        let Rollout { present: PresentRollout { instruction, record }, found } = read(store).await?;
        let order = instruction.order;
        if !hosts_of(&found).contains_key(&host) {
            return Err(Failure::no(format!("host {host} is not on the roster")));
        }
        if found.get(&Key::Ended(order)).is_some() {
            return Err(Failure::refused("the rollout has ended; nothing was changed"));
        }
        if found.get(&Key::Excused(order, host.clone())).is_some() {
            output::note(&format!("host {host} is excused already; nothing was written"));
            output.sorted_answer(
                &ExcusedAlready { host: &host, changed: false, revision: found.revision },
                |_| {},
            );
            return Ok(Exit::Yes);
        }
        if results(order, &record, &found).get(&host) == Some(&HostResult::Proven) {
            return Err(Failure::refused(format!("host {host} has the version; nothing was changed")));
        }
        let without = record_without(&host, order, &record, &found);
        let act = store.act("rollout excuse", Some(&self.reason)).await?;
        let excuse = ExcuseRecord { at: now(), by: act.by.clone(), reason: self.reason };
        let transaction = stage::excuse(&host, order, &excuse, &without, &found, &act);
        let committed = store.session.commit_act(&transaction, &act, store.deadline).await?;
        if !committed.applied {
            return Err(Failure::cannot_tell(
                "the rollout changed during the command; nothing was written, repeat the command",
            ));
        }
        output::note(&format!("the rollout of {} does not wait for {host}", instruction.version));
        let mut replaced = Vec::new();
        for (number, (stage, before)) in without.stages.iter().zip(&record.stages).enumerate() {
            for other in stage.hosts.difference(&before.hosts) {
                let stage = stage_name(&without.stages, u32::try_from(number).unwrap_or(u32::MAX));
                output::note(&format!("stage {stage}: {other} takes its place"));
                replaced.push(other.clone());
            }
            if stage.hosts.is_empty() && !before.hosts.is_empty() {
                let stage = &stage.rule.name;
                output::warn(&format!(
                    "stage {stage}: no agent of another host runs; the next stage opens without it"
                ));
            }
        }
        let revision = committed.revision;
        let answer = Excused { host: &host, changed: true, replaced_by: replaced, revision };
        output.sorted_answer(&answer, |_| {});
        Ok(Exit::Yes)
    }
}

/// What `rollout excuse` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Excused<'a> {
    host: &'a HostName,
    changed: bool,
    replaced_by: Vec<HostName>,
    revision: i64,
}

/// What `rollout excuse` answers if the host was excused before.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ExcusedAlready<'a> {
    host: &'a HostName,
    changed: bool,
    revision: i64,
}
