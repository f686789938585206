//! Attempts that fail, and when a host tries again.

use super::*;

#[test]
fn a_failed_apply_holds_later_steps_and_lets_other_phases_go_on() {
    let mut world = settled_at("1");
    world.fails("packages", 1);
    world.trigger("2");
    world.settle();
    assert_eq!((world.runs("packages"), world.runs("configuration")), (1, 0));
    assert_eq!(
        (world.runs("render"), world.runs("http")),
        (0, 1),
        "the eventual phase needs a whole version"
    );
    assert_eq!(world.verdict_str(), "failed");
    assert_eq!(world.status(StatusType::apply()), [StatusState::Failed]);
    assert_eq!(world.published.listing, None);
    assert_eq!(world.file, VersionFile::Content(Some(version("1"))));
    let report = world.published.report.unwrap();
    assert!(report.log.iter().eq(["output of packages"]));
    assert_eq!(report.verdict.message(), "apply step packages exited with code 1 (version 2)");
}

#[test]
fn a_validation_names_a_version_only_if_it_was_applied_as_a_whole() {
    let mut world = settled_at("1");
    let validated = |world: &World| {
        let results =
            world.published.statuses.iter().filter(|((kind, _), _)| *kind == StatusType::validation());
        results.map(|((_, state), record)| (*state, record.version.clone())).collect::<Vec<_>>()
    };
    assert_eq!(validated(&world), [(StatusState::Success, Some(version("1")))]);
    // The first apply step fails, then the second one: what passes the validation is neither version.
    for broken in ["packages", "configuration"] {
        world.fails(broken, 1);
        world.trigger(if broken == "packages" { "2" } else { "3" });
        world.settle();
        assert_eq!(world.status(StatusType::apply()), [StatusState::Failed]);
        assert_eq!(validated(&world), [(StatusState::Success, None)], "{broken} failed");
        world.works(broken);
    }
    world.trigger("4");
    world.settle();
    assert_eq!(validated(&world), [(StatusState::Success, Some(version("4")))]);
    // A version that was applied and does not validate is named.
    world.fails("http", 1);
    world.trigger("5");
    world.settle();
    assert_eq!(validated(&world), [(StatusState::Failed, Some(version("5")))]);
}

#[test]
fn a_host_is_suspect_after_three_attempts_and_the_hook_runs_once() {
    let mut world = settled_at("1");
    world.fails("packages", 1);
    world.trigger("2");
    world.pass(Duration::from_secs(1800));
    assert_eq!(world.runs("packages"), 3);
    assert_eq!(world.runs("page"), 1);
    assert_eq!(world.verdict_str(), "suspect");
    assert!(world.runs("http") > 20, "validation goes on");
}

#[test]
fn a_suspect_host_tries_again_once_an_hour_unless_that_is_turned_off() {
    for (every, expected) in [(Duration::from_secs(3600), 3 + 10), (Duration::ZERO, 3)] {
        let mut world = settled_at("1");
        world.policy.suspect_retry_every = every;
        world.fails("packages", 1);
        world.trigger("2");
        world.pass(Duration::from_secs(600));
        assert_eq!((world.runs("packages"), world.verdict_str()), (3, "suspect"));
        world.pass(Duration::from_secs(10 * 3600));
        assert_eq!((world.runs("packages"), world.verdict_str()), (expected, "suspect"), "{every:?}");
        assert_eq!(world.runs("page"), 1, "nobody is told again");
        world.works("packages");
        world.pass(Duration::from_secs(3700));
        assert_eq!(world.verdict_str() == "ok", !every.is_zero());
    }
}

#[test]
fn a_suspect_host_whose_prefetch_fails_goes_on_trying() {
    let mut world = settled_at("1");
    world.fails("packages", 1);
    world.trigger("2");
    world.pass(Duration::from_secs(600));
    assert_eq!((world.runs("packages"), world.verdict_str()), (3, "suspect"));
    world.fails("fetch", 1);
    world.pass(Duration::from_secs(2 * 3600));
    assert_eq!(world.verdict_str(), "suspect");
    world.works("fetch");
    world.works("packages");
    world.pass(Duration::from_secs(3700));
    assert_eq!(world.verdict_str(), "ok");
}

#[test]
fn a_failed_prefetch_is_no_disruptive_attempt() {
    let mut world = settled_at("1");
    world.policy.suspect_after = 1;
    world.fails("fetch", 1);
    world.trigger("2");
    world.pass(Duration::from_secs(600));
    assert_eq!((world.verdict_str(), world.runs("page")), ("failed", 0));
    world.works("fetch");
    world.pass(Duration::from_secs(3700));
    assert_eq!(world.verdict_str(), "ok");
}

#[test]
fn a_suspect_host_tries_again_when_the_catalog_has_changed_at_most_once_a_minute() {
    let mut world = settled_at("1");
    world.addressable = Some(Addressable { digest: 1, since: world.now.boot });
    world.fails("packages", 1);
    world.trigger("2");
    world.pass(Duration::from_secs(600));
    assert_eq!((world.runs("packages"), world.verdict_str()), (3, "suspect"));
    let change = |world: &mut World, digest| {
        world.addressable = Some(Addressable { digest, since: world.now.boot });
        world.settle();
    };
    change(&mut world, 2);
    world.pass(Duration::from_secs(60));
    assert_eq!(world.runs("packages"), 4, "one change, one attempt");
    world.pass(Duration::from_secs(600));
    assert_eq!(world.runs("packages"), 4);
    for digest in 3..63 {
        change(&mut world, digest);
        world.pass(Duration::from_secs(10));
    }
    assert!((5..=14).contains(&world.runs("packages")), "ten minutes: {}", world.runs("packages"));
    world.works("packages");
    change(&mut world, 100);
    world.pass(Duration::from_secs(61));
    assert_eq!((world.verdict_str(), world.published.listing.clone()), ("ok", Some(version("2"))));
    // If the retry on change is turned off, only the hourly retry counts.
    let mut world = settled_at("1");
    world.policy.suspect_retry_on_change = Duration::ZERO;
    world.fails("packages", 1);
    world.trigger("2");
    world.pass(Duration::from_secs(600));
    change(&mut world, 2);
    world.pass(Duration::from_secs(600));
    assert_eq!(world.runs("packages"), 3);
}

#[test]
fn two_hundred_suspect_hosts_follow_one_change_of_the_catalog_spread_over_a_minute() {
    let mut starts: Vec<u64> = (0..200)
        .map(|number| {
            let mut world = settled_at("1");
            world.state.host = HostName::new(format!("h{number}")).unwrap();
            world.addressable = Some(Addressable { digest: 1, since: world.now.boot });
            world.fails("packages", 1);
            world.trigger("2");
            world.pass(Duration::from_secs(600));
            assert_eq!(world.verdict_str(), "suspect");
            world.works("packages");
            let changed = world.now.boot;
            world.addressable = Some(Addressable { digest: 2, since: changed });
            for second in 0..=60 {
                world.pass(Duration::from_secs(1));
                if world.runs("packages") > 3 {
                    assert_eq!(world.verdict_str(), "ok");
                    return second;
                }
            }
            panic!("h{number} did not follow: {:#?}", world.decide());
        })
        .collect();
    starts.sort_unstable();
    let most = (0..60).map(|s| starts.iter().filter(|at| (s..s + 10).contains(*at)).count()).max().unwrap();
    assert!(most <= 60, "{most} of 200 within ten seconds: {starts:?}");
}

#[test]
fn a_host_that_waits_before_apply_stays_on_its_list_and_says_that_apply_is_pending() {
    let mut world = settled_at("1");
    world.waits = vec![need(StepPhase::Apply, Some("packages"))];
    world.services_seen = Some(1);
    world.trigger("2");
    world.pass(Duration::from_secs(300));
    assert_eq!(world.published.listing, Some(version("1")));
    assert_eq!(world.status(StatusType::apply()), [StatusState::Pending]);
    assert_eq!(world.status(StatusType::validation()), [StatusState::Success]);
    assert_eq!(world.verdict_str(), "waiting");
    let rendered: Vec<&Event> =
        world.history.iter().filter(|e| matches!(e, Event::Step(StepPhase::Converge, ..))).collect();
    assert_eq!(rendered, [&Event::Step(StepPhase::Converge, "render".into(), version("1"), true)]);
    // If the old version is triggered again, the host is as it was.
    let mut back = World { history: Vec::new(), ..world };
    back.trigger("1");
    back.settle();
    assert_eq!(back.status(StatusType::apply()), [StatusState::Success]);
    assert_eq!((back.verdict_str(), back.runs("packages")), ("ok", 0));
}

#[test]
fn a_suspect_host_whose_apply_worked_clears_itself_when_validation_passes() {
    let mut world = settled_at("1");
    world.fails("http", 1);
    world.trigger("2");
    world.pass(Duration::from_secs(24 * 3600));
    assert_eq!(world.verdict_str(), "suspect");
    assert_eq!(world.runs("packages"), 3);
    world.works("http");
    world.pass(Duration::from_secs(60));
    assert_eq!(world.verdict_str(), "ok");
    assert_eq!(world.published.listing, Some(version("2")));
    assert_eq!(world.runs("packages"), 3, "nothing was applied again");
}

#[test]
fn a_retry_keeps_failed_until_it_ends() {
    let mut world = settled_at("1");
    world.fails("packages", 1);
    world.trigger("2");
    world.settle();
    world.works("packages");
    world.now.boot = world.now.boot.plus(Duration::from_secs(60));
    while world.runs("packages") < 2 {
        assert!(world.act());
        assert_eq!(world.status(StatusType::apply()), [StatusState::Failed]);
        assert_eq!(world.verdict_str(), "failed");
    }
    world.settle();
    assert_eq!(world.status(StatusType::apply()), [StatusState::Success]);
    assert_eq!(world.verdict_str(), "ok");
}

#[test]
fn not_yet_waits_and_is_asked_again() {
    for name in ["fetch", "packages", "render", "http"] {
        let mut world = settled_at("1");
        world.fails(name, 75);
        world.trigger("2");
        world.settle();
        assert_eq!(world.verdict_str(), "waiting", "{name}");
        let listing = match name {
            "fetch" => Some(version("1")),
            // The converge phase does not affect which version is listed.
            "render" => Some(version("2")),
            _ => None,
        };
        assert_eq!(world.published.listing, listing, "{name}");
        let before = world.runs(name);
        world.pass(Duration::from_secs(16));
        assert!(world.runs(name) > before, "{name} is asked again");
        world.works(name);
        world.pass(Duration::from_secs(61));
        assert_eq!(world.published.listing, Some(version("2")), "{name}");
        assert_eq!(world.verdict_str(), "ok", "{name}");
    }
}

#[test]
fn validation_that_fails_after_done_withdraws_converges_and_comes_back() {
    let mut world = settled_at("1");
    world.fails("http", 2);
    world.pass(Duration::from_secs(61));
    assert_eq!(world.published.listing, None);
    assert_eq!(world.status(StatusType::validation()), [StatusState::Failed]);
    assert_eq!(world.status(StatusType::apply()), [StatusState::Success]);
    world.pass(Duration::from_secs(60));
    assert!(world.runs("render") >= 1, "converge runs");
    assert!(world.runs("http") >= 3, "validation is repeated");
    world.works("http");
    world.pass(Duration::from_secs(60));
    assert_eq!(world.published.listing, Some(version("1")));
    assert_eq!(world.runs("packages"), 0, "nothing was applied again");
}

#[test]
fn a_broken_shared_service_reinstalls_nobody_more_than_once_a_day_and_nobody_stays_suspect() {
    let mut world = settled_at("1");
    world.fails("http", 2);
    world.pass(Duration::from_secs(14 * 60));
    assert_eq!(world.runs("packages"), 0, "a short outage repairs nothing");
    world.pass(Duration::from_secs(20 * 3600));
    assert_eq!(world.runs("packages"), 1, "a long one, once");
    assert_eq!(world.verdict_str(), "failed");
    world.works("http");
    world.pass(Duration::from_secs(61));
    assert_eq!(world.verdict_str(), "ok");
    assert_eq!(world.published.listing, Some(version("1")));
}

#[test]
fn not_yet_after_done_withdraws_nothing() {
    let mut world = settled_at("1");
    world.fails("http", 75);
    world.pass(Duration::from_secs(61));
    assert_eq!(world.published.listing, Some(version("1")));
    assert_eq!(world.verdict_str(), "waiting");
    assert_eq!(world.status(StatusType::validation()), [StatusState::Pending]);
}

#[test]
fn a_validation_that_fails_as_a_new_instruction_comes_counts() {
    let mut world = settled_at("1");
    world.fails("http", 1);
    world.now.boot = world.now.boot.plus(Duration::from_secs(61));
    while world.runs("http") == 0 {
        world.act();
    }
    world.fails("fetch", 75);
    world.trigger("2");
    world.act();
    world.act();
    assert_eq!((world.runs("packages"), world.published.listing.clone()), (0, None));
    assert_eq!(world.status(StatusType::validation()), [StatusState::Failed]);
}

#[test]
fn a_failed_validation_is_concluded_before_a_deferred_prefetch_goes_on() {
    let mut world = settled_at("1");
    world.policy.not_yet_retry = Duration::from_secs(1);
    world.fails("fetch", 75);
    world.trigger("2");
    world.settle();
    world.fails("http", 1);
    world.now.boot = world.now.boot.plus(Duration::from_secs(61));
    while world.runs("http") == 0 {
        world.act();
    }
    // The deferred prefetch is due as the validation ends.
    world.now.boot = world.now.boot.plus(Duration::from_secs(61));
    let fetched = world.runs("fetch");
    world.act();
    assert_eq!((world.published.listing.clone(), world.runs("fetch")), (None, fetched));
    assert_eq!(world.status(StatusType::validation()), [StatusState::Failed]);
}

#[test]
fn a_step_that_is_always_interrupted_fails_in_the_end() {
    let mut world = settled_at("1");
    world.default_end.insert("packages".into(), StepEnd::Interrupted);
    world.trigger("2");
    world.settle();
    assert_eq!(world.verdict_str(), "failed");
    assert!(world.runs("packages") <= 5);
}

#[test]
fn failing_prefetch_disturbs_nothing_and_makes_nobody_suspect() {
    let mut world = settled_at("1");
    world.fails("fetch", 1);
    world.trigger("2");
    world.pass(Duration::from_secs(12 * 3600));
    assert_eq!(world.published.listing, Some(version("1")));
    assert_eq!(world.verdict_str(), "failed");
    assert!(world.runs("fetch") > 5);
    world.works("fetch");
    world.pass(Duration::from_secs(3600));
    assert_eq!(world.published.listing, Some(version("2")));
}

#[test]
fn while_a_prefetch_waits_the_old_version_is_validated_as_ever() {
    let mut world = settled_at("1");
    world.fails("fetch", 75);
    world.trigger("2");
    world.settle();
    world.fails("http", 1);
    world.pass(Duration::from_secs(120));
    assert_eq!(world.published.listing, None, "what does not work is not listed");
    world.works("http");
    world.pass(Duration::from_secs(120));
    assert_eq!(world.published.listing, Some(version("1")));
    world.reboot();
    world.pass(Duration::from_secs(5));
    assert_eq!(world.published.listing, Some(version("1")), "validated after the reboot and announced");
    world.works("fetch");
    world.pass(Duration::from_secs(60));
    assert_eq!(world.published.listing, Some(version("2")));
}
