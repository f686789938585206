//! Turns a policy into the record of a rollout: percentages become numbers.

use super::opening::hosts_of;
use super::options::with_options;
use super::rules::Times;
use super::stages::resolve_stages;
use super::window::zone_of;
use schema::codec;
use schema::instruction::Instruction;
use schema::keys::{self, Key, Prefix};
use schema::limit::{Limit, LimitBy};
use schema::names::{HostName, LimitValue, StageName, Version};
use schema::records::{
    CHARGE_FOR, LOST_AFTER, LimitRule, LimitSize, OnHalt, PROGRESS_DEADLINE, RECORD_BYTES_MAX, ResolvedLimit,
    RolloutOptions, RolloutPolicy, RolloutRecord, RosterEntry, STAGES_MAX, StageRule, Trigger, WINDOWS_MAX,
    Window,
};
use schema::snapshot::KeySnapshot;
use schema::time::{EpochSeconds, Span};
use std::collections::BTreeMap;
use std::time::Duration;

/// The ranges from which the record of a rollout follows: the roster, the hosts whose agents run, the freezes, and the
/// earlier rollouts.
pub const RECORD_RANGES: [Prefix; 4] = [Prefix::Hosts, Prefix::Lives, Prefix::Freezes, Prefix::Rollouts];

/// Returns the record of a rollout that begins now. `found` holds the keys of
/// [`record_keys`](schema::writes::rollout::record_keys) and the ranges of [`RECORD_RANGES`], at one revision. A policy that cannot be used gives a record that lets no host start, and says why.
pub fn resolve(instruction: &Instruction, found: &KeySnapshot, at: EpochSeconds) -> RolloutRecord {
    let version = &instruction.version;
    let trigger = Trigger::find(found);
    let rollback = trigger.as_ref().is_some_and(|trigger| trigger.rollback);
    let none = |refused| {
        let (by, reason) = match &trigger {
            Some(trigger) => (Some(trigger.by.clone()), trigger.reason.clone()),
            None => (None, None),
        };
        let good = good_version(instruction, found);
        let good = if rollback && has_worked(version, found) { Some(version.clone()) } else { good };
        RolloutRecord { refused, by, reason, good, rollback, ..RolloutRecord::new(version.clone(), at) }
    };
    let options = trigger.as_ref().map(|trigger| trigger.options.clone()).unwrap_or_default();
    let numbers = numbers_of_policy(&options, found);
    let PolicyNumbers { limits, stages, windows, times, budget, on_halt } = match numbers {
        Ok(numbers) => numbers,
        Err(why) => return none(Some(why)),
    };
    let Times { lost_after, progress_deadline, charge_for, hold } = times;
    // Nothing is rolled back twice.
    let on_halt = if rollback { OnHalt::Stop } else { on_halt };
    let record = RolloutRecord { limits, lost_after, progress_deadline, charge_for, hold, ..none(None) };
    // The fleet goes back as fast as its limits allow.
    let (stages, windows) = if rollback { (Vec::new(), Vec::new()) } else { (stages, windows) };
    let stages = resolve_stages(&stages, version, &hosts_of(found), found);
    let record = RolloutRecord { budget, on_halt, stages, windows, ..record };
    let bytes = codec::write(&record).len();
    if bytes > RECORD_BYTES_MAX {
        let why = format!(
            "the record of the rollout would have {bytes} bytes, at most {RECORD_BYTES_MAX} are allowed: its stages choose too many hosts, or too many values have a limit of their own"
        );
        return none(Some(why));
    }
    record
}

/// Returns the version to go back to when the rollout of an instruction fails: the one before it if its
/// rollout has ended, else the one that the rollout before it would have gone back to. A rollout of the same version
/// leads back to where that one would: whoever writes a version again keeps the way back. `None` if no such
/// version is known, also because versions were rolled out without a policy in between. `found` holds the policy
/// and the keys of all rollouts.
pub fn good_version(instruction: &Instruction, found: &KeySnapshot) -> Option<Version> {
    let policy = keys::RolloutPolicy::read(&found.get(&Key::RolloutPolicy)?.value).ok()?;
    let records = found.entries.iter().filter_map(|(key, entry)| match Key::parse(key) {
        Ok(Key::RolloutRecord(of)) if of < instruction.order => Some((of, entry)),
        _ => None,
    });
    let (before, entry) = records.max_by_key(|(of, _)| *of)?;
    if before.revision <= policy.since {
        return None;
    }
    let record = keys::RolloutRecord::read(&entry.value).ok()?;
    let has_ended = found.get(&Key::Ended(before)).is_some();
    if has_ended && record.version != instruction.version { Some(record.version) } else { record.good }
}

/// True if a rollout of this version has ended.
fn has_worked(version: &Version, found: &KeySnapshot) -> bool {
    found.entries.iter().any(|(key, entry)| match Key::parse(key) {
        Ok(Key::RolloutRecord(of)) if found.get(&Key::Ended(of)).is_some() => {
            keys::RolloutRecord::read(&entry.value).is_ok_and(|record| record.version == *version)
        }
        _ => false,
    })
}

/// What a policy says, with numbers.
pub(super) struct PolicyNumbers {
    pub(super) limits: Vec<ResolvedLimit>,
    pub(super) stages: Vec<StageRule>,
    pub(super) windows: Vec<Window>,
    pub(super) times: Times,
    /// How many failed hosts are tolerated.
    pub(super) budget: Option<u32>,
    pub(super) on_halt: OnHalt,
}

/// Returns what the policy says with the options of one rollout. `found` holds the policy and the whole roster.
///
/// # Errors
/// Returns why the policy cannot be used.
pub(super) fn numbers_of_policy(
    options: &RolloutOptions,
    found: &KeySnapshot,
) -> Result<PolicyNumbers, String> {
    let policy = match found.read(keys::RolloutPolicy) {
        Some(policy) => policy.map_err(|error| format!("the rollout policy cannot be read: {error}"))?,
        None => RolloutPolicy::default(),
    };
    let policy = with_options(&policy, options);
    if let Some(why) = unusable(&policy) {
        return Err(why);
    }
    // A host whose entry cannot be read starts nothing, so it does not raise a percentage.
    let hosts = found.entries.iter().filter_map(|(key, entry)| match Key::parse(key) {
        Ok(Key::Host(_)) => keys::Host::read(&entry.value).ok(),
        _ => None,
    });
    let hosts: Vec<RosterEntry> = hosts.filter(|roster| roster.decommissioned.is_none()).collect();
    let limits = policy.limits.iter().map(|rule| resolve_limit(rule, &hosts)).collect();
    let times = Times {
        lost_after: policy.lost_after.unwrap_or(LOST_AFTER),
        progress_deadline: policy.progress_deadline.unwrap_or(PROGRESS_DEADLINE),
        charge_for: policy.charge_for.unwrap_or(CHARGE_FOR),
        hold: policy.hold,
    };
    let count = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
    let budget = policy.failure_budget.map(|budget| budget.of(count));
    Ok(PolicyNumbers {
        limits,
        stages: policy.stages,
        windows: policy.windows,
        times,
        budget,
        on_halt: policy.on_halt,
    })
}

/// Largest number of hosts of each role that a stage chooses. The record names them.
const CHOSEN_MAX: u32 = 100;

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
        ("hold", policy.hold),
    ];
    for (name, span) in spans {
        if let Some(span) = span.filter(|span| !(shortest..=longest).contains(span)) {
            return Some(format!("{name} is {span}; it must be from {shortest} to {longest}"));
        }
    }
    // Otherwise all hosts could fail at the same time before the first failure counts.
    if policy.on_halt == OnHalt::RollBack && policy.failure_budget.is_none() {
        return Some(
            "on_halt = \"roll_back\" needs a failure_budget: without one nothing halts a rollout".into(),
        );
    }
    if policy.failure_budget.is_some() && !policy.limits.iter().any(|rule| rule.by == LimitBy::Fleet) {
        return Some(
            "failure_budget needs a limit by fleet: it bounds how many hosts can fail at once".into(),
        );
    }
    if let Some(why) = unusable_stages(policy).or_else(|| unusable_windows(&policy.windows)) {
        return Some(why);
    }
    let charge_for = policy.charge_for.unwrap_or(CHARGE_FOR);
    if let Some(hold) = policy.hold.filter(|hold| *hold > charge_for) {
        return Some(format!("hold is {hold}; it must not be longer than charge_for, {charge_for}"));
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

/// Returns why the stages of a policy cannot be used; `None` if they can.
fn unusable_stages(policy: &RolloutPolicy) -> Option<String> {
    let stages = &policy.stages;
    if stages.len() > STAGES_MAX {
        return Some(format!("the policy has {} stages; at most {STAGES_MAX} are allowed", stages.len()));
    }
    // Otherwise nothing stops a version that fails on the hosts of a stage.
    if !stages.is_empty() && policy.failure_budget.is_none() {
        return Some(
            "a stage needs a failure_budget: it says how many hosts may fail before nothing goes on".into(),
        );
    }
    let [shortest, longest] = TIMES;
    for (number, stage) in stages.iter().enumerate() {
        let name = &stage.name;
        if *name == StageName::rest() {
            return Some(format!("a stage cannot be named {name}: that is the stage of all other hosts"));
        }
        if stages[..number].iter().any(|other| other.name == *name) {
            return Some(format!("the policy has two stages named {name}"));
        }
        if stage.select.contains_key(&LimitBy::Fleet) {
            return Some(format!("stage {name} selects by fleet; without select it selects all hosts"));
        }
        if let Some((by, _)) = stage.select.iter().find(|(_, values)| values.is_empty()) {
            return Some(format!("stage {name} selects no value of {by}"));
        }
        if stage.count.is_some() && stage.share.is_some() {
            return Some(format!("stage {name} has a count and a share; it can have one of them"));
        }
        if stage.count.is_some_and(|count| !(1..=CHOSEN_MAX).contains(&count)) {
            return Some(format!("the count of stage {name} must be from 1 to {CHOSEN_MAX}"));
        }
        if let Some(soak) = stage.soak.filter(|soak| !(shortest..=longest).contains(soak)) {
            return Some(format!(
                "the soak of stage {name} is {soak}; it must be from {shortest} to {longest}"
            ));
        }
    }
    None
}

/// Returns why the windows of a policy cannot be used; `None` if they can.
fn unusable_windows(windows: &[Window]) -> Option<String> {
    if windows.len() > WINDOWS_MAX {
        return Some(format!("the policy has {} windows; at most {WINDOWS_MAX} are allowed", windows.len()));
    }
    let equal = |window: &Window| {
        let all_day = "a whole day is from \"00:00\" to \"24:00\"";
        (window.from == window.to).then(|| format!("a window opens and closes at {}; {all_day}", window.from))
    };
    windows.iter().find_map(|window| match zone_of(window) {
        Ok(_) => equal(window),
        Err(error) => Some(error.to_string()),
    })
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

/// Returns the values for which the limits of a policy say a number of their own, and which no host has. They may be
/// misspelt.
pub fn absent_values(policy: &RolloutPolicy, roster: &BTreeMap<HostName, RosterEntry>) -> Vec<Limit> {
    let named = |rule: &LimitRule| {
        let limit = |value: &LimitValue| Limit { by: rule.by.clone(), value: value.clone() };
        rule.values.keys().map(limit).collect::<Vec<_>>()
    };
    let is_of =
        |limit: &Limit, host: &RosterEntry| limit.by.of_host(host).ok().flatten().as_ref() == Some(limit);
    let all = policy.limits.iter().flat_map(named);
    all.filter(|limit| !roster.values().any(|host| is_of(limit, host))).collect()
}
