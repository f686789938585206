//! The agent of a machine: the loop of the host around the real `advance` and `reassess`. `writing` has
//! its transactions, `mirroring` the keys that it follows, `claiming` the claim of its name.
//!
//! This file is long because it follows the loop of the real agent, which is read as a whole.

use crate::claim::Claim;
use crate::ending::Ending;
use crate::event::{Answer, Call, Event, Sender, Task};
use crate::laws::{Intent, check_file};
use crate::machine::Run;
use crate::mutation::Life;
use crate::store::Change;
use crate::violation::Violation;
use crate::world::World;
use planning::host::{
    BrakesMemory, Decision, Desired, Fact, HostProblems, HostState, Observed, Published, RunningStep,
    SiteConfig, StepReport, StoreWrite, Target, VersionFile, advance, reassess, store_view,
};
use planning::rollout::Holders;
use schema::followed::{FollowedKeys, Scope};
use schema::names::{HostName, StepName, Token};
use schema::plan::{Action, AttemptCause, Effect};
use schema::records::{LiveClaim, MachineInfo, RosterEntry, STORE_FORMAT, StoreIdentity};
use schema::snapshot::KeySnapshot;
use schema::steps::StepPhase;
use schema::store_marks::Marks;
use schema::store_trust::StoreTrust;
use schema::time::{Backoff, BootMillis};
use schema::writes::Fence;
use schema::writes::claim::create_identity;
use schema::writes::host::ExpectedKeys;
use std::time::Duration;

/// Why an agent stops in the middle of what it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Interrupt {
    /// The process was killed.
    Killed,
    /// A law was broken.
    Broken(Violation),
}

impl From<Violation> for Interrupt {
    fn from(violation: Violation) -> Self {
        Self::Broken(violation)
    }
}

pub(crate) type Step<T = ()> = Result<T, Interrupt>;

/// A write of the loop whose answer is awaited.
pub(crate) struct PendingWrite {
    pub(crate) write: StoreWrite,
    pub(crate) effect: Effect,
    /// The fact if it is a start that is committed.
    pub(crate) started: Fact,
    pub(crate) fence: Fence,
    pub(crate) expected: ExpectedKeys,
    /// What the agent knew when it decided to write. A repetition writes the same.
    pub(crate) intent: Intent,
    /// When the loop gives the write up.
    pub(crate) deadline: u64,
    /// True while the keys are read back after a lost answer.
    pub(crate) reads_back: bool,
}

/// What the loop waits for.
pub(crate) enum Pending {
    Write(Box<PendingWrite>),
    /// The identity of the store is being created.
    Identity,
}

/// What the task of the rollout waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RolloutTask {
    Idle,
    Reads,
    BeginsRecord,
    ReadsRoster,
    WritesRecord,
    ReadsHolders(Holders),
    /// The lease of a lost host's timer is granted.
    GrantsTimer(HostName, KeySnapshot),
    ChangesHolder,
}

/// A read of the mirror whose answer is awaited.
pub(crate) struct PendingRead {
    pub(crate) sender: Sender,
    pub(crate) marks: Marks,
    /// True if the first read was behind an earlier answer.
    pub(crate) is_second: bool,
    pub(crate) scope: Scope,
}

pub(crate) struct Agent {
    pub(crate) process: u64,
    pub(crate) machine: usize,
    pub(crate) state: HostState,
    pub(crate) instance: Token,
    pub(crate) life: Life,
    pub(crate) unsaved: bool,
    pub(crate) policy: SiteConfig,
    pub(crate) followed: FollowedKeys,
    pub(crate) marks: Marks,
    pub(crate) is_connected: bool,
    pub(crate) written: Option<(i64, Published)>,
    pub(crate) trust: StoreTrust,
    pub(crate) target: Target,
    pub(crate) target_since: BootMillis,
    pub(crate) failures: u32,
    pub(crate) retry_at: BootMillis,
    pub(crate) claim: Claim,
    pub(crate) facts: MachineInfo,
    pub(crate) brakes: BrakesMemory,
    pub(crate) rollout_task: RolloutTask,
    /// Number of the request whose answer that task awaits.
    pub(crate) rollout_request: u64,
    /// The marks when it was sent.
    pub(crate) rollout_marks: Marks,
    pub(crate) rollout_timer: u64,
    /// True if what the agent watches of its rollout changed while that task did something.
    pub(crate) rollout_news: bool,
    pub(crate) ending: Ending,
    /// Since when the record of the rollout has been missing.
    pub(crate) lacks_record_since: Option<u64>,
    pub(crate) pending: Option<(Sender, Pending)>,
    pub(crate) timer: u64,
    pub(crate) read: Option<PendingRead>,
    /// Changes that reached the watch during a read. The mirror does one thing after the other.
    pub(crate) unseen: Vec<Change>,
    /// True if another read was requested meanwhile.
    pub(crate) reads_again: bool,
    pub(crate) mirror_timer: u64,
    pub(crate) mirror_failures: u32,
}

/// The delays of `etcd_session::pace`.
pub(crate) fn write_backoff() -> Backoff {
    Backoff::new(Duration::from_millis(200), Duration::from_secs(30))
}

pub(crate) fn watch_backoff() -> Backoff {
    Backoff::new(Duration::from_millis(200), Duration::from_secs(45))
}

impl Agent {
    /// Starts an agent on a machine.
    pub(crate) fn start(world: &mut World, machine: usize) -> Self {
        let process = world.number();
        let found = &world.machines[machine];
        let (boot_id, fresh) = (found.boot_id(), |is_disturbed: bool| {
            let installed = HostState::installed_by_file(found.disk.version_file.clone(), is_disturbed);
            HostState::new(found.host.clone(), found.machine_id.clone(), found.boot_id(), installed)
        });
        let (state, is_cloned) = match &found.disk.journal {
            Some(journal) if journal.machine_id != found.machine_id => (fresh(journal.is_disturbed()), true),
            Some(journal) if journal.boot_id != boot_id => {
                let mut state = journal.clone();
                state.rebooted(boot_id.clone());
                if let Some(mutation) = world.mutation {
                    mutation.rebooted(&mut state);
                }
                (state, false)
            }
            Some(journal) => (journal.clone(), false),
            None => (fresh(false), false),
        };
        let life = match &found.disk.journal {
            Some(journal) if journal.machine_id != found.machine_id => Life::New,
            Some(journal) if journal.boot_id != boot_id => Life::Rebooted,
            Some(_) => Life::Restarted,
            None => Life::New,
        };
        let kept = if is_cloned { None } else { found.disk.instance.clone() };
        let instance = kept.unwrap_or_else(|| world.token("i"));
        world.machines[machine].disk.instance = Some(instance.clone());
        let mut marks = Marks::default();
        match &state.store {
            Some(memory) if memory.went_back.is_some() => marks.begin_history(0, 0),
            Some(memory) => marks.raise(memory.revision, memory.raft_term),
            None => {}
        }
        let target_since = world.clock(machine).boot;
        Self {
            process,
            machine,
            state,
            instance,
            life,
            unsaved: true,
            policy: world.scenario.policy.clone(),
            followed: FollowedKeys::default(),
            marks,
            is_connected: false,
            written: None,
            trust: StoreTrust::Unread,
            target: Target::Unread,
            target_since,
            failures: 0,
            retry_at: BootMillis(0),
            claim: Claim::default(),
            facts: MachineInfo::default(),
            brakes: BrakesMemory::default(),
            rollout_task: RolloutTask::Idle,
            rollout_request: 0,
            rollout_marks: Marks::default(),
            rollout_timer: 0,
            rollout_news: false,
            ending: Ending::default(),
            lacks_record_since: None,
            pending: None,
            timer: 0,
            read: None,
            unseen: Vec::new(),
            reads_again: false,
            mirror_timer: 0,
            mirror_failures: 0,
        }
    }

    /// Does what a new process does first.
    pub(crate) fn begin(&mut self, world: &mut World) -> Step {
        self.take_ended_run(world);
        self.read_keys(world, false);
        self.run(world)
    }

    /// Takes the result of the running step, if it has ended.
    pub(crate) fn take_ended_run(&mut self, world: &mut World) {
        let Some(running) = self.state.steps.running().cloned() else { return };
        let disk = &world.machines[self.machine].disk;
        let end = match disk.runs.get(&running.run_id) {
            Some(run) => match &run.end {
                Some(end) => end.clone(),
                None => return,
            },
            // The runner was never started.
            None => schema::steps::StepEnd::Interrupted,
        };
        world.note(|| format!("{}: {} step {} {end}", self.state.host, running.phase, running.step));
        let RunningStep { phase, step, .. } = running;
        self.record(world, Fact::StepEnded(StepReport { phase, step, end, log: Vec::new(), cause: None }));
    }

    pub(crate) fn record(&mut self, world: &mut World, fact: Fact) {
        let jitter = world.rng.f64();
        self.state.record(fact, &self.policy, world.clock(self.machine), jitter);
        self.unsaved = true;
    }

    /// A boundary at which the process may be killed.
    pub(crate) fn boundary(&self, world: &mut World) -> Step {
        if world.now < world.scenario.heals_at && world.chance(world.scenario.crashes) {
            world.note(|| format!("{}: killed", self.state.host));
            return Err(Interrupt::Killed);
        }
        Ok(())
    }

    pub(crate) fn save(&mut self, world: &mut World) -> Step {
        if self.unsaved {
            self.boundary(world)?;
            world.machines[self.machine].disk.journal = Some(self.state.clone());
            self.unsaved = false;
            self.boundary(world)?;
        }
        Ok(())
    }

    /// Runs passes until there is nothing to do now, or an answer of the store is awaited.
    pub(crate) fn run(&mut self, world: &mut World) -> Step {
        while self.pending.is_none() {
            self.observe_store(world)?;
            if self.pending.is_some() {
                return Ok(());
            }
            let mut decision = self.decide(world);
            if let Some(mutation) = world.mutation {
                mutation.plan(&mut decision.plan);
            }
            let effect = match decision.plan.actions.first().map(|planned| &planned.action) {
                Some(Action::Do(effect)) => Some(effect.clone()),
                _ => None,
            };
            match effect {
                Some(Effect::RunStep { phase, step }) => self.run_step(world, phase, &step)?,
                Some(Effect::WriteVersionFile { version }) => {
                    self.save(world)?;
                    world.note(|| format!("{}: the version file says {version}", self.state.host));
                    check_file(&world.machines[self.machine], &version)?;
                    world.machines[self.machine].disk.version_file = Some(version);
                    self.boundary(world)?;
                    continue;
                }
                Some(effect) => {
                    self.write(world, &decision, effect)?;
                    continue;
                }
                None => {}
            }
            self.save(world)?;
            let times = [decision.plan.requeue_at, Some(self.retry_at)];
            let now = world.clock(self.machine).boot;
            if let Some(at) = times.into_iter().flatten().filter(|at| *at > now).min() {
                self.timer = world.number();
                let (machine, process, timer) = (self.machine, self.process, self.timer);
                let delay = at.since(now).as_millis().max(1) as u64;
                world.after(delay, Event::Due { machine, process, task: Task::Loop, timer });
            }
            return Ok(());
        }
        Ok(())
    }

    /// Assesses the store and notes the target.
    pub(crate) fn observe_store(&mut self, world: &mut World) -> Step {
        if self.followed.reads == 0 {
            return Ok(());
        }
        let host = self.state.host.clone();
        let memory = self.state.store.as_ref();
        let seen = store_view::seen(&self.followed, &host, memory, self.marks.history);
        let decommissioned = store_view::decommissioned(&self.followed, &host);
        let change = reassess(memory, &seen, (self.marks.revision, self.marks.raft_term), decommissioned);
        if change.trust != self.trust {
            world.note(|| format!("{host}: the store is {:?}", change.trust));
        }
        if let Some((revision, raft_term)) = change.new_history {
            self.marks.begin_history(revision, raft_term);
            self.brakes.forget();
        }
        if change.resyncs {
            self.request_read(world);
        }
        self.state.store = change.memory;
        self.unsaved |= change.must_record;
        if change.forgets_write {
            self.written = None;
        }
        self.trust = change.trust;
        if change.claims_store && world.clock(self.machine).boot >= self.retry_at {
            let identity = StoreIdentity::new(world.token("lineage"), 0);
            let transaction = create_identity(&identity);
            let sender = self.commit(world, Task::Loop, transaction, self.intent(world));
            self.pending = Some((sender, Pending::Identity));
            return Ok(());
        }
        self.follow_gate(world)?;
        self.brakes.follow(&self.state);
        let claims = || store_view::claims(&self.followed, &self.state.host, self.written.as_ref());
        if self.brakes.queued(claims) {
            self.rollout_news = true;
            self.rollout_answered(world);
        }
        let target = store_view::target(&self.followed, self.epoch());
        if target != self.target {
            self.target = target;
            self.target_since = world.clock(self.machine).boot;
        }
        self.follow_end(world);
        Ok(())
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.state.store.as_ref().map_or(0, |store| store.epoch)
    }

    /// True if the agent could write to its store now. A decommissioned host writes nothing.
    pub(crate) fn can_write(&self, world: &World) -> bool {
        let is_due = world.clock(self.machine).boot >= self.retry_at;
        let is_member = !store_view::decommissioned(&self.followed, &self.state.host);
        let is_ready = self.trust == StoreTrust::Trusted && self.is_connected && is_due;
        is_ready && is_member && self.claim.held().is_some()
    }

    /// True if an answer comes from the store that the host has judged, so that a task may write by what it read.
    /// The marks are those of when it asked. The agent does the same in `Session::read_judged`.
    pub(crate) fn is_of_judged(&mut self, marks: Marks, answer: &Answer) -> bool {
        let Answer::Read(found) = answer else { return true };
        self.marks.raise(found.revision, found.raft_term);
        marks.history == self.marks.history && marks.regress(found).is_none()
    }

    /// True if the store belongs to another fleet.
    pub(crate) fn is_in_other_store(&self) -> bool {
        matches!(self.trust, StoreTrust::OtherLineage { .. })
    }

    /// True if the claim may be written.
    pub(crate) fn may_claim(&self) -> bool {
        matches!(self.trust, StoreTrust::Trusted | StoreTrust::WentBack { .. })
    }

    /// Returns what the agent knows now.
    pub(crate) fn intent(&self, world: &World) -> Intent {
        let validated = world.machines[self.machine].truth.validated.clone();
        let attempt = self.state.attempt.as_ref();
        let is_under_way = self.state.is_under_way();
        let is_repair = attempt.is_some_and(|attempt| attempt.cause == AttemptCause::Repair);
        Intent { instance: self.instance.clone(), starts: None, validated, is_under_way, is_repair }
    }

    pub(crate) fn commit(
        &self,
        world: &mut World,
        task: Task,
        transaction: schema::transaction::Transaction,
        intent: Intent,
    ) -> Sender {
        let call = Call::Commit { transaction, intent };
        world.send(self.machine, self.process, task, call)
    }

    pub(crate) fn decide(&mut self, world: &mut World) -> Decision {
        let now = world.clock(self.machine);
        let held = self.claim.held();
        let published = held.and_then(|(_, live_revision)| {
            store_view::published(&self.followed, &self.state.host, self.written.as_ref(), live_revision)
        });
        if held.is_some() && published.is_none() && self.is_connected {
            self.request_read(world);
        }
        let version_file = VersionFile::Content(world.machines[self.machine].disk.version_file.clone());
        let went_back = matches!(self.trust, StoreTrust::WentBack { .. });
        let problems = HostProblems::default();
        let observed = Observed {
            store_trust: self.trust.clone(),
            store_ready: (self.is_connected || went_back) && now.boot >= self.retry_at,
            claim: self.claim.seen(&self.live_claim(world)),
            decommissioned: store_view::decommissioned(&self.followed, &self.state.host),
            version_file,
            cannot_record: None,
            settings_untrusted: None,
            marked_at: store_view::marked_at(&self.followed),
            brakes: self.brakes.known(),
            bad_roster: store_view::bad_roster(&self.followed, &self.state.host),
            instance: &self.instance,
            live_lease: held.map_or(0, |(lease, _)| lease),
            commands: Default::default(),
            published,
            facts: &self.facts,
            waits: &[],
            services_seen: None,
            addressable: None,
            problems: &problems,
            write_id: world.token("w"),
        };
        let epoch = self.epoch();
        let desired = Desired {
            target: self.target.clone(),
            target_since: self.target_since,
            retry: store_view::retry(&self.followed, &self.state.host, epoch),
            policy: &self.policy,
        };
        let jitter = world.rng.f64();
        let advanced = advance(&mut self.state, &desired, &observed, now, jitter);
        for planned in &advanced.recorded {
            self.unsaved = true;
            world.note(|| format!("{}: {}, because {}", self.state.host, planned.action, planned.because));
        }
        advanced.decision
    }

    /// Returns the claim of this agent.
    pub(crate) fn live_claim(&self, world: &World) -> LiveClaim {
        let machine = &world.machines[self.machine];
        LiveClaim {
            instance: self.instance.clone(),
            machine_id: machine.machine_id.clone(),
            boot_id: machine.boot_id(),
            addresses: Vec::new(),
            agent_version: String::new(),
            driver: self.policy.driver,
            store_format: if machine.is_older { 1 } else { STORE_FORMAT },
        }
    }

    pub(crate) fn roster_entry(&self, world: &World) -> RosterEntry {
        RosterEntry { since: world.wall(), ..RosterEntry::default() }
    }

    pub(crate) fn run_step(&mut self, world: &mut World, phase: StepPhase, step: &StepName) -> Step {
        let run_id = world.token("run");
        self.record(
            world,
            Fact::StepStarted(RunningStep { run_id: run_id.clone(), phase, step: step.clone() }),
        );
        self.save(world)?;
        let attempt = self.state.attempt.as_ref();
        let version = match phase {
            StepPhase::Prefetch | StepPhase::OnSuspect => attempt.map(|a| &a.instruction.version),
            StepPhase::Apply | StepPhase::Converge | StepPhase::Validate => self.state.subject(),
        };
        let version = version.cloned();
        world.note(|| {
            let of = version.as_ref().map_or("no version", |version| version.as_str());
            format!("{}: {phase} step {step} of {of} begins", self.state.host)
        });
        world.laws.step_begins(self.machine, &self.state.host, phase)?;
        let (host, now) = (self.machine, world.now);
        let has_fallen = world.machines[host].fell_by(version.as_ref());
        let World { scenario, rng, .. } = world;
        let (millis, end) = scenario.run_of(rng, host, now, has_fallen, phase, version.as_ref());
        let run = Run { phase, step: step.clone(), version, ends_with: end, end: None };
        let boot = world.machines[host].boot;
        world.machines[host].begin_run(run_id.clone(), run);
        world.after(millis, Event::StepEnds { machine: host, boot, run: run_id });
        self.boundary(world)
    }

    /// A time that a task waits for has come.
    pub(crate) fn due(&mut self, world: &mut World, task: Task, timer: u64) -> Step {
        match task {
            Task::Loop if timer == self.timer => self.run(world),
            Task::Mirror if timer == self.mirror_timer && self.read.is_none() => {
                self.read_keys(world, false);
                Ok(())
            }
            Task::Claim => self.claim_due(world, timer),
            Task::Rollout if timer == self.rollout_timer => {
                self.read_rollout(world);
                Ok(())
            }
            Task::End if timer == self.ending.timer => {
                self.look_for_end(world);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
