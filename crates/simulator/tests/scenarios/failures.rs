//! Failures: how far a bad version gets.

use crate::{MINUTE, SECOND, flawed, run, script, shown, started, starts, time_of, times, trigger, version};
use schema::steps::StepPhase;
use simulator::{FleetFact, History, Script, Wrong};

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
