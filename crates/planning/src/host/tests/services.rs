//! Services that a step needs.

use super::*;

#[test]
fn a_missing_service_holds_its_step_and_what_follows_and_no_other_phase() {
    // Each case names the phase and step that the unmet need holds, and the steps of version 2 that
    // run while the need is unmet.
    for (phase, step, ran) in [
        (StepPhase::Prefetch, None, &[][..]),
        (StepPhase::Apply, None, &["fetch"][..]),
        (StepPhase::Apply, Some("packages"), &["fetch"]),
        (StepPhase::Apply, Some("configuration"), &["fetch", "packages"]),
        (StepPhase::Converge, None, &["fetch", "packages", "configuration", "http"]),
        (StepPhase::Validate, None, &["fetch", "packages", "configuration", "render"]),
    ] {
        let mut world = settled_at("1");
        world.waits = vec![need(phase, step)];
        world.services_seen = Some(1);
        world.trigger("2");
        world.settle();
        let of_two = |e: &Event| match e {
            Event::Step(_, name, version, _) if version.as_str() == "2" => Some(name.clone()),
            _ => None,
        };
        let names: Vec<String> = world.history.iter().filter_map(of_two).collect();
        assert_eq!(names, ran, "{phase} {step:?}");
        let decision = world.decide();
        assert_eq!(decision.verdict.message(), "waits for db: 0 of 1 functional", "{phase} {step:?}");
        // The needs of the converge phase do not affect the proof.
        let listed = if phase == StepPhase::Converge { Some(version("2")) } else { None };
        let is_undisturbed =
            phase == StepPhase::Prefetch || (phase == StepPhase::Apply && step != Some("configuration"));
        let old = if is_undisturbed { Some(version("1")) } else { listed };
        assert_eq!(world.published.listing, old, "{phase} {step:?}");
        world.pass(Duration::from_secs(300));
        assert_eq!(world.verdict_str(), "waiting");
        assert_eq!(world.published.report.as_ref().unwrap().waits, world.waits, "{phase} {step:?}");
        world.waits.clear();
        world.services_seen = Some(2);
        world.pass(Duration::from_secs(60));
        assert_eq!(world.verdict_str(), "ok", "{phase} {step:?}: {:#?}", world.decide());
        assert_eq!(world.published.listing, Some(version("2")));
        assert_eq!(world.runs("packages"), 1, "the consistent phase runs once");
    }
}

#[test]
fn a_change_of_what_is_needed_runs_the_eventual_phase_alone() {
    let mut world = settled_at("1");
    world.services_seen = Some(1);
    world.pass(Duration::from_secs(15));
    assert_eq!((world.runs("render"), world.runs("packages")), (1, 0));
    world.pass(Duration::from_secs(30));
    assert_eq!(world.runs("render"), 1, "nothing changed");
    // Many changes together are followed at most every `converge_at_most_every`.
    for seen in 2..12 {
        world.services_seen = Some(seen);
        world.pass(Duration::from_secs(1));
    }
    world.pass(Duration::from_secs(30));
    assert!((2..=4).contains(&world.runs("render")), "{}", world.runs("render"));
    assert_eq!(world.state.cycles.converge.began.seen, Some(11), "the last one is never missed");
    assert_eq!(world.runs("packages"), 0);
    assert_eq!(world.published.listing, Some(version("1")));
    // Services that are not known do not count as a change.
    let before = world.runs("render");
    world.services_seen = None;
    world.pass(Duration::from_secs(30));
    assert_eq!(world.runs("render"), before);
}

#[test]
fn an_eventual_phase_that_lacked_something_runs_when_it_is_there_though_nothing_else_changed() {
    let mut world = settled_at("1");
    world.waits = vec![need(StepPhase::Converge, None)];
    world.services_seen = Some(1);
    world.pass(Duration::from_secs(120));
    assert_eq!((world.runs("render"), world.verdict_str()), (0, "waiting"));
    // The need is met because a probe passes or the roster shrinks, while the instances stay the
    // same.
    world.waits.clear();
    world.pass(Duration::from_secs(30));
    assert_eq!((world.runs("render"), world.verdict_str()), (1, "ok"));
}

#[test]
fn a_service_that_is_lost_later_makes_a_settled_host_wait_and_takes_it_off_no_list() {
    let mut world = settled_at("1");
    world.waits = vec![need(StepPhase::Validate, None)];
    world.services_seen = Some(1);
    world.pass(Duration::from_secs(120));
    assert_eq!(world.verdict_str(), "waiting");
    assert_eq!(world.status(StatusType::validation()), [StatusState::Pending]);
    assert_eq!(world.published.listing, Some(version("1")));
    world.waits.clear();
    world.services_seen = Some(2);
    world.pass(Duration::from_secs(20));
    assert_eq!(world.verdict_str(), "ok");
    assert_eq!(world.runs("packages"), 0);
}

/// Hosts with one service each, which works after a certain apply step of its host, and the needs
/// of their apply steps.
#[derive(Debug, Clone)]
struct Circle {
    /// For each host, the index of the apply step after which its service works.
    works_after: Vec<usize>,
    /// (host, apply step, host whose service the step needs).
    needs: Vec<(usize, usize, usize)>,
}

const APPLY_STEPS: [&str; 2] = ["packages", "configuration"];

impl Circle {
    fn arbitrary() -> impl Strategy<Value = Self> {
        (2usize..6).prop_flat_map(|hosts| {
            let needs = prop::collection::vec((0..hosts, 0..2usize, 0..hosts), 0..8);
            let works_after = prop::collection::vec(0..2usize, hosts);
            (works_after, needs).prop_map(|(works_after, needs)| Self { works_after, needs })
        })
    }

    /// Returns how many apply steps each host can complete according to the needs alone: a step
    /// runs when the step before it is done and the services that it needs work.
    fn reachable(&self) -> Vec<usize> {
        let mut done = vec![0; self.works_after.len()];
        loop {
            let before = done.clone();
            for host in 0..done.len() {
                let lacks = |(needing, step, of): &(usize, usize, usize)| {
                    *needing == host && *step == before[host] && before[*of] <= self.works_after[*of]
                };
                if before[host] < APPLY_STEPS.len() && !self.needs.iter().any(lacks) {
                    done[host] += 1;
                }
            }
            if done == before {
                return done;
            }
        }
    }

    fn service(host: usize) -> schema::names::ServiceName {
        schema::names::ServiceName::new(format!("s{host}")).unwrap()
    }
}

/// Lets the hosts of a fleet act in the given order, 80 times.
fn run_in_order(worlds: &mut [World], order: &[usize], mut before: impl FnMut(usize, usize, &mut [World])) {
    for round in 0..80 {
        for host in order {
            before(round, *host, worlds);
            worlds[*host].pass(Duration::from_secs(20));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// That the needs of the first step hold the start creates no new loop: a host completes every
    /// step that its needs allow.
    #[test]
    fn hosts_that_need_each_other_get_as_far_as_their_steps_allow(circle in Circle::arbitrary()) {
        let mut worlds: Vec<World> = circle.works_after.iter().map(|_| World::new()).collect();
        worlds.iter_mut().for_each(|world| world.trigger("1"));
        let order: Vec<usize> = (0..worlds.len()).collect();
        run_in_order(&mut worlds, &order, |_, host, worlds| {
            let works = |of: usize| worlds[of].runs(APPLY_STEPS[circle.works_after[of]]) > 0;
            let lacking = circle.needs.iter().filter(|(needing, _, of)| *needing == host && !works(*of));
            let waits = lacking.map(|(_, step, of)| Wait {
                service: Circle::service(*of),
                ..need(StepPhase::Apply, Some(APPLY_STEPS[*step]))
            });
            let waits = waits.collect();
            worlds[host].waits = waits;
        });
        for (host, steps) in circle.reachable().into_iter().enumerate() {
            let done: Vec<bool> = APPLY_STEPS.iter().map(|step| worlds[host].runs(step) > 0).collect();
            prop_assert_eq!(&done, &[steps > 0, steps > 1], "host {}", host);
            prop_assert_eq!(worlds[host].verdict_str() == "ok", steps == 2);
            prop_assert_eq!(worlds[host].published.listing.is_some(), steps == 2);
        }
    }

    /// The needs are not declared: an apply fails while the service of another host does not work.
    /// If the needs can be met, every host ends at the version, in any order and however late the
    /// others begin.
    #[test]
    fn the_end_of_a_fleet_does_not_depend_on_who_came_first(
        hosts in 2usize..5,
        needs in prop::collection::vec((0usize..5, 0usize..5), 0..6),
        order in Just((0usize..5).collect::<Vec<_>>()).prop_shuffle(),
        late in prop::collection::vec(0usize..40, 5),
    ) {
        // A host needs only hosts with lower numbers, so that all needs can be met.
        let needs: Vec<(usize, usize)> =
            needs.into_iter().filter(|(host, of)| *host < hosts && of < host).collect();
        let mut worlds: Vec<World> = (0..hosts).map(|_| World::new()).collect();
        let order: Vec<usize> = order.into_iter().filter(|host| *host < hosts).collect();
        run_in_order(&mut worlds, &order, |round, host, worlds| {
            if round == late[host] {
                worlds[host].trigger("1");
            }
            let applied: Vec<bool> =
                worlds.iter().map(|world| world.published.listing.is_some()).collect();
            let digest = applied.iter().fold(1, |digest, applied| digest * 2 + u64::from(*applied));
            let world = &mut worlds[host];
            if world.addressable.map(|now| now.digest) != Some(digest) {
                world.addressable = Some(Addressable { digest, since: world.now.boot });
            }
            if needs.iter().any(|(needing, of)| *needing == host && !applied[*of]) {
                world.fails("packages", 1);
            } else {
                world.works("packages");
            }
        });
        for (host, world) in worlds.iter().enumerate() {
            prop_assert_eq!(world.verdict_str(), "ok", "host {} of {:?}: {:#?}", host, needs, world.decide());
        }
    }
}
