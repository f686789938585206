//! How far a rollout is, stage by stage.

use super::failures::failed_hosts;
use super::opening::Members;
use super::results::{HostResult, has_started};
use super::soak::read_soak;
use super::stages::{open_stage, stage_name};
use super::stuck::{held_by_vanished, stuck_limits};
use crate::calendar::as_rfc3339;
use schema::keys::Key;
use schema::names::HostName;
use schema::order::InstructionOrder;
use schema::records::RolloutRecord;
use schema::snapshot::KeySnapshot;
use schema::time::EpochSeconds;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeSet;

/// How far the hosts of a stage are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct StageSummary {
    /// The name of the stage.
    pub name: String,
    /// Whether its hosts may start, and whether they are observed before the next stage opens.
    pub state: StageState,
    /// When its soak ends; `None` if none runs.
    #[serde(serialize_with = "as_rfc3339")]
    #[schemars(with = "Option<String>")]
    pub soak_ends_at: Option<EpochSeconds>,
    /// Number of its hosts.
    pub host_count: usize,
    /// Hosts that have the version.
    pub proven_count: usize,
    /// Hosts that are being updated.
    pub running_count: usize,
    /// Hosts that failed or were lost.
    pub failed_count: usize,
    /// Hosts that have not started.
    pub waiting_count: usize,
    /// Hosts whose agents do not run: they have not started, or they were proven and vanished.
    pub absent_count: usize,
    /// Hosts that an operator excused.
    pub excused_count: usize,
}

/// Whether the hosts of a stage may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StageState {
    /// Its hosts may not start: an earlier stage comes first.
    #[default]
    Closed,
    /// Its hosts may start.
    Open,
    /// Its hosts are through, and are observed before the next stage opens.
    Soaking,
}

/// How far a rollout is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RolloutSummary {
    /// The stages, in order.
    pub stages: Vec<StageSummary>,
    /// The hosts for which the next stage waits, or the end of the rollout if all stages are open.
    pub waits_for: Vec<HostName>,
    /// Why it goes no further without an operator; `None` if it does.
    pub why: Option<String>,
}

/// Returns how far a rollout is. `found` holds everything that [`end_reads`](super::end_reads) names.
pub fn summary(order: InstructionOrder, record: &RolloutRecord, found: &KeySnapshot) -> RolloutSummary {
    let members = Members::read(order, record, found);
    let failed: BTreeSet<HostName> = failed_hosts(order, 0, found).map(|(host, _)| host).collect();
    let has_ended = found.get(&Key::Ended(order)).is_some();
    let rest = u32::try_from(record.stages.len()).unwrap_or(u32::MAX);
    let open = if has_ended { rest } else { open_stage(order, &record.stages, found) };
    let stages = (0..=rest).map(|number| {
        let soak = if number == open { read_soak(order, &record.stages, number, found) } else { None };
        let state = match number <= open {
            true if soak.is_some() => StageState::Soaking,
            true => StageState::Open,
            false => StageState::Closed,
        };
        let name = stage_name(&record.stages, number).to_string();
        let soak_ends_at = soak.and_then(|soak| soak.ends);
        let mut stage = StageSummary { name, state, soak_ends_at, ..StageSummary::default() };
        for (host, result) in members.all_of_stage(number) {
            stage.host_count += 1;
            *match result {
                HostResult::Proven => &mut stage.proven_count,
                HostResult::Failed => &mut stage.failed_count,
                HostResult::Absent | HostResult::Vanished => &mut stage.absent_count,
                HostResult::Excused => &mut stage.excused_count,
                // It tries again, and counts as failed until it is proven.
                HostResult::Pending if failed.contains(host) => &mut stage.failed_count,
                HostResult::Pending if has_started(host, order, found) => &mut stage.running_count,
                HostResult::Pending => &mut stage.waiting_count,
            } += 1;
        }
        stage
    });
    let pending = |(host, result): (&HostName, &HostResult)| {
        let is_pending = matches!(result, HostResult::Pending | HostResult::Vanished);
        (is_pending && !has_ended).then(|| host.clone())
    };
    let waits_for: Vec<HostName> = if open == rest {
        members.results.iter().filter_map(pending).collect()
    } else {
        members.unsettled(open).map(|(host, _)| host.clone()).collect()
    };
    let stages: Vec<StageSummary> = stages.collect();
    let why = if waits_for.is_empty() {
        stages_without_proof(&stages, open, rest)
    } else {
        let stuck = || stuck_limits(order, record, &members.results, found);
        let vanished = || held_by_vanished(order, record, &members.results, found);
        members.held_by_freezes(&waits_for).or_else(stuck).or_else(vanished)
    };
    RolloutSummary { stages, why: if has_ended { None } else { why }, waits_for }
}

/// Says that no host of a stage has the version, though it waits for none of them: all of them failed or are off.
fn stages_without_proof(stages: &[StageSummary], open: u32, rest: u32) -> Option<String> {
    let says = |hosts: &str, failed: usize, absent: usize| {
        let how = format!("{failed} failed, {absent} off");
        format!("no host {hosts} is proven: {how}; `orchestrate rollout excuse HOST` goes on without one")
    };
    if open == rest {
        let sum = |count: fn(&StageSummary) -> usize| stages.iter().map(count).sum::<usize>();
        let is_proven = sum(|stage| stage.proven_count) > 0;
        return (!is_proven)
            .then(|| says("of the rollout", sum(|s| s.failed_count), sum(|s| s.absent_count)));
    }
    let stage = stages.get(open as usize)?;
    let is_stuck = stage.proven_count == 0
        && stage.host_count > stage.excused_count
        && stage.state != StageState::Soaking;
    is_stuck.then(|| says(&format!("of stage {}", stage.name), stage.failed_count, stage.absent_count))
}
