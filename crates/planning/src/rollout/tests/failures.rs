//! The failure budget.

use super::*;
use schema::keys;
use schema::records::{FailedHost, FailureKind, Halt};

/// A rollout of the role web under a limit for the fleet and this budget.
fn with_budget(budget: &str) -> Found {
    let mut found = Found::default();
    let text = format!("failure_budget = {budget}\n[[limit]]\nby = \"fleet\"\nmax = 5\n");
    found.hosts("web", 12).policy(&text, 10).with_record();
    found
}

impl Found {
    fn failed(&mut self, name: &str, healed: bool, at: i64) -> &mut Self {
        let kind = FailureKind::Attempt;
        let (reason, again) = ("it broke".into(), None);
        let failed = FailedHost { at: EpochSeconds(1), kind, reason, cause: None, healed, again };
        self.put(&Key::Failed(ORDER, host(name)), &codec::write(&failed), at)
    }

    /// The host failed, was healed, and failed again.
    fn failed_again(&mut self, name: &str, first: i64, at: i64) -> &mut Self {
        self.failed(name, false, first);
        let entry = self.0.entries.get_mut(&Key::Failed(ORDER, host(name)).to_string()).unwrap();
        let failed = keys::Failed::read(&entry.value).unwrap();
        let healed = FailedHost { healed: true, ..failed.clone() };
        (entry.mod_revision, entry.value) = (at, codec::write(&failed.over(&healed, first)).into_bytes());
        self
    }

    /// A host that had failed vanished, which others wrote over its failure.
    fn lost(&mut self, name: &str, at: i64) -> &mut Self {
        let entry = self.0.entries.get_mut(&Key::Failed(ORDER, host(name)).to_string()).unwrap();
        let before = keys::Failed::read(&entry.value).unwrap();
        let lost = FailedHost { kind: FailureKind::Lost, again: None, ..before.clone() };
        let lost = lost.over(&before, entry.mod_revision);
        (entry.mod_revision, entry.value) = (at, codec::write(&lost).into_bytes());
        self
    }
}

#[test]
fn hosts_start_until_more_have_failed_than_the_budget_tolerates() {
    // The obstacle of an available host, and whether somebody has to halt the rollout.
    let check = |budget: &str, change: &dyn Fn(&mut Found), obstacle: Option<&str>, halts: bool| {
        let mut found = with_budget(budget);
        change(&mut found);
        let view = found.view("web0");
        let permit = view.permit(&FoundClaims::default(), ClaimNeed::Take, at(0));
        assert_eq!(permit.clone().err().map(|obstacle| obstacle.detail()).as_deref(), obstacle);
        if let Ok(permit) = permit {
            assert_eq!(permit.guard.failures_read_at, Some(view.revision), "others may fail meanwhile");
            assert!(permit.counts_failure);
        }
        let halting = view.halts(&instruction().version, Author { by: "web0".into(), at: EpochSeconds(1) });
        assert_eq!(!halting.is_empty(), halts);
    };
    let one = |found: &mut Found| drop(found.failed("web5", false, 71).view("web0"));
    let two =
        |found: &mut Found| drop(found.failed("web5", false, 71).failed("web6", false, 72).view("web0"));
    let healed =
        |found: &mut Found| drop(found.failed("web5", false, 71).failed("web6", true, 72).view("web0"));
    let halted = |found: &mut Found| {
        let halt = Halt {
            at: EpochSeconds(1),
            by: "web3".into(),
            why: "2 hosts failed, 1 tolerated".into(),
            rolled_back_to: None,
        };
        found.put(&Key::Halt(ORDER), &codec::write(&halt), 80);
    };
    let resumed = |found: &mut Found| {
        two(found);
        let record = RolloutRecord { counted_from: 71, ..found.record() };
        found.put(&Key::RolloutRecord(ORDER), &codec::write(&record), 81);
    };
    let again = |first: i64, last: i64| {
        move |found: &mut Found| {
            found.failed_again("web5", first, last);
            let record = RolloutRecord { counted_from: 75, ..found.record() };
            found.put(&Key::RolloutRecord(ORDER), &codec::write(&record), 81);
        }
    };
    let lost = |last: i64| {
        move |found: &mut Found| {
            again(71, last)(found);
            found.lost("web5", 90).lost("web5", 91);
        }
    };
    let over = "the rollout is halted: 1 host failed, 0 tolerated";
    check("0", &again(71, 76), Some(over), true);
    check("0", &again(71, 74), None, false);
    check("0", &lost(76), Some(over), true);
    check("0", &lost(74), None, false);
    check("0", &|_| {}, None, false);
    check("0", &one, Some(over), true);
    check("1", &one, None, false);
    check("1", &two, Some("the rollout is halted: 2 hosts failed, 1 tolerated"), true);
    check("1", &healed, None, false);
    // A percentage is rounded down, and at least 1.
    check("\"10%\"", &one, None, false);
    check("\"10%\"", &two, Some("the rollout is halted: 2 hosts failed, 1 tolerated"), true);
    check("5", &halted, Some("the rollout is halted: 2 hosts failed, 1 tolerated"), false);
    check(
        "5",
        &|found| drop(found.put(&Key::Halt(ORDER), "x", 80).view("web0")),
        Some(
            "the rollout is halted: its reason cannot be read: the value \"x\" is not the expected JSON: not an object",
        ),
        false,
    );
    // Failures that an operator has seen do not count any more.
    check("1", &resumed, None, false);
    check("0", &resumed, Some(over), true);
    // What cannot be read counts.
    check(
        "0",
        &|found| drop(found.put(&Key::Failed(ORDER, host("web5")), "x", 71).view("web0")),
        Some(over),
        true,
    );
}

#[test]
fn a_fix_reaches_hosts_that_are_not_available_anyway() {
    let mut found = with_budget("0");
    found.failed("web5", false, 71);
    let permit = |found: &Found, need| {
        let permit = found.view("web0").permit(&FoundClaims::default(), need, at(0));
        permit.map(|permit| (permit.guard.failures_read_at, permit.counts_failure)).map_err(|o| o.to_string())
    };
    assert_eq!(permit(&found, ClaimNeed::Nothing), Ok((None, true)));
    // Nobody misses a host that never ran a version, and its failure is its own.
    assert_eq!(permit(&found, ClaimNeed::FirstInstall), Ok((None, false)));
    found.put(&Key::Halt(ORDER), "x", 80);
    for need in [ClaimNeed::Take, ClaimNeed::Nothing, ClaimNeed::FirstInstall] {
        permit(&found, need).unwrap_err();
    }
}

#[test]
fn a_host_without_a_ticket_watches_failures_while_they_keep_it_from_starting() {
    let mut found = with_budget("0");
    let watches = |found: &Found| found.view("web0").ranges().contains(&Prefix::FailedOf(ORDER));
    assert!(!watches(&found), "most failures change nothing for it");
    assert!(watches(found.failed("web5", false, 71)), "it goes on when the host is healed");
    let halt =
        Halt { at: EpochSeconds(1), by: "web3".into(), why: "1 host failed".into(), rolled_back_to: None };
    found.put(&Key::Halt(ORDER), &codec::write(&halt), 80);
    assert!(!watches(&found), "only an operator ends a halt");
}

#[test]
fn a_budget_needs_a_limit_for_every_host() {
    let error = read_policy("policy.toml", "failure_budget = 1\n[[limit]]\nby = \"role\"\nmax = 1\n");
    let error = error.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("failure_budget needs a limit by fleet"), "{error}");
}
