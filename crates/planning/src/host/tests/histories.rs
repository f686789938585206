//! Random histories, in which the laws hold at every step.

use super::*;

#[derive(Debug, Clone)]
enum Happens {
    Trigger(u8),
    Break(u8, i32),
    Heal(u8),
    StoreAway(bool),
    Reboot,
    Interrupt(u8),
    RetryRequest,
    Pass(u16),
    Few(u8),
    Unset,
    /// A phase, or its last step if the flag is set, needs three instances, and the number says how
    /// many exist.
    Lack(u8, StepPhase, bool),
    /// All needs are met.
    Provide,
    /// The instances of the needed services change.
    OtherInstances,
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        4 => (1u8..4).prop_map(Happens::Trigger),
        3 => (0u8..5, prop_oneof![Just(1), Just(75), Just(9)]).prop_map(|(s, c)| Happens::Break(s, c)),
        3 => (0u8..5).prop_map(Happens::Heal),
        2 => any::<bool>().prop_map(Happens::StoreAway),
        1 => Just(Happens::Reboot),
        1 => (0u8..5).prop_map(Happens::Interrupt),
        1 => Just(Happens::RetryRequest),
        3 => (1u16..4000).prop_map(Happens::Pass),
        5 => (1u8..12).prop_map(Happens::Few),
        1 => Just(Happens::Unset),
        2 => (0u8..3, phases(), any::<bool>()).prop_map(|(have, phase, step)| Happens::Lack(have, phase, step)),
        2 => Just(Happens::Provide),
        1 => Just(Happens::OtherInstances),
    ]
}

fn phases() -> impl Strategy<Value = StepPhase> {
    prop::sample::select(vec![
        StepPhase::Prefetch,
        StepPhase::Apply,
        StepPhase::Converge,
        StepPhase::Validate,
    ])
}

const NAMES: [&str; 5] = ["fetch", "packages", "configuration", "render", "http"];

impl World {
    fn happen(&mut self, what: Happens) {
        match what {
            Happens::Trigger(n) => self.trigger(&n.to_string()),
            Happens::Break(s, code) => self.fails(NAMES[s as usize], code),
            Happens::Heal(s) => self.works(NAMES[s as usize]),
            Happens::StoreAway(away) => self.store_away = away,
            Happens::Reboot => self.reboot(),
            Happens::Interrupt(s) => {
                self.ends.entry(NAMES[s as usize].into()).or_default().push_back(StepEnd::Interrupted);
            }
            Happens::RetryRequest => self.retry = Some(self.order()),
            Happens::Pass(seconds) => self.pass(Duration::from_secs(seconds.into())),
            Happens::Few(n) => (0..n).for_each(|_| {
                self.act();
            }),
            Happens::Unset => self.target = Target::NotSet,
            Happens::Lack(have, phase, of_last_step) => {
                let last = self.policy.steps.of(phase).last().map(|step| step.name.to_string());
                let wait = need(phase, last.as_deref().filter(|_| of_last_step));
                self.waits.push(Wait { need: 3, have: have.into(), ..wait });
            }
            Happens::Provide => self.waits.clear(),
            Happens::OtherInstances => {
                self.services_seen = Some(self.services_seen.unwrap_or_default() + 1);
            }
        }
    }

    /// Checks the whole history (invariants I1 and I17).
    fn check_history(&self) {
        let mut applied: BTreeMap<Version, Vec<String>> = BTreeMap::new();
        let mut validated: Option<Version> = None;
        for event in &self.history {
            match event {
                Event::Start(v) => {
                    applied = BTreeMap::from([(v.clone(), vec![])]);
                    validated = None;
                }
                Event::Step(StepPhase::Apply, name, v, ok) => {
                    let done = applied.entry(v.clone()).or_default();
                    if *ok && !done.contains(name) {
                        done.push(name.clone());
                    }
                    validated = None;
                }
                Event::Step(StepPhase::Validate, _, v, true) => validated = Some(v.clone()),
                Event::Step(StepPhase::Validate, _, _, false) => validated = None,
                Event::File(v) => {
                    assert_eq!(applied.get(v).map(Vec::len), Some(2), "apply of {v} was not complete");
                }
                Event::Listed(Some(v)) => {
                    assert_eq!(validated.as_ref(), Some(v), "announced without validation");
                    assert_eq!(applied.get(v).map(Vec::len), Some(2), "announced {v} without its apply");
                }
                _ => {}
            }
        }
    }
}

proptest! {
    #[test]
    fn any_history_ends_in_rest_with_the_last_version(events in prop::collection::vec(happens(), 1..40)) {
        let mut world = World::new();
        for event in events {
            world.happen(event);
            world.check_history();
        }
        // All faults end.
        world.store_away = false;
        world.default_end.clear();
        world.ends.clear();
        world.waits.clear();
        world.trigger("9");
        world.pass(Duration::from_secs(3600));
        world.check_history();
        prop_assert_eq!(world.published.listing.clone(), Some(version("9")), "{:#?}", world.decide());
        prop_assert_eq!(world.verdict_str(), "ok");
        prop_assert!(world.published.report.as_ref().is_some_and(|report| report.waits.is_empty()));
        // The last converge phase ran on the newest state of the needed services.
        prop_assert_eq!(world.state.cycles.converge.began.seen, world.services_seen);
        // The executed plans left nothing to do.
        prop_assert!(world.decide().plan.actions.is_empty());
        for kind in [StatusType::apply(), StatusType::validation()] {
            prop_assert_eq!(world.status(kind), vec![StatusState::Success]);
        }
    }

    #[test]
    fn an_unreachable_store_starts_nothing(events in prop::collection::vec(happens(), 1..30)) {
        let mut world = settled_at("1");
        world.store_away = true;
        for event in events {
            if !matches!(event, Happens::StoreAway(_)) {
                world.happen(event);
            }
        }
        let started = world.history.iter().any(|e| matches!(e, Event::Start(_)));
        prop_assert!(!started);
    }
}
