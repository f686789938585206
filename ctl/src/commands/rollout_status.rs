//! `rollout status` and `rollout excuse`: how far the rollout of the desired version is, and which host it does not wait
//! for.

use super::context::{Store, host_of, now};
use super::rollout_text::{HOSTS_NAMED, failures, heading, numbers};
use super::watch::Answer;
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use etcd_session::StoreError;
use planning::rollout::{
    FailedHostView, HostResult, Obstacle, Outlook, RolloutState, RolloutSummary, StageState, StageSummary,
    failed_hosts, forecast_reads, governs, hosts_of, next_window, record_without, results, stage_name,
    summary,
};
use planning::text::{rfc3339, rough};
use schema::codec;
use schema::instruction::Instruction;
use schema::keys::Key;
use schema::limit::Place;
use schema::order::InstructionOrder;
use schema::records::{Excuse, RolloutRecord, Trigger, Window};
use schema::snapshot::KeySnapshot;
use schema::writes::stage;
use serde_json::json;
use std::cell::Cell;

/// The rollout of the desired version.
pub(super) struct Rollout {
    pub(super) instruction: Instruction,
    pub(super) record: RolloutRecord,
    /// Everything that was read, at one revision.
    pub(super) found: KeySnapshot,
}

/// Reads the rollout of the desired version.
pub(super) async fn read(store: &Store<'_>) -> Result<Rollout, Failure> {
    read_at(None, store).await
}

/// Reads the rollout of the desired version, as of a revision if one is given.
async fn read_at(at: Option<i64>, store: &Store<'_>) -> Result<Rollout, Failure> {
    let (session, deadline) = (&store.session, store.deadline);
    let keys = [Key::Store, Key::CurrentVersion, Key::RolloutPolicy, Key::Trigger];
    let mut found = session.read_all(&keys, &[], at, deadline).await?;
    let instruction =
        Instruction::find(&found).ok_or_else(|| Failure::refused("the fleet has no desired version"))?;
    let order = instruction.order;
    let (keys, ranges) = forecast_reads(order);
    let more = session.read_all(&keys, &ranges, Some(found.revision), deadline).await?;
    found.entries.extend(more.entries);
    let Some(record) = found.get(&Key::RolloutRecord(order)) else {
        let version = &instruction.version;
        return Err(match governs(order, &found) {
            true => Failure::cannot_tell(format!(
                "the record of the rollout of {version} is not written yet; repeat the command"
            )),
            false => Failure::refused(format!(
                "no rollout policy governs {version}; `orchestrate status` shows the hosts"
            )),
        });
    };
    let record = codec::read(&record.value)
        .map_err(|error| Failure::cannot_tell(format!("{}: {error}", Key::RolloutRecord(order))))?;
    Ok(Rollout { instruction, record, found })
}

impl Rollout {
    fn outlook(&self, summary: &RolloutSummary) -> Outlook {
        Outlook::new((self.instruction.order, &self.record), &self.found, summary, now())
    }
}

/// Says that no window is open, and when the next one opens, by the clock of this machine.
fn closed(windows: &[Window]) -> Option<String> {
    let next = next_window(windows, Place(0), now()).transpose()?;
    Some(next.map_or_else(|why| why, |next| Obstacle::OutsideWindow(next).to_string()))
}

/// Returns how the present rollout goes on, as of a revision; `None` if it has no record.
pub(super) async fn outlook(revision: i64, store: &Store<'_>) -> Result<Option<Outlook>, StoreError> {
    match read_at(Some(revision), store).await {
        Ok(rollout) => {
            let Rollout { instruction, record, found } = &rollout;
            Ok(Some(rollout.outlook(&summary(instruction.order, record, found))))
        }
        Err(failure) => match failure.error.downcast::<StoreError>() {
            Ok(error) => Err(error),
            // What cannot be read was said with the failures.
            Err(_) => Ok(None),
        },
    }
}

/// Prints how far the rollout is. `followed` is the one that was shown first: an answer about another one would be
/// taken for its end.
pub(super) async fn status(
    followed: &Cell<Option<InstructionOrder>>,
    store: &Store<'_>,
    output: &mut Output,
) -> Result<Answer, Failure> {
    let rollout = read(store).await?;
    let Rollout { instruction, record, found } = &rollout;
    if followed.get().is_some_and(|followed| followed != instruction.order) {
        let by = record.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
        let what = if record.rollback { "rolled back to" } else { "replaced by" };
        let version = &instruction.version;
        return Err(Failure::refused(format!("the rollout was {what} {version}{by} before its end")));
    }
    followed.set(Some(instruction.order));
    let summary = summary(instruction.order, record, found);
    let (word, why, exit) = match RolloutState::of(instruction.order, record, found) {
        RolloutState::Ended => ("ended", None, Exit::Yes),
        RolloutState::Refused(why) => ("refused", Some(why), Exit::Refused),
        RolloutState::Halted(why) => ("halted", Some(why), Exit::Refused),
        RolloutState::Frozen(why) => ("frozen", Some(why), Exit::Refused),
        RolloutState::GoesOn => {
            ("goes on", summary.why.clone().or_else(|| closed(&record.windows)), Exit::No)
        }
    };
    let outlook = rollout.outlook(&summary);
    // Somebody may have put the version without a word about it.
    let trigger = found.get(&Key::Trigger).filter(|entry| entry.mod_revision == instruction.order.revision);
    let trigger = trigger.and_then(|entry| codec::read::<Trigger>(&entry.value).ok());
    let from = trigger.and_then(|trigger| trigger.from);
    let failed: Vec<_> = failed_hosts(instruction.order, 0, found).collect();
    let counted = failed_hosts(instruction.order, record.counted_from, found).count();
    // Somebody has to resume a halted rollout, and a refused one never starts.
    let is_final = matches!(word, "ended" | "halted" | "refused");
    let answer = json!({
        "version": instruction.version,
        "rollout_id": instruction.order.to_string(),
        "from_version": from,
        "by": record.by,
        "reason": record.reason,
        "at": rfc3339(record.at),
        "good_version": record.good,
        "rollback": record.rollback,
        "state": word.replace(' ', "_"),
        "why": why,
        "stages": summary.stages,
        "limits": record.limits,
        "failure_budget": record.budget,
        "failure_count": counted,
        "failed": failed.iter().map(FailedHostView::from).collect::<Vec<_>>(),
        "waits_for": summary.waits_for,
        "to_go_seconds": outlook.to_go_seconds(),
        "host_takes_seconds": outlook.host_takes_seconds(),
        "revision": found.revision,
    });
    output.answer(&answer, |_| {});
    if output.is_json() {
        return Ok(Answer { exit, is_final });
    }
    output.line(&heading(record, from.as_ref(), &summary.stages));
    let now = now();
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
    output.table(header, summary.stages.iter().enumerate().map(row));
    numbers(record, counted).iter().for_each(|line| output.line(line));
    failures(&failed).iter().for_each(|line| output.line(line));
    match (why, exit) {
        (Some(why), _) => output.line(&why),
        (None, Exit::Yes) => output.line("the rollout has ended"),
        _ => {}
    }
    let hosts: Vec<&str> = summary.waits_for.iter().take(HOSTS_NAMED).map(|host| host.as_str()).collect();
    let more = summary.waits_for.len() - hosts.len();
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    if !hosts.is_empty() {
        output.line(&format!("it waits for {}{more}; `orchestrate why HOST` says more", hosts.join(" ")));
    }
    outlook.to_go().iter().for_each(|to_go| output.line(to_go));
    Ok(Answer { exit, is_final })
}

/// Writes that the rollout does not wait for a host. If a stage chose the host, another one takes its place.
pub(super) async fn excuse(
    host: &str,
    reason: &str,
    store: &Store<'_>,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let host = host_of(host)?;
    store.prepare_act();
    let Rollout { instruction, record, found } = read(store).await?;
    let order = instruction.order;
    if !hosts_of(&found).contains_key(&host) {
        return Err(Failure::no(format!("host {host} is not on the roster")));
    }
    if found.get(&Key::Ended(order)).is_some() {
        return Err(Failure::refused("the rollout has ended; nothing was changed"));
    }
    if found.get(&Key::Excused(order, host.clone())).is_some() {
        output::note(&format!("host {host} is excused already; nothing was written"));
        output.answer(&json!({ "host": host, "changed": false, "revision": found.revision }), |_| {});
        return Ok(Exit::Yes);
    }
    if results(order, &record, &found).get(&host) == Some(&HostResult::Proven) {
        return Err(Failure::refused(format!("host {host} has the version; nothing was changed")));
    }
    let without = record_without(&host, (order, &record), &found);
    let act = store.act("rollout excuse", Some(reason)).await?;
    let excuse = Excuse { at: now(), by: act.by.clone(), reason: reason.to_owned() };
    let transaction = stage::excuse((&host, order), (&excuse, &without), &found, &act);
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
    let answer = json!({
        "host": host, "changed": true, "replaced_by": replaced, "revision": committed.revision,
    });
    output.answer(&answer, |_| {});
    Ok(Exit::Yes)
}
