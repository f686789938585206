//! What a host of the model does between two writes that others can see.

use crate::laws::{Intent, Writer, check_file};
use crate::machine::Run;
use crate::model::{Boundaries, Killed, Model, ModelHost, Setting};
use crate::violation::Violation;
use planning::host::{
    BrakesMemory, Claim, Decision, Desired, Fact, HostProblems, HostState, KnownStore, Observed, RunningStep,
    StepReport, StoreWrite, VersionFile, advance, store_view,
};
use schema::followed::FollowedKeys;
use schema::names::Token;
use schema::plan::{Action, Effect};
use schema::records::MachineInfo;
use schema::steps::{StepEnd, StepPhase};
use schema::store_trust::StoreTrust;
use schema::why_not::WhyNot;
use schema::writes::host::{ExpectedKeys, Outcome};
use std::rc::Rc;

/// Deadlines are not spread: time stands still.
const JITTER: f64 = 0.5;

impl Model {
    /// Lets a host go on until it has written something that others can see, or has nothing to do.
    pub(crate) fn go(
        &mut self,
        setting: &Setting,
        number: usize,
        fails: bool,
        killed_at: Option<u32>,
    ) -> Result<(u32, bool), Violation> {
        let mut host = (*self.hosts[number]).clone();
        let Some(mut state) = host.machine.disk.journal.clone() else { return Ok((0, false)) };
        let boundaries = Boundaries { passed: 0, killed_at };
        let mut going = Going { setting, number, fails, applies: false, boundaries };
        let is_killed = going.run(self, &mut host, &mut state)?.is_err();
        let Going { applies, boundaries, .. } = going;
        if is_killed {
            (host.brakes, host.seen) = (BrakesMemory::default(), None);
        }
        host.digest.set(None);
        self.hosts[number] = Rc::new(host);
        Ok((boundaries.passed, applies))
    }
}

/// A host on its way to its next write.
struct Going<'a> {
    setting: &'a Setting,
    number: usize,
    /// True if the apply step fails.
    fails: bool,
    /// True if it met an apply step.
    applies: bool,
    boundaries: Boundaries,
}

type Passed<T = ()> = Result<Result<T, Killed>, Violation>;

/// Returns early if the agent was killed.
macro_rules! alive {
    ($passed:expr) => {
        match $passed {
            Ok(value) => value,
            Err(killed) => return Ok(Err(killed)),
        }
    };
}

impl Going<'_> {
    /// Goes on. The agent is killed at the given boundary.
    fn run(&mut self, model: &mut Model, host: &mut ModelHost, state: &mut HostState) -> Passed {
        // A step that was cut off when the agent was killed.
        if let Some(RunningStep { phase, step, .. }) = state.steps.running().cloned() {
            let end = StepEnd::Interrupted;
            self.record(
                state,
                Fact::StepEnded(StepReport { phase, step, end, log: Vec::new(), cause: None }),
            );
        }
        let Some(seen) = host.seen.clone() else { return Ok(Ok(())) };
        loop {
            let followed = host.followed(&model.store, &seen, state);
            host.brakes.follow(state);
            let mut decision = self.decide(host, state, &followed);
            if let Some(mutation) = self.setting.mutation {
                mutation.plan(&mut decision.plan);
            }
            let effect = match decision.plan.actions.first().map(|planned| &planned.action) {
                Some(Action::Do(effect)) => effect.clone(),
                _ => {
                    alive!(self.save(host, state));
                    return Ok(Ok(()));
                }
            };
            match effect {
                Effect::RunStep { phase, step } => {
                    let run_id = Token::new("run").unwrap_or_else(|_| unreachable!("a token"));
                    let running = RunningStep { run_id: run_id.clone(), phase, step: step.clone() };
                    self.record(state, Fact::StepStarted(running));
                    alive!(self.save(host, state));
                    model.laws.step_begins(self.number, &host.machine.host, phase)?;
                    let is_apply = phase == StepPhase::Apply;
                    self.applies |= is_apply;
                    let end = StepEnd::Exited { code: i32::from(is_apply && self.fails) };
                    let version = state.subject().cloned();
                    let run = Run { phase, step: step.clone(), version, ends_with: end.clone(), end: None };
                    host.machine.begin_run(run_id.clone(), run);
                    alive!(self.boundaries.pass());
                    host.machine.end_run(&run_id);
                    host.machine.disk.runs.clear();
                    self.record(
                        state,
                        Fact::StepEnded(StepReport { phase, step, end, log: Vec::new(), cause: None }),
                    );
                }
                Effect::WriteVersionFile { version } => {
                    alive!(self.save(host, state));
                    check_file(&host.machine, &version)?;
                    host.machine.disk.version_file = Some(version);
                    alive!(self.boundaries.pass());
                }
                effect => {
                    alive!(self.save(host, state));
                    // Nobody reads a report.
                    let is_seen =
                        effect != Effect::Report || decision.claims.is_some() || state.must_write_outcome();
                    let written = alive!(self.write(model, host, state, &followed, &decision, effect)?);
                    if is_seen || !written {
                        alive!(self.save(host, state));
                        return Ok(Ok(()));
                    }
                }
            }
        }
    }

    fn record(&self, state: &mut HostState, fact: Fact) {
        state.record(fact, &self.setting.policy, self.setting.now, JITTER);
        // Time stands still, so there is no burst of reports.
        state.reporting.report_times.clear();
    }

    fn save(&mut self, host: &mut ModelHost, state: &HostState) -> Result<(), Killed> {
        if host.machine.disk.journal.as_ref() != Some(state) {
            self.boundaries.pass()?;
            host.machine.disk.journal = Some(state.clone());
            self.boundaries.pass()?;
        }
        Ok(())
    }

    fn decide(&self, host: &ModelHost, state: &mut HostState, followed: &FollowedKeys) -> Decision {
        let (facts, problems) = (MachineInfo::default(), HostProblems::default());
        let instance = host.instance();
        let name = &host.machine.host;
        let observed = Observed {
            store_trust: StoreTrust::Trusted,
            store_ready: true,
            claim: Claim::Held,
            decommissioned: false,
            version_file: VersionFile::Content(host.machine.disk.version_file.clone()),
            cannot_record: None,
            settings_untrusted: None,
            marked_at: store_view::marked_at(followed),
            brakes: host.brakes.known(),
            bad_roster: None,
            instance: &instance,
            live_lease: host.held.0,
            commands: Default::default(),
            published: store_view::published(followed, name, None, host.held.1),
            facts: &facts,
            waits: &[],
            services_seen: None,
            addressable: None,
            problems: &problems,
            write_id: host.write_id(),
        };
        let epoch = state.store.as_ref().map_or(0, |store| store.epoch);
        let desired = Desired {
            target: store_view::target(followed, epoch),
            target_since: self.setting.now.boot,
            retry: None,
            policy: &self.setting.policy,
        };
        advance(state, &desired, &observed, self.setting.now, JITTER).decision
    }

    /// Commits the write of an effect. Returns true if it was applied.
    fn write(
        &mut self,
        model: &mut Model,
        host: &mut ModelHost,
        state: &mut HostState,
        followed: &FollowedKeys,
        decision: &Decision,
        effect: Effect,
    ) -> Passed<bool> {
        let trust = StoreTrust::Trusted;
        let published = store_view::published(followed, &host.machine.host, None, host.held.1);
        let known = KnownStore { published, trust: &trust, followed, brakes: host.brakes.known() };
        let at = self.setting.now.wall;
        let Some(write) = StoreWrite::of_effect(&effect, state, decision, known, at) else {
            return Ok(Ok(false));
        };
        let fence = host.fence(&model.store);
        let starts = match &effect {
            Effect::CommitStart { instruction } => Some(instruction.version.clone()),
            _ => None,
        };
        let writer = Writer::Host(self.number, Intent { starts, ..host.intent() });
        let mut expected: ExpectedKeys = write.expected();
        // The second time the keys are as found.
        for _ in 0..2 {
            let content = write.content(state, fence);
            let transaction = content.transaction(&expected);
            // The laws look at the machines as they are now.
            model.hosts[self.number] = Rc::new(host.clone());
            let Some(committed) = model.commit(self.setting, transaction, &writer)? else {
                return Ok(Ok(false));
            };
            if committed.applied {
                host.parity = !host.parity;
                alive!(self.boundaries.pass());
                let revision = model.store.revision();
                if write.applied(state, revision).is_ok() {
                    self.record(state, Fact::ReportWritten);
                    if let Effect::CommitStart { .. } = effect {
                        self.record(state, decision.started());
                    }
                }
                return Ok(Ok(true));
            }
            match content.refused(&expected, &committed.found) {
                Outcome::Frozen(by) => {
                    host.brakes.refuse(
                        state,
                        WhyNot::Frozen(by),
                        committed.found.revision,
                        self.setting.now.boot,
                    );
                }
                Outcome::HeldBack => {
                    host.brakes.refuse(
                        state,
                        WhyNot::NotRead,
                        committed.found.revision,
                        self.setting.now.boot,
                    );
                }
                Outcome::Repeat(found) => {
                    expected = found;
                    continue;
                }
                Outcome::Applied(_) | Outcome::Refused(_) => {}
            }
            return Ok(Ok(false));
        }
        Ok(Ok(false))
    }
}
