//! All orders of events of small fleets.

use simulator::{Bounds, Mutation, Searched, search};

/// Planted bugs that the search finds, and the law that each of them breaks. The others are about stages, lost
/// hosts, leases and rollbacks, which the search leaves out.
const FOUND: [(&str, &str); 9] = [
    ("the start does not compare the desired version", "I4"),
    ("the start does not compare the freezes", "R2"),
    ("the start takes a number that another host holds", "R3"),
    ("the start does not compare the record of its rollout", "R1"),
    ("a policy does not mark the store", "R1"),
    ("a start takes no claims", "R1"),
    ("the start does not compare the failures", "R3"),
    ("the start does not compare the halt", "R2"),
    ("a failure is not counted", "R3"),
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
    for (name, law) in FOUND {
        let mutation = Mutation::ALL.iter().find(|mutation| mutation.name == name).expect(name);
        // The fleets of two hosts are searched faster.
        let mut all = Bounds::everyday().into_iter().filter(|bounds| bounds.hosts == 2);
        let found = all.find_map(|bounds| search(bounds, Some(mutation)).err());
        let law_broken = found.map(|(violation, _)| violation.law);
        assert_eq!(law_broken, Some(law), "{name}");
    }
}
