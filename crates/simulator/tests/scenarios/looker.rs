//! What becomes of a rollout when the host stops that opens its stages and looks for its end.

use crate::{MINUTE, SECOND, run, script, shown, time_of, times, trigger, version};
use schema::keys::Key;
use schema::names::HostName;
use schema::records::Closing;
use simulator::{Act, FleetFact, Script};

/// Time within which the rollout goes on.
const WITHIN: u64 = MINUTE;

/// A canary that is observed for two minutes, and twelve other hosts. The mark of the host that looks is seen in the
/// middle of the soak.
fn observed() -> (Script, HostName, u64) {
    let rules = "failure_budget = 1\n[[limit]]\nby = \"fleet\"\nmax = 6\n[[stage]]\nname = \"canary\"\ncount = 1\nsoak = \"2m\"\n";
    let script = script(13, rules, vec![trigger(0, "v2"), (70 * SECOND, Act::Look)]);
    let history = run(&script);
    let opened = time_of(&history, &FleetFact::StageOpened(1));
    let marks =
        history.looks[0].entries.iter().filter(|(key, _)| matches!(Key::parse(key), Ok(Key::Closing(_))));
    let marks: Vec<Closing> = marks.map(|(_, entry)| Closing::read(&entry.value)).collect();
    let [Closing { by, hosts: 13, .. }] = &marks[..] else { panic!("one host looks: {marks:?}") };
    (script, HostName::new(by).expect("a host name"), opened)
}

/// Runs the script with these acts of the host that looks. Returns how long the stage opened late.
fn late(act: impl Fn(HostName) -> Vec<(u64, Act)>) -> u64 {
    let (script, looker, opened) = observed();
    let acts = script.acts.iter().cloned().chain(act(looker)).collect();
    let history = run(&Script { acts, ..script });
    let late = time_of(&history, &FleetFact::StageOpened(1)).saturating_sub(opened);
    assert!(late <= WITHIN, "it opened {} s later:\n{}", late / 1_000, shown(&history));
    time_of(&history, &FleetFact::Ended);
    late
}

#[test]
fn a_host_that_looks_and_is_restarted_goes_on_at_once() {
    // The soak ends at about 2 min 30 s.
    for second in [100, 149, 152] {
        let late = late(|looker| vec![(second * SECOND, Act::KillAgent(looker, 2 * SECOND))]);
        assert!(late <= 10 * SECOND, "killed after {second} s: {late}");
    }
}

#[test]
fn another_host_goes_on_when_the_one_that_looks_is_gone() {
    late(|looker| vec![(145 * SECOND, Act::KillAgent(looker, 20 * MINUTE))]);
    late(|looker| vec![(145 * SECOND, Act::PowerOff(looker, 20 * MINUTE))]);
    late(|looker| vec![(145 * SECOND, Act::CutLink(looker, 20 * MINUTE))]);
}

#[test]
fn another_host_goes_on_when_the_one_that_looks_stands_still_though_its_agent_runs() {
    late(|looker| vec![(145 * SECOND, Act::StandStill(looker, 60 * MINUTE))]);
    // It is back when the other one has taken over.
    late(|looker| vec![(145 * SECOND, Act::StandStill(looker, 30 * SECOND))]);
}

#[test]
fn agents_that_are_restarted_one_after_the_other_do_not_slow_a_rollout() {
    let (script, ..) = observed();
    let expected = time_of(&run(&script), &FleetFact::Ended);
    // An upgrade of the agents: each is away for two seconds.
    let restarts = (0..3 * 13).map(|number| {
        let host = HostName::new(format!("h{}", number % 13)).expect("a host name");
        (number * 7 * SECOND, Act::KillAgent(host, 2 * SECOND))
    });
    let acts = script.acts.iter().cloned().chain(restarts).collect();
    let history = run(&Script { acts, ..script });
    let ended = time_of(&history, &FleetFact::Ended);
    assert!(ended <= expected + WITHIN, "{ended} instead of {expected}:\n{}", shown(&history));
    assert_eq!(history.hosts_at(&version("v2")), 13);
    assert_eq!(times(&history, |fact| matches!(fact, FleetFact::SoakEnded(_))), [0_u64; 0]);
}
