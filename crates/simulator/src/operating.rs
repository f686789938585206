//! What operators do in a simulated fleet with the numbers, the windows and the labels of its rollouts.

use crate::fleet::Fleet;
use planning::rollout::record_with;
use schema::codec;
use schema::instruction::Instruction;
use schema::keys::{self, Key};
use schema::limit::LimitBy;
use schema::names::{HostName, Version};
use schema::records::{
    LimitOption, LimitRule, LimitSize, RolloutOptions, RolloutPolicy, RosterEntry, Window,
};
use schema::time::Span;
use schema::transaction::Transaction;
use schema::writes::operator::{self, TargetRequest};
use schema::writes::rollout;
use std::collections::BTreeMap;
use std::time::Duration;

/// The label of drawn hosts.
const LABEL: &str = "rack";

fn limit(by: LimitBy, max: u32) -> LimitRule {
    LimitRule { by, max: LimitSize::Hosts(max), values: BTreeMap::new(), keep_failed: Some(false) }
}

/// Returns what one trigger says instead of the policy.
fn options_of(seed: u64) -> RolloutOptions {
    let mut rng = fastrand::Rng::with_seed(seed);
    let max = LimitSize::Hosts(rng.u32(0..5));
    let limits = rng.bool().then_some(LimitOption { by: LimitBy::Fleet, value: None, max });
    let budget = rng.bool().then(|| LimitSize::Hosts(rng.u32(0..3)));
    let canary = rng.bool().then(|| rng.u32(1..3));
    let soak = rng.bool().then(|| Span(Duration::from_secs(rng.u64(5..60))));
    RolloutOptions { limits: limits.into_iter().collect(), budget, canary, soak, on_halt: None }
}

impl Fleet {
    /// Triggers a version with numbers of its own, as `orchestrate trigger_update --max …` does.
    pub(crate) fn trigger_with(&mut self, version: &Version, seed: u64) {
        let found = self.world.store.read(&[Key::CurrentVersion, Key::Store]);
        let act = self.act("trigger_update");
        let request = TargetRequest { options: options_of(seed), ..TargetRequest::new(version.clone()) };
        self.operate(operator::set_target(&request, false, &found, &act));
    }

    /// Writes the desired version and nothing else, as `etcdctl put` does: the one in force if none is given.
    pub(crate) fn put(&mut self, version: Option<&Version>) {
        let current = self.world.store.entry(&Key::CurrentVersion.to_string());
        let current = current.and_then(|entry| codec::read_version(&entry.value).ok());
        if let Some(version) = version.or(current.as_ref()) {
            let mut transaction = Transaction::idempotent("put the desired version");
            transaction.put(Key::CurrentVersion, version.as_str(), 0);
            self.operate(transaction);
        }
    }

    /// Gives the present rollout other numbers, as `orchestrate rollout set` does.
    pub(crate) fn set_numbers(&mut self, seed: u64) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let found = self.world.store.read(&[Key::Store, Key::CurrentVersion]);
        let Some(Instruction { order, .. }) = Instruction::find(&found) else { return };
        let found = self.world.store.read(&[Key::Store, Key::CurrentVersion, Key::RolloutRecord(order)]);
        let record = found.get(&Key::RolloutRecord(order));
        let Some(record) = record.and_then(|e| keys::RolloutRecord::read(&e.value).ok()) else { return };
        let max = LimitSize::Hosts(rng.u32(0..5));
        let limits =
            record.limits.first().map(|limit| LimitOption { by: limit.by.clone(), value: None, max });
        let budget = match record.budget {
            Some(_) if rng.bool() => Some(rng.u32(0..4)),
            _ => None,
        };
        let limits: Vec<LimitOption> = limits.into_iter().collect();
        if let Ok(changed) = record_with(&record, &limits, budget) {
            let act = self.act("rollout set");
            self.operate(rollout::change_record(order, &changed, &found, &act));
        }
    }

    /// Writes a policy with a limit for each rack, and how many hosts may fail.
    pub(crate) fn limit_racks(&mut self, max: u32, budget: u32) {
        let Ok(by) = LimitBy::read(&format!("labels.{LABEL}")) else { return };
        let limits = vec![limit(by, max), limit(LimitBy::Fleet, max + 1)];
        let failure_budget = Some(LimitSize::Hosts(budget));
        let policy = RolloutPolicy { limits, failure_budget, ..RolloutPolicy::default() };
        self.policy_change(&policy).into_iter().for_each(|change| self.operate(change));
    }

    /// Writes a policy with a window that opens after so many minutes, for so many.
    pub(crate) fn set_window(&mut self, max: u32, opens_after: u64, lasts: u64) {
        let minute = u64::try_from(self.world.wall().0).unwrap_or(0) / 60 + opens_after;
        let time = |minute: u64| format!("{:02}:{:02}", minute / 60 % 24, minute % 60);
        let (Ok(from), Ok(to)) = (time(minute).parse(), time(minute + lasts).parse()) else { return };
        let window = Window { days: Default::default(), from, to, zone: "UTC".into() };
        let limits = vec![limit(LimitBy::Fleet, max)];
        let policy = RolloutPolicy { limits, windows: vec![window], ..RolloutPolicy::default() };
        self.policy_change(&policy).into_iter().for_each(|change| self.operate(change));
    }

    /// Puts a host into another rack.
    pub(crate) fn move_to_rack(&mut self, host: &HostName, rack: u32) {
        let entry = self.world.store.entry(&Key::Host(host.clone()).to_string());
        let Some(entry) = entry.and_then(|e| keys::Host::read(&e.value).ok()) else { return };
        if entry.decommissioned.is_some() {
            return;
        }
        let labels = BTreeMap::from([(LABEL.to_owned(), format!("r{rack}"))]);
        let found = self.world.store.read(&[Key::Host(host.clone())]);
        let act = self.act("hosts add");
        self.operate(operator::add_host(host, &RosterEntry { labels, ..entry }, &found, &act));
    }
}
