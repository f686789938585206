//! The life of a version on a host.

use super::*;

#[test]
fn a_new_version_goes_through_its_life_in_order() {
    let mut world = World::new();
    assert_eq!(world.verdict_str(), "waiting");
    world.trigger("1");
    world.settle();
    let v = version("1");
    let ran = |phase, name: &str| Event::Step(phase, name.into(), version("1"), true);
    assert_eq!(
        world.history,
        [
            ran(StepPhase::Prefetch, "fetch"),
            Event::Start(v.clone()),
            ran(StepPhase::Apply, "packages"),
            ran(StepPhase::Apply, "configuration"),
            ran(StepPhase::Converge, "render"),
            ran(StepPhase::Validate, "http"),
            Event::File(v.clone()),
            Event::Listed(Some(v)),
        ]
    );
    assert_eq!(world.verdict_str(), "ok");
    assert_eq!(world.status(StatusType::apply()), [StatusState::Success]);
    assert_eq!(world.status(StatusType::validation()), [StatusState::Success]);
}

#[test]
fn the_first_proven_version_says_that_the_host_is_provisioned_and_no_later_one_does() {
    let mut world = World::new();
    world.trigger("1");
    world.settle();
    let provisioned = |world: &World| {
        let key = (StatusType::provisioned(), StatusState::Success);
        world.published.statuses.get(&key).and_then(|record| record.version.clone())
    };
    assert_eq!(provisioned(&world), Some(version("1")));
    world.trigger("2");
    world.settle();
    assert_eq!((provisioned(&world), world.verdict_str()), (Some(version("1")), "ok"));
}

#[test]
fn the_start_takes_the_host_off_its_old_version_before_anything_is_disturbed() {
    let mut world = settled_at("1");
    world.trigger("2");
    world.settle();
    let position = |wanted: &Event| world.history.iter().position(|e| e == wanted).unwrap();
    let off = position(&Event::Listed(None));
    assert!(off < position(&Event::Step(StepPhase::Apply, "packages".into(), version("2"), true)));
    assert!(off > position(&Event::Step(StepPhase::Prefetch, "fetch".into(), version("2"), true)));
    assert_eq!(world.published.listing, Some(version("2")));
}

#[test]
fn conclusions_are_recorded_in_one_pass_until_something_outside_changes() {
    let mut world = settled_at("1");
    world.trigger("2");
    world.default_end.insert("http".into(), StepEnd::Exited { code: 1 });
    while world.runs("http") == 0 {
        world.act();
    }
    let (desired, problems) = (world.desired(), HostProblems::default());
    let mut state = world.state.clone();
    let advanced = advance(&mut state, &desired, &world.observed(&problems), world.now, 0.5);
    let recorded: Vec<String> = advanced.recorded.iter().map(|p| p.action.to_string()).collect();
    assert_eq!(recorded, ["conclude validation", "conclude the attempt as failed"]);
    let plan = advanced.decision.plan;
    assert_eq!(plan.actions.first().map(|p| p.action.clone()), Some(Effect::Report.into()));
}

#[test]
fn a_version_file_that_cannot_be_read_is_not_replaced() {
    let mut world = settled_at("1");
    world.file = VersionFile::Unreadable;
    world.trigger("2");
    world.settle();
    assert_eq!(world.published.listing, Some(version("2")));
    assert_eq!(world.file, VersionFile::Unreadable);
    world.file = VersionFile::Content(Some(version("1")));
    world.settle();
    assert_eq!(world.file, VersionFile::Content(Some(version("2"))));
}

#[test]
fn a_plan_reads_back_as_written() {
    let mut world = World::new();
    world.trigger("1");
    let plan = world.decide().plan;
    let text = serde_json::to_string(&plan).unwrap();
    assert!(text.contains(r#"{"action":"begin_attempt","instruction":{"#), "{text}");
    assert!(text.contains(r#"{"action":"run_step","phase":"prefetch","step":"fetch","because":"#), "{text}");
    assert_eq!(serde_json::from_str::<schema::plan::Plan>(&text).unwrap(), plan);
}

#[test]
fn the_plan_shows_the_whole_way() {
    let mut world = World::new();
    world.trigger("1");
    let shown: Vec<String> = world.decide().plan.actions.iter().map(|p| p.action.to_string()).collect();
    assert_eq!(
        shown,
        [
            "begin version 1",
            "run prefetch step fetch",
            "start version 1",
            "run apply step packages",
            "run apply step configuration",
            "run converge step render",
            "run validate step http",
            "record version 1 as proven",
            "write 1 to the version file",
            "announce version 1",
        ]
    );
}

#[test]
fn v1_v2_v1_applies_nothing_on_a_host_that_had_not_started_v2() {
    let mut world = settled_at("1");
    world.trigger("2");
    while world.runs("fetch") == 0 {
        assert!(world.act());
    }
    world.trigger("1");
    world.settle();
    assert_eq!(world.runs("packages"), 0);
    assert_eq!(world.published.listing, Some(version("1")));
    assert_eq!(world.verdict_str(), "ok");
}

#[test]
fn v1_v2_v1_applies_v1_again_on_a_host_that_v2_had_disturbed() {
    let mut world = settled_at("1");
    world.trigger("2");
    while !world.state.is_disturbed() {
        assert!(world.act());
    }
    world.trigger("1");
    world.settle();
    assert_eq!(world.published.listing, Some(version("1")));
    assert!(world.history.contains(&Event::Start(version("1"))));
    assert!(
        !world.history.contains(&Event::Listed(Some(version("2")))),
        "a skipped version is never reported"
    );
}

#[test]
fn the_external_driver_follows_the_file_and_applies_nothing() {
    let mut world = World::new();
    world.policy.driver = Driver::External;
    world.trigger("2");
    world.file = VersionFile::Content(Some(version("1")));
    world.settle();
    assert_eq!(world.published.listing, Some(version("1")));
    assert_eq!(world.verdict_str(), "waiting");
    world.file = VersionFile::Content(Some(version("2")));
    world.settle();
    assert_eq!(world.published.listing, Some(version("2")));
    assert_eq!(world.verdict_str(), "ok");
    assert!(!world.history.iter().any(|e| matches!(e, Event::Step(..) | Event::Start(_) | Event::File(_))));
}

/// A new phase needs a step in [`policy`] and a place in the decision.
#[test]
fn the_steps_of_every_phase_run_and_a_failure_of_each_is_noticed() {
    for phase in StepPhase::ALL {
        let mut world = settled_at("1");
        let steps = world.policy.steps.of(phase).to_vec();
        assert!(!steps.is_empty(), "{phase} has no step in the policy of the tests");
        if phase == StepPhase::OnSuspect {
            world.fails("packages", 1);
        }
        let before: Vec<usize> = steps.iter().map(|step| world.runs(step.name.as_str())).collect();
        world.trigger("2");
        world.pass(Duration::from_secs(7200));
        for (step, before) in steps.iter().zip(before) {
            assert!(world.runs(step.name.as_str()) > before, "{phase} step {} never runs", step.name);
        }
        let last = steps.last().expect("a step").name.clone();
        let mut world = settled_at("1");
        world.fails(last.as_str(), 1);
        if phase == StepPhase::OnSuspect {
            world.fails("packages", 1);
        }
        world.trigger("2");
        world.pass(Duration::from_secs(7200));
        let verdict = world.decide().verdict;
        assert!(matches!(verdict, HostVerdict::Failed(_)), "{phase}: {verdict:?}");
    }
}

#[test]
fn a_host_handed_over_to_a_script_forgets_what_the_agent_had_begun() {
    let mut world = settled_at("1");
    world.fails("packages", 1);
    world.trigger("2");
    world.pass(Duration::from_secs(6 * 3600));
    assert_eq!(world.verdict_str(), "suspect");
    world.policy.driver = Driver::External;
    world.settle();
    assert_eq!((world.verdict_str(), world.published.listing.clone()), ("waiting", Some(version("1"))));
    world.file = VersionFile::Content(Some(version("2")));
    world.settle();
    assert_eq!((world.verdict_str(), world.published.listing.clone()), ("ok", Some(version("2"))));
}

#[test]
fn hosts_spread_over_the_window() {
    let mut world = settled_at("1");
    world.policy.spread_window = Duration::from_secs(1000);
    world.trigger("2");
    world.settle();
    assert_eq!(world.verdict_str(), "waiting");
    let Decision { plan, report, .. } = world.decide();
    let at = plan.requeue_at.unwrap();
    assert!(at <= world.now.boot.plus(Duration::from_secs(1000)));
    let begins = report.next_attempt_at.expect("the turn of the host comes at a known time");
    assert!(begins > world.now.wall && begins.0 <= world.now.wall.0 + 1000, "{begins:?}");
    world.pass(Duration::from_secs(1000));
    assert_eq!(world.published.listing, Some(version("2")));
}
