//! Reboots, clocks, and a store or a journal that is away.

use super::*;

#[test]
fn the_copy_of_a_disk_in_the_middle_of_an_update_has_no_version_installed() {
    let mut world = settled_at("1");
    let installed =
        |world: &World| HostState::installed_by_file(Some(version("1")), world.state.is_disturbed());
    assert_eq!(installed(&world), Some(version("1")));
    world.trigger("2");
    while world.runs("packages") == 0 {
        world.act();
    }
    assert_eq!(installed(&world), None);
}

#[test]
fn nothing_starts_without_the_store_or_the_name_or_a_journal() {
    type Case = (&'static str, fn(&mut World), &'static str);
    let cases: Vec<Case> = vec![
        ("store away", |w| w.store_away = true, "waiting"),
        ("not read", |w| w.store_trust = StoreTrust::Unread, "waiting"),
        ("went back", |w| w.store_trust = StoreTrust::WentBack { by: WentBack::IdentityMissing }, "blocked"),
        (
            "other lineage",
            |w| {
                w.store_trust = StoreTrust::OtherLineage {
                    ours: Token::new("L").unwrap(),
                    theirs: Token::new("M").unwrap(),
                }
            },
            "blocked",
        ),
        ("no claim", |w| w.claim = Claim::NotYet, "waiting"),
        ("name held", |w| w.claim = Claim::Contested { holder: "a".into(), ours: "b".into() }, "blocked"),
        (
            "cannot record",
            |w| w.cannot_record = Some(("disk full".into(), w.now.boot.plus(Duration::from_secs(5)))),
            "blocked",
        ),
        (
            "settings of somebody else",
            |w| w.settings_untrusted = Some("agent.toml is writable by others".into()),
            "blocked",
        ),
        ("no instruction", |w| w.target = Target::NotSet, "ok"),
        ("garbage", |w| w.target = Target::Invalid { why: "rule".into() }, "blocked"),
    ];
    for (name, change, verdict_str) in cases {
        let mut world = settled_at("1");
        world.trigger("2");
        change(&mut world);
        world.settle();
        assert!(!world.history.iter().any(|e| matches!(e, Event::Start(_) | Event::Listed(_))), "{name}");
        assert_eq!(world.verdict_str(), verdict_str, "{name}");
    }
}

#[test]
fn while_others_can_write_the_settings_nothing_runs_and_listing_proof_and_report_stay() {
    let mut world = settled_at("1");
    let ran = |world: &World| world.history.iter().filter(|e| matches!(e, Event::Step(..))).count();
    let before = ran(&world);
    world.settings_untrusted = Some("agent.toml is writable by others (mode 666)".into());
    world.trigger("2");
    world.pass(Duration::from_secs(3600));
    world.published.listing = None;
    world.settle();
    assert_eq!(ran(&world), before, "{:?}", world.history);
    assert_eq!(world.published.listing, Some(version("1")));
    assert!(world.state.versions.proof_holds);
    assert_eq!(world.published.report.as_ref().map(|report| report.verdict.kind().as_str()), Some("blocked"));
    world.settings_untrusted = None;
    world.settle();
    assert_eq!(world.published.listing, Some(version("2")));
}

#[test]
fn a_list_is_not_changed_while_that_cannot_be_recorded_but_it_is_said() {
    let mut world = settled_at("1");
    // The rate limit of reports must not delay the next report.
    world.pass(Duration::from_secs(61));
    // The live lease was lost, and the listing with it.
    world.published.listing = None;
    world.cannot_record = Some(("disk full".into(), world.now.boot.plus(Duration::from_secs(5))));
    world.settle();
    assert_eq!(world.published.listing, None);
    assert_eq!(world.published.report.as_ref().map(|report| report.verdict.kind().as_str()), Some("blocked"));
    world.cannot_record = None;
    world.settle();
    assert_eq!(world.published.listing, Some(version("1")));
}

#[test]
fn what_has_begun_finishes_while_the_store_is_away_and_its_announcement_waits() {
    let mut world = settled_at("1");
    world.trigger("2");
    while !world.state.is_disturbed() {
        assert!(world.act());
    }
    world.store_away = true;
    world.settle();
    assert_eq!(world.file, VersionFile::Content(Some(version("2"))));
    assert_eq!(world.published.listing, None);
    world.store_away = false;
    world.settle();
    assert_eq!(world.published.listing, Some(version("2")));
}

#[test]
fn after_a_reboot_a_host_validates_first_and_then_announces() {
    let mut world = settled_at("1");
    world.reboot();
    world.settle();
    assert_eq!(
        world.history,
        [
            Event::Step(StepPhase::Validate, "http".into(), version("1"), true),
            Event::Listed(Some(version("1"))),
        ]
    );
}

#[test]
fn a_step_cut_off_by_a_reboot_runs_again_after_a_look() {
    let mut world = settled_at("1");
    world.trigger("2");
    world.ends.insert("packages".into(), [StepEnd::Interrupted].into());
    while !world.state.is_disturbed() {
        assert!(world.act());
    }
    let running = RunningStep {
        run_id: Token::new("r").unwrap(),
        phase: StepPhase::Apply,
        step: StepName::new("packages").unwrap(),
    };
    world.record(Fact::StepStarted(running));
    world.reboot();
    let (phase, step) = (StepPhase::Apply, StepName::new("packages").unwrap());
    world.record(Fact::StepEnded(StepReport {
        phase,
        step,
        end: StepEnd::Interrupted,
        log: vec![],
        cause: None,
    }));
    world.history.clear();
    world.settle();
    let first = world.history.iter().find(|e| matches!(e, Event::Step(..)));
    assert!(matches!(first, Some(Event::Step(StepPhase::Converge | StepPhase::Validate, ..))), "{first:?}");
    assert_eq!(world.published.listing, Some(version("2")));
}

#[test]
fn a_host_whose_journal_is_lost_validates_what_its_file_says() {
    let mut world = World::new();
    world.file = VersionFile::Content(Some(version("1")));
    world.state.versions.installed = Some(version("1"));
    world.trigger("1");
    world.settle();
    assert_eq!((world.runs("http"), world.runs("packages")), (1, 0));
    assert_eq!(world.published.listing, Some(version("1")));
}

#[test]
fn a_wall_clock_that_jumps_changes_no_decision() {
    let mut world = settled_at("1");
    world.fails("packages", 1);
    world.trigger("2");
    world.settle();
    let before = world.decide();
    for jump in [3_600, -3_600, -315_360_000, i64::MIN / 2] {
        world.now.wall = EpochSeconds(1_000 + jump);
        let mut decision = world.decide();
        // What the report says about times is for readers. It may be written again with the new ones.
        decision.report = Report {
            at: before.report.at,
            next_attempt_at: before.report.next_attempt_at,
            ..decision.report
        };
        decision.plan.actions.retain(|planned| planned.action != Action::Do(Effect::Report));
        assert_eq!(decision, before, "{jump}");
    }
}

#[test]
fn an_hour_of_sleep_ends_every_shorter_wait() {
    let mut world = settled_at("1");
    world.fails("packages", 1);
    world.trigger("2");
    world.settle();
    world.works("packages");
    world.now.boot = world.now.boot.plus(Duration::from_secs(3_600));
    world.settle();
    assert_eq!(world.published.listing, Some(version("2")));
}

#[test]
fn a_reboot_during_prefetch_puts_no_validation_before_the_apply() {
    let mut world = settled_at("1");
    world.trigger("2");
    assert!(world.act());
    let (phase, step) = (StepPhase::Prefetch, StepName::new("fetch").unwrap());
    let run_id = Token::new("r").unwrap();
    world.record(Fact::StepStarted(RunningStep { run_id, phase, step: step.clone() }));
    world.reboot();
    world.record(Fact::StepEnded(StepReport {
        phase,
        step,
        end: StepEnd::Interrupted,
        log: vec![],
        cause: None,
    }));
    world.history.clear();
    world.settle();
    let start = world.history.iter().position(|e| *e == Event::Start(version("2"))).unwrap();
    let next = &world.history[start + 1];
    assert!(matches!(next, Event::Step(StepPhase::Apply, ..)), "{next:?}");
}
