//! Stages: what opens them, and what does not.

use crate::{
    MINUTE, SECOND, first_start, flawed, run, script, shown, started, time_of, times, trigger, version,
};
use schema::records::FailureKind;
use simulator::{Act, FleetFact, Script, Wrong};
use std::time::Duration;

fn canary(budget: u32, soak: &str) -> Script {
    let rules = format!(
        "failure_budget = {budget}\n[[limit]]\nby = \"fleet\"\nmax = 2\n[[stage]]\nname = \"canary\"\ncount = 1\nsoak = \"{soak}\"\n"
    );
    let mut script = script(8, &rules, vec![trigger(0, "v2")]);
    script.agent.validate_every = Duration::from_secs(20);
    script
}

#[test]
fn a_canary_that_reboots_for_longer_than_its_lease_is_waited_for() {
    let script = canary(0, "1m");
    let (at, canary) = first_start(&script);
    let mut acts = script.acts.clone();
    acts.push((at + 5 * SECOND, Act::PowerOff(canary.clone(), 5 * MINUTE)));
    let history = run(&Script { acts, ..script });
    let proven = time_of(&history, &FleetFact::Proven(canary, version("v2")));
    assert!(proven > at + 5 * MINUTE);
    assert!(time_of(&history, &FleetFact::StageOpened(1)) >= proven + MINUTE - 2 * SECOND);
    assert_eq!(history.hosts_at(&version("v2")), 8);
    assert_eq!(history.summary.halts, 0);
}

#[test]
fn a_version_that_fails_during_the_soak_reaches_the_canary_alone() {
    let flaws = [flawed("v2", Wrong::BreaksAt(2 * MINUTE))].into();
    let history = run(&Script { flaws, ..canary(0, "5m") });
    let soak = time_of(&history, &FleetFact::SoakBegan(0));
    assert!(soak < 2 * MINUTE);
    let disturbed = started(&history, &version("v2"));
    assert_eq!(disturbed.len(), 1, "{}", shown(&history));
    for host in disturbed {
        time_of(&history, &FleetFact::Failed(host, FailureKind::Withdrawal));
    }
    assert_eq!(history.time_of(&FleetFact::StageOpened(1)), None);
    assert_eq!(history.summary.halts, 1);
}

#[test]
fn a_version_that_fails_after_the_soak_is_halted_if_others_still_wait() {
    let flaws = [flawed("v2", Wrong::BreaksAt(100 * SECOND))].into();
    let history = run(&Script { flaws, step_millis: 15 * SECOND, ..canary(1, "30s") });
    let opened = time_of(&history, &FleetFact::StageOpened(1));
    assert!(opened < 100 * SECOND, "{}", shown(&history));
    assert_eq!(history.summary.halts, 1, "{}", shown(&history));
    let disturbed = started(&history, &version("v2")).len();
    assert!(disturbed < 8, "{}", shown(&history));
}

#[test]
fn a_version_that_fails_after_the_end_charges_nobody() {
    let flaws = [flawed("v2", Wrong::BreaksAt(20 * MINUTE))].into();
    let script = Script { flaws, ends_with_rollout: false, lasts: 40 * MINUTE, ..canary(0, "1m") };
    let history = run(&script);
    assert!(time_of(&history, &FleetFact::Ended) < 20 * MINUTE);
    assert_eq!(history.hosts_at(&version("v2")), 0, "each host leaves its list");
    assert_eq!(history.summary.halts, 0);
}

#[test]
fn a_stage_opens_in_the_end_though_leaders_change_more_often_than_the_soak_is_long() {
    let mut script = canary(0, "1m");
    script.acts.extend((1..=20).map(|number| (number * 40 * SECOND, Act::ChangeLeader)));
    let history = run(&script);
    let began = time_of(&history, &FleetFact::SoakBegan(0));
    let opened = time_of(&history, &FleetFact::StageOpened(1));
    assert!(opened - began >= MINUTE - 2 * SECOND, "{began} {opened}");
    assert_eq!(times(&history, |fact| matches!(fact, FleetFact::SoakEnded(_))), [0_u64; 0]);
    assert_eq!(history.hosts_at(&version("v2")), 8);
    time_of(&history, &FleetFact::Ended);
}
