//! Fleets and their verdicts.
//!
//! This file is long because it is one table of fleets and their verdicts.

mod changes;

use super::*;
use proptest::prelude::*;
use schema::codec;
use schema::health::{CheckStatus, Level};
use schema::instruction::Epoch;
use schema::keys::{self, Key};
use schema::limit::{Limit, LimitBy};
use schema::names::{HostName, LimitValue, ServiceName, StageName, StepName, Token, Version};
use schema::order::InstructionOrder;
use schema::plan::Phase;
use schema::records::{
    Driver, FailingCheck, Freeze, Halt, LiveClaim, Report, ReportedTarget, RosterEntry, Wait,
};
use schema::snapshot::Entry;
use schema::steps::{StepEnd, StepPhase};
use schema::time::EpochSeconds;
use schema::verdict::{Failure, HostFailure, HostVerdict};
use schema::why_not::{LimitDetail, WhyNot};
use std::collections::BTreeMap;

fn version(text: &str) -> Version {
    Version::new(text).unwrap()
}

fn host(text: &str) -> HostName {
    HostName::new(text).unwrap()
}

fn target() -> FleetTarget {
    FleetTarget::Known { version: version("v2"), order: InstructionOrder { epoch: 0, revision: 20 } }
}

/// A report of a host that decided on `version` at `revision`.
fn report(decided: Option<(&str, i64)>, verdict: HostVerdict) -> String {
    codec::write(&Report {
        verdict,
        target: decided.map(|(v, revision)| ReportedTarget { version: version(v), revision }),
        installed: Some(version("v2")),
        ..Report::idle(EpochSeconds(1_000), Token::new("w").unwrap())
    })
}

fn failed(suspect: bool) -> HostVerdict {
    let end = StepEnd::Exited { code: 1 };
    let failure = Failure::of(StepPhase::Apply, StepName::new("install").unwrap(), end);
    HostVerdict::Failed(HostFailure { version: Some(version("v2")), failure, suspect })
}

fn claim(driver: Driver) -> String {
    codec::write(&LiveClaim {
        instance: Token::new("i").unwrap(),
        machine_id: "m".into(),
        boot_id: "b".into(),
        addresses: Vec::new(),
        agent_version: String::new(),
        driver,
        store_format: 1,
    })
}

fn on_roster() -> (String, String) {
    ("/orchestrate/hosts/h".into(), codec::write(&RosterEntry::default()))
}

fn decommissioned() -> (String, String) {
    let entry = RosterEntry { decommissioned: Some(EpochSeconds(9)), ..RosterEntry::default() };
    ("/orchestrate/hosts/h".into(), codec::write(&entry))
}

fn live() -> (String, String) {
    ("/orchestrate/live/h".into(), claim(Driver::Agent))
}

fn live_external() -> (String, String) {
    ("/orchestrate/live/h".into(), claim(Driver::External))
}

fn listed(version: &str) -> (String, String) {
    (format!("/running_version/{version}/h"), "1".into())
}

fn status(kind: &str, state: &str) -> (String, String) {
    (format!("/status/{kind}/{state}/h"), r#"{"at":1,"code":6}"#.into())
}

fn reporting(kind: &str) -> (String, String) {
    (format!("/orchestrate/reporting/{kind}/h"), "1".into())
}

fn reported(decided: Option<(&str, i64)>, verdict: HostVerdict) -> (String, String) {
    ("/orchestrate/reports/h".into(), report(decided, verdict))
}

const NOW: Option<(&str, i64)> = Some(("v2", 20));

fn fleet(target: FleetTarget, facts: &[(String, String)]) -> Fleet {
    Fleet::new(target, facts.iter().map(|(k, v)| (k.as_str(), v.as_bytes())))
}

/// Checks the verdict of host `h` by these facts, and the state of the fleet. `expected` is the
/// verdict in one word and the beginning of its message.
fn check_with(target: FleetTarget, facts: &[(String, String)], expected: &str, fleet_state: FleetState) {
    let fleet = fleet(target, facts);
    let found = fleet
        .verdict(&host("h"))
        .map_or("none".to_owned(), |v| format!("{}: {}", v.kind().as_str(), v.message()));
    assert!(found.starts_with(expected), "expected {expected:?}, found {found:?} by {facts:#?}");
    assert_eq!(fleet.state(), fleet_state, "{found}");
}

fn check(facts: &[(String, String)], expected: &str, fleet_state: FleetState) {
    check_with(target(), facts, expected, fleet_state);
}

/// `next` is the time of the next attempt.
fn is_stuck(verdict: HostVerdict, next: Option<i64>) -> bool {
    let report = Report {
        next_attempt_at: next.map(EpochSeconds),
        ..keys::Report::read(report(NOW, verdict).as_bytes()).unwrap()
    };
    let report = ("/orchestrate/reports/h".to_owned(), codec::write(&report));
    fleet(target(), &[on_roster(), live(), report]).is_stuck(&host("h"), EpochSeconds(100))
}

#[test]
fn a_host_is_stuck_if_it_does_not_reach_the_version_without_an_operator() {
    for (verdict, next, expected) in [
        (HostVerdict::Ok, None, false),
        (failed(false), None, false),
        (failed(false), Some(500), false),
        (failed(true), Some(100), false),
        (failed(true), Some(101), true),
        (failed(true), None, true),
        (HostVerdict::Held(WhyNot::Decommissioned), None, true),
        (HostVerdict::Held(WhyNot::Instruction), None, false),
    ] {
        assert_eq!(is_stuck(verdict.clone(), next), expected, "{verdict:?} {next:?}");
    }
    let end = StepEnd::Exited { code: 1 };
    let failure = Failure::of(StepPhase::Validate, StepName::new("http").unwrap(), end);
    let failed = HostFailure { version: Some(version("v2")), failure, suspect: true };
    assert!(!is_stuck(HostVerdict::Failed(failed), None), "its validation may pass");
    let is_stuck =
        |facts: &[(String, String)]| fleet(target(), facts).is_stuck(&host("h"), EpochSeconds(100));
    assert!(!is_stuck(&[on_roster()]), "it was never seen");
    assert!(!is_stuck(&[on_roster(), live()]), "it may report");
    assert!(!is_stuck(&[]), "nothing is known of it");
    let lost_in = |phase: Phase| {
        let report = Report { phase, ..keys::Report::read(report(NOW, HostVerdict::Ok).as_bytes()).unwrap() };
        is_stuck(&[on_roster(), ("/orchestrate/reports/h".to_owned(), codec::write(&report))])
    };
    assert!(lost_in(Phase::Idle), "it is gone");
    assert!(!lost_in(Phase::Apply), "it may reboot in its update");
    let waits = || reported(NOW, HostVerdict::Held(stage()));
    let halted = || halt(20, "1 host failed");
    assert!(!is_stuck(&[live(), waits()]), "its turn comes");
    assert!(is_stuck(&[live(), waits(), halted()]), "the rollout is halted");
    let knew = || reported(NOW, HostVerdict::Held(WhyNot::Halted { why: "halted".into() }));
    assert!(is_stuck(&[live(), knew(), halted()]), "the host knows it");
    assert!(!is_stuck(&[live(), knew()]), "the halt has ended since");
    let old = reported(Some(("v1", 10)), HostVerdict::Ok);
    let old = || Report { installed: Some(version("v1")), ..keys::Report::read(old.1.as_bytes()).unwrap() };
    let freeze = |scope: &str, until: Option<i64>| {
        let (by, at, until) = ("alice".into(), EpochSeconds(1), until.map(EpochSeconds));
        let freeze = Freeze { by, reason: String::new(), at, until };
        (format!("/orchestrate/freezes/{scope}/t1"), codec::write(&freeze))
    };
    let frozen_by = |more: &[(String, String)]| {
        let old = ("/orchestrate/reports/h".to_owned(), codec::write(&old()));
        is_stuck(&[&[live(), listed("v1"), old], more].concat())
    };
    assert!(frozen_by(&[freeze("fleet", None)]), "somebody has to remove the freeze");
    assert!(frozen_by(&[freeze("fleet", Some(101))]), "the freeze ends later");
    let in_time = || freeze("fleet", Some(100));
    assert!(!frozen_by(&[in_time()]), "the freeze ends in time");
    assert!(frozen_by(&[in_time(), freeze("pause", None)]), "but not the pause");
    assert!(frozen_by(&[in_time(), halted()]), "the rollout is halted");
}

fn stage() -> WhyNot {
    WhyNot::Stage { stage: StageName::rest(), open: None, soak: None, hold: None }
}

/// A halt of the rollout of the instruction with this revision.
fn halt(revision: i64, why: &str) -> (String, String) {
    let halt = Halt { at: EpochSeconds(5), by: "h1".into(), why: why.into(), rolled_back_to: None };
    (Key::Halt(InstructionOrder { epoch: 0, revision }).to_string(), codec::write(&halt))
}

#[test]
fn a_host_that_waits_for_its_turn_in_a_halted_rollout_waits_for_an_operator() {
    let halted = halt(20, "3 hosts failed, 2 tolerated");
    let check_turn = |on: WhyNot, facts: &[(String, String)], expected: &str, state: FleetState| {
        let own = [live(), listed("v1"), reported(NOW, HostVerdict::Held(on))];
        check(&[own.as_slice(), facts].concat(), expected, state);
    };
    let operator = "waiting: waits for an operator: the rollout is halted: 3 hosts failed, 2 tolerated";
    let fleet = Limit { by: LimitBy::Fleet, value: LimitValue::new("all").unwrap() };
    let limit = WhyNot::Limit { limit: fleet, detail: LimitDetail::Queue { ahead: 1 } };
    let window = WhyNot::Window { opens: "later".into(), starts: None };
    for on in [stage(), limit, window] {
        check_turn(on, std::slice::from_ref(&halted), operator, FleetState::Failing);
    }
    let unreadable = (halted.0.clone(), "?".to_owned());
    let text = "waiting: waits for an operator: the rollout is halted: its reason cannot be read";
    check_turn(stage(), &[unreadable], text, FleetState::Failing);
    // Another rollout is halted, or the host waits for something else.
    check_turn(stage(), &[halt(10, "old")], "waiting: waits for its turn: stage rest", FleetState::Updating);
    check_turn(WhyNot::Spread, &[halted], "waiting: waits for its turn: the start", FleetState::Updating);
}

#[test]
fn a_host_with_an_agent_is_judged_by_its_report_and_its_listing() {
    use FleetState::{Failing, Settled, Updating};
    let ok = || reported(NOW, HostVerdict::Ok);
    check(&[on_roster(), live(), listed("v2"), ok()], "ok: ", Settled);
    check(&[on_roster(), live(), ok()], "running: not listed", Updating);
    check(&[on_roster(), live(), listed("v1"), ok()], "running: listed under v1", Updating);
    check(&[on_roster(), live(), listed("v1"), listed("v2"), ok()], "running: listed under v1, v2", Updating);
    let old = |verdict| reported(Some(("v1", 10)), verdict);
    // The proven version was triggered again, so the host has nothing to do.
    check(&[on_roster(), live(), listed("v2"), old(HostVerdict::Ok)], "ok: ", Settled);
    check(&[on_roster(), live(), listed("v1"), old(HostVerdict::Ok)], "running: has not acted", Updating);
    check(&[on_roster(), live(), listed("v2"), old(failed(false))], "running: has not acted", Updating);
    check(&[on_roster(), live(), old(failed(true))], "running: has not acted", Updating);
    check(&[on_roster(), live(), reported(None, HostVerdict::Ok)], "running: has not acted", Updating);
    check(&[on_roster(), live(), listed("v2")], "running: its agent has not reported", Updating);
    let unreadable = ("/orchestrate/reports/h".to_owned(), r#"{"format":7}"#.to_owned());
    check(&[on_roster(), live(), listed("v2"), unreadable], "running: its report cannot be read", Updating);
    let running = HostVerdict::Running { version: version("v2") };
    check(&[live(), reported(NOW, running)], "running: on its way to v2", Updating);
    let waiting = HostVerdict::Held(WhyNot::Spread);
    check(&[live(), reported(NOW, waiting)], "waiting: waits for its turn", Updating);
    check(&[live(), reported(NOW, failed(false))], "failed: apply step install", Failing);
    check(&[live(), reported(NOW, failed(true))], "suspect: apply step install", Failing);
}

#[test]
fn the_hint_about_a_failed_host_names_what_ends_the_failure() {
    let check = |phase: StepPhase, suspect: bool, expected: &str| {
        let failure = Failure::of(phase, StepName::new("s").unwrap(), StepEnd::Exited { code: 1 });
        let failed = HostFailure { version: Some(version("v2")), failure, suspect };
        let hint = FleetVerdict::Failed(FailedBy::Report(failed)).hint();
        assert!(hint.starts_with(expected), "{phase:?}: {hint}");
    };
    for suspect in [false, true] {
        check(StepPhase::Validate, suspect, "ends when the step succeeds, which is run again by itself;");
        check(StepPhase::Converge, suspect, "ends when the step succeeds, which is run again by itself;");
    }
    check(StepPhase::Apply, false, "ends when an attempt succeeds; `orchestrate retry`");
    check(StepPhase::Apply, true, "ends when an attempt succeeds; a new instruction");
    check(StepPhase::Prefetch, true, "ends when an attempt succeeds; a new instruction");
}

#[test]
fn a_result_of_before_the_newest_attempt_does_not_outweigh_the_report() {
    let facts = [live(), listed("v2"), status("puppet", "failed"), reported(NOW, HostVerdict::Ok)];
    check(&facts, "ok: ", FleetState::Settled);
    let facts = [live(), listed("v2"), status("provisioned", "failed"), reported(NOW, HostVerdict::Ok)];
    check(&facts, "failed: provisioned failed with code 6", FleetState::Failing);
}

#[test]
fn what_blocks_a_host_stands_though_the_instruction_moved_on() {
    let held = WhyNot::NameHeld { holder: "a".into(), ours: "b".into() };
    let old = |by| reported(Some(("v1", 10)), HostVerdict::Held(by));
    check(&[live(), old(held)], "blocked: another agent", FleetState::Failing);
    let invalid = WhyNot::InvalidInstruction { why: "bad".into() };
    check(&[live(), old(invalid)], "running: has not acted", FleetState::Updating);
    let newer = reported(Some(("v3", 30)), HostVerdict::Ok);
    check(
        &[live(), listed("v3"), newer],
        "blocked: it decided on the instruction of revision 30",
        FleetState::Failing,
    );
}

#[test]
fn a_silent_host_is_lost_whatever_else_is_said_of_it() {
    use FleetState::Failing;
    check(&[on_roster()], "lost: on the roster, but never seen", Failing);
    // A script put the host on the roster, and its listing has ended while it is updated.
    let by_script = RosterEntry::of_script(&HostName::new("h").unwrap(), EpochSeconds(1));
    let by_script = ("/orchestrate/hosts/h".into(), codec::write(&by_script));
    check(&[by_script, status("puppet", "success")], "running: not listed", FleetState::Updating);
    check(&[on_roster(), status("puppet", "failed")], "lost: neither live nor listed", Failing);
    check(&[reported(NOW, HostVerdict::Ok)], "lost: neither live nor listed", Failing);
    let garbage = ("/orchestrate/hosts/h".to_owned(), "?".to_owned());
    check(&[garbage], "lost: on the roster", Failing);
}

#[test]
fn a_host_that_was_taken_out_is_no_member_unless_it_speaks() {
    check(&[decommissioned(), status("puppet", "failed")], "none", FleetState::Unknown);
    check(&[decommissioned(), live()], "blocked: the host was decommissioned", FleetState::Failing);
    check(&[decommissioned(), listed("v2")], "blocked: the host was decommissioned", FleetState::Failing);
}

#[test]
fn a_host_without_an_agent_is_judged_by_listing_and_results() {
    use FleetState::{Failing, Settled, Updating};
    check(&[listed("v2")], "ok: ", Settled);
    check(&[listed("v2"), status("puppet", "success"), status("validation", "success")], "ok: ", Settled);
    check(&[listed("v1")], "running: listed under v1", Updating);
    check(&[status("puppet", "success")], "running: not listed", Updating);
    check(&[listed("v2"), status("validation", "failed")], "failed: validation failed with code 6", Failing);
    check(&[listed("v2"), status("puppet", "pending")], "waiting: puppet said \"not yet\"", Updating);
    let bare = ("/status/validation/failed/h".to_owned(), "1416300000".to_owned());
    check(&[listed("v2"), bare], "failed: validation failed", Failing);
}

#[test]
fn a_result_that_does_not_come_any_more_is_a_failure() {
    check(
        &[listed("v2"), reporting("validation")],
        "failed: validation is no longer reported",
        FleetState::Failing,
    );
    let both = [listed("v2"), reporting("validation"), status("validation", "success")];
    check(&both, "ok: ", FleetState::Settled);
    // These hosts do not fail: one never reported a validation, the other has an agent that
    // reports.
    check(&[listed("v2"), status("puppet", "success"), reporting("puppet")], "ok: ", FleetState::Settled);
    let live = [listed("v2"), live(), reporting("validation"), reported(NOW, HostVerdict::Ok)];
    check(&live, "ok: ", FleetState::Settled);
}

#[test]
fn beside_an_external_driver_the_scripts_results_count() {
    let waits = || reported(NOW, HostVerdict::Held(WhyNot::ExternalDriver));
    let ok = || reported(NOW, HostVerdict::Ok);
    check(&[live_external(), waits()], "waiting: waits for the script", FleetState::Updating);
    check(&[live_external(), listed("v2"), ok()], "ok: ", FleetState::Settled);
    let facts = [live_external(), listed("v2"), ok(), status("validation", "failed")];
    check(&facts, "failed: validation failed", FleetState::Failing);
}

#[test]
fn without_a_version_to_run_nobody_says_settled() {
    let ok = || reported(None, HostVerdict::Ok);
    check_with(FleetTarget::NotSet, &[live(), listed("v2"), ok()], "ok: ", FleetState::Unknown);
    check_with(FleetTarget::NotSet, &[live(), ok()], "running: not listed", FleetState::Unknown);
    let first = HostVerdict::Held(WhyNot::Instruction);
    check_with(FleetTarget::NotSet, &[live(), reported(None, first)], "waiting: ", FleetState::Unknown);
    check_with(FleetTarget::NotSet, &[status("puppet", "success")], "waiting: ", FleetState::Unknown);
    let invalid = FleetTarget::Invalid { why: "rule".into() };
    check_with(
        invalid,
        &[live(), listed("v2"), ok()],
        "blocked: /current_version is not",
        FleetState::Failing,
    );
    check(&[], "none", FleetState::Unknown);
}

/// A report of a host in this phase, with these checks that do not pass.
fn with_checks(phase: Phase, checks: &[(Option<&str>, &str, CheckStatus)]) -> (String, String) {
    let (key, text) = reported(NOW, HostVerdict::Ok);
    let mut report = keys::Report::read(text.as_bytes()).unwrap();
    report.phase = phase;
    report.checks = checks
        .iter()
        .map(|(service, check, status)| FailingCheck {
            service: service.map(|name| ServiceName::new(name).unwrap()),
            check: (*check).into(),
            status: *status,
            line: format!("{check} said no"),
        })
        .collect();
    (key, codec::write(&report))
}

#[test]
fn a_fleet_fails_while_a_service_is_critical_unless_that_has_an_explanation() {
    use CheckStatus::{Critical, Warning};
    let check = |facts: &[(String, String)], expected: &[(&str, &str)], fleet_state: FleetState| {
        let fleet = fleet(target(), facts);
        let down = fleet.failed_services();
        let found: Vec<(&str, &str)> = down.iter().map(|down| (down.check.as_str(), down.output())).collect();
        assert_eq!(found, expected, "{facts:#?}");
        assert_eq!(fleet.state(), fleet_state, "{facts:#?}");
    };
    let health = |fleet_state: &str| ("/orchestrate/health/db/h".to_owned(), fleet_state.to_owned());
    let settled = |phase, checks: &[_]| [live(), listed("v2"), with_checks(phase, checks)];
    let and = |facts: [(String, String); 3], more: &[(String, String)]| [&facts[..], more].concat();
    let of_db = [(Some("db"), "tcp", Critical)];
    let of_host = [(None, "disk", Critical)];
    let (idle, apply) = (Phase::Idle, Phase::Apply);
    check(&and(settled(idle, &[]), &[health("passing")]), &[], FleetState::Settled);
    check(&and(settled(idle, &[]), &[health("draining")]), &[], FleetState::Settled);
    let not_reported = [("db", "its host has not reported the output yet")];
    check(&and(settled(idle, &[]), &[health("critical")]), &not_reported, FleetState::Failing);
    let expected_messages = [("db", "tcp said no")];
    check(&and(settled(idle, &of_db), &[health("critical")]), &expected_messages, FleetState::Failing);
    // A critical check of the host is named instead of each service that it makes critical.
    let disk = [("disk", "disk said no")];
    check(&and(settled(idle, &of_host), &[health("critical")]), &disk, FleetState::Failing);
    check(&settled(idle, &of_host), &disk, FleetState::Failing);
    check(&settled(idle, &[(None, "disk", Warning)]), &[], FleetState::Settled);
    let in_warning = |facts: &[(String, String)]| {
        let found = fleet(target(), facts).warning_services().into_iter();
        found.map(|found| format!("{}: {}", found.check, found.output())).collect::<Vec<_>>()
    };
    assert_eq!(in_warning(&settled(idle, &[(None, "disk", Warning)])), ["disk: disk said no"]);
    let slow = and(settled(idle, &[(Some("db"), "tcp", Warning)]), &[health("warning")]);
    assert_eq!(in_warning(&slow), ["db: tcp said no"]);
    check(&slow, &[], FleetState::Settled);
    // The host is updating.
    check(&and(settled(apply, &of_db), &[health("critical")]), &[], FleetState::Settled);
    check(&settled(apply, &of_host), &[], FleetState::Settled);
    // An operator set maintenance for the service or for the host.
    let out = |text: &str| ("/orchestrate/maintenance/h".to_owned(), text.to_owned());
    let since = r#"{"how":"maintenance","reason":"","at":1}"#;
    let service = out(&format!(r#"{{"services":{{"db":{since}}}}}"#));
    let host = out(&format!(r#"{{"host":{since}}}"#));
    check(&and(settled(idle, &of_db), &[health("critical"), service]), &[], FleetState::Settled);
    check(&and(settled(idle, &of_host), &[health("critical"), host]), &[], FleetState::Settled);
    // The host is lost, which already makes the fleet fail.
    check(&[on_roster(), health("critical")], &[], FleetState::Failing);
}

#[test]
fn a_settled_host_whose_need_has_gone_is_not_updating() {
    let wait = Wait {
        service: ServiceName::new("db").unwrap(),
        level: Level::Functional,
        need: 1,
        have: 0,
        phase: StepPhase::Validate,
        step: None,
        unreachable: false,
    };
    let waits = || reported(NOW, HostVerdict::Held(WhyNot::Service(wait.clone())));
    check(&[live(), listed("v2"), waits()], "waiting: waits for db", FleetState::Failing);
    check(&[live(), listed("v1"), waits()], "waiting: waits for db", FleetState::Updating);
}

#[test]
fn values_that_cannot_be_read_are_never_settled_and_bad_keys_are_counted() {
    let facts = [
        listed("v2"),
        ("/orchestrate/hosts/h".to_owned(), r#"{"format":9}"#.to_owned()),
        ("/running_version/v2/not a host".to_owned(), "1".to_owned()),
        ("/status/puppet/exploded/h".to_owned(), "1".to_owned()),
    ];
    check(&facts, "ok: ", FleetState::Unknown);
    assert_eq!(fleet(target(), &facts).skipped(), 2);
    assert_eq!(fleet(target(), &facts).unreadable().len(), 1);
}

#[test]
fn an_instruction_of_before_the_epoch_does_not_count() {
    let read = |value: &str, epoch| {
        let entry =
            Entry { value: value.into(), create_revision: 20, mod_revision: 20, lease: 0, version: 1 };
        FleetTarget::read(Some(&entry), epoch)
    };
    assert_eq!(read("v2\n", Epoch::default()), target());
    assert_eq!(read("v2\n", Epoch { number: 1, accepted_at: 30 }), FleetTarget::NotSet);
    assert_eq!(FleetTarget::read(None, Epoch::default()), FleetTarget::NotSet);
    assert!(matches!(read("a b", Epoch::default()), FleetTarget::Invalid { .. }));
}

#[test]
fn nobody_accounts_for_late_lost_and_never_seen_hosts() {
    let of = |facts: &[(String, String)]| fleet(target(), facts).verdict(&host("h")).unwrap().unaccounted();
    assert_eq!(of(&[on_roster()]), Some(Unaccounted::NeverSeen));
    assert_eq!(of(&[on_roster(), reported(NOW, HostVerdict::Ok)]), Some(Unaccounted::Lost));
    assert_eq!(of(&[live(), reported(Some(("v1", 10)), HostVerdict::Ok)]), Some(Unaccounted::Late));
    assert_eq!(of(&[listed("v1")]), Some(Unaccounted::Late));
    assert_eq!(of(&[live(), reported(NOW, failed(false))]), None);
    assert_eq!(of(&[listed("v2")]), None);
}

/// Generates any subset of all possible facts about two hosts.
fn any_facts() -> impl Strategy<Value = Vec<(String, String)>> {
    let all: Vec<(String, String)> = ["h", "other"]
        .iter()
        .flat_map(|name| {
            let verdicts = [HostVerdict::Ok, failed(true), HostVerdict::Running { version: version("v2") }];
            let mut facts: Vec<(String, String)> = vec![
                on_roster(),
                live(),
                listed("v1"),
                listed("v2"),
                status("puppet", "failed"),
                status("puppet", "pending"),
                status("validation", "success"),
                reporting("validation"),
                ("/orchestrate/retry/h".into(), "{}".into()),
                ("/orchestrate/announced/h".into(), "v2".into()),
            ];
            let decided = [("v2", 20), ("v1", 10), ("v3", 30)];
            for (verdict, decided) in verdicts.into_iter().zip(decided) {
                facts.push(reported(Some(decided), verdict));
            }
            facts.into_iter().map(move |(key, value)| {
                let prefix = key.strip_suffix("/h").unwrap();
                (format!("{prefix}/{name}"), value)
            })
        })
        .collect();
    prop::sample::subsequence(all.clone(), 0..=all.len()).prop_map(|facts| {
        // There is one value per key, as in a store.
        let unique: BTreeMap<String, String> = facts.into_iter().collect();
        unique.into_iter().collect()
    })
}

proptest! {
    #[test]
    fn the_order_of_facts_changes_nothing(facts in any_facts().prop_shuffle(), known in any::<bool>()) {
        let target = if known { target() } else { FleetTarget::NotSet };
        let mut sorted = facts.clone();
        sorted.sort();
        prop_assert_eq!(fleet(target.clone(), &facts), fleet(target, &sorted));
    }

    #[test]
    fn every_member_has_exactly_one_verdict(facts in any_facts()) {
        let fleet = fleet(target(), &facts);
        let verdicts = fleet.verdicts();
        prop_assert_eq!(verdicts.len(), fleet.hosts().len());
        for (host, host_facts) in fleet.hosts() {
            prop_assert!(verdicts.contains_key(host));
            let verdict = &verdicts[host];
            prop_assert_eq!(verdict.message().is_empty(), *verdict == FleetVerdict::Ok);
            prop_assert_eq!(verdict.hint().is_empty(), *verdict == FleetVerdict::Ok);
            prop_assert!(verdict.hint().is_empty() || verdict.hint().starts_with("ends when "));
            // The verdict ok requires that the host is listed under the target and nothing else.
            if *verdict == FleetVerdict::Ok {
                prop_assert_eq!(host_facts.listed.iter().map(Version::as_str).collect::<Vec<_>>(), vec!["v2"]);
            }
        }
        if fleet.state() == FleetState::Settled {
            prop_assert!(verdicts.values().all(|v| *v == FleetVerdict::Ok));
        }
    }
}
