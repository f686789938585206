//! Simulated fleets: the real decisions and transactions on a virtual clock, with the laws checked at
//! every revision.

use simulator::Mutation;
use std::time::Duration;
use tests::simulation::{Run, find, fresh_seed};

/// Time for which fresh fleets are simulated, in seconds, unless `ORCHESTRATE_TEST_SIMULATION` says
/// otherwise.
const SECONDS: u64 = 60;
/// Number of fleets that are simulated at least, also on a machine that is busy.
const FLEETS_MIN: u64 = 500;

/// Seeds of fleets that broke a law once, by a fault that is mended.
const BROKEN_ONCE: &[(u64, &str)] = &[
    (1_795_429_735_004_745, "a failed validation was not concluded before a deferred prefetch went on"),
    (1_795_459_073_000_710, "a suspect host whose prefetch failed never tried again"),
    (1_795_528_590_000_280, "the restored store executed a request that was sent to the store before it"),
    (1_795_530_845_004_342, "a host ended claims by what it read in a store that went back, before it knew"),
    (1_795_542_092_000_347, "the law missed that a host that was installed again had the version before"),
    (1_795_544_266_002_821, "the law expected writes of a host that was decommissioned in its update"),
    (1_795_545_476_102_414, "the law did not count an excused host that has the version"),
    (
        1_795_546_377_105_215,
        "a claim of a vanished host was moved with a ticket whose lease had ended, in vain",
    ),
    (1_795_546_077_105_811, "the timer of a vanished host reached the store when it had vanished again"),
    (1_795_547_445_102_299, "the law expected a name that is not available to wait for its stage"),
    (1_795_549_127_100_425, "the law counted an excused host that fails again"),
    (451, "the answer to a host that took the mark of the end was lost, and nobody looked for the end"),
    (1_795_547_002_105_819, "the law missed that the only host with the version was installed again"),
    (1_795_633_956_000_117, "a restored store brought back the mark of a host that had seen the end"),
    (
        1_795_886_668_000_213,
        "the law counted an excused host of which a restored store did not know the proof",
    ),
    (
        1_795_886_068_001_175,
        "a host that worked started on the claims that its clone had taken, above the limit",
    ),
    (1_795_902_869_100_150, "hosts waited for the hold of one whose own claim was above the limit"),
    (1_795_904_083_100_805, "a host failed in a soak and was healed while the rollout was halted"),
    (1_795_928_090_002_841, "an accepted store listed a host that was in an update, as its backup did"),
];

#[test]
fn fresh_fleets_keep_the_laws() {
    let given = std::env::var("ORCHESTRATE_TEST_SIMULATION").ok();
    let seconds = given.map_or(SECONDS, |text| text.parse().expect("a number of seconds"));
    let first = fresh_seed();
    let run = Run::for_time(first, Duration::from_secs(seconds), FLEETS_MIN);
    if let Some(report) = run.report() {
        panic!("{report}");
    }
}

#[test]
fn fleets_that_broke_a_law_once_keep_it() {
    let mut run = Run::default();
    BROKEN_ONCE.iter().for_each(|(seed, _)| run.add(*seed));
    if let Some(report) = run.report() {
        panic!("{report}");
    }
}

#[test]
fn every_planted_bug_is_found() {
    for mutation in Mutation::ALL {
        let found = find(mutation, 10_000);
        assert!(found.is_some(), "{} is not found within 10,000 fleets", mutation.name);
    }
}
