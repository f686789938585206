//! What a host reports, and when.

use super::*;

/// A failed apply makes the validation fail too. What counts is why the version did not come.
#[test]
fn the_log_in_the_report_is_of_the_step_that_the_verdict_names() {
    let log = |world: World| -> (Option<String>, Vec<String>) {
        let report = world.published.report.unwrap();
        (report.log_of.map(|of| of.step.to_string()), report.log.iter().map(str::to_owned).collect())
    };
    let of = |step: &str| (Some(step.to_owned()), vec![format!("output of {step}")]);
    let mut world = settled_at("1");
    world.fails("packages", 1);
    world.fails("http", 1);
    world.trigger("2");
    world.settle();
    assert_eq!(log(world), of("packages"));
    let mut world = settled_at("1");
    world.fails("http", 1);
    world.trigger("2");
    world.settle();
    assert_eq!(log(world), of("http"));
    assert_eq!(log(settled_at("1")), (None, Vec::new()));
    // The output of a step that has succeeded since is gone.
    let mut world = settled_at("1");
    world.fails("packages", 1);
    world.trigger("2");
    world.settle();
    let ended = |code| {
        let (phase, step) = (StepPhase::Apply, StepName::new("packages").unwrap());
        Fact::StepEnded(StepReport {
            phase,
            step,
            end: StepEnd::Exited { code },
            log: vec!["later".into()],
            cause: None,
        })
    };
    world.record(ended(0));
    assert!(world.state.steps.logs.is_empty());
}

#[test]
fn the_report_has_the_time_of_the_next_attempt() {
    let next = |world: &mut World| {
        let at = world.decide().report.next_attempt_at;
        at.map(|at| at.0 - world.now.wall.0)
    };
    let mut world = settled_at("1");
    assert_eq!(next(&mut world), None);
    world.fails("packages", 1);
    world.trigger("2");
    world.settle();
    let first = next(&mut world).expect("a time");
    assert!((1..=60).contains(&first), "{first}");
    // A suspect host tries again once an hour.
    world.pass(Duration::from_secs(600));
    assert_eq!(world.verdict_str(), "suspect");
    let as_suspect = next(&mut world).expect("a time");
    assert!((1..=3_600).contains(&as_suspect), "{as_suspect}");
    // A version whose validation fails after its proof is applied again.
    let mut world = settled_at("1");
    world.fails("http", 1);
    world.pass(world.policy.validate_every * 2);
    assert_eq!(world.verdict_str(), "failed");
    let repair = next(&mut world).expect("a time");
    let (at_least, validating) =
        (world.policy.reapply_after.as_secs(), world.policy.validate_every.as_secs() * 2);
    assert!((at_least - validating..=2 * at_least).contains(&repair.cast_unsigned()), "{repair}");
}

#[test]
fn a_phase_of_an_update_is_reported_when_it_lasts() {
    let mut world = settled_at("1");
    world.pass(Duration::from_secs(200));
    let before = world.revision;
    world.trigger("2");
    world.settle();
    assert_eq!((world.verdict_str(), world.published.listing.clone()), ("ok", Some(version("2"))));
    let written = world.revision - before;
    // The trigger, the prefetch, the start and the proof.
    assert_eq!(written, 4, "phases that are over at once are not reported");
    world.trigger("3");
    while world.runs("packages") < 2 {
        assert!(world.act());
    }
    world.now.boot = world.now.boot.plus(Duration::from_secs(3));
    let phase = |world: &World| world.published.report.as_ref().map(|report| report.phase);
    assert_eq!(phase(&world), Some(schema::plan::Phase::Apply));
    while phase(&world) == Some(schema::plan::Phase::Apply) {
        assert!(world.act());
    }
    assert_eq!(phase(&world), Some(schema::plan::Phase::Converge));
}

#[test]
fn a_step_that_fails_with_another_line_each_time_is_no_news_each_time() {
    let mut world = settled_at("1");
    // It does not apply again.
    world.policy.reapply_per_day = 0;
    world.fails("http", 1);
    world.pass(Duration::from_secs(600));
    let cause = |world: &World| {
        let key = (StatusType::validation(), StatusState::Failed);
        world.published.statuses.get(&key).and_then(|record| record.cause.clone())
    };
    let (before, first) = (world.revision, cause(&world));
    assert!(first.is_some());
    let runs = world.runs("http");
    world.pass(Duration::from_secs(600));
    assert!(world.runs("http") >= runs + 9, "it was validated each minute");
    assert_eq!((world.revision, cause(&world)), (before, first.clone()), "and nothing was written");
    // After some time the cause of the result is replaced.
    world.now.wall = EpochSeconds(world.now.wall.0 + 600);
    world.pass(Duration::from_secs(61));
    assert_eq!(world.revision, before + 1);
    assert_ne!(cause(&world), first);
}

/// A report costs a write, so short steps and the validations of a settled host are not reported.
#[test]
fn a_step_of_an_update_is_reported_once_it_has_run_for_some_time() {
    let wait = |world: &mut World, seconds: u32| {
        world.now.boot = world.now.boot.plus(Duration::from_secs(seconds.into()));
        world.now.wall.0 += i64::from(seconds);
    };
    let begin = |world: &mut World, phase: StepPhase, step: &str| {
        let (run_id, step) = (Token::new("r").unwrap(), StepName::new(step).unwrap());
        world.record(Fact::StepStarted(RunningStep { run_id, phase, step }));
    };
    let mut world = settled_at("1");
    world.trigger("2");
    while !world.state.is_disturbed() {
        assert!(world.act());
    }
    let began = world.now;
    begin(&mut world, StepPhase::Apply, "packages");
    while world.act() {}
    // Else the report waits for its turn.
    world.state.reporting.report_times.clear();
    let check = |world: &World, ran: u64, reported: bool| {
        let Decision { plan, report, .. } = world.decide();
        let step = report.running_step.map(|running| (running.step.to_string(), running.since));
        assert_eq!(step, reported.then(|| ("packages".into(), began.wall)), "after {ran} s");
        assert_eq!(plan.actions.is_empty(), !reported, "after {ran} s: {plan:?}");
        let looks_again = plan.requeue_at.is_some_and(|at| at == began.boot.plus(LONG_STEP));
        assert_eq!(looks_again, !reported, "after {ran} s");
    };
    check(&world, 0, false);
    wait(&mut world, 9);
    check(&world, 9, false);
    wait(&mut world, 1);
    check(&world, 10, true);
    // The agent was restarted: it knows the time by the clock.
    world.state.steps.running.as_mut().expect("a step").since = None;
    check(&world, 10, true);

    let mut world = settled_at("1");
    begin(&mut world, StepPhase::Validate, "http");
    wait(&mut world, 20);
    assert_eq!(world.decide().report.running_step, None);
}

#[test]
fn how_many_instances_there_are_is_no_news() {
    let mut world = settled_at("1");
    world.waits = vec![Wait { need: 5, ..need(StepPhase::Validate, None) }];
    world.pass(Duration::from_secs(60));
    let written = world.published.report.clone().unwrap().write_id;
    let before = world.published.report.clone();
    for have in 1..5 {
        world.waits[0].have = have;
        world.settle();
    }
    assert_eq!(world.published.report, before, "not written again");
    assert_eq!(world.published.report.unwrap().write_id, written);
}

#[test]
fn a_flapping_host_writes_ten_reports_and_then_one_a_minute() {
    let mut world = settled_at("1");
    world.policy.validate_every = Duration::from_secs(1);
    let before = world.revision;
    for round in 0..120 {
        if round % 2 == 0 {
            world.fails("render", 75)
        } else {
            world.works("render")
        }
        world.state.cycles.converge.held = Some(StepName::new("render").unwrap());
        world.pass(Duration::from_secs(1));
    }
    let written = world.revision - before;
    assert!(written <= 10 + 2, "{written} reports in two minutes");
}
