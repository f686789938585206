//! Table tests of single decisions, and a simulated host that is driven through random histories.
//!
//! This file is long because it holds the simulated host, the table of decisions and the random
//! histories.

use super::state::{Deadline, RolloutProgress};
use super::*;
use crate::policy::{Leftovers, Policy, Step, Steps};
use crate::rollout::Obstacle;
use crate::settings::ValidationRule;
use proptest::prelude::*;
use schema::freeze::FreezeScope;
use schema::frozen::FrozenBy;
use schema::instruction::Instruction;
use schema::keys::StatusState;
use schema::limit::{Limit, LimitBy, Place};
use schema::names::{Fingerprint, HostName, StatusType, StepName, Token, Version};
use schema::order::InstructionOrder;
use schema::plan::{Action, Effect, Reason};
use schema::records::{
    Cause, Driver, FailureKind, HeldClaim, HostClaims, HostProgress, LONG_STEP, MachineInfo, ProgressState,
    Purpose, Report, Ticket, Wait,
};
use schema::steps::{StepEnd, StepPhase};
use schema::store_trust::{StoreMemory, StoreTrust, WentBack};
use schema::time::{Backoff, BootMillis, EpochSeconds, Now, Span};
use schema::verdict::HostVerdict;
use schema::writes::claims::FoundClaims;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

fn version(text: &str) -> Version {
    Version::new(text).unwrap()
}

fn step(name: &str) -> Step {
    Step {
        name: StepName::new(name).unwrap(),
        command: vec![format!("/steps/{name}")],
        timeout: Duration::from_secs(60),
        grace: Duration::from_secs(5),
        done_codes: vec![0],
        not_yet_codes: vec![75],
        leftovers: Leftovers::Kill,
        cannot_run: None,
    }
}

fn policy() -> Policy {
    Policy {
        driver: Driver::Agent,
        steps: Steps {
            prefetch: vec![step("fetch")],
            apply: vec![step("packages"), step("configuration")],
            converge: vec![step("render")],
            validate: vec![step("http")],
            on_suspect: vec![step("page")],
        },
        validate_every: Duration::from_secs(60),
        not_yet_retry: Duration::from_secs(15),
        attempt_backoff: Backoff::new(Duration::from_secs(30), Duration::from_secs(1800)),
        suspect_after: 3,
        suspect_retry_on_change: Duration::from_secs(60),
        suspect_retry_every: Duration::from_secs(3600),
        reapply_per_day: 1,
        reapply_after: Duration::from_secs(900),
        spread_window: Duration::ZERO,
        requires: Vec::new(),
        converge_at_most_every: Duration::from_secs(10),
    }
}

/// A host and its store in memory. It executes plans; `ends` and `default_end` say how steps end.
struct World {
    policy: Policy,
    state: HostState,
    target: Target,
    target_since: BootMillis,
    retry: Option<InstructionOrder>,
    store_trust: StoreTrust,
    store_away: bool,
    claim: Claim,
    cannot_record: Option<(String, BootMillis)>,
    settings_untrusted: Option<String>,
    marked_at: i64,
    commands: Commands,
    brakes: BrakesMemory,
    instance: Token,
    published: Published,
    file: VersionFile,
    facts: MachineInfo,
    waits: Vec<Wait>,
    services_seen: Option<u64>,
    addressable: Option<Addressable>,
    now: Now,
    revision: i64,
    ends: BTreeMap<String, VecDeque<StepEnd>>,
    default_end: BTreeMap<String, StepEnd>,
    /// What happened, in order.
    history: Vec<Event>,
}

#[derive(Debug, Clone, PartialEq)]
enum Event {
    Start(Version),
    Step(StepPhase, String, Version, bool),
    Listed(Option<Version>),
    File(Version),
}

impl World {
    fn new() -> Self {
        let host = HostName::new("h1").unwrap();
        let mut state = HostState::new(host, "machine".into(), "boot".into(), None);
        state.store = Some(StoreMemory {
            lineage: Token::new("L").unwrap(),
            epoch: 0,
            revision: 1,
            raft_term: 1,
            target_revision: None,
            report_revision: None,
            went_back: None,
        });
        Self {
            policy: policy(),
            state,
            target: Target::NotSet,
            target_since: BootMillis(0),
            retry: None,
            store_trust: StoreTrust::Trusted,
            store_away: false,
            claim: Claim::Held,
            cannot_record: None,
            settings_untrusted: None,
            marked_at: 1,
            commands: Commands::default(),
            brakes: BrakesMemory::default(),
            instance: Token::new("i").unwrap(),
            published: Published::default(),
            file: VersionFile::Content(None),
            facts: MachineInfo::default(),
            waits: Vec::new(),
            services_seen: None,
            addressable: None,
            now: Now { boot: BootMillis(1_000_000), wall: EpochSeconds(1_000) },
            revision: 10,
            ends: BTreeMap::new(),
            default_end: BTreeMap::new(),
            history: Vec::new(),
        }
    }

    fn order(&mut self) -> InstructionOrder {
        self.revision += 1;
        InstructionOrder { epoch: 0, revision: self.revision }
    }

    fn trigger(&mut self, text: &str) {
        let order = self.order();
        self.target = Target::Known(Instruction { version: version(text), order });
        self.target_since = self.now.boot;
    }

    fn decide(&self) -> Decision {
        let (desired, problems) = (self.desired(), HostProblems::default());
        decide(&self.state, &desired, &self.observed(&problems), self.now)
    }

    /// Decides and records conclusions, until a decision begins with an effect or does nothing.
    fn advance(&mut self) -> Decision {
        loop {
            let mut state = self.state.clone();
            let (desired, problems) = (self.desired(), HostProblems::default());
            let advanced = advance(&mut state, &desired, &self.observed(&problems), self.now, 0.5);
            self.state = state;
            if let Some(decision) = advanced.decision {
                return decision;
            }
        }
    }

    fn desired(&self) -> Desired<'_> {
        Desired {
            target: self.target.clone(),
            target_since: self.target_since,
            retry: self.retry,
            policy: &self.policy,
        }
    }

    fn observed<'a>(&'a self, problems: &'a HostProblems) -> Observed<'a> {
        Observed {
            store_trust: self.store_trust.clone(),
            store_ready: !self.store_away,
            claim: self.claim.clone(),
            decommissioned: false,
            version_file: self.file.clone(),
            cannot_record: self.cannot_record.clone(),
            settings_untrusted: self.settings_untrusted.clone(),
            marked_at: Some(self.marked_at),
            brakes: self.brakes.known(),
            bad_roster: None,
            instance: &self.instance,
            live_lease: 1,
            commands: self.commands.clone(),
            published: Some(self.published.clone()),
            facts: &self.facts,
            waits: &self.waits,
            services_seen: self.services_seen,
            addressable: self.addressable,
            problems,
            write_id: Token::new("w").unwrap(),
        }
    }

    fn record(&mut self, fact: Fact) {
        self.state.record(fact, &self.policy, self.now, 0.5);
    }

    fn end_of(&mut self, name: &str) -> StepEnd {
        self.ends
            .get_mut(name)
            .and_then(VecDeque::pop_front)
            .or_else(|| self.default_end.get(name).cloned())
            .unwrap_or(StepEnd::Exited { code: 0 })
    }

    /// Records what is decided, and executes the effect that the plan begins with; returns false if
    /// the plan does nothing.
    fn act(&mut self) -> bool {
        let decision = self.advance();
        let effect = match decision.plan.actions.first().map(|planned| planned.action.clone()) {
            Some(Action::Do(effect)) => effect,
            Some(Action::Record(conclusion)) => panic!("{conclusion} was not recorded"),
            None => return false,
        };
        match effect {
            Effect::CommitStart { instruction } => {
                assert!(!self.store_away, "a start without a store");
                assert_eq!(
                    self.target,
                    Target::Known(instruction.clone()),
                    "the transaction compares the target"
                );
                self.list(None);
                self.history.push(Event::Start(instruction.version));
                self.write_report(&decision);
                self.record(decision.started());
            }
            Effect::RunStep { phase, step } => {
                assert_eq!(self.lacked_by(phase, &step), None, "{phase} {step} runs without what it needs");
                let run_id = Token::new("run").unwrap();
                self.record(Fact::StepStarted(RunningStep { run_id, phase, step: step.clone() }));
                let end = self.end_of(step.as_str());
                let ok = end == StepEnd::Exited { code: 0 };
                let about = self.about(phase);
                self.history.push(Event::Step(phase, step.to_string(), about, ok));
                let log = vec![format!("output of {step}")];
                // A step may print another line each time.
                let fingerprint = Fingerprint::new(format!("f1-{:012x}", self.history.len())).unwrap();
                let cause = (!ok).then(|| Cause { fingerprint, line: format!("run {}", self.history.len()) });
                self.record(Fact::StepEnded(StepReport { phase, step, end, log, cause }));
            }
            Effect::WriteVersionFile { version } => {
                self.history.push(Event::File(version.clone()));
                self.file = VersionFile::Content(Some(version));
            }
            Effect::Announce { version } => {
                self.list(Some(version));
                self.write_report(&decision);
            }
            Effect::Withdraw => {
                self.list(None);
                self.write_report(&decision);
            }
            Effect::Report => {
                assert!(self.cannot_record.is_none() || !decision.needs_journal, "{decision:#?}");
                self.write_report(&decision);
            }
        }
        true
    }

    /// Returns an unmet need of the phase, of this step or of a step before it.
    fn lacked_by(&self, phase: StepPhase, step: &StepName) -> Option<&Wait> {
        let place = |name: &StepName| self.policy.steps.of(phase).iter().position(|step| step.name == *name);
        let holds = |wait: &&Wait| {
            wait.phase == phase && wait.step.as_ref().is_none_or(|name| place(name) <= place(step))
        };
        self.waits.iter().find(holds)
    }

    fn about(&self, phase: StepPhase) -> Version {
        match phase {
            StepPhase::Prefetch | StepPhase::OnSuspect => {
                self.state.attempt.as_ref().unwrap().instruction.version.clone()
            }
            _ => self.state.subject().unwrap().clone(),
        }
    }

    fn list(&mut self, listing: Option<Version>) {
        if self.published.listing != listing {
            self.history.push(Event::Listed(listing.clone()));
        }
        self.published.listing = listing;
    }

    fn write_report(&mut self, decision: &Decision) {
        assert!(!self.store_away, "a write without a store");
        self.revision += 1;
        if self.store_trust == StoreTrust::Trusted {
            self.published.statuses = self
                .state
                .statuses
                .iter()
                .map(|(kind, (state, record))| ((kind.clone(), *state), record.clone()))
                .collect();
            if decision.tells_outcome {
                let failure = self.state.failure_change(None);
                self.state.failure_written(&failure);
                self.state.progress_written(self.state.progress_to_write());
            }
            if let Some(claims) = decision.claims.clone() {
                let claims = Some(claims).filter(|claims| !claims.is_empty());
                let revision = if claims.is_some() { self.revision } else { 0 };
                self.published.claims = FoundClaims { revision, claims };
            }
        }
        let report = decision.report.clone();
        assert!(report.write_bounded().len() <= schema::records::REPORT_MAX_BYTES);
        self.published.report = Some(report);
        self.record(Fact::ReportWritten);
    }

    /// Executes plans until nothing is left to do now.
    fn settle(&mut self) {
        for _ in 0..500 {
            if !self.act() {
                return;
            }
        }
        panic!(
            "no rest: {:#?}\n{:#?}",
            self.decide(),
            &self.history[self.history.len().saturating_sub(20)..]
        );
    }

    /// Lets time pass and executes plans at each requeue time.
    fn pass(&mut self, duration: Duration) {
        let end = self.now.boot.plus(duration);
        loop {
            self.settle();
            let next = self.decide().plan.requeue_at.filter(|at| *at <= end);
            let Some(next) = next else { break };
            assert!(next > self.now.boot, "looks again at once: {:#?}", self.decide());
            self.now.boot = next;
        }
        self.now.boot = end;
        self.settle();
    }

    fn fails(&mut self, name: &str, code: i32) {
        self.default_end.insert(name.into(), StepEnd::Exited { code });
    }

    fn works(&mut self, name: &str) {
        self.default_end.remove(name);
    }

    fn runs(&self, name: &str) -> usize {
        self.history.iter().filter(|e| matches!(e, Event::Step(_, n, ..) if n == name)).count()
    }

    fn verdict_str(&self) -> &'static str {
        self.decide().verdict.kind().as_str()
    }

    fn status(&self, kind: StatusType) -> Vec<StatusState> {
        self.published.statuses.keys().filter(|(k, _)| *k == kind).map(|(_, s)| *s).collect()
    }

    fn reboot(&mut self) {
        self.now.boot = BootMillis(5_000);
        self.target_since = self.now.boot;
        self.published.listing = None;
        self.state.rebooted("boot-2".into());
    }
}

fn settled_at(text: &str) -> World {
    let mut world = World::new();
    world.trigger(text);
    world.settle();
    assert_eq!(world.published.listing, Some(version(text)));
    world.history.clear();
    world
}

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
    let plan = advanced.decision.expect("the steps are the same").plan;
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
    assert_eq!((world.state.log.len(), world.state.logs.newest().len()), (0, 0));
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
fn a_new_instruction_or_a_retry_request_arms_a_suspect_host_again() {
    for by_request in [false, true] {
        let mut world = settled_at("1");
        world.fails("packages", 1);
        world.trigger("2");
        world.pass(Duration::from_secs(6 * 3600));
        world.works("packages");
        if by_request {
            world.retry = Some(world.order());
        } else {
            world.trigger("2");
        }
        world.settle();
        assert_eq!(world.published.listing, Some(version("2")), "by request: {by_request}");
        assert_eq!(world.verdict_str(), "ok");
    }
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

/// Makes the attempt one that has `within` from its start.
fn limited(world: &mut World, within: Duration) {
    let at = world.now.boot.plus(within);
    world.state.attempt.as_mut().expect("an attempt").deadline = Some(Deadline { at, within: Span(within) });
}

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

/// What the host has written or is about to write about its failure: its kind, whether it is healed, and
/// whether the store knows.
fn counted(world: &World) -> Option<(FailureKind, bool, bool)> {
    let failure = world.state.counted_failure.as_ref()?;
    Some((failure.failed.kind, failure.failed.healed, failure.is_written))
}

/// Makes the attempt one of a rollout with a failure budget.
fn budgeted(world: &mut World) {
    let attempt = world.state.attempt.as_mut().expect("an attempt");
    attempt.charge_for = Some(Span(Duration::from_secs(3600)));
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
        // Nobody knows how long a machine was off.
        world.state.rebooted("b9".into());
        world.fails("http", 2);
        world.pass(Duration::from_secs(61));
        assert_eq!(counted(&world), healed);
        // What counted before heals nevertheless.
        if let Some(failure) = &mut world.state.counted_failure {
            failure.failed.healed = false;
        }
        world.works("http");
        world.pass(Duration::from_secs(61));
        // The next version is another matter.
        world.trigger("3");
        world.pass(Duration::from_secs(60));
        assert_eq!((world.verdict_str(), counted(&world)), ("ok", None));
    }
}

/// Makes the attempt one of a rollout whose hosts keep a claim for a minute after their proof.
fn held_for_a_minute(world: &mut World) {
    limited(world, Duration::from_secs(600));
    budgeted(world);
    let minute = Span(Duration::from_secs(60));
    world.state.attempt.as_mut().expect("an attempt").hold = Some(minute);
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
    world.state.claims = Some(claims.clone());
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
        assert_eq!(world.state.hold, None);
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
    assert!(world.state.hold.is_some(), "nobody knows how long the machine was off");
    assert_eq!(world.published.claims.held().len(), 1);
    world.fails("http", 1);
    world.pass(Duration::from_secs(61));
    let failed = Some((FailureKind::Withdrawal, false, true));
    assert_eq!((world.state.hold, counted(&world)), (None, failed), "also after a reboot");
    world.works("http");
    world.trigger("3");
    world.pass(Duration::from_secs(120));
    assert_eq!((world.verdict_str(), world.state.hold), ("ok", None));
}

/// A restored store uses its revisions again.
#[test]
fn an_instruction_with_the_same_revision_and_another_version_replaces_the_attempt() {
    for starts in [false, true] {
        let mut world = settled_at("1");
        world.fails(if starts { "packages" } else { "fetch" }, 75);
        world.trigger("2");
        world.settle();
        assert_eq!(world.state.attempt.as_ref().expect("an attempt").started, starts);
        let Target::Known(instruction) = &mut world.target else { panic!("a target") };
        instruction.version = version("3");
        world.works("packages");
        world.works("fetch");
        world.pass(Duration::from_secs(120));
        assert_eq!(world.published.listing, Some(version("3")), "{starts}");
    }
}

#[test]
fn a_host_says_how_far_it_got_in_its_rollout() {
    use schema::records::ProgressState::{GaveUp, Proven, Started};
    let progress =
        |world: &World| world.state.rollout_progress.map(|known| (known.progress.state, known.is_written));
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
    assert!(world.state.looks_for_end(&target(&world)), "it may be the only one that runs");
    world.fails("http", 75);
    world.works("packages");
    limited(&mut world, Duration::from_secs(600));
    world.pass(Duration::from_secs(900));
    assert_eq!((world.verdict_str(), progress(&world)), ("suspect", Some((GaveUp, true))));
    assert!(world.state.looks_for_end(&target(&world)));
    // It works later.
    world.works("http");
    world.pass(Duration::from_secs(60));
    assert_eq!((world.verdict_str(), progress(&world)), ("ok", Some((Proven, true))));
    world.record(Fact::RolloutEnded(order));
    assert!(!world.state.looks_for_end(&target(&world)), "it knows");
    // Another version begins another rollout.
    world.trigger("3");
    assert!(!world.state.looks_for_end(&target(&world)));
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
        world.state.claims = Some(claims(&[(1, true), (2, false)]));
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
    let between: fn(&mut World) = |world| world.state.attempt.as_mut().expect("an attempt").started = false;
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
    let done: fn(&mut World) = |world| world.state.in_progress_version = None;
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
    let done = |world: &mut World| world.state.in_progress_version = None;
    let gave_up = |world: &mut World| {
        limited(world, Duration::ZERO);
        world.advance();
    };
    // A validation ended 1 ms after it was seen that the command does not run, or at that time.
    let ended = |world: &mut World, later: u64| {
        let validation = world.state.validation.as_mut().expect("a validation");
        validation.at = BootMillis(1000 + later);
        world.commands.running.clear();
        world.commands.ended = [(run.clone(), BootMillis(1000))].into();
    };
    let killed = |world: &mut World| ended(world, 1);
    let unchecked = |world: &mut World| ended(world, 0);
    let broken = |world: &mut World| {
        ended(world, 1);
        world.state.validation.as_mut().expect("a validation").result = ValidationResult::Failed;
    };
    // The host was lost, and the command runs.
    let lost = |world: &mut World| {
        let claims = world.published.claims.claims.take().expect("claims").claims;
        world.commands.running = [(run.clone(), claims)].into();
        world.published.claims.revision = 0;
        world.state.in_progress_version = None;
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
        world.state.in_progress_version = None;
        ended(world, 0);
        world.state.validation = None;
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
        state.claims = has_claims.then(|| HostClaims::none(Token::new("i").unwrap(), order, EpochSeconds(1)));
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
fn the_copy_of_a_disk_in_the_middle_of_an_update_has_no_version_installed() {
    let mut world = settled_at("1");
    let installed = |world: &World| HostState::installed_by_file(Some(version("1")), Some(&world.state));
    assert_eq!(installed(&world), Some(version("1")));
    assert_eq!(HostState::installed_by_file(Some(version("1")), None), Some(version("1")));
    world.trigger("2");
    while world.runs("packages") == 0 {
        world.act();
    }
    assert_eq!(installed(&world), None);
}

#[test]
fn a_frozen_host_fetches_and_validates_and_starts_when_it_may() {
    let mut world = settled_at("1");
    let token = Token::new("t").unwrap();
    let frozen = FrozenBy { scope: FreezeScope::Fleet, token: Some(token), freeze: None };
    world.trigger("2");
    world.brakes.refuse(&world.state, Obstacle::Frozen(frozen), 1, world.now.boot);
    world.pass(Duration::from_secs(300));
    assert_eq!((world.runs("fetch"), world.runs("packages")), (1, 0));
    assert!(world.runs("http") > 1, "it is validated as ever");
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
    world.brakes.refuse(&world.state, Obstacle::NotRead, 20, world.now.boot);
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
    world.brakes.refuse(&world.state, Obstacle::NotRead, 1, world.now.boot);
    let is_reported = |world: &World| {
        world.published.report.as_ref().is_some_and(|report| report.phase == schema::plan::Phase::Start)
    };
    world.settle();
    assert!(!is_reported(&world), "it is read within moments");
    world.pass(Duration::from_secs(3));
    assert!(is_reported(&world), "it could not be read");
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
    while world.state.in_progress_version.is_none() {
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
fn the_same_text_again_applies_nothing_where_it_is_proven() {
    let mut world = settled_at("1");
    world.trigger("1");
    world.settle();
    assert!(world.history.is_empty(), "{:?}", world.history);
}

#[test]
fn the_same_text_again_while_it_is_under_way_starts_nothing_over() {
    let mut world = settled_at("1");
    world.trigger("2");
    while world.runs("packages") == 0 {
        assert!(world.act());
    }
    world.trigger("2");
    world.settle();
    assert_eq!(world.runs("packages"), 1);
    assert_eq!(world.published.listing, Some(version("2")));
}

#[test]
fn a_newer_instruction_supersedes_at_the_next_safe_point() {
    let mut world = settled_at("1");
    world.trigger("2");
    while world.runs("packages") == 0 {
        assert!(world.act());
    }
    world.trigger("3");
    world.settle();
    assert_eq!(world.runs("configuration"), 1, "version 2 was left after its first step");
    assert_eq!(world.published.listing, Some(version("3")));
}

#[test]
fn an_older_instruction_is_never_acted_on() {
    let mut world = settled_at("2");
    let newest = world.state.observed_instruction.unwrap();
    world.target = Target::Known(Instruction {
        version: version("1"),
        order: InstructionOrder { revision: newest.revision - 1, ..newest },
    });
    world.settle();
    assert!(!world.history.iter().any(|e| matches!(e, Event::Start(_))));
    assert_eq!(world.decide().plan.because, Reason::OlderInstruction);
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
fn a_host_proven_before_validates_by_the_old_rule_until_its_next_instruction() {
    let mut world = settled_at("1");
    assert_eq!(world.state.validation_rule, ValidationRule::EveryExecutable);
    // A journal of an older agent does not contain this field.
    let mut journal = serde_json::to_value(&world.state).unwrap();
    journal.as_object_mut().unwrap().remove("validation_rule");
    world.state = serde_json::from_value(journal).unwrap();
    assert_eq!(world.state.validation_rule, ValidationRule::RunPartsNames);
    world.pass(Duration::from_secs(3600));
    world.reboot();
    world.settle();
    assert_eq!(world.state.validation_rule, ValidationRule::RunPartsNames);
    assert_eq!(world.published.listing, Some(version("1")));
    world.trigger("2");
    world.settle();
    assert_eq!(world.state.validation_rule, ValidationRule::EveryExecutable);
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
    assert!(world.state.proof_holds);
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
fn claims_and_outcome_wait_while_they_cannot_be_recorded_and_that_is_said() {
    let mut world = settled_at("1");
    world.fails("packages", 75);
    world.trigger("2");
    world.settle();
    held_for_a_minute(&mut world);
    world.works("packages");
    world.pass(Duration::from_secs(16));
    assert_eq!(world.published.listing, Some(version("2")));
    world.state.hold = None;
    let progress = HostProgress::new(ProgressState::Proven, world.now.wall);
    let order = world.state.observed_instruction.expect("an instruction");
    world.state.rollout_progress =
        Some(RolloutProgress { order, progress, is_written: false, has_ended: false });
    world.state.report_times.clear();
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
    let obstacle = Obstacle::Full { limit, max: 1, used: 1, holders: Vec::new() };
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
fn what_has_begun_finishes_while_the_store_is_away_and_its_announcement_waits() {
    let mut world = settled_at("1");
    world.trigger("2");
    while world.state.in_progress_version.is_none() {
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
    while world.state.in_progress_version.is_none() {
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
    while world.state.in_progress_version.is_none() {
        assert!(world.act());
    }
    let began = world.now;
    begin(&mut world, StepPhase::Apply, "packages");
    while world.act() {}
    // Else the report waits for its turn.
    world.state.report_times.clear();
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
    world.state.running_since = None;
    check(&world, 10, true);

    let mut world = settled_at("1");
    begin(&mut world, StepPhase::Validate, "http");
    wait(&mut world, 20);
    assert_eq!(world.decide().report.running_step, None);
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
fn a_host_whose_journal_is_lost_validates_what_its_file_says() {
    let mut world = World::new();
    world.file = VersionFile::Content(Some(version("1")));
    world.state.installed = Some(version("1"));
    world.trigger("1");
    world.settle();
    assert_eq!((world.runs("http"), world.runs("packages")), (1, 0));
    assert_eq!(world.published.listing, Some(version("1")));
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

#[test]
fn a_window_holds_no_host_that_is_disturbed() {
    let mut world = settled_at("1");
    world.trigger("2");
    while world.state.in_progress_version.is_none() {
        assert!(world.act());
    }
    world.policy.spread_window = Duration::from_secs(100_000);
    world.trigger("3");
    world.settle();
    assert_eq!(world.published.listing, Some(version("3")));
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
fn a_retry_request_in_a_store_that_is_not_trusted_is_ignored() {
    let mut world = settled_at("1");
    world.store_trust = StoreTrust::WentBack { by: WentBack::IdentityMissing };
    world.retry = Some(InstructionOrder { epoch: 0, revision: 1_000_000 });
    world.settle();
    assert_eq!(world.state.observed_retry, None);
}

/// A need of one functional `db`, for a phase or one of its steps.
fn need(phase: StepPhase, step: Option<&str>) -> Wait {
    Wait {
        service: schema::names::ServiceName::new("db").unwrap(),
        level: schema::health::Level::Functional,
        need: 1,
        have: 0,
        phase,
        step: step.map(|name| StepName::new(name).unwrap()),
        unreachable: false,
    }
}

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
    assert_eq!(world.state.converged.seen, Some(11), "the last one is never missed");
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
        world.state.converge_held = Some(StepName::new("render").unwrap());
        world.pass(Duration::from_secs(1));
    }
    let written = world.revision - before;
    assert!(written <= 10 + 2, "{written} reports in two minutes");
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
        prop_assert_eq!(world.state.converged.seen, world.services_seen);
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
