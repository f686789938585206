//! Large fleets.

use crate::{policy, run, version};
use simulator::{Act, FleetFact, Script};

#[test]
fn a_rollout_of_a_thousand_hosts_with_a_canary_ends() {
    let policy = policy(
        r#"
        failure_budget = 2
        [[limit]]
        by = "fleet"
        max = 10
        [[stage]]
        name = "canary"
        count = 1
        soak = "1m"
        "#,
    );
    let acts = vec![(0, Act::Trigger(version("v2")))];
    let script = Script { policy: Some(policy), acts, step_millis: 100, ..Script::of_hosts(1_000) };
    let history = run(&script);
    assert_eq!(history.hosts_at(&version("v2")), 1_000);
    assert!(history.time_of(&FleetFact::Ended).is_some());
    assert_eq!(history.summary.halts, 0);
}
