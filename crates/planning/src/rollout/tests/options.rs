//! What one trigger says instead of the policy.

use super::Found;
use crate::rollout::{read_policy, record_with, unusable, with_options};
use schema::codec;
use schema::keys::Key;
use schema::records::{LimitSize, OnHalt, RolloutOptions, RolloutPolicy, Trigger};
use schema::time::{EpochSeconds, Span};
use std::time::Duration;

fn policy(text: &str) -> RolloutPolicy {
    read_policy("policy.toml", text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn limits(texts: &[&str]) -> RolloutOptions {
    let limits = texts.iter().map(|text| text.parse().unwrap()).collect();
    RolloutOptions { limits, ..RolloutOptions::default() }
}

const POLICY: &str = r#"
failure_budget = 1
[[limit]]
by = "fleet"
max = 6
[[limit]]
by = "role"
max = "25%"
values = { db = 1 }
[[stage]]
name = "canary"
share = "5%"
soak = "10m"
[[stage]]
name = "half"
share = "50%"
"#;

#[test]
fn an_option_stands_in_the_place_of_what_the_policy_says() {
    let check = |options: &RolloutOptions, changes: fn(&mut RolloutPolicy)| {
        let mut expected = policy(POLICY);
        changes(&mut expected);
        let found = with_options(&policy(POLICY), options);
        assert_eq!(found, expected, "{options:?}");
        assert_eq!(unusable(&found), None, "{options:?}");
    };
    let none = RolloutOptions::default;
    check(&none(), |_| {});
    check(&limits(&["3"]), |policy| policy.limits[0].max = LimitSize::Hosts(3));
    check(&limits(&["role/web=2"]), |policy| {
        policy.limits[1].values.insert("web".parse().unwrap(), LimitSize::Hosts(2));
    });
    check(&limits(&["role=1"]), |policy| {
        policy.limits[1].max = LimitSize::Hosts(1);
        policy.limits[1].values.clear();
    });
    // What the policy holds to less stays so.
    check(&limits(&["role=2"]), |policy| policy.limits[1].max = LimitSize::Hosts(2));
    check(&RolloutOptions { canary: Some(2), ..none() }, |policy| {
        (policy.stages[0].count, policy.stages[0].share) = (Some(2), None);
    });
    let minute = Span(Duration::from_secs(60));
    check(&RolloutOptions { soak: Some(minute), ..none() }, |policy| {
        policy.stages.iter_mut().for_each(|stage| stage.soak = Some(Span(Duration::from_secs(60))));
    });
    check(&RolloutOptions { budget: Some(LimitSize::Hosts(0)), ..none() }, |policy| {
        policy.failure_budget = Some(LimitSize::Hosts(0));
    });
    check(&RolloutOptions { on_halt: Some(OnHalt::RollBack), ..none() }, |policy| {
        policy.on_halt = OnHalt::RollBack;
    });
}

#[test]
fn an_option_adds_what_the_policy_does_not_have() {
    let limited =
        with_options(&policy("[[limit]]\nby = \"fleet\"\nmax = 6\n"), &limits(&["labels.rack/r1=1"]));
    assert_eq!(limited.limits[1].max, LimitSize::Percent(100));
    assert_eq!(limited.limits[1].values.len(), 1);
    let canary = RolloutOptions { canary: Some(1), ..RolloutOptions::default() };
    let staged = with_options(&limited, &canary);
    assert_eq!(staged.stages[0].name.as_str(), "canary");
    assert!(unusable(&staged).unwrap().contains("failure_budget"));
}

#[test]
fn the_options_of_a_trigger_hold_for_its_rollout_alone() {
    let check = |trigger_at: i64, expected: u32| {
        let mut found = Found::default();
        found.policy(POLICY, 1).hosts("web", 8).put(&Key::CurrentVersion, "v2", 50);
        let (at, options) = (EpochSeconds(1), limits(&["2"]));
        let trigger = Trigger { at, by: "ann".into(), reason: None, from: None, options, rollback: false };
        found.put(&Key::Trigger, &codec::write(&trigger), trigger_at);
        assert_eq!(found.record().limits[0].max, expected, "a trigger at {trigger_at}");
    };
    check(50, 2);
    // Somebody wrote the present version without a trigger.
    check(40, 6);
}

#[test]
fn the_numbers_of_a_running_rollout_change_and_it_gets_no_new_limit() {
    let mut found = Found::default();
    let record = found.policy(POLICY, 1).hosts("web", 8).record();
    let check = |texts: &[&str], budget: Option<u32>, expected: Result<[u32; 3], &str>| {
        let limits: Vec<_> = texts.iter().map(|text| text.parse().unwrap()).collect();
        let web = "web".parse().unwrap();
        match (record_with(&record, &limits, budget), expected) {
            (Ok(record), Ok(expected)) => {
                let [fleet, role] = [&record.limits[0], &record.limits[1]];
                assert_eq!([fleet.max, role.max_of(&web), record.budget.unwrap()], expected, "{texts:?}");
            }
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
            (found, expected) => panic!("{texts:?}: {found:?}, expected {expected:?}"),
        }
    };
    check(&[], None, Ok([6, 2, 1]));
    check(&["3", "role/web=5"], Some(0), Ok([3, 5, 0]));
    check(&["role=4"], None, Ok([6, 4, 1]));
    let mut held = record.clone();
    held.limits[1].values.insert("db".parse().unwrap(), 0);
    let changed = record_with(&held, &["role=4".parse().unwrap()], None).unwrap();
    assert_eq!(changed.limits[1].max_of(&"db".parse().unwrap()), 0, "what is held stays so");
    check(&["role=50%"], None, Err("a number, not a percentage"));
    check(&["group=1"], None, Err("no limit by group"));
    check(&["99999"], None, Err("the largest is 99998"));
    let without = schema::records::RolloutRecord { budget: None, ..record.clone() };
    let refused = record_with(&without, &[], Some(1)).unwrap_err();
    assert!(refused.to_string().contains("has no failure budget"));
}
