//! Limits: who may be unavailable, and for how long.

use crate::{
    MINUTE, SECOND, first_start, flawed, host, most_at_once, policy, run, script, shown, started, starts,
    time_of, times, trigger, version,
};
use schema::names::HostName;
use schema::steps::StepPhase;
use simulator::{Act, Flaw, FleetFact, Script, ScriptHost, Wrong};
use std::time::Duration;

#[test]
fn a_fix_with_a_canary_reaches_a_fleet_whose_claims_broken_hosts_hold() {
    let bad = "failure_budget = 10\n[[limit]]\nby = \"fleet\"\nmax = 6\nkeep_failed = true\n";
    let canary = format!("{bad}[[stage]]\nname = \"canary\"\ncount = 1\nsoak = \"1m\"\n");
    let acts =
        vec![trigger(0, "bad"), (20 * MINUTE, Act::SetPolicy(policy(&canary))), trigger(21 * MINUTE, "fix")];
    let flaws = [flawed("bad", Wrong::Fails(StepPhase::Apply))].into();
    let history = run(&Script { flaws, ..script(20, bad, acts) });
    let broken = started(&history, &version("bad"));
    assert_eq!(broken.len(), 6, "the others wait for a claim:\n{}", shown(&history));
    let first: Vec<_> = starts(&history).filter(|(at, _)| *at > 21 * MINUTE).take(6).collect();
    assert!(first.iter().all(|(_, (host, _))| broken.contains(*host)), "{first:?}");
    assert_eq!(history.hosts_at(&version("fix")), 20);
    time_of(&history, &FleetFact::StageOpened(1));
    time_of(&history, &FleetFact::Ended);
}

#[test]
fn a_lost_host_that_is_back_is_done_late_and_counts_no_more() {
    let rules =
        "lost_after = \"1m\"\nfailure_budget = 1\n[[limit]]\nby = \"fleet\"\nmax = 1\nkeep_failed = false\n";
    let mut slow = Script { step_millis: 2 * MINUTE, ..script(4, rules, vec![trigger(0, "v2")]) };
    // Otherwise the others validate when their turn comes.
    slow.agent.validate_every = Duration::from_secs(3600);
    let (at, first) = first_start(&slow);
    let mut acts = slow.acts.clone();
    acts.push((at + SECOND, Act::CutLink(first.clone(), 6 * MINUTE)));
    let history = run(&Script { acts, ..slow });
    let lost = time_of(&history, &FleetFact::Lost(first.clone()));
    let done = time_of(&history, &FleetFact::Proven(first.clone(), version("v2")));
    let next = starts(&history).find(|(_, (host, _))| **host != first).map(|(at, _)| at);
    assert!(next.is_some_and(|next| lost <= next && next < done), "{lost} {next:?} {done}");
    assert!(time_of(&history, &FleetFact::Healed(first)) >= done);
    assert_eq!(history.hosts_at(&version("v2")), 4);
    assert!(history.time_of(&FleetFact::Ended).is_some(), "{}", shown(&history));
}

#[test]
fn a_limit_below_its_use_throws_nobody_out_and_lets_nobody_in() {
    let limit = |max| format!("[[limit]]\nby = \"fleet\"\nmax = {max}\n");
    let (lowered, second) = (30 * SECOND, 31 * SECOND);
    let acts = vec![trigger(0, "v2"), (lowered, Act::SetPolicy(policy(&limit(2)))), trigger(second, "v3")];
    let history = run(&Script { step_millis: MINUTE, ..script(10, &limit(4), acts) });
    let inside = started(&history, &version("v2"));
    assert_eq!(inside.len(), 4);
    let proven = times(
        &history,
        |fact| matches!(fact, FleetFact::Proven(host, of) if inside.contains(host) && *of == version("v3")),
    );
    assert_eq!(proven.len(), 4, "each of them is done with the next version");
    let entered = starts(&history).find(|(_, (host, _))| !inside.contains(*host)).map(|(at, _)| at);
    assert!(entered.is_some_and(|at| at >= proven[2]), "three are still unavailable:\n{}", shown(&history));
    assert_eq!(history.hosts_at(&version("v3")), 10);
}

/// Returns a script in which one host is never done, and that host.
fn stuck(keep_failed: bool) -> (HostName, Script) {
    let rules = format!(
        "progress_deadline = \"5m\"\n[[limit]]\nby = \"fleet\"\nmax = 2\nkeep_failed = {keep_failed}\n"
    );
    let script = script(8, &rules, vec![trigger(0, "v2")]);
    let (_, first) = first_start(&script);
    let flaw = Flaw { what: Wrong::NotYet(StepPhase::Apply), hosts: vec![first.clone()] };
    let flaws = [(version("v2"), flaw)].into();
    (first, Script { flaws, step_millis: MINUTE, ..script })
}

#[test]
fn a_host_that_is_never_done_gives_up_in_time_and_the_others_go_on() {
    let (stuck, script) = stuck(false);
    let history = run(&script);
    let began = time_of(&history, &FleetFact::Started(stuck.clone(), version("v2")));
    let gave_up = time_of(&history, &FleetFact::GaveUp(stuck.clone()));
    let taken = gave_up - began;
    assert!((5 * MINUTE..6 * MINUTE).contains(&taken), "{taken}");
    assert!(time_of(&history, &FleetFact::Released(stuck.clone())) >= gave_up);
    assert_eq!(history.hosts_at(&version("v2")), 7);
    time_of(&history, &FleetFact::Ended);
}

#[test]
fn a_host_that_gave_up_keeps_its_claim_where_the_policy_says_so() {
    let (stuck, script) = stuck(true);
    let history = run(&script);
    let gave_up = time_of(&history, &FleetFact::GaveUp(stuck.clone()));
    assert_eq!(history.time_of(&FleetFact::Released(stuck.clone())), None);
    assert!(starts(&history).any(|(at, _)| at > gave_up), "the others go on, one at a time");
    assert_eq!(history.hosts_at(&version("v2")), 7);
}

#[test]
fn an_older_agent_beside_a_policy_starts_nothing() {
    let mut script = script(6, "[[limit]]\nby = \"fleet\"\nmax = 2\n", vec![trigger(MINUTE, "v2")]);
    script.hosts.push(ScriptHost { is_older: true, ..ScriptHost::new("old") });
    script.lasts = 30 * MINUTE;
    script.ends_with_rollout = false;
    let history = run(&script);
    assert!(!started(&history, &version("v2")).contains(&host("old")), "{}", shown(&history));
    assert_eq!(history.hosts_at(&version("v2")), 6);
}

#[test]
fn a_policy_waits_for_the_next_instruction() {
    let limit = policy("[[limit]]\nby = \"fleet\"\nmax = 2\n");
    let acts = vec![
        (0, Act::Put(version("v2"))),
        (1, Act::SetPolicy(limit)),
        (10 * MINUTE, Act::Put(version("v3"))),
    ];
    let history = run(&Script { acts, ..Script::of_hosts(8) });
    assert_eq!(most_at_once(&history, 0), 8, "the policy came after the first instruction");
    assert_eq!(most_at_once(&history, 10 * MINUTE), 2);
    assert_eq!(history.hosts_at(&version("v3")), 8);
}
