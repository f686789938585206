//! Rollout policies, drawn from a seed.

use schema::limit::LimitBy;
use schema::names::{LimitValue, StageName};
use schema::records::{LimitRule, LimitSize, OnHalt, RolloutPolicy, StageRule};
use schema::time::Span;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Returns a policy. Most limits are small, and some let nobody start.
pub(crate) fn policy_of(seed: u64) -> RolloutPolicy {
    let mut rng = fastrand::Rng::with_seed(seed);
    let size = |rng: &mut fastrand::Rng| match rng.u32(0..4) {
        0 => LimitSize::Percent(rng.u32(0..101)),
        _ => LimitSize::Hosts(rng.u32(0..5)),
    };
    let mut limits = Vec::new();
    for by in [LimitBy::Fleet, LimitBy::Role, LimitBy::Group] {
        if rng.u32(0..5) < 2 {
            let max = size(&mut rng);
            let values = if rng.u32(0..3) == 0 { vec![("web", size(&mut rng))] } else { Vec::new() };
            let value = |text| LimitValue::new(text).unwrap_or_else(|_| unreachable!("{text} is a value"));
            let values = values.into_iter().map(|(text, size)| (value(text), size)).collect();
            let keep_failed = rng.bool().then(|| rng.bool());
            limits.push(LimitRule { by, max, values, keep_failed });
        }
    }
    let seconds = |rng: &mut fastrand::Rng, most| Span(Duration::from_secs(rng.u64(10..most)));
    let lost_after = (rng.u32(0..4) > 0).then(|| seconds(&mut rng, 90));
    let progress_deadline = rng.bool().then(|| seconds(&mut rng, 900));
    let has_fleet = limits.iter().any(|rule| rule.by == LimitBy::Fleet);
    let failure_budget = (has_fleet && rng.bool()).then(|| LimitSize::Hosts(rng.u32(0..4)));
    let charge_for = rng.bool().then(|| seconds(&mut rng, 900));
    let hold = (rng.u32(0..4) == 0).then(|| seconds(&mut rng, 600));
    let rolls_back = rng.bool() && failure_budget.is_some();
    let on_halt = if rolls_back { OnHalt::RollBack } else { OnHalt::Stop };
    let times = RolloutPolicy { lost_after, progress_deadline, charge_for, hold, ..RolloutPolicy::default() };
    // From numbers of their own, so that the other policies stay what they are.
    let mut rng = fastrand::Rng::with_seed(seed ^ STAGES);
    let has_stages = failure_budget.is_some() && rng.bool();
    let stages = if has_stages { stages_of(&mut rng) } else { Vec::new() };
    RolloutPolicy { limits, failure_budget, on_halt, stages, ..times }
}

/// Makes other numbers of a seed.
const STAGES: u64 = 0x0053_5441_4745;

pub(crate) fn stages_of(rng: &mut fastrand::Rng) -> Vec<StageRule> {
    let value = |text| LimitValue::new(text).unwrap_or_else(|_| unreachable!("{text} is a value"));
    let count = rng.usize(1..4);
    let stage = |number| {
        let text = format!("s{number}");
        let name = StageName::new(&text).unwrap_or_else(|_| unreachable!("{text} is a name"));
        let web = BTreeMap::from([(LimitBy::Role, BTreeSet::from([value("web")]))]);
        let select = if rng.bool() { web } else { BTreeMap::new() };
        let (count, share) = match rng.u32(0..4) {
            0 | 1 => (Some(rng.u32(1..3)), None),
            2 => (None, Some(rng.u32(0..101))),
            _ => (None, None),
        };
        let soak = (rng.u32(0..3) > 0).then(|| Span(Duration::from_secs(rng.u64(5..180))));
        StageRule { name, select, count, share, soak }
    };
    (0..count).map(stage).collect()
}
