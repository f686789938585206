//! The page of rollouts: the present one stage by stage, and what became of the last ones.

use super::chart::Chart;
use super::offered::{Offered, about_rollout};
use super::table::{Cell, Table};
use crate::http::shared::ViewInput;
use askama::Template;
use fleet::text::rough;
use fleet::views::{ClaimView, PastRollout, RolloutHistory};
use planning::calendar::rfc3339;
use planning::rollout::{NoRollout, PresentRollout, RolloutStatus, RolloutWord, StageState, StageSummary};
use schema::records::FailedHost;
use schema::time::EpochSeconds;

#[derive(Template)]
#[template(path = "rollouts.html")]
pub(super) struct RolloutsPage {
    present: Result<Present, NoPresent>,
    history: Table,
}

/// Why nothing is shown of a present rollout.
struct NoPresent {
    heading: &'static str,
    why: String,
}

struct Present {
    status: RolloutStatus,
    at: Option<String>,
    state: &'static str,
    limits: String,
    outlook: String,
    waits_for: Cell,
    chart: Option<Chart>,
    commands: Vec<Offered>,
    tables: Vec<Table>,
}

impl RolloutsPage {
    pub(super) fn new(seen: &ViewInput<'_>) -> Self {
        let found = seen.found();
        let present = PresentRollout::find(found).map_err(|why| NoPresent {
            heading: match why {
                NoRollout::Unreadable(_) => "The rollout cannot be read",
                NoRollout::NotWritten(_) => "The rollout begins",
                NoRollout::NoVersion | NoRollout::NotGoverned(_) => "No rollout",
            },
            why: why.to_string(),
        });
        let history = RolloutHistory::read(found);
        let row = |past: &PastRollout| {
            let [version, _, by, failed, outcome, reason] = past.row();
            [
                Cell::text(version),
                Cell::time(past.at.as_deref()),
                Cell::text(by),
                Cell::Number(failed),
                Cell::text(outcome),
                Cell::text(reason),
            ]
        };
        let header = &["Version", "At", "By", "Failed", "Outcome", "Reason"];
        let history = Table::new("history", "All rollouts", header, history.rollouts.iter().map(row));
        Self { present: present.map(|present| Present::new(&present, seen)), history }
    }
}

impl Present {
    fn new(present: &PresentRollout, seen: &ViewInput<'_>) -> Self {
        let (found, now) = (seen.found(), seen.now);
        let status = RolloutStatus::new(present, found, now);
        let order = present.instruction.order;
        let hosts = status.stages.iter().map(|stage| stage.host_count).sum();
        let state = match status.state {
            RolloutWord::Ended => "ended",
            RolloutWord::Refused => "refused",
            RolloutWord::Halted => "halted",
            RolloutWord::Frozen => "frozen",
            RolloutWord::GoesOn => "goes on",
        };
        let commands = about_rollout(status.state, status.version.as_str());
        Self {
            at: rfc3339(status.at),
            state,
            limits: status.numbers().unwrap_or_default(),
            outlook: status.outlook.to_string(),
            waits_for: Cell::hosts(&status.waits_for, None),
            chart: Chart::new(order, status.at, hosts, found, now),
            commands,
            tables: tables(&status, seen),
            status,
        }
    }
}

fn tables(status: &RolloutStatus, seen: &ViewInput<'_>) -> Vec<Table> {
    let stage = |stage: &StageSummary| {
        let number = Cell::number;
        [
            Cell::text(&stage.name),
            Cell::text(stage_state(stage, seen.now)),
            number(stage.host_count),
            number(stage.proven_count),
            number(stage.running_count),
            number(stage.failed_count),
            number(stage.waiting_count),
            number(stage.absent_count),
            number(stage.excused_count),
        ]
    };
    let failed = |(host, failed): &(schema::names::HostName, Option<FailedHost>)| {
        let reason = failed.as_ref().map_or("its failure cannot be read", |failed| &failed.reason);
        let cause = failed.as_ref().and_then(|failed| failed.cause.as_ref()).map(|cause| cause.line.clone());
        [
            Cell::host(host),
            Cell::time(failed.as_ref().and_then(|failed| rfc3339(failed.at)).as_deref()),
            Cell::text(reason),
            Cell::text(cause.unwrap_or_default()),
        ]
    };
    let claim = |claim: &ClaimView| {
        let [limit, number, host, purposes, agent, _] = claim.row();
        let since = claim.claim.as_ref().and_then(|claim| rfc3339(claim.since));
        let host = claim.claim.as_ref().map_or_else(|| Cell::text(host), |claim| Cell::host(&claim.host));
        [
            host,
            Cell::text(format!("{limit} number {number}")),
            Cell::text(purposes),
            Cell::text(agent),
            Cell::time(since.as_deref()),
        ]
    };
    let tables = [
        Table::new(
            "stages",
            "Stages",
            &["Stage", "State", "Hosts", "Proven", "Running", "Failed", "Waiting", "Off", "Excused"],
            status.stages.iter().map(stage),
        )
        .json("/v1/rollout"),
        Table::new(
            "failed",
            "Failed in this rollout",
            &["Host", "At", "Reason", "Cause"],
            status.failed.iter().map(failed),
        )
        .json("/v1/rollout"),
        Table::new(
            "holders",
            "Hosts that hold claims",
            &["Host", "Claim", "For", "Agent", "Since"],
            ClaimView::all(seen.found()).collect::<Vec<_>>().iter().map(claim),
        ),
    ];
    tables.into_iter().filter(|table| !table.is_left_out()).collect()
}

fn stage_state(stage: &StageSummary, now: EpochSeconds) -> String {
    match (stage.state, stage.soak_ends_at) {
        (StageState::Closed, _) => "closed".into(),
        (StageState::Open, _) => "open".into(),
        (StageState::Soaking, Some(ends)) if ends > now => {
            format!("observed, {} left", rough(ends.0.abs_diff(now.0)))
        }
        (StageState::Soaking, _) => "observed".into(),
    }
}
