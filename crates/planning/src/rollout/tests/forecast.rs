//! How a rollout is expected to go. This file is long because each thing that takes time in a rollout is a case of its
//! own.

use super::*;
use schema::keys::{self, StatusState};
use schema::names::{StatusType, StepName};
use schema::records::{FailureKind, HostProgress, ProgressState, Report, Soak, StepDuration};
use schema::steps::StepPhase;
use schema::time::Span;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const NOW: EpochSeconds = EpochSeconds(1_000);

/// Hosts of one role that run, are listed under an older version, and take a minute.
fn listed(role: &str, count: usize) -> Found {
    let mut found = Found::default();
    found.put(&Key::Store, r#"{"lineage":"l","epoch":0}"#, 1).put(&Key::CurrentVersion, "v2", 50);
    add(&mut found, role, count);
    found
}

fn add(found: &mut Found, role: &str, count: usize) {
    found.hosts(role, count);
    for number in 0..count {
        let name = format!("{role}{number}");
        let provisioned = Key::Status(StatusType::provisioned(), StatusState::Success, host(&name));
        found.live(&name).put(&Key::Announced(host(&name)), "v1", 5).put(&provisioned, "{}", 5);
    }
}

impl Found {
    fn forecast_with(&self, failing: &[&str], durations: &Durations) -> Forecast {
        let record = match self.0.get(&Key::RolloutRecord(ORDER)) {
            Some(entry) => keys::RolloutRecord::read(&entry.value).unwrap(),
            None => RolloutRecord { at: NOW, ..self.record() },
        };
        let failing: BTreeSet<HostName> = failing.iter().map(|name| host(name)).collect();
        let (found, failing) = (&self.0, &failing);
        forecast(&ForecastInput { order: ORDER, record: &record, found, durations, failing, now: NOW })
    }

    fn forecast(&self, failing: &[&str]) -> Forecast {
        self.forecast_with(failing, &Durations::default())
    }

    /// The hosts by place, so that those of a stage are in the order in which they go.
    fn by_place(&self) -> Vec<String> {
        let hosts = self.0.entries.keys().filter_map(|key| match Key::parse(key) {
            Ok(Key::Host(host)) => Some(host),
            _ => None,
        });
        let mut hosts: Vec<HostName> = hosts.collect();
        hosts.sort_by_key(|host| (place(host, &instruction().version), host.clone()));
        hosts.iter().map(ToString::to_string).collect()
    }
}

/// The hosts that start, with the seconds after which they do.
fn starts(forecast: &Forecast) -> Vec<(String, u64)> {
    let started = forecast.hosts.iter().filter_map(|h| Some((h.host.to_string(), h.starts?.as_secs())));
    started.collect()
}

fn seconds(duration: Option<Duration>) -> Option<u64> {
    duration.map(|duration| duration.as_secs())
}

const TWO: &str = "failure_budget = 1\n[[limit]]\nby = \"fleet\"\nmax = 2\nkeep_failed = false\n";
const STAGED: &str = "failure_budget = 1\n[[limit]]\nby = \"fleet\"\nmax = 2\nkeep_failed = false\n
[[stage]]\nname = \"canary\"\ncount = 1\nsoak = \"10m\"\n";

#[test]
fn hosts_go_by_place_as_many_at_a_time_as_the_limit_allows() {
    let mut found = listed("web", 5);
    found.policy(TWO, 10);
    let forecast = found.forecast(&[]);
    let expected = found.by_place().into_iter().zip([0, 0, 60, 60, 120]).collect::<Vec<_>>();
    assert_eq!(starts(&forecast), expected);
    assert_eq!((seconds(forecast.ends), forecast.why), (Some(180), None));
    assert!(forecast.hosts.iter().all(|host| host.outcome == Outcome::Proven));
}

#[test]
fn without_a_policy_all_hosts_start_at_once() {
    let found = listed("web", 3);
    let forecast = found.forecast(&[]);
    assert_eq!(starts(&forecast).iter().map(|(_, at)| *at).collect::<Vec<_>>(), [0, 0, 0]);
    assert_eq!(seconds(forecast.ends), Some(60));
}

#[test]
fn a_host_waits_in_the_queue_of_its_first_limit_that_is_full_and_keeps_nobody_else() {
    let mut found = listed("db", 2);
    add(&mut found, "web", 2);
    let role = "[[limit]]\nby = \"role\"\nmax = 2\nvalues = { db = 1 }\n";
    found.policy(&format!("[[limit]]\nby = \"fleet\"\nmax = 3\n{role}"), 10);
    let forecast = found.forecast(&[]);
    let at = |seconds: u64| starts(&forecast).iter().filter(|(_, at)| *at == seconds).count();
    assert_eq!((at(0), at(60), seconds(forecast.ends)), (3, 1, Some(120)));
}

#[test]
fn the_others_start_when_the_canary_was_observed() {
    let mut found = listed("web", 4);
    found.policy(STAGED, 10);
    let forecast = found.forecast(&[]);
    let first = found.by_place()[0].clone();
    assert_eq!(starts(&forecast)[0], (first.clone(), 0));
    assert_eq!(starts(&forecast).iter().map(|(_, at)| *at).collect::<Vec<_>>(), [0, 661, 661, 721]);
    let stages: Vec<_> =
        forecast.stages.iter().map(|s| (s.hosts, seconds(s.opens), seconds(s.ends))).collect();
    assert_eq!(stages, [(1, Some(0), Some(60)), (3, Some(661), Some(781))]);
    // A canary that fails is waited for.
    let forecast = found.forecast(&[&first]);
    assert_eq!(starts(&forecast).len(), 1);
    assert_eq!(forecast.ends, None);
    assert_eq!(forecast.why.as_deref(), Some(format!("stage rest waits for {first}: it fails").as_str()));
    let others = &forecast.hosts[1..];
    assert!(others.iter().all(|host| host.outcome == Outcome::Held("stage rest does not open".into())));
}

#[test]
fn more_failures_than_are_tolerated_halt_it() {
    let mut found = listed("web", 6);
    found.policy(TWO, 10);
    let hosts = found.by_place();
    let forecast = found.forecast(&[&hosts[1], &hosts[2]]);
    // The second failure comes while the first host tries again: it keeps its claim.
    assert_eq!(forecast.halt, Some((Duration::from_millis(120_700), "2 hosts failed, 1 tolerated".into())));
    assert_eq!(starts(&forecast).len(), 3);
    assert_eq!(forecast.why.as_deref(), Some("the rollout is halted: 2 hosts failed, 1 tolerated"));
    assert_eq!(forecast.hosts[0].outcome, Outcome::Proven);
    assert_eq!(forecast.hosts[1].outcome, Outcome::Failed);
    // One is tolerated: it gives up after three attempts, and the others are through before that.
    let forecast = found.forecast(&[&hosts[1]]);
    assert_eq!(forecast.halt, None);
    assert_eq!(starts(&forecast).len(), 6);
    assert!(forecast.ends.is_some());
}

#[test]
fn what_keeps_hosts_from_starting_is_named() {
    let check = |change: &dyn Fn(&mut Found), policy: &str, outcome: &Outcome, why: &str| {
        let mut found = listed("web", 2);
        found.policy(policy, 10);
        change(&mut found);
        let forecast = found.forecast(&[]);
        assert!(forecast.hosts.iter().any(|host| host.outcome == *outcome), "{outcome:?}: {forecast:?}");
        assert!(forecast.why.as_ref().is_some_and(|found| found.contains(why)), "{why}: {forecast:?}");
    };
    let zero = "[[limit]]\nby = \"fleet\"\nmax = 0\n";
    let held = Outcome::Held("the limit of the fleet is 0".into());
    check(&|_| {}, zero, &held, ": the limit of the fleet is 0");
    let freeze = |found: &mut Found| {
        let scope = schema::freeze::FreezeScope::Host(host("web0"));
        let freeze = Freeze { by: "ann".into(), reason: "disk".into(), at: NOW, until: None };
        found.put(&Key::Freeze(scope, Token::new("t").unwrap()), &codec::write(&freeze), 20);
    };
    let frozen = Outcome::Held("host web0 is frozen by ann: disk".into());
    check(&freeze, TWO, &frozen, "waits for web0: host web0 is frozen by ann: disk");
    let off = |found: &mut Found| {
        for name in ["web0", "web1"] {
            found.0.entries.remove(&Key::Live(host(name)).to_string());
            found.0.entries.remove(&Key::Announced(host(name)).to_string());
        }
    };
    check(&off, TWO, &Outcome::Off, "no host of the rollout is proven");
    // The claim of a command does not end.
    let held = |found: &mut Found| {
        found.claim(0, "other");
    };
    let one = "[[limit]]\nby = \"role\"\nmax = 1\n";
    check(&held, one, &Outcome::Waits(web()), "it waits for the limit of role web");
    let late = "progress_deadline = \"30s\"\n[[limit]]\nby = \"fleet\"\nmax = 2\n";
    check(&|_| {}, late, &Outcome::Failed, "no host of the rollout is proven");
}

#[test]
fn values_of_limits_that_no_host_has_are_named() {
    let mut found = listed("web", 2);
    found.policy("[[limit]]\nby = \"role\"\nmax = 2\nvalues = { web = 1, wbe = 1, db = 0 }\n", 10);
    let policy = found.0.value_of(keys::RolloutPolicy).unwrap();
    let absent: Vec<String> =
        absent_values(&policy, &hosts_of(&found.0)).iter().map(ToString::to_string).collect();
    assert_eq!(absent, ["role db", "role wbe"]);
}

#[test]
fn a_host_that_is_not_available_anyway_starts_at_once() {
    let mut found = listed("web", 3);
    found.policy("[[limit]]\nby = \"role\"\nmax = 1\n", 10);
    // One never had a version, and one lost its proof and holds its claim.
    found.0.entries.remove(&Key::Announced(host("web0")).to_string());
    let provisioned = Key::Status(StatusType::provisioned(), StatusState::Success, host("web0"));
    found.0.entries.remove(&provisioned.to_string());
    found.0.entries.remove(&Key::Announced(host("web1")).to_string());
    found.claim(0, "web1");
    let forecast = found.forecast(&[]);
    let expected = [("web0", 0), ("web1", 0), ("web2", 60)].map(|(name, at)| (name.to_owned(), at));
    let found: BTreeMap<String, u64> = starts(&forecast).into_iter().collect();
    assert_eq!(found, BTreeMap::from(expected));
}

#[test]
fn a_running_rollout_goes_on_from_where_it_is() {
    let mut found = listed("web", 3);
    found.policy(TWO, 10).with_record();
    let progress = |state, at, took| {
        codec::write(&HostProgress { took, ..HostProgress::of_agent(state, EpochSeconds(at)) })
    };
    let took = Some(Span(Duration::from_secs(100)));
    let proven = progress(ProgressState::Proven, 900, took);
    found.put(&Key::Progress(ORDER, host("web0")), &proven, 66).put(&Key::Announced(host("web0")), "v2", 66);
    let started = progress(ProgressState::Started, 970, None);
    found.put(&Key::Progress(ORDER, host("web1")), &started, 67);
    let roster = hosts_of(&found.0);
    let durations = Durations::of_rollout(ORDER, &roster, &found.0);
    assert_eq!(seconds(durations.median()), Some(100));
    // One goes on for the rest of its time, and the other starts beside it.
    let forecast = found.forecast_with(&[], &durations);
    assert_eq!(seconds(forecast.ends), Some(100));
    let ends: BTreeMap<&str, Option<u64>> =
        forecast.hosts.iter().map(|host| (host.host.as_str(), seconds(host.ends))).collect();
    assert_eq!(ends, BTreeMap::from([("web0", None), ("web1", Some(70)), ("web2", Some(100))]));
}

/// A rollout of three hosts. The first of them by place got this far, a minute ago.
fn first_since(state: ProgressState, policy: &str) -> Found {
    let mut found = listed("web", 3);
    found.policy(policy, 10).with_record();
    let first = host(&found.by_place()[0]);
    let progress = HostProgress::new(state, EpochSeconds(NOW.0 - 60));
    found.put(&Key::Progress(ORDER, first.clone()), &codec::write(&progress), 66);
    found.put(&Key::Announced(first), "v2", 66);
    found
}

#[test]
fn a_soak_that_has_begun_goes_on() {
    let mut found = first_since(ProgressState::Proven, STAGED);
    let soak = Soak { at: EpochSeconds(NOW.0 - 60), by: "web0".into(), timed: true };
    found.put(&Key::Soak(ORDER, 0), &codec::write(&soak), 67);
    let forecast = found.forecast(&[]);
    assert_eq!(seconds(forecast.stages[1].opens), Some(540), "ten minutes, of which one is over");
    assert_eq!(seconds(forecast.ends), Some(600));
}

#[test]
fn a_host_that_is_held_after_its_proof_is_not_updated_again() {
    let policy = "hold = \"5m\"\n[[limit]]\nby = \"role\"\nmax = 1\n";
    let mut found = first_since(ProgressState::Proven, policy);
    let canary = found.by_place()[0].clone();
    found.claim(0, &canary).claimed(&canary, false);
    let forecast = found.forecast(&[]);
    let ends = forecast.hosts.iter().find(|planned| planned.host == host(&canary)).unwrap().ends;
    assert_eq!(seconds(ends), Some(240), "five minutes, of which one is over");
    assert_eq!(starts(&forecast)[1].1, 240, "the next one starts then");
}

#[test]
fn a_host_validates_once_more_before_it_releases_the_claims_that_it_held() {
    let policy = "hold = \"5m\"\n[[limit]]\nby = \"role\"\nmax = 1\n";
    let validation = Duration::from_secs(40);
    let progress = |state, since| HostProgress {
        validation: (state == ProgressState::Proven).then_some(Span(validation)),
        took: (state == ProgressState::Proven).then_some(Span(Duration::from_secs(100))),
        ..HostProgress::of_agent(state, EpochSeconds(NOW.0 - since))
    };
    // What the first host does, since when, and when the second one starts.
    for (state, since, starts_second) in [
        // It is left of five minutes and of the validation.
        (ProgressState::Proven, 60, 280),
        (ProgressState::Proven, 310, 30),
        // Another host has told how long it takes. It is not listed while it is updated.
        (ProgressState::Started, 60, 40 + 340),
    ] {
        let mut found = first_since(state, policy);
        let hosts = found.by_place();
        found.put(&Key::Progress(ORDER, host(&hosts[0])), &codec::write(&progress(state, since)), 67);
        found.claim(0, &hosts[0]).claimed(&hosts[0], false);
        if state == ProgressState::Started {
            found.0.entries.remove(&Key::Announced(host(&hosts[0])).to_string());
            let proven = progress(ProgressState::Proven, 600);
            found.put(&Key::Progress(ORDER, host(&hosts[2])), &codec::write(&proven), 68);
            found.put(&Key::Announced(host(&hosts[2])), "v2", 68);
        }
        let durations = Durations::of_rollout(ORDER, &hosts_of(&found.0), &found.0);
        let forecast = found.forecast_with(&[], &durations);
        assert_eq!(starts(&forecast)[1], (hosts[1].clone(), starts_second), "{state:?} since {since} s");
    }
}

#[test]
fn a_plan_contains_what_comes_before_the_first_start_and_what_each_stage_and_the_end_take() {
    // Nothing else takes time, so what is left is the time until hosts see what happens and act.
    let nothing = BTreeMap::from([(StepName::new("packages").unwrap(), Duration::ZERO)]);
    let staged = |soak: &str| {
        format!(
            "failure_budget = 1\n[[limit]]\nby = \"fleet\"\nmax = 9\n[[stage]]\nname = \"canary\"\ncount = 1\n{soak}"
        )
    };
    for (policy, millis) in [
        // Hosts hear of the rollout and start. The fleet is read when the first one is through, and again after half a
        // second.
        (TWO.replace("max = 2", "max = 9"), 500 + 100 + 500),
        // The canary is through, and the others are when the fleet is read again.
        (staged(""), 500 + 100 + 500),
        // The soak begins with one look, its timer starts with the next one, and the store notices its end.
        (staged("soak = \"10s\""), 500 + 100 + 500 + 10_250 + 100 + 500),
    ] {
        let mut found = listed("web", 3);
        found.policy(&policy, 10);
        let durations = Durations::of_reports(&hosts_of(&found.0), &nothing, &found.0);
        let ends = found.forecast_with(&[], &durations).ends;
        assert_eq!(ends, Some(Duration::from_millis(millis)), "{policy}");
    }
}

#[test]
fn nobody_knows_when_a_host_is_through_that_takes_longer_than_others_or_tries_again() {
    let check = |minutes: u64, fails: bool, expected: bool| {
        let mut found = first_since(ProgressState::Started, TWO);
        let canary = found.by_place()[0].clone();
        found.0.entries.remove(&Key::Announced(host(&canary)).to_string());
        if fails {
            found.fails(&canary, FailureKind::Attempt, 67);
        }
        let replaced =
            BTreeMap::from([(StepName::new("packages").unwrap(), Duration::from_secs(60 * minutes))]);
        let durations = Durations::of_reports(&hosts_of(&found.0), &replaced, &found.0);
        let is_late = found.forecast_with(&[], &durations).is_late;
        assert_eq!(is_late, expected, "{minutes} min, fails: {fails}");
    };
    check(5, false, false);
    check(0, false, true);
    check(5, true, true);
}

#[test]
fn values_that_make_no_sense_break_no_forecast() {
    let mut found = listed("web", 2);
    found.policy(TWO, 10).with_record();
    let progress = HostProgress::new(ProgressState::Started, EpochSeconds(i64::MIN));
    found.put(&Key::Progress(ORDER, host("web0")), &codec::write(&progress), 66);
    let step = |number: usize| StepDuration {
        phase: StepPhase::Apply,
        step: StepName::new(format!("s{number}")).unwrap(),
        took: Span(Duration::from_millis(u64::MAX)),
    };
    let report =
        Report { durations: (0..1100).map(step).collect(), ..Report::idle(NOW, Token::new("w").unwrap()) };
    found.put(&Key::Report(host("web0")), &codec::write(&report), 9);
    let durations = Durations::of_reports(&hosts_of(&found.0), &BTreeMap::new(), &found.0);
    let forecast = found.forecast_with(&[], &durations);
    assert!(forecast.ends.is_none() && forecast.why.is_some(), "no host is through in time: {forecast:?}");
}

#[test]
fn a_host_takes_as_long_as_its_steps_did_or_those_of_others_of_its_role() {
    let mut found = listed("web", 2);
    add(&mut found, "db", 1);
    let step = |phase, name: &str, seconds| StepDuration {
        phase,
        step: StepName::new(name).unwrap(),
        took: Span(Duration::from_secs(seconds)),
    };
    let durations = vec![
        step(StepPhase::Prefetch, "fetch", 500),
        step(StepPhase::Apply, "packages", 40),
        step(StepPhase::Validate, "http", 2),
    ];
    let report = Report { durations, ..Report::idle(NOW, Token::new("w").unwrap()) };
    found.put(&Key::Report(host("web0")), &codec::write(&report), 9);
    let roster = hosts_of(&found.0);
    let check = |replaced: &[(&str, u64)], expected: u64| {
        let replaced =
            replaced.iter().map(|(name, s)| (StepName::new(name).unwrap(), Duration::from_secs(*s)));
        let durations = Durations::of_reports(&roster, &replaced.collect(), &found.0);
        for name in ["web0", "web1", "db0"] {
            let role = roster[&host(name)].role.clone();
            assert_eq!(durations.of(&host(name), role.as_ref()).as_secs(), expected, "{name}");
        }
        assert_eq!(durations.steps().len(), 3);
    };
    check(&[], 42);
    check(&[("packages", 300)], 302);
    // What is fetched before the start delays it. A host that has told nothing is like others.
    found.policy(TWO, 10);
    let durations = Durations::of_reports(&roster, &BTreeMap::new(), &found.0);
    let first = starts(&found.forecast_with(&[], &durations)).first().map(|(_, at)| *at);
    assert_eq!(first, Some(500));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    /// Whatever the policy is, the forecast keeps its limits and stages, and says why it does not end.
    #[test]
    fn a_forecast_keeps_limits_and_stages(
        webs in 0usize..20, dbs in 0usize..10,
        fleet in 0u32..8, role in 0u32..5,
        canary in 0u32..3, soak in 1u64..5,
        budget in 0u32..4,
        failing in proptest::collection::btree_set(0usize..30, 0..6),
    ) {
        let mut found = listed("web", webs);
        add(&mut found, "db", dbs);
        let stage = format!("[[stage]]\nname = \"canary\"\ncount = {}\nsoak = \"{soak}m\"\n", canary.max(1));
        let limits = format!(
            "[[limit]]\nby = \"fleet\"\nmax = {fleet}\n[[limit]]\nby = \"role\"\nmax = {role}\n"
        );
        let stage = if canary == 0 { "" } else { &stage };
        found.policy(&format!("failure_budget = {budget}\n{limits}{stage}"), 10);
        let names = found.by_place();
        let failing: Vec<&str> =
            failing.iter().filter_map(|at| names.get(*at)).map(String::as_str).collect();
        let forecast = found.forecast(&failing);
        let started: Vec<&ForecastHost> = forecast.hosts.iter().filter(|h| h.starts.is_some()).collect();
        for host in &started {
            let at = host.starts.unwrap();
            let busy = |other: &&&ForecastHost| {
                other.starts.unwrap() <= at && other.ends.is_none_or(|ends| ends > at)
            };
            let all = started.iter().filter(busy).count();
            prop_assert!(all <= fleet as usize, "{all} hosts at {at:?}");
            let role_of = |name: &HostName| name.as_str().trim_end_matches(char::is_numeric).to_owned();
            let of_role =
                started.iter().filter(busy).filter(|other| role_of(&other.host) == role_of(&host.host)).count();
            prop_assert!(of_role <= role as usize, "{of_role} hosts of a role at {at:?}");
            let stage = &forecast.stages[host.stage as usize];
            prop_assert!(stage.opens.is_some_and(|opens| opens <= at), "{host:?} of {stage:?}");
        }
        let failed = forecast.hosts.iter().filter(|host| host.outcome == Outcome::Failed).count();
        prop_assert!(failed <= (budget + fleet) as usize);
        prop_assert_eq!(forecast.halt.is_some(), failed > budget as usize);
        prop_assert_eq!(forecast.why.is_some(), forecast.ends.is_none());
        prop_assert_eq!(forecast.hosts.len(), webs + dbs);
    }
}
