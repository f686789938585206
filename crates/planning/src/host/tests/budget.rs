//! What counts as a failed host, and how far a host got in its rollout.

use super::*;

#[test]
fn a_host_that_takes_too_long_gives_up_and_heals_if_it_works_later() {
    for (name, reason) in [
        ("packages", "apply step packages had not succeeded 10m after the start"),
        ("http", "validate step http had not succeeded 10m after the start"),
    ] {
        let mut world = settled_at("1");
        world.fails(name, 75);
        world.trigger("2");
        world.settle();
        limited(&mut world, Duration::from_secs(600));
        world.pass(Duration::from_secs(590));
        assert_eq!(world.verdict_str(), "waiting", "{name}");
        world.pass(Duration::from_secs(20));
        let HostVerdict::Failed(failed) = world.decide().verdict else { panic!("{name} goes on") };
        assert_eq!((failed.failure.reason.as_str(), failed.suspect), (reason, true));
        assert_eq!(world.published.listing, None, "{name}");
        world.works(name);
        // A validation that passes shows that the version works; apply is tried again once an hour.
        world.pass(Duration::from_secs(2 * 3600));
        assert_eq!(world.published.listing, Some(version("2")), "{name}");
    }
}

#[test]
fn a_failed_attempt_counts_at_once_and_until_the_host_is_proven() {
    let mut world = settled_at("1");
    world.fails("packages", 75);
    world.trigger("2");
    world.settle();
    budgeted(&mut world);
    assert_eq!(counted(&world), None);
    world.fails("packages", 1);
    world.pass(Duration::from_secs(16));
    assert_eq!(counted(&world), Some((FailureKind::Attempt, false, true)), "the next write says so");
    world.works("packages");
    world.pass(Duration::from_secs(3600));
    assert_eq!(world.verdict_str(), "ok");
    assert_eq!(counted(&world), Some((FailureKind::Attempt, true, true)), "and that it is healed");
}

#[test]
fn a_failure_in_a_rollout_without_a_budget_does_not_count() {
    let mut world = settled_at("1");
    world.fails("packages", 1);
    world.trigger("2");
    world.pass(Duration::from_secs(600));
    assert_eq!((world.verdict_str(), counted(&world)), ("suspect", None));
}

#[test]
fn a_host_that_stops_working_counts_only_soon_after_its_proof() {
    for (after, counts) in [(600, true), (4000, false)] {
        let mut world = settled_at("1");
        world.fails("packages", 75);
        world.trigger("2");
        world.settle();
        budgeted(&mut world);
        world.works("packages");
        world.pass(Duration::from_secs(16));
        assert_eq!(world.published.listing, Some(version("2")));
        world.pass(Duration::from_secs(after));
        world.fails("http", 2);
        world.pass(Duration::from_secs(61));
        let expected = counts.then_some((FailureKind::Withdrawal, false, true));
        assert_eq!(counted(&world), expected, "{after} s after the proof");
        world.works("http");
        world.pass(Duration::from_secs(61));
        let healed = counts.then_some((FailureKind::Withdrawal, true, true));
        assert_eq!((world.published.listing.clone(), counted(&world)), (Some(version("2")), healed));
        // A reboot washes nothing away, and brings nothing back.
        world.state.rebooted("b9".into());
        world.fails("http", 2);
        world.pass(Duration::from_secs(61));
        assert_eq!(counted(&world), expected, "{after} s after the proof, after a reboot");
        world.works("http");
        world.pass(Duration::from_secs(61));
        assert_eq!(counted(&world), healed);
        // The next version is another matter.
        world.trigger("3");
        world.pass(Duration::from_secs(60));
        assert_eq!((world.verdict_str(), counted(&world)), ("ok", None));
    }
}

#[test]
fn a_host_says_how_far_it_got_in_its_rollout() {
    use schema::records::ProgressState::{GaveUp, Proven, Started};
    let progress =
        |world: &World| world.state.rollout.progress.map(|known| (known.progress.state, known.is_written));
    let mut world = settled_at("1");
    world.fails("packages", 75);
    world.trigger("2");
    world.settle();
    assert_eq!(progress(&world), None, "its rollout has no record");
    let order = world.state.attempt.as_ref().expect("an attempt").instruction.order;
    let times = crate::rollout::Times {
        lost_after: Span(Duration::from_secs(600)),
        progress_deadline: Span(Duration::from_secs(1800)),
        charge_for: Span(Duration::from_secs(3600)),
        hold: None,
    };
    world.state.note_start(order, Some(times), world.now);
    assert_eq!(progress(&world), Some((Started, true)), "the start says so");
    let target = |world: &World| match &world.target {
        Target::Known(instruction) => instruction.clone(),
        _ => panic!("a target"),
    };
    assert!(world.state.drives_rollout(&target(&world)), "it may be the only one that runs");
    world.fails("http", 75);
    world.works("packages");
    limited(&mut world, Duration::from_secs(600));
    world.pass(Duration::from_secs(900));
    assert_eq!((world.verdict_str(), progress(&world)), ("suspect", Some((GaveUp, true))));
    assert!(world.state.drives_rollout(&target(&world)));
    // It works later.
    world.works("http");
    world.pass(Duration::from_secs(60));
    assert_eq!((world.verdict_str(), progress(&world)), ("ok", Some((Proven, true))));
    world.record(Fact::RolloutEnded(order));
    assert!(!world.state.drives_rollout(&target(&world)), "it knows");
    // Another version begins another rollout.
    world.trigger("3");
    assert!(!world.state.drives_rollout(&target(&world)));
}

#[test]
fn a_host_says_to_milliseconds_how_long_it_took_unless_its_clock_began_again() {
    let minute = Span(Duration::from_secs(60));
    let times = crate::rollout::Times {
        lost_after: minute,
        progress_deadline: minute,
        charge_for: minute,
        hold: None,
    };
    let order = schema::order::InstructionOrder { epoch: 0, revision: 9 };
    // Milliseconds by the clock since boot, seconds by the wall clock, and what the host says.
    for (since_boot, seconds, expected) in
        [(Some(2_400), 2, 2_400), (Some(2_400), 3, 2_400), (Some(400), 60, 60_000), (None, 3, 3_000)]
    {
        let mut world = settled_at("1");
        world.state.note_start(order, Some(times), world.now);
        let at = schema::time::EpochSeconds(world.now.wall.0 + seconds);
        let took = since_boot.map(|millis| Span(Duration::from_millis(millis)));
        let proven = HostProgress { took, ..HostProgress::of_agent(ProgressState::Proven, at) };
        world.state.note_result(order, proven);
        let took = world.state.rollout.progress.and_then(|known| known.progress.took);
        assert_eq!(took, Some(Span(Duration::from_millis(expected))), "{since_boot:?} {seconds}");
    }
}

#[test]
fn an_attempt_that_succeeds_in_time_does_not_give_up() {
    let mut world = settled_at("1");
    world.fails("packages", 75);
    world.trigger("2");
    world.settle();
    limited(&mut world, Duration::from_secs(600));
    world.works("packages");
    world.pass(Duration::from_secs(3600));
    assert_eq!((world.published.listing.clone(), world.verdict_str()), (Some(version("2")), "ok"));
}

#[test]
fn a_reboot_after_the_proof_washes_no_failure_away() {
    for has_ended in [false, true] {
        let mut world = settled_at("1");
        world.fails("packages", 75);
        world.trigger("2");
        world.settle();
        budgeted(&mut world);
        let order = world.state.attempt.as_ref().expect("an attempt").instruction.order;
        world.works("packages");
        world.pass(Duration::from_secs(16));
        assert_eq!(world.published.listing, Some(version("2")));
        let progress = HostProgress::of_agent(ProgressState::Proven, world.now.wall);
        world.state.rollout.progress =
            Some(RolloutProgress { order, progress, is_written: true, has_ended: false });
        if has_ended {
            world.record(Fact::RolloutEnded(order));
        }
        world.fails("http", 2);
        world.reboot();
        world.pass(Duration::from_secs(61));
        let expected = (!has_ended).then_some((FailureKind::Withdrawal, false, true));
        assert_eq!((world.published.listing.clone(), counted(&world)), (None, expected), "{has_ended}");
        // Also if it had to be switched off and on again meanwhile.
        world.state.rollout.counted_failure = None;
        world.works("http");
        world.pass(Duration::from_secs(61));
        world.reboot();
        world.pass(Duration::from_secs(61));
        world.reboot();
        world.fails("http", 2);
        world.pass(Duration::from_secs(61));
        assert_eq!(counted(&world), expected, "{has_ended}");
    }
}
