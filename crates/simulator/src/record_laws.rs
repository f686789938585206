//! The laws about records (R9): the numbers of a rollout follow from the policy and the roster that stood when its record
//! was written, and the version to go back to from the rollouts before. They are computed again here, from the words
//! of the policy and the manual.

use crate::laws::Writer;
use crate::store::{Change, Store};
use crate::violation::{Violation, broken};
use schema::keys::{self, Key, Prefix};
use schema::limit::LimitBy;
use schema::names::StageName;
use schema::order::InstructionOrder;
use schema::records::{LimitRule, LimitSize, RolloutPolicy, RolloutRecord, RosterEntry, StageRule, Trigger};

/// Checks the records that changes of one revision create.
pub(crate) fn check_records(changes: &[Change], writer: &Writer, store: &Store) -> Result<(), Violation> {
    if matches!(writer, Writer::Lease | Writer::Backup) {
        return Ok(());
    }
    for change in changes {
        let (Ok(Key::RolloutRecord(order)), Some(entry)) = (Key::parse(&change.key), &change.entry) else {
            continue;
        };
        let record = keys::RolloutRecord::read(&entry.value).ok().filter(|record| record.refused.is_none());
        if let Some(record) = record
            && entry.create_revision == entry.mod_revision
        {
            check_good(order, &record, store)?;
            check(&record, entry.mod_revision, store)?;
        }
    }
    Ok(())
}

/// The version to go back to is that of the rollout before if it ended with another version, else the one to which that
/// would have gone back. A rollback goes back to its own version, if that ever ended a rollout.
fn check_good(order: InstructionOrder, record: &RolloutRecord, store: &Store) -> Result<(), Violation> {
    let since = store.entry(&Key::RolloutPolicy.to_string());
    let since = since.and_then(|entry| keys::RolloutPolicy::read(&entry.value).ok());
    let Some(since) = since.map(|policy| policy.since) else { return Ok(()) };
    let has_ended = |of: InstructionOrder| store.entry(&Key::Ended(of).to_string()).is_some();
    let mut records: Vec<(InstructionOrder, RolloutRecord)> = Vec::new();
    for (key, entry) in store.list(&Prefix::Rollouts).entries {
        if let (Ok(Key::RolloutRecord(of)), Ok(record)) =
            (Key::parse(&key), keys::RolloutRecord::read(&entry.value))
        {
            records.push((of, record));
        }
    }
    let works = records.iter().any(|(of, of_then)| has_ended(*of) && of_then.version == record.version);
    let before = records.iter().filter(|(of, _)| *of < order).max_by_key(|(of, _)| *of);
    let expected = match before.filter(|(of, _)| of.revision > since) {
        _ if record.rollback && works => Some(&record.version),
        Some((of, before)) if has_ended(*of) && before.version != record.version => Some(&before.version),
        Some((_, before)) => before.good.as_ref(),
        None => None,
    };
    if record.good.as_ref() == expected {
        return Ok(());
    }
    broken("R9", format!("the record says that {:?} is good, and it is {expected:?}", record.good))
}

fn check(record: &RolloutRecord, revision: i64, store: &Store) -> Result<(), Violation> {
    let Some(policy) = store.entry(&Key::RolloutPolicy.to_string()) else { return Ok(()) };
    let Ok(policy) = keys::RolloutPolicy::read(&policy.value) else { return Ok(()) };
    let policy = with_options(policy, store);
    let found = store.list(&Prefix::Hosts);
    // The record does not compare the roster, so it may be older by a moment.
    let changed = |entry: &schema::snapshot::Entry| entry.mod_revision > revision - ROSTER_SETTLED;
    if found.entries.values().any(changed) {
        return Ok(());
    }
    let roster = found.entries.values().filter_map(|entry| keys::Host::read(&entry.value).ok());
    let roster: Vec<RosterEntry> = roster.filter(|entry| entry.decommissioned.is_none()).collect();
    let wanted: Vec<Option<u32>> = policy.stages.iter().map(|stage| stage.share).collect();
    let has: Vec<Option<u32>> = record.stages.iter().map(|stage| stage.rule.share).collect();
    if !record.rollback && wanted != has {
        return broken("R9", format!("the record has stages with {has:?} %, and the policy {wanted:?} %"));
    }
    let budget = policy.failure_budget.map(|size| number(size, roster.len() as u64));
    if record.budget.map(u64::from) != budget {
        let has = record.budget;
        return broken("R9", format!("the record tolerates {has:?} failed hosts, and the policy {budget:?}"));
    }
    for rule in &policy.limits {
        let value_of = |entry: &RosterEntry| match &rule.by {
            LimitBy::Fleet => Some("all".to_owned()),
            LimitBy::Role => entry.role.as_ref().map(ToString::to_string),
            LimitBy::Group => entry.group.as_ref().map(ToString::to_string),
            LimitBy::Label(label) => entry.labels.get(label.as_str()).cloned(),
        };
        let Some(resolved) = record.limits.iter().find(|resolved| resolved.by == rule.by) else {
            return broken("R9", format!("the record has no limit by {}", rule.by));
        };
        let mut counts = std::collections::BTreeMap::new();
        for value in roster.iter().filter_map(value_of) {
            *counts.entry(value).or_insert(0_u64) += 1;
        }
        for (value, hosts) in counts {
            let of_value = |of: &schema::names::LimitValue| of.as_str() == value;
            let size = rule.values.iter().find(|(of, _)| of_value(of)).map_or(rule.max, |(_, size)| *size);
            let wanted = number(size, hosts);
            let has =
                resolved.values.iter().find(|(of, _)| of_value(of)).map_or(resolved.max, |(_, max)| *max);
            if u64::from(has) != wanted {
                return broken(
                    "R9",
                    format!(
                        "the limit of {} {value} is {has}; {size} of {hosts} hosts are {wanted}",
                        rule.by
                    ),
                );
            }
        }
    }
    Ok(())
}

/// Returns what a policy and the trigger say together. Drawn triggers limit the fleet alone, where drawn policies have no
/// single values.
fn with_options(mut policy: RolloutPolicy, store: &Store) -> RolloutPolicy {
    let trigger = Trigger::find(&store.read(&[Key::CurrentVersion, Key::Trigger]));
    let Some(options) = trigger.map(|trigger| trigger.options) else { return policy };
    for option in options.limits {
        policy.limits.retain(|rule| rule.by != option.by);
        let (by, max, values) = (option.by, option.max, Default::default());
        policy.limits.push(LimitRule { by, max, values, keep_failed: None });
    }
    if let Some(count) = options.canary {
        let name = StageName::new("canary").unwrap_or_else(|_| unreachable!("a name"));
        let (select, count) = (Default::default(), Some(count));
        policy.stages.insert(0, StageRule { name, select, count, share: None, soak: None });
    }
    policy.failure_budget = options.budget.or(policy.failure_budget);
    policy
}

/// How many revisions ago the roster changed last when a record follows from the same one.
const ROSTER_SETTLED: i64 = 25;

/// Returns how many of these hosts a size stands for: rounded down, at least one, and none for nothing.
fn number(size: LimitSize, hosts: u64) -> u64 {
    match size {
        LimitSize::Hosts(number) => u64::from(number),
        LimitSize::Percent(0) => 0,
        LimitSize::Percent(percent) => (hosts * u64::from(percent) / 100).max(1),
    }
}
