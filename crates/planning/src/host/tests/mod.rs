//! Tests of decisions, by subject. This file is long because it has the simulated host that all of them drive, and what
//! several of them need.

mod attempts;
mod budget;
mod claims;
mod histories;
mod instructions;
mod interruptions;
mod reports;
mod services;
mod updates;

use super::*;
use crate::host::{Leftovers, SiteConfig, Step, Steps};
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

fn policy() -> SiteConfig {
    SiteConfig {
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
    policy: SiteConfig,
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
        let mut state = self.state.clone();
        let (desired, problems) = (self.desired(), HostProblems::default());
        let advanced = advance(&mut state, &desired, &self.observed(&problems), self.now, 0.5);
        self.state = state;
        advanced.decision
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
                .reporting
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

/// What the attempt has done since its start.
fn disruption(world: &mut World) -> &mut Disruption {
    world.state.attempt.as_mut().and_then(Attempt::disruption_mut).expect("an attempt that started")
}

/// Makes the attempt one that has `within` from its start.
fn limited(world: &mut World, within: Duration) {
    let at = world.now.boot.plus(within);
    disruption(world).deadline = Some(Deadline { at, within: Span(within) });
}

/// What the host has written or is about to write about its failure: its kind, whether it is healed, and
/// whether the store knows.
fn counted(world: &World) -> Option<(FailureKind, bool, bool)> {
    let failure = world.state.rollout.counted_failure.as_ref()?;
    Some((failure.failed.kind, failure.failed.healed, failure.is_written))
}

/// Makes the attempt one of a rollout with a failure budget.
fn budgeted(world: &mut World) {
    disruption(world).charge_for = Some(Span(Duration::from_secs(3600)));
}
