//! Limits and freezes: when a host takes, keeps and gives back claims. This file is long because each case needs a host in
//! the middle of something.

use super::*;
use crate::rollout::RolloutView;
use schema::keys::Key;
use schema::records::{LimitClaim, ResolvedLimit, RolloutRecord};
use schema::snapshot::{Entry, KeySnapshot};
use schema::why_not::{LimitDetail, WhyNot};

/// Makes the attempt one of a rollout whose hosts keep a claim for a minute after their proof.
fn held_for_a_minute(world: &mut World) {
    limited(world, Duration::from_secs(600));
    budgeted(world);
    let minute = Span(Duration::from_secs(60));
    disruption(world).hold = Some(minute);
    let order = world.state.attempt.as_ref().expect("an attempt").instruction.order;
    let claim = schema::records::HeldClaim {
        limit: schema::limit::Limit {
            by: schema::limit::LimitBy::Fleet,
            value: schema::names::LimitValue::new("all").unwrap(),
        },
        number: 0,
        keep_failed: false,
    };
    let none = HostClaims::none(world.instance.clone(), order, world.now.wall);
    let claims = HostClaims { claims: vec![claim], ..none };
    world.state.rollout.claims = Some(claims.clone());
    world.published.claims = FoundClaims { claims: Some(claims), revision: 1 };
}

#[test]
fn a_host_keeps_its_claims_until_its_validation_has_passed_for_the_hold() {
    // Exit code of the validation after the proof, when the claims end, and whether the host counts as failed.
    for (code, ends_within, counts) in [(0, 61, None), (1, 61, Some(false)), (75, 11 * 60 + 61, Some(false))]
    {
        let mut world = settled_at("1");
        world.fails("packages", 75);
        world.trigger("2");
        world.settle();
        held_for_a_minute(&mut world);
        world.works("packages");
        world.pass(Duration::from_secs(16));
        assert_eq!(world.published.listing, Some(version("2")), "it is listed with its proof");
        assert_eq!(world.published.claims.held().len(), 1, "and keeps its claim");
        if code != 0 {
            world.fails("http", code);
        }
        world.pass(Duration::from_secs(30));
        assert_eq!(world.published.claims.held().len(), 1, "{code}");
        world.pass(Duration::from_secs(ends_within));
        assert_eq!(world.published.claims.held().len(), 0, "{code}");
        assert_eq!(world.state.rollout.hold, None);
        let expected = counts.map(|healed| (FailureKind::Withdrawal, healed, true));
        assert_eq!(counted(&world), expected, "{code}");
    }
}

#[test]
fn a_reboot_begins_the_hold_again_and_a_newer_version_ends_it() {
    let mut world = settled_at("1");
    world.fails("packages", 75);
    world.trigger("2");
    world.settle();
    held_for_a_minute(&mut world);
    world.works("packages");
    world.pass(Duration::from_secs(50));
    world.reboot();
    world.pass(Duration::from_secs(50));
    assert!(world.state.rollout.hold.is_some(), "nobody knows how long the machine was off");
    assert_eq!(world.published.claims.held().len(), 1);
    world.fails("http", 1);
    world.pass(Duration::from_secs(61));
    let failed = Some((FailureKind::Withdrawal, false, true));
    assert_eq!((world.state.rollout.hold, counted(&world)), (None, failed), "also after a reboot");
    world.works("http");
    world.trigger("3");
    world.pass(Duration::from_secs(120));
    assert_eq!((world.verdict_str(), world.state.rollout.hold), ("ok", None));
}

#[test]
fn a_host_takes_again_claims_that_ended_without_its_doing() {
    let claims = |numbers: &[(u32, bool)]| {
        let limit = |number: u32| Limit {
            by: LimitBy::Role,
            value: schema::names::LimitValue::new(format!("r{}", number % 10)).unwrap(),
        };
        let held = |(number, keep_failed): &(u32, bool)| HeldClaim {
            limit: limit(*number),
            number: *number,
            keep_failed: *keep_failed,
        };
        let order = InstructionOrder { epoch: 0, revision: 12 };
        let none = HostClaims::none(Token::new("i").unwrap(), order, EpochSeconds(1));
        HostClaims { claims: numbers.iter().map(held).collect(), ..none }
    };
    // Returns the numbers that the host writes; those taken again are shown as 0.
    let check = |found: Option<HostClaims>, change: fn(&mut World), expected: Option<&[u32]>| {
        let mut world = settled_at("1");
        world.fails("packages", 75);
        world.trigger("2");
        world.settle();
        world.state.rollout.claims = Some(claims(&[(1, true), (2, false)]));
        let revision = if found.is_some() { 7 } else { 0 };
        let rollout = world.state.attempt.as_ref().expect("an attempt").instruction.order;
        let found = found.map(|found| HostClaims { rollout, ..found });
        world.published.claims = FoundClaims { claims: found.clone(), revision };
        change(&mut world);
        let shown = |claim: &HeldClaim| if claim.number >= 49_999 { 0 } else { claim.number };
        let written = world.decide().claims.map(|new| new.claims.iter().map(shown).collect::<Vec<u32>>());
        assert_eq!(written.as_deref(), expected, "{found:?}");
    };
    let goes_on: fn(&mut World) = |_| {};
    let gave_up: fn(&mut World) = |world| {
        limited(world, Duration::ZERO);
        world.advance();
    };
    check(Some(claims(&[(1, true), (2, false)])), goes_on, None);
    check(None, goes_on, Some(&[0, 0]));
    check(Some(claims(&[(2, false)])), goes_on, Some(&[2, 0]));
    // A store that was accepted since they were written.
    let accepted: fn(&mut World) = |world| world.marked_at = 8;
    check(Some(claims(&[(1, true), (2, false)])), accepted, Some(&[1, 2]));
    // A further attempt waits for the limits like any other; only what counts failed hosts is taken again.
    let between: fn(&mut World) =
        |world| world.state.attempt.as_mut().expect("an attempt").stage = Stage::default();
    check(None, between, Some(&[0]));
    check(Some(claims(&[(2, false)])), between, Some(&[2, 0]));
    // It is not lost any more.
    check(Some(HostClaims { lost: true, ..claims(&[(1, true), (2, false)]) }), goes_on, Some(&[1, 2]));
    // An operator released them.
    check(Some(HostClaims { released: true, ..claims(&[]) }), goes_on, None);
    // A host that gave up has only those that count failed hosts.
    check(Some(claims(&[(1, true), (2, false)])), gave_up, Some(&[1]));
    check(None, gave_up, Some(&[0]));
    // One that is done has none, and forgets that they were released.
    let done: fn(&mut World) = |world| world.state.versions.in_progress = None;
    check(Some(claims(&[(1, true), (2, false)])), done, Some(&[]));
    check(Some(HostClaims { released: true, ..claims(&[]) }), done, Some(&[]));
    check(None, done, None);
}

#[test]
fn a_host_holds_its_claims_as_long_as_there_is_a_purpose() {
    let (run, client) = (Token::new("c1").unwrap(), Token::new("z1").unwrap());
    let all = [Purpose::Update, Purpose::Command(run.clone()), Purpose::Reboot(client)];
    // Returns for what the host holds claims afterwards, as words, and whether they count a failed host;
    // "same" if nothing is written.
    let check = |purposes: &[&str], change: &dyn Fn(&mut World), expected: &str| {
        let mut world = settled_at("1");
        world.fails("packages", 75);
        world.trigger("2");
        world.settle();
        world.commands.running = [(run.clone(), Vec::new())].into();
        let limit = Limit { by: LimitBy::Fleet, value: schema::names::LimitValue::new("all").unwrap() };
        let held = [(0, true), (1, false)].map(|(number, keep_failed)| {
            let limit =
                if number == 0 { limit.clone() } else { Limit { by: LimitBy::Role, ..limit.clone() } };
            HeldClaim { limit, number, keep_failed }
        });
        let order = world.state.attempt.as_ref().expect("an attempt").instruction.order;
        let none = HostClaims::none(Token::new("i").unwrap(), order, EpochSeconds(1));
        let purposes: BTreeSet<Purpose> =
            all.iter().filter(|purpose| purposes.contains(&purpose.word())).cloned().collect();
        let claims = HostClaims { claims: held.into(), purposes, ..none };
        world.published.claims = FoundClaims { claims: Some(claims), revision: 7 };
        change(&mut world);
        let text = match world.decide().claims {
            None => "same".to_owned(),
            Some(new) if new.claims.is_empty() => "nothing".to_owned(),
            Some(new) => {
                let purposes: Vec<&str> = new.purposes.iter().map(Purpose::word).collect();
                let failed = new.claims.iter().filter(|claim| claim.keep_failed).count();
                format!("{} of {}, for {}", failed, new.claims.len(), purposes.join(" "))
            }
        };
        assert_eq!(text, expected);
    };
    let goes_on = |_: &mut World| {};
    let done = |world: &mut World| world.state.versions.in_progress = None;
    let gave_up = |world: &mut World| {
        limited(world, Duration::ZERO);
        world.advance();
    };
    // A validation ended 1 ms after it was seen that the command does not run, or at that time.
    let ended = |world: &mut World, later: u64| {
        let validation = world.state.cycles.validation.as_mut().expect("a validation");
        validation.at = BootMillis(1000 + later);
        world.commands.running.clear();
        world.commands.ended = [(run.clone(), BootMillis(1000))].into();
    };
    let killed = |world: &mut World| ended(world, 1);
    let unchecked = |world: &mut World| ended(world, 0);
    let broken = |world: &mut World| {
        ended(world, 1);
        world.state.cycles.validation.as_mut().expect("a validation").result = ValidationResult::Failed;
    };
    // The host was lost, and the command runs.
    let lost = |world: &mut World| {
        let claims = world.published.claims.claims.take().expect("claims").claims;
        world.commands.running = [(run.clone(), claims)].into();
        world.published.claims.revision = 0;
        world.state.versions.in_progress = None;
        world.state.attempt = None;
    };
    let released = |world: &mut World| {
        let held = world.published.claims.claims.clone().expect("claims");
        lost(world);
        let purposes = Purpose::only_update();
        let none = HostClaims { claims: Vec::new(), released: true, purposes, ..held };
        world.published.claims = FoundClaims { claims: Some(none), revision: 8 };
    };
    check(&["update", "command", "reboot"], &goes_on, "same");
    check(&["update", "command"], &done, "1 of 2, for command");
    check(&["update", "reboot"], &done, "1 of 2, for reboot");
    check(&["update"], &done, "nothing");
    // A host that gave up and still runs a command holds everything.
    check(&["update", "command"], &gave_up, "same");
    check(&["update"], &gave_up, "1 of 1, for update");
    // A command that was killed counts until the host has been validated since.
    check(&["update", "command"], &killed, "1 of 2, for update");
    check(&["command"], &|world| (done(world), killed(world)).0, "nothing");
    check(&["command"], &|world| (done(world), unchecked(world)).0, "same");
    check(&["command"], &|world| (done(world), broken(world)).0, "same");
    // One whose host was lost takes its claims again, unless an operator released them.
    check(&["command"], &lost, "1 of 2, for command");
    check(&["command"], &released, "same");
    // A client ends its reboot itself.
    check(&["reboot"], &|world| (done(world), killed(world)).0, "same");
    // A script's update is its own business.
    let by_script = |world: &mut World| {
        world.policy.driver = Driver::External;
        world.state.attempt = None;
        world.state.versions.in_progress = None;
        ended(world, 0);
        world.state.cycles.validation = None;
    };
    check(&["update", "command"], &by_script, "1 of 2, for update");
    check(&["command"], &by_script, "nothing");
    check(&["update"], &by_script, "same");
}

#[test]
fn a_host_under_way_looks_for_its_claims_before_it_goes_on() {
    let mut world = settled_at("1");
    world.fails("packages", 75);
    world.trigger("2");
    world.settle();
    world.now.boot = world.now.boot.plus(Duration::from_secs(60));
    let goes_on = |world: &World, is_known: bool, has_claims: bool| {
        let problems = HostProblems::default();
        let mut observed = world.observed(&problems);
        observed.published = observed.published.filter(|_| is_known);
        let mut state = world.state.clone();
        let order = InstructionOrder { epoch: 0, revision: 1 };
        state.rollout.claims =
            has_claims.then(|| HostClaims::none(Token::new("i").unwrap(), order, EpochSeconds(1)));
        let plan = decide(&state, &world.desired(), &observed, world.now).plan;
        matches!(plan.actions.first(), Some(planned) if matches!(planned.action, Action::Do(Effect::RunStep { .. })))
    };
    assert!(goes_on(&world, true, true));
    assert!(!goes_on(&world, false, true), "what the store holds is known soon");
    assert!(goes_on(&world, false, false), "there is nothing to look for");
    world.store_away = true;
    assert!(goes_on(&world, false, true), "an update that has begun goes on without the store");
}

#[test]
fn a_frozen_host_fetches_and_validates_and_starts_when_it_may() {
    let mut world = settled_at("1");
    let token = Token::new("t").unwrap();
    let frozen = FrozenBy { scope: FreezeScope::Fleet, token: Some(token), freeze: None };
    world.trigger("2");
    world.brakes.refuse(&world.state, WhyNot::Frozen(frozen), 1, world.now.boot);
    world.pass(Duration::from_secs(300));
    assert_eq!((world.runs("fetch"), world.runs("packages")), (1, 0));
    assert!(world.runs("http") > 1, "it is validated as ever");
    let (validated, written) = (world.runs("http"), world.revision);
    world.pass(Duration::from_secs(600));
    assert!(world.runs("http") >= validated + 9);
    assert_eq!(world.revision, written, "and nothing is written as long as nothing changes");
    assert_eq!(world.published.listing, Some(version("1")));
    let plan = world.decide().plan;
    assert_eq!(plan.because.to_string(), "the fleet is frozen; why cannot be read");
    world.brakes.forget();
    world.settle();
    assert_eq!(world.published.listing, Some(version("2")));
}

#[test]
fn a_ticket_in_the_store_makes_what_was_read_before_it_too_old() {
    let mut world = settled_at("1");
    world.trigger("2");
    world.advance();
    let order = world.state.attempt.as_ref().expect("an attempt").instruction.order;
    world.brakes.refuse(&world.state, WhyNot::NotRead, 20, world.now.boot);
    let mut check = |rollout, revision, is_new, since| {
        let limit = Limit { by: LimitBy::Fleet, value: schema::names::LimitValue::new("all").unwrap() };
        let ticket = Ticket { rollout, limit, place: Place(1), lease: 7 };
        let none = HostClaims::none(world.instance.clone(), order, world.now.wall);
        let claims = Some(HostClaims { ticket: Some(ticket), ..none });
        let queued = world.brakes.queued(|| FoundClaims { claims, revision });
        assert_eq!((queued, world.brakes.wanted_since()), (is_new, Some(since)), "{rollout}, {revision}");
    };
    check(order, 15, false, 20);
    check(InstructionOrder { revision: 1, ..order }, 25, false, 20);
    // Maybe the host does not know that it wrote the ticket, because the answer was lost.
    check(order, 25, true, 25);
    check(order, 25, false, 25);
    assert!(!world.brakes.queued(FoundClaims::default));
}

#[test]
fn a_refused_start_is_reported_when_there_was_time_to_read_why() {
    let mut world = settled_at("1");
    // A host that wrote several reports waits for a minute.
    world.pass(Duration::from_secs(120));
    world.trigger("2");
    world.brakes.refuse(&world.state, WhyNot::NotRead, 1, world.now.boot);
    let is_reported = |world: &World| {
        world.published.report.as_ref().is_some_and(|report| report.phase == schema::plan::Phase::Start)
    };
    world.settle();
    assert!(!is_reported(&world), "it is read within moments");
    world.pass(Duration::from_secs(3));
    assert!(is_reported(&world), "it could not be read");
}

#[test]
fn claims_and_outcome_wait_while_they_cannot_be_recorded_and_that_is_said() {
    let mut world = settled_at("1");
    world.fails("packages", 75);
    world.trigger("2");
    world.settle();
    held_for_a_minute(&mut world);
    world.works("packages");
    world.pass(Duration::from_secs(16));
    assert_eq!(world.published.listing, Some(version("2")));
    world.state.rollout.hold = None;
    let progress = HostProgress::new(ProgressState::Proven, world.now.wall);
    let order = world.state.observed.instruction.expect("an instruction");
    world.state.rollout.progress =
        Some(RolloutProgress { order, progress, is_written: false, has_ended: false });
    world.state.reporting.report_times.clear();
    world.cannot_record = Some(("disk full".into(), world.now.boot.plus(Duration::from_secs(5))));
    world.settle();
    assert_eq!(world.published.report.as_ref().map(|report| report.verdict.kind().as_str()), Some("blocked"));
    assert_eq!(world.published.claims.held().len(), 1);
    assert!(world.state.must_write_outcome());
    world.cannot_record = None;
    world.settle();
    assert!(!world.state.must_write_outcome());
    assert_eq!(world.published.claims.held().len(), 0);
}

#[test]
fn a_host_that_cannot_record_its_start_leaves_the_queue() {
    let mut world = settled_at("1");
    world.trigger("2");
    world.advance();
    let limit = Limit { by: LimitBy::Fleet, value: schema::names::LimitValue::new("all").unwrap() };
    let detail = LimitDetail::Full { max: 1, used: 1, holders: Vec::new() };
    let obstacle = WhyNot::Limit { limit, detail };
    world.brakes.refuse(&world.state, obstacle, 20, world.now.boot);
    world.settle();
    let has_ticket = |world: &World| world.published.claims.ticket().is_some();
    assert!(has_ticket(&world));
    world.cannot_record = Some(("disk full".into(), world.now.boot.plus(Duration::from_secs(5))));
    world.settle();
    assert!(!has_ticket(&world));
    world.cannot_record = None;
    world.settle();
    assert!(has_ticket(&world));
}

#[test]
fn a_window_holds_no_host_that_is_disturbed() {
    let mut world = settled_at("1");
    world.trigger("2");
    while !world.state.is_disturbed() {
        assert!(world.act());
    }
    world.policy.spread_window = Duration::from_secs(100_000);
    world.trigger("3");
    world.settle();
    assert_eq!(world.published.listing, Some(version("3")));
}

/// Returns what keeps a host from starting under a limit of one for the fleet. It holds that number, which
/// `instance` took, and another host holds one above the limit.
fn obstacle_of_holder(instance: &str, is_listed: bool) -> Option<Reason> {
    let mut world = settled_at("1");
    world.trigger("2");
    world.advance();
    world.brakes.refuse(&world.state, WhyNot::NotRead, 20, world.now.boot);
    world.settle();
    world.state.versions.proof_holds = is_listed;
    let instruction = world.state.attempt.as_ref().expect("an attempt").instruction.clone();
    let (order, fleet) = (
        instruction.order,
        Limit { by: LimitBy::Fleet, value: schema::names::LimitValue::new("all").unwrap() },
    );
    let claim = |number| HeldClaim { limit: fleet.clone(), number, keep_failed: false };
    let none = HostClaims::none(Token::new(instance).unwrap(), order, world.now.wall);
    let claims = HostClaims { claims: vec![claim(0)], ..none };
    world.published.claims = FoundClaims { claims: Some(claims), revision: 19 };
    let limit = ResolvedLimit { by: LimitBy::Fleet, max: 1, values: BTreeMap::new(), keep_failed: None };
    let record = RolloutRecord::new(instruction.version.clone(), EpochSeconds(1));
    let record = RolloutRecord { limits: vec![limit], ..record };
    let mut found = KeySnapshot { revision: 20, ..Default::default() };
    let mut put = |key: Key, value: String| {
        let entry =
            Entry { value: value.into_bytes(), create_revision: 19, mod_revision: 19, lease: 0, version: 1 };
        found.entries.insert(key.to_string(), entry);
    };
    put(Key::RolloutRecord(order), schema::codec::write(&record));
    for (number, host) in [(0, "h1"), (7, "h2")] {
        let claim = LimitClaim {
            host: HostName::new(host).unwrap(),
            instance: Token::new(instance).unwrap(),
            rollout: order,
            since: EpochSeconds(1),
            purposes: Purpose::only_update(),
        };
        put(Key::Claim(fleet.clone(), number), schema::codec::write(&claim));
    }
    let view = RolloutView::new(&world.state.host, &instruction, &found, world.now);
    assert!(world.brakes.take(view));
    let plan = world.decide().plan;
    let first = plan.actions.first().map(|planned| &planned.action);
    let starts = matches!(first, Some(Action::Do(Effect::CommitStart { .. })));
    (!starts).then_some(plan.because)
}

#[test]
fn an_available_host_starts_on_no_claims_that_another_machine_took_in_its_name() {
    for instance in ["i", "clone"] {
        let held = obstacle_of_holder(instance, true);
        assert!(matches!(held, Some(Reason::HeldBack(WhyNot::Limit { .. }))), "{instance}: {held:?}");
    }
    // Nobody knows what an earlier installation left behind: it goes on with the claims of that one.
    assert_eq!(obstacle_of_holder("clone", false), None);
}
