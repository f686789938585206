//! Failures: how far a bad version gets.

use crate::{
    MINUTE, SECOND, first_start, flawed, run, script, shown, started, starts, time_of, times, trigger,
    version,
};
use schema::records::FailureKind;
use schema::steps::StepPhase;
use simulator::{Act, FleetFact, History, Script, Wrong};

fn bad() -> (schema::names::Version, simulator::Flaw) {
    flawed("bad", Wrong::Fails(StepPhase::Apply))
}

fn halts(history: &History) -> Vec<(u64, &String)> {
    history
        .all(|fact| match fact {
            FleetFact::Halted(why) => Some(why),
            _ => None,
        })
        .collect()
}

#[test]
fn five_hundred_failures_at_once_halt_once_and_nobody_starts_afterwards() {
    let rules = "failure_budget = 10\n[[limit]]\nby = \"fleet\"\nmax = 500\n";
    let script = script(600, rules, vec![trigger(0, "bad")]);
    let history =
        run(&Script { flaws: [bad()].into(), lasts: 3 * MINUTE, step_millis: 30 * SECOND, ..script });
    let failed = times(&history, |fact| matches!(fact, FleetFact::Failed(..)));
    assert!(failed.len() >= 500, "{}", failed.len());
    let halts = halts(&history);
    assert_eq!(halts.len(), 1, "{halts:?}");
    let later = starts(&history).filter(|(at, _)| *at > halts[0].0).count();
    assert_eq!(later, 0, "{halts:?}");
    let counted = failed.iter().filter(|at| **at <= halts[0].0).count();
    assert!((11..=counted).contains(&number_in(halts[0].1)), "{halts:?}, {counted} had failed");
    let second = failed.iter().filter(|at| **at < failed[0] + SECOND).count();
    assert!(second >= 500, "only {second} fail in the same second");
}

#[test]
fn a_version_that_fails_everywhere_reaches_budget_and_limit() {
    let rules = "failure_budget = 2\n[[limit]]\nby = \"fleet\"\nmax = 6\n";
    let history = run(&Script { flaws: [bad()].into(), ..script(60, rules, vec![trigger(0, "bad")]) });
    let disturbed = started(&history, &version("bad")).len();
    assert!((3..=8).contains(&disturbed), "{disturbed}:\n{}", shown(&history));
    assert_eq!(halts(&history).len(), 1);
    assert_eq!(history.hosts_at(&version("base")), 60 - disturbed);
}

#[test]
fn a_fleet_goes_back_by_itself_where_the_policy_says_so() {
    let rules = "failure_budget = 2\non_halt = \"roll_back\"\n[[limit]]\nby = \"fleet\"\nmax = 6\n";
    let acts = vec![trigger(0, "good"), trigger(30 * MINUTE, "bad")];
    let history = run(&Script { flaws: [bad()].into(), ..script(60, rules, acts) });
    let disturbed = started(&history, &version("bad")).len();
    assert!((3..=8).contains(&disturbed), "{disturbed}:\n{}", shown(&history));
    let back = time_of(&history, &FleetFact::RolledBack(version("good")));
    assert!(back > 30 * MINUTE);
    assert_eq!(history.hosts_at(&version("good")), 60, "{}", shown(&history));
    assert_eq!(
        times(&history, |fact| *fact == FleetFact::Ended).len(),
        2,
        "both rollouts of the good version"
    );
}

/// Returns the first number of a text.
fn number_in(text: &str) -> usize {
    let number = text.split(' ').find_map(|word| word.parse().ok());
    number.unwrap_or_else(|| panic!("no number: {text}"))
}

/// A fleet of which the version makes every machine fall some time after its proof.
fn falling(what: Wrong, rules: &str) -> Script {
    let flaws = [flawed("falls", what)].into();
    let script = script(8, &format!("failure_budget = 0\n{rules}"), vec![trigger(0, "falls")]);
    Script { flaws, lasts: 60 * MINUTE, ..script }
}

const ONE_AT_A_TIME: &str = "[[limit]]\nby = \"fleet\"\nmax = 1\n";

#[test]
fn a_canary_that_dies_after_its_proof_keeps_the_fleet_whole() {
    let rules = format!("{ONE_AT_A_TIME}[[stage]]\nname = \"canary\"\ncount = 1\nsoak = \"1m\"\n");
    let history = run(&falling(Wrong::Kills(20 * SECOND), &rules));
    let disturbed = started(&history, &version("falls"));
    assert_eq!(disturbed.len(), 1, "{}", shown(&history));
    for host in disturbed {
        time_of(&history, &FleetFact::Proven(host.clone(), version("falls")));
        let lost = time_of(&history, &FleetFact::Failed(host, FailureKind::Lost));
        assert!(lost >= 10 * MINUTE, "{}", shown(&history));
    }
    assert_eq!(history.time_of(&FleetFact::StageOpened(1)), None);
    assert_eq!(history.summary.halts, 1);
}

#[test]
fn a_version_that_kills_within_the_hold_reaches_no_more_hosts_than_one_that_fails_at_once() {
    let history = run(&falling(Wrong::Kills(20 * SECOND), &format!("hold = \"1m\"\n{ONE_AT_A_TIME}")));
    assert_eq!(started(&history, &version("falls")).len(), 1, "{}", shown(&history));
    assert_eq!(history.summary.halts, 1);
}

#[test]
fn a_version_that_kills_later_is_halted_when_the_first_host_counts() {
    // Each host that looks for lost ones dies soon, too; the next one goes on with the marks that it left.
    let falling = falling(Wrong::Kills(20 * SECOND), &format!("lost_after = \"1m\"\n{ONE_AT_A_TIME}"));
    let history = run(&Script { hosts: Script::of_hosts(40).hosts, ..falling });
    let disturbed = started(&history, &version("falls")).len();
    assert!((2..40).contains(&disturbed), "{}", shown(&history));
    assert_eq!(history.summary.halts, 1, "{}", shown(&history));
    assert_eq!(history.time_of(&FleetFact::Ended), None);
}

#[test]
fn a_version_that_breaks_by_a_reboot_halts_the_rollout() {
    let history = run(&falling(Wrong::Reboots(5 * SECOND), ONE_AT_A_TIME));
    let disturbed = started(&history, &version("falls")).len();
    assert!((1..=3).contains(&disturbed), "{}", shown(&history));
    let failed = |fact: &FleetFact| matches!(fact, FleetFact::Failed(_, FailureKind::Withdrawal));
    assert!(!times(&history, failed).is_empty(), "{}", shown(&history));
    assert_eq!(history.summary.halts, 1);
}

#[test]
fn a_host_that_is_away_for_a_while_after_its_proof_is_waited_for() {
    let first = script(8, &format!("failure_budget = 0\n{ONE_AT_A_TIME}"), vec![trigger(0, "good")]);
    let (at, away) = first_start(&first);
    let mut acts = first.acts.clone();
    acts.push((at + MINUTE, Act::PowerOff(away.clone(), 8 * MINUTE)));
    let history = run(&Script { acts, ..first });
    assert!(time_of(&history, &FleetFact::Proven(away, version("good"))) < at + MINUTE);
    assert!(time_of(&history, &FleetFact::Ended) > at + 9 * MINUTE, "{}", shown(&history));
    assert_eq!(history.hosts_at(&version("good")), 8);
    assert_eq!(history.summary.halts, 0, "{}", shown(&history));
}
