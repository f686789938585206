//! What one trigger says instead of the rollout policy.

use schema::codec;
use schema::limit::{CLAIM_NUMBERS, LimitBy};
use schema::names::StageName;
use schema::records::{
    LimitOption, LimitRule, LimitSize, RECORD_BYTES_MAX, RolloutOptions, RolloutPolicy, RolloutRecord,
    StageRule,
};
use std::collections::{BTreeMap, BTreeSet};

/// The name of the stage whose size an option gives.
const CANARY: &str = "canary";

/// Returns the policy of one rollout. An operator may make any of its numbers larger or smaller.
pub fn with_options(policy: &RolloutPolicy, options: &RolloutOptions) -> RolloutPolicy {
    let mut policy = policy.clone();
    for limit in &options.limits {
        set_limit(&mut policy.limits, limit);
    }
    if let Some(count) = options.canary {
        set_canary(&mut policy.stages, count);
    }
    if let Some(soak) = options.soak {
        policy.stages.iter_mut().for_each(|stage| stage.soak = Some(soak));
    }
    policy.failure_budget = options.budget.or(policy.failure_budget);
    policy.on_halt = options.on_halt.unwrap_or(policy.on_halt);
    policy
}

fn set_limit(limits: &mut Vec<LimitRule>, option: &LimitOption) {
    let rule = match limits.iter_mut().find(|rule| rule.by == option.by) {
        Some(rule) => rule,
        None => {
            // Hosts with other values are not limited.
            let (max, values) = (LimitSize::Percent(100), BTreeMap::new());
            limits.push(LimitRule { by: option.by.clone(), max, values, keep_failed: None });
            let last = limits.len() - 1;
            &mut limits[last]
        }
    };
    match &option.value {
        Some(value) => drop(rule.values.insert(value.clone(), option.max)),
        // It is about every value; those that the policy holds to less stay so.
        None => {
            rule.max = option.max;
            rule.values.retain(|_, size| match (*size, option.max) {
                (LimitSize::Hosts(size), LimitSize::Hosts(max))
                | (LimitSize::Percent(size), LimitSize::Percent(max)) => size < max,
                (size, _) => size == LimitSize::Hosts(0) || size == LimitSize::Percent(0),
            });
        }
    }
}

fn set_canary(stages: &mut Vec<StageRule>, count: u32) {
    if let Some(stage) = stages.iter_mut().find(|stage| stage.name.as_str() == CANARY) {
        (stage.count, stage.share) = (Some(count), None);
        return;
    }
    let Ok(name) = StageName::new(CANARY) else { return };
    let select = BTreeMap::<LimitBy, BTreeSet<_>>::new();
    stages.insert(0, StageRule { name, select, count: Some(count), share: None, soak: None });
}

/// Why a running rollout cannot have other numbers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordChangeError {
    /// The new size of a limit is a percentage.
    #[error("the limit by {0} of a running rollout is a number, not a percentage")]
    Percentage(LimitBy),
    /// The new size of a limit is too large.
    #[error("the limit by {by} is {max}; the largest is {}", CLAIM_NUMBERS - 1)]
    LargeLimit {
        /// What the limit is by.
        by: LimitBy,
        max: u32,
    },
    /// The rollout does not have the limit.
    #[error("the rollout has no limit by {0}")]
    NoLimit(LimitBy),
    /// The rollout does not count failed hosts.
    #[error("the rollout has no failure budget, so that hosts which started do not count")]
    NoBudget,
    /// The new record would have this many bytes.
    #[error("the record of the rollout would have {0} bytes, at most {RECORD_BYTES_MAX} are allowed")]
    LargeRecord(usize),
}

/// Returns the record of a running rollout with other numbers. It gets no limit that it does not have.
///
/// # Errors
/// Returns why the record cannot have these numbers.
pub fn record_with(
    record: &RolloutRecord,
    limits: &[LimitOption],
    budget: Option<u32>,
) -> Result<RolloutRecord, RecordChangeError> {
    let mut record = record.clone();
    for LimitOption { by, value, max } in limits {
        let LimitSize::Hosts(max) = *max else {
            return Err(RecordChangeError::Percentage(by.clone()));
        };
        if max >= CLAIM_NUMBERS {
            return Err(RecordChangeError::LargeLimit { by: by.clone(), max });
        }
        let limit = record.limits.iter_mut().find(|limit| limit.by == *by);
        let limit = limit.ok_or_else(|| RecordChangeError::NoLimit(by.clone()))?;
        match value {
            Some(value) => drop(limit.values.insert(value.clone(), max)),
            None => {
                limit.max = max;
                // The others may come from a percentage.
                limit.values.retain(|_, size| *size == 0);
            }
        }
    }
    if budget.is_some() && record.budget.is_none() {
        return Err(RecordChangeError::NoBudget);
    }
    record.budget = budget.or(record.budget);
    let bytes = codec::write(&record).len();
    if bytes > RECORD_BYTES_MAX {
        return Err(RecordChangeError::LargeRecord(bytes));
    }
    Ok(record)
}
