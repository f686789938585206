//! The file of a rollout policy, in TOML.

use super::resolve::unusable;
use schema::limit::LimitBy;
use schema::names::{LimitValue, StageName};
use schema::records::{LimitRule, LimitSize, OnHalt, RolloutPolicy, StageRule, TimeOfDay, Weekdays, Window};
use schema::time::Span;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use toml_reader::{SettingsError, SettingsErrors};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyFile {
    #[serde(default)]
    limit: Vec<LimitTable>,
    lost_after: Option<Span>,
    progress_deadline: Option<Span>,
    failure_budget: Option<LimitSize>,
    charge_for: Option<Span>,
    #[serde(default)]
    on_halt: OnHalt,
    hold: Option<Span>,
    #[serde(default)]
    stage: Vec<StageTable>,
    #[serde(default)]
    window: Vec<WindowTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WindowTable {
    #[serde(default)]
    days: Weekdays,
    from: TimeOfDay,
    to: TimeOfDay,
    zone: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StageTable {
    name: StageName,
    #[serde(default)]
    select: BTreeMap<LimitBy, BTreeSet<LimitValue>>,
    count: Option<u32>,
    share: Option<LimitSize>,
    soak: Option<Span>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitTable {
    by: LimitBy,
    max: LimitSize,
    #[serde(default)]
    values: BTreeMap<LimitValue, LimitSize>,
    keep_failed: Option<bool>,
}

fn stage_rule(table: StageTable) -> Result<StageRule, String> {
    let StageTable { name, select, count, share, soak } = table;
    let share = match share {
        None => None,
        Some(LimitSize::Percent(percent)) => Some(percent),
        Some(LimitSize::Hosts(_)) => {
            return Err(format!(
                "the share of stage {name} is a percentage such as \"10%\"; count is a number"
            ));
        }
    };
    Ok(StageRule { name, select, count, share, soak })
}

/// Reads the text of a policy. `file` is its name, for messages.
///
/// # Errors
/// Returns what is wrong, and where.
pub fn read_policy(file: &str, text: &str) -> Result<RolloutPolicy, SettingsErrors> {
    let document = toml_reader::read::<PolicyFile>(text);
    let read = match document.content {
        Some((read, _)) if document.mistakes.is_empty() => read,
        _ => {
            let errors = document.mistakes.into_iter().map(|mistake| SettingsError::in_file(file, mistake));
            return Err(SettingsErrors(errors.collect()));
        }
    };
    let rule = |LimitTable { by, max, values, keep_failed }| LimitRule { by, max, values, keep_failed };
    let stages = read.stage.into_iter().map(stage_rule).collect::<Result<_, String>>();
    let stages = stages.map_err(|message| SettingsError::of_file(file, message))?;
    let PolicyFile {
        limit,
        lost_after,
        progress_deadline,
        failure_budget,
        charge_for,
        on_halt,
        hold,
        window: windows_of,
        ..
    } = read;
    let (limits, none) = (limit.into_iter().map(rule).collect(), RolloutPolicy::default());
    let policy = RolloutPolicy { limits, lost_after, progress_deadline, failure_budget, charge_for, ..none };
    let window = |WindowTable { days, from, to, zone }| Window { days, from, to, zone };
    let windows = windows_of.into_iter().map(window).collect();
    let policy = RolloutPolicy { on_halt, hold, stages, windows, ..policy };
    match unusable(&policy) {
        Some(message) => Err(SettingsError::of_file(file, message).into()),
        None => Ok(policy),
    }
}
