//! Turns a policy into the record of a rollout: percentages become numbers.

use super::rules::Times;
use schema::codec;
use schema::keys::Key;
use schema::limit::LimitBy;
use schema::names::{LimitValue, Version};
use schema::records::{
    CHARGE_FOR, LOST_AFTER, LimitRule, LimitSize, PROGRESS_DEADLINE, RECORD_BYTES_MAX, ResolvedLimit,
    RolloutPolicy, RolloutRecord, RosterEntry,
};
use schema::snapshot::KeySnapshot;
use schema::time::{EpochSeconds, Span};
use std::collections::BTreeMap;
use std::time::Duration;

/// Returns the record of a rollout that begins now. `found` holds the policy and the whole roster, at one
/// revision. A policy that cannot be used gives a record that lets no host start, and says why.
pub fn resolve(version: &Version, found: &KeySnapshot, at: EpochSeconds) -> RolloutRecord {
    let none = |refused| RolloutRecord { refused, ..RolloutRecord::new(version.clone(), at) };
    let PolicyNumbers { limits, times, budget } = match numbers_of_policy(found) {
        Ok(numbers) => numbers,
        Err(why) => return none(Some(why)),
    };
    let Times { lost_after, progress_deadline, charge_for } = times;
    let record = RolloutRecord { limits, lost_after, progress_deadline, charge_for, budget, ..none(None) };
    let bytes = codec::write(&record).len();
    if bytes > RECORD_BYTES_MAX {
        let why = format!(
            "the record of the rollout would have {bytes} bytes, at most {RECORD_BYTES_MAX} are allowed: too many values have a limit of their own"
        );
        return none(Some(why));
    }
    record
}

/// What a policy says, with numbers.
pub(super) struct PolicyNumbers {
    pub(super) limits: Vec<ResolvedLimit>,
    pub(super) times: Times,
    /// How many failed hosts are tolerated.
    pub(super) budget: Option<u32>,
}

/// Returns what the policy says. `found` holds the policy and the whole roster.
///
/// # Errors
/// Returns why the policy cannot be used.
pub(super) fn numbers_of_policy(found: &KeySnapshot) -> Result<PolicyNumbers, String> {
    let policy: RolloutPolicy = match found.get(&Key::RolloutPolicy) {
        Some(entry) => codec::read(&entry.value)
            .map_err(|error| format!("the rollout policy cannot be read: {error}"))?,
        None => RolloutPolicy::default(),
    };
    if let Some(why) = unusable(&policy) {
        return Err(why);
    }
    // A host whose entry cannot be read starts nothing, so it does not raise a percentage.
    let hosts = found.entries.iter().filter_map(|(key, entry)| match Key::parse(key) {
        Ok(Key::Host(_)) => codec::read::<RosterEntry>(&entry.value).ok(),
        _ => None,
    });
    let hosts: Vec<RosterEntry> = hosts.filter(|roster| roster.decommissioned.is_none()).collect();
    let limits = policy.limits.iter().map(|rule| resolve_limit(rule, &hosts)).collect();
    let times = Times {
        lost_after: policy.lost_after.unwrap_or(LOST_AFTER),
        progress_deadline: policy.progress_deadline.unwrap_or(PROGRESS_DEADLINE),
        charge_for: policy.charge_for.unwrap_or(CHARGE_FOR),
    };
    let count = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
    let budget = policy.failure_budget.map(|budget| budget.of(count));
    Ok(PolicyNumbers { limits, times, budget })
}

/// Largest number of limits in a policy: a start has three operations for each.
const LIMITS_MAX: usize = 16;

/// Shortest and longest time in a policy. A lease of etcd lives for some seconds at least.
const TIMES: [Span; 2] = [Span(Duration::from_secs(5)), Span(Duration::from_secs(30 * 24 * 60 * 60))];

/// Returns why a policy cannot be used; `None` if it can.
pub fn unusable(policy: &RolloutPolicy) -> Option<String> {
    let [shortest, longest] = TIMES;
    let spans = [
        ("lost_after", policy.lost_after),
        ("progress_deadline", policy.progress_deadline),
        ("charge_for", policy.charge_for),
    ];
    for (name, span) in spans {
        if let Some(span) = span.filter(|span| !(shortest..=longest).contains(span)) {
            return Some(format!("{name} is {span}; it must be from {shortest} to {longest}"));
        }
    }
    // Otherwise all hosts could fail at the same time before the first failure counts.
    if policy.failure_budget.is_some() && !policy.limits.iter().any(|rule| rule.by == LimitBy::Fleet) {
        return Some(
            "failure_budget needs a limit by fleet: it bounds how many hosts can fail at once".into(),
        );
    }
    if policy.limits.len() > LIMITS_MAX {
        return Some(format!(
            "the policy has {} limits; at most {LIMITS_MAX} are allowed",
            policy.limits.len()
        ));
    }
    for (number, rule) in policy.limits.iter().enumerate() {
        if policy.limits[..number].iter().any(|other| other.by == rule.by) {
            return Some(format!("the policy has two limits by {}", rule.by));
        }
        for size in std::iter::once(&rule.max).chain(rule.values.values()) {
            if let LimitSize::Hosts(hosts) = size
                && *hosts >= schema::limit::CLAIM_NUMBERS
            {
                let most = schema::limit::CLAIM_NUMBERS - 1;
                return Some(format!("the limit by {} is {hosts}; the largest is {most}", rule.by));
            }
        }
    }
    None
}

fn resolve_limit(rule: &LimitRule, hosts: &[RosterEntry]) -> ResolvedLimit {
    let mut counts: BTreeMap<LimitValue, u32> = BTreeMap::new();
    for host in hosts {
        // A value that is not valid has no limit; the host itself does not start.
        if let Ok(Some(limit)) = rule.by.of_host(host) {
            *counts.entry(limit.value).or_default() += 1;
        }
    }
    // A value that the record does not know belongs to hosts that joined later.
    let max = match rule.max {
        LimitSize::Hosts(number) => number,
        LimitSize::Percent(0) => 0,
        LimitSize::Percent(_) => 1,
    };
    let mut values = BTreeMap::new();
    for (value, hosts) in &counts {
        let size = rule.values.get(value).copied().unwrap_or(rule.max);
        values.insert(value.clone(), size.of(*hosts));
    }
    for (value, size) in &rule.values {
        values.entry(value.clone()).or_insert(size.of(0));
    }
    values.retain(|_, number| *number != max);
    ResolvedLimit { by: rule.by.clone(), max, values, keep_failed: rule.keep_failed }
}
