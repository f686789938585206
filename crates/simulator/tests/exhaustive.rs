//! All orders of events of small fleets.

use simulator::{Bounds, Mutation, Searched, search};

/// Planted bugs that the search finds, the law that each of them breaks, and the number of the fleet in which. The
/// others are about stages, lost hosts, leases and rollbacks, which the search leaves out.
const FOUND: [(&str, &str, usize); 9] = [
    ("the start does not compare the desired version", "I4", 7),
    ("the start does not compare the freezes", "R2", 5),
    ("the start takes a number that another host holds", "R1", 7),
    ("the start does not compare the record of its rollout", "R1", 7),
    ("a policy does not mark the store", "R1", 7),
    ("a start takes no claims", "R1", 7),
    ("the start does not compare the failures", "R3", 6),
    ("the start does not compare the halt", "R2", 6),
    ("a failure is not counted", "R3", 6),
];

#[test]
fn every_order_of_events_of_a_small_fleet_keeps_the_laws() {
    let mut sum = Searched::default();
    for bounds in Bounds::everyday() {
        match search(bounds, None) {
            Ok(searched) => sum += searched,
            Err((violation, moves)) => panic!("{bounds}: {violation}\n{}", moves.join("\n")),
        }
    }
    // Fewer states would mean that something does not happen any more.
    assert!(sum.states > 40_000 && sum.ends > 500, "{sum:?}");
}

#[test]
fn the_search_finds_planted_bugs() {
    let all = Bounds::everyday();
    for (name, law, fleet) in FOUND {
        let mutation = Mutation::ALL.iter().find(|mutation| mutation.name == name).expect(name);
        let found = search(all[fleet], Some(mutation)).err();
        let law_broken = found.map(|(violation, _)| violation.law);
        assert_eq!(law_broken, Some(law), "{name}");
    }
}
