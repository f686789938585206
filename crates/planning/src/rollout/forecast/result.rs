//! What a forecast says when its run has ended.

use super::fleet::{Host, LimitOfFleet};
use super::run::{Doing, Run};
use super::types::{Forecast, ForecastHost, ForecastStage, Outcome};
use crate::rollout::results::HostResult;
use crate::rollout::stages::stage_name;
use schema::names::HostName;
use std::time::Duration;

fn outcome(run: &Run<'_>, host: usize) -> Outcome {
    let Host { result, stage, .. } = &run.fleet.hosts[host];
    let doing = &run.doing[host];
    match result {
        HostResult::Proven => Outcome::Proven,
        HostResult::Failed => Outcome::Failed,
        HostResult::Absent | HostResult::Vanished => Outcome::Off,
        HostResult::Excused => Outcome::Excused,
        HostResult::Pending if doing.starts.is_some() && doing.attempts > 0 => Outcome::Failed,
        HostResult::Pending if doing.starts.is_some() => Outcome::Running,
        HostResult::Pending => match (&doing.held, doing.waits) {
            (Some(why), _) => Outcome::Held(why.clone()),
            (None, Some(at)) => match &run.fleet.limits[at] {
                LimitOfFleet { limit, max: 0, .. } => Outcome::Held(format!("the limit of {limit} is 0")),
                LimitOfFleet { limit, .. } => Outcome::Waits(limit.clone()),
            },
            (None, None) if *stage > run.open => {
                let stage = stage_name(&run.input.record.stages, *stage);
                Outcome::Held(format!("stage {stage} does not open"))
            }
            (None, None) => Outcome::Held("the rollout is halted".into()),
        },
    }
}

/// Says why the rollout does not end.
fn why(run: &Run<'_>) -> Option<String> {
    if run.ends.is_some() {
        return None;
    }
    if let Some((_, why)) = &run.halt {
        return Some(format!("the rollout is halted: {why}"));
    }
    let members = run.members();
    let waits: Vec<&HostName> = if run.open == run.rest {
        let is_pending = |result: &HostResult| matches!(result, HostResult::Pending | HostResult::Vanished);
        let pending = members.results.iter().filter(|(_, result)| is_pending(result));
        pending.map(|(host, _)| host).collect()
    } else {
        members.unsettled(run.open).map(|(host, _)| host).collect()
    };
    let stages = &run.input.record.stages;
    let Some(first) = waits.first() else {
        let of = if run.open == run.rest {
            "the rollout".to_owned()
        } else {
            stage_name(stages, run.open).to_string()
        };
        return Some(format!("no host of {of} is proven"));
    };
    let at = run.fleet.hosts.iter().position(|host| host.name == **first)?;
    let why = match outcome(run, at) {
        Outcome::Failed => "it fails".to_owned(),
        Outcome::Off => "its agent does not run".to_owned(),
        Outcome::Held(why) => why,
        Outcome::Waits(limit) => format!("it waits for the limit of {limit}"),
        Outcome::Running | Outcome::Proven | Outcome::Excused => "it is not through".to_owned(),
    };
    let what = if run.open == run.rest {
        "the end of the rollout".to_owned()
    } else {
        format!("stage {}", stage_name(stages, members.next_stage(run.open, run.rest)))
    };
    let more = if waits.len() == 1 { String::new() } else { format!(" and {} more", waits.len() - 1) };
    Some(format!("{what} waits for {first}{more}: {why}"))
}

pub(super) fn result(run: &Run<'_>) -> Forecast {
    let hosts = 0..run.fleet.hosts.len();
    let mut hosts: Vec<(u32, ForecastHost)> = hosts
        .map(|at| {
            let Host { name, stage, place, .. } = &run.fleet.hosts[at];
            let Doing { starts, ends, .. } = run.doing[at];
            let outcome = outcome(run, at);
            (place.0, ForecastHost { host: name.clone(), stage: *stage, starts, ends, outcome })
        })
        .collect();
    hosts.sort_by_key(|(place, host)| (host.starts.is_none(), host.starts, *place, host.host.clone()));
    let hosts: Vec<ForecastHost> = hosts.into_iter().map(|(_, host)| host).collect();
    let stages = (0..=run.rest).map(|stage| {
        let of_stage = || hosts.iter().filter(|host| host.stage == stage);
        let is_through = run.pending[stage as usize] == 0;
        let ends = of_stage().filter_map(|host| host.ends).max();
        let opens = run.opened.get(&stage).copied();
        ForecastStage {
            name: stage_name(&run.input.record.stages, stage).to_string(),
            hosts: of_stage().count(),
            opens,
            ends: if is_through && opens.is_some() { ends.or(opens) } else { None },
        }
    });
    let stages = stages.collect();
    let why = why(run);
    let is_late = run.fleet.hosts.iter().any(|host| {
        // Both times are in whole seconds.
        let takes = host.takes.saturating_add(Duration::from_secs(1));
        let is_slow = host.running_for.is_some_and(|elapsed| elapsed > takes);
        host.running_for.is_some() && (is_slow || run.had_failed.contains(&host.name))
    });
    Forecast { is_late, stages, hosts, halt: run.halt.clone(), ends: run.ends, why }
}
