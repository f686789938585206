//! Large fleets.

use crate::{policy, run, version};
use simulator::{Act, FleetFact, Script, ScriptHost};

/// Number of racks. 200 hold as well, in half a minute.
const RACKS: usize = 80;

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

#[test]
fn limits_by_role_and_by_rack_hold_in_a_fleet_of_many_of_both() {
    let rules = policy(
        "[[limit]]\nby = \"role\"\nmax = 8\n[[limit]]\nby = \"labels.rack\"\nmax = 1\nkeep_failed = false\n",
    );
    let (roles, racks) = (20, RACKS);
    let hosts = (0..roles).flat_map(|role| (0..racks).map(move |rack| (role, rack)));
    let hosts: Vec<ScriptHost> = hosts
        .map(|(role, rack)| {
            let host = ScriptHost::new(&format!("r{role}-{rack}"));
            host.role(&format!("role{role}")).label("rack", &format!("rack{rack}"))
        })
        .collect();
    let count = hosts.len();
    let acts = vec![(0, Act::Trigger(version("v2")))];
    let script = Script { hosts, policy: Some(rules), acts, step_millis: 100, ..Script::default() };
    let history = run(&script);
    assert_eq!(history.hosts_at(&version("v2")), count);
    assert!(history.time_of(&FleetFact::Ended).is_some());
}
