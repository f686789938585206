//! The file of a rollout policy, in TOML.

use super::resolve::unusable;
use crate::settings::{SettingsError, settings_error};
use schema::limit::LimitBy;
use schema::names::LimitValue;
use schema::records::{LimitRule, LimitSize, OnHalt, RolloutPolicy};
use schema::time::Span;
use serde::Deserialize;
use std::collections::BTreeMap;

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

/// Reads the text of a policy. `file` is its name, for messages.
///
/// # Errors
/// Returns what is wrong, and where.
pub fn read_policy(file: &str, text: &str) -> Result<RolloutPolicy, SettingsError> {
    let read: PolicyFile = toml::from_str(text).map_err(|error| settings_error(file, text, &error))?;
    let rule = |LimitTable { by, max, values, keep_failed }| LimitRule { by, max, values, keep_failed };
    let PolicyFile { limit, lost_after, progress_deadline, failure_budget, charge_for, on_halt, hold } = read;
    let (limits, none) = (limit.into_iter().map(rule).collect(), RolloutPolicy::default());
    let policy = RolloutPolicy { limits, lost_after, progress_deadline, failure_budget, charge_for, ..none };
    let policy = RolloutPolicy { on_halt, hold, ..policy };
    match unusable(&policy) {
        Some(message) => Err(SettingsError { file: file.to_owned(), line: None, message }),
        None => Ok(policy),
    }
}
