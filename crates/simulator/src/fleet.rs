//! A simulated fleet: it delivers events to agents and carries out the incidents of its scenario.

use crate::agent::{Agent, Interrupt, Step};
use crate::event::{Event, Task};
use crate::laws::{Writer, check_settled};
use crate::machine::{Machine, Truth};
use crate::mutation::Mutation;
use crate::scenario::Scenario;
use crate::store::Store;
use crate::summary::Summary;
use crate::violation::Violation;
use crate::world::World;
use planning::rollout::failed_hosts;
use schema::instruction::Instruction;
use schema::keys::{Key, Prefix};
use schema::names::{HostName, Version};
use schema::snapshot::KeySnapshot;

/// Time that a fleet has to settle when all faults have ended, in milliseconds.
const SETTLES_WITHIN: u64 = 30 * 60_000;
/// The same if nobody triggers anything: a suspect host tries again after an hour, or after two.
const SETTLES_ALONE_WITHIN: u64 = 24 * 60 * 60_000;

/// Longest time that an operator's transaction takes to the store, in milliseconds.
pub(crate) const OPERATOR_MILLIS: u64 = 500;

/// Interval at which the laws about time are checked, in milliseconds.
pub(crate) const LOOK_MILLIS: u64 = 15_000;

pub(crate) struct Fleet {
    pub(crate) world: World,
    /// The agent of each machine; `None` while none runs.
    pub(crate) agents: Vec<Option<Agent>>,
    /// Number of machines that are no copies.
    pub(crate) originals: usize,
    pub(crate) backup: Option<Store>,
    pub(crate) final_version: Version,
    /// The machine that never starts again after the faults have ended.
    pub(crate) dead: Option<usize>,
    /// True if the fleet settles without a new instruction after the faults have ended.
    pub(crate) settles_alone: bool,
    /// The contents of the store that a script wanted to keep.
    pub(crate) looks: Vec<KeySnapshot>,
}

impl Fleet {
    /// Creates the fleet of a seed.
    pub(crate) fn new(seed: u64, mutation: Option<&'static Mutation>, traces: bool) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let scenario = Scenario::of_seed(seed, &mut rng);
        let (hosts, heals_at) = (scenario.hosts, scenario.heals_at);
        let times: Vec<u64> = scenario.incidents.iter().map(|(at, _)| *at).collect();
        let mut world = World::new(scenario, rng, mutation, traces);
        for number in 0..hosts {
            let name = format!("h{number}");
            let host = HostName::new(&name).unwrap_or_else(|_| unreachable!("{name} is a host name"));
            let truth = Truth::new(world.scenario.apply_steps());
            world.add_machine(Machine::new(host, format!("m{number}"), truth, 0));
            let starts = world.rng.u64(0..10_000);
            world.at(starts, Event::AgentStarts { machine: number });
        }
        for (number, at) in times.into_iter().enumerate() {
            world.at(at, Event::Scripted(number));
        }
        world.at(heals_at, Event::Heals);
        world.at(LOOK_MILLIS, Event::LawsLook);
        let final_version = Version::new("final").unwrap_or_else(|_| unreachable!("a version"));
        Self::of_world(world, final_version)
    }

    /// Creates the fleet of these machines. No agent runs yet.
    pub(crate) fn of_world(world: World, final_version: Version) -> Self {
        let originals = world.machines.len();
        let agents = (0..originals).map(|_| None).collect();
        let (backup, dead, settles_alone, looks) = (None, None, false, Vec::new());
        Self { world, agents, originals, backup, final_version, dead, settles_alone, looks }
    }

    /// Runs the simulation to its end.
    pub(crate) fn run(&mut self) -> Result<(), Violation> {
        let heals_at = self.world.scenario.heals_at;
        let mut next_look = heals_at + 1000;
        while let Some(event) = self.world.next() {
            self.handle(event)?;
            if self.world.now >= next_look {
                let within = if self.settles_alone { SETTLES_ALONE_WITHIN } else { SETTLES_WITHIN };
                let end = heals_at + within;
                match self.check_end() {
                    Ok(()) => return Ok(()),
                    Err(violation) if self.world.now >= end => return Err(violation),
                    Err(_) => next_look = self.world.now + 5_000,
                }
            }
        }
        self.check_end()
    }

    pub(crate) fn summary(&self) -> Summary {
        let laws = &self.world.laws;
        Summary {
            hosts: self.originals,
            revisions: laws.revisions,
            starts: laws.starts,
            with_claims: laws.limits.counted,
            lost: laws.limits.lost,
            halts: laws.limits.budgets.halts,
            ends: self.world.ends.ends,
            rollbacks: self.world.ends.rollbacks,
            stages: self.world.stages.opened,
        }
    }

    fn check_end(&self) -> Result<(), Violation> {
        let all = self.world.machines.iter().zip(&self.agents).take(self.originals).enumerate();
        for (_, (machine, agent)) in all.filter(|(number, _)| self.dead != Some(*number)) {
            let Some(agent) = agent else {
                return Err(Violation { law: "I4", what: format!("no agent runs on {}", machine.host) });
            };
            check_settled(&self.world.laws, machine, &agent.state, &self.final_version)?;
        }
        self.check_failures()?;
        self.check_rollout_ended()
    }

    /// R7: the rollout of a settled fleet ends, if a host started in it.
    fn check_rollout_ended(&self) -> Result<(), Violation> {
        let found = self.world.store.read(&[Key::Store, Key::CurrentVersion]);
        let Some(order) = Instruction::find(&found).map(|instruction| instruction.order) else {
            return Ok(());
        };
        // A host that is through looks for the end.
        let dead = self.dead.map(|machine| Key::Progress(order, self.world.machines[machine].host.clone()));
        let dead = dead.map(|key| key.to_string());
        let started = self.world.store.list(&Prefix::ProgressOf(order)).entries.into_keys();
        let has_started = started.into_iter().any(|key| Some(key) != dead);
        let has_ended = self.world.store.entry(&Key::Ended(order).to_string()).is_some();
        let has_record = self.world.store.entry(&Key::RolloutRecord(order).to_string()).is_some();
        if has_record && has_started && !has_ended {
            return Err(Violation { law: "R7", what: "the rollout of a settled fleet does not end".into() });
        }
        Ok(())
    }

    /// R3: a host that is proven does not count as failed.
    fn check_failures(&self) -> Result<(), Violation> {
        let found = self.world.store.read(&[Key::Store, Key::CurrentVersion]);
        let Some(order) = Instruction::find(&found).map(|instruction| instruction.order) else {
            return Ok(());
        };
        let found = self.world.store.list(&Prefix::FailedOf(order));
        let dead = self.dead.map(|machine| &self.world.machines[machine].host);
        match failed_hosts(order, 0, &found).find(|(host, _)| Some(host) != dead) {
            Some((host, _)) => {
                Err(Violation { law: "R3", what: format!("{host} is proven and counts as failed") })
            }
            None => Ok(()),
        }
    }

    pub(crate) fn handle(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Arrives { sender, call, answers } => self.world.execute(sender, call, answers)?,
            Event::Answers { sender, answer } => {
                // An answer on a connection that broke is lost.
                let is_lost = self.world.machines[sender.machine].link.connection != sender.connection;
                let answer = if is_lost { crate::event::Answer::Lost } else { answer };
                self.with_agent(sender.machine, sender.process, |agent, world| match sender.task {
                    Task::Loop => agent.loop_answer(world, sender, answer),
                    Task::Claim => agent.claim_answer(world, sender, answer),
                    Task::Mirror => agent.mirror_answer(world, sender, answer),
                    Task::Rollout => agent.rollout_answer(world, sender, answer),
                    Task::End => agent.end_answer(world, sender, answer),
                })?;
            }
            Event::Delivers { machine, process, connection, changes } => {
                if self.world.machines[machine].watch == Some((process, connection)) {
                    self.with_agent(machine, process, |agent, world| agent.watched(world, changes))?;
                }
            }
            Event::Breaks { machine, process, connection } => {
                if self.world.machines[machine].link.connection == connection {
                    self.with_agent(machine, process, |agent, world| agent.disconnected(world))?;
                }
            }
            Event::Due { machine, process, task, timer } => {
                self.with_agent(machine, process, |agent, world| agent.due(world, task, timer))?;
            }
            Event::StepEnds { machine, boot, run } => {
                let found = &mut self.world.machines[machine];
                if found.boot == boot && found.is_on && found.end_run(&run) {
                    self.world.let_fall(machine);
                    self.with_running_agent(machine, |agent, world| {
                        agent.take_ended_run(world);
                        agent.run(world)
                    })?;
                }
            }
            Event::LeasesEnd => self.world.end_leases()?,
            Event::AgentStarts { machine } => self.start_agent(machine)?,
            Event::Boots { machine } => {
                let now = self.world.now;
                if !self.world.machines[machine].is_on && self.dead != Some(machine) {
                    self.world.machines[machine].boot(now);
                    let starts = self.world.rng.u64(500..5_000);
                    self.world.after(starts, Event::AgentStarts { machine });
                }
            }
            Event::Falls { machine, boot, lasts } => {
                let found = &self.world.machines[machine];
                let heals_at = self.world.scenario.heals_at;
                if found.is_on && found.boot == boot && self.world.now < heals_at {
                    self.world.note(|| format!("-- the version of machine {machine} switches it off"));
                    self.power_off(machine, lasts);
                }
            }
            Event::LinkHeals { machine } => self.world.machines[machine].link.is_up = true,
            Event::Scripted(number) => {
                let incident = self.world.scenario.incidents[number].1.clone();
                // What operators do takes a moment, and the faults end before the last word of an operator.
                if self.world.now + OPERATOR_MILLIS < self.world.scenario.heals_at {
                    self.world.note(|| format!("-- {incident:?}"));
                    self.happen(incident)?;
                }
            }
            Event::OperatorCommits(transaction) => drop(self.world.commit(&transaction, &Writer::Operator)?),
            Event::OperatorResolves => self.resolve(),
            Event::LawsLook => self.look()?,
            Event::Heals => self.heal()?,
            Event::OperatorLooks => self.insist(),
            Event::RolloutChanged { machine, process, task } => {
                self.with_agent(machine, process, |agent, world| match task {
                    Task::End => agent.end_changed(world),
                    _ => agent.rollout_changed(world),
                })?;
            }
            Event::LooksAgain { machine, process } => {
                self.with_agent(machine, process, |agent, world| agent.looks_again(world))?;
            }
            Event::Acts(act) => {
                self.world.note(|| format!("-- {act:?}"));
                self.perform(*act)?;
            }
        }
        Ok(())
    }

    pub(crate) fn with_running_agent(
        &mut self,
        machine: usize,
        act: impl FnOnce(&mut Agent, &mut World) -> Step,
    ) -> Result<(), Violation> {
        let process = self.agents[machine].as_ref().map(|agent| agent.process);
        process.map_or(Ok(()), |process| self.with_agent(machine, process, act))
    }

    /// Lets an agent act, if this process still runs. If it is killed meanwhile, it starts again.
    pub(crate) fn with_agent(
        &mut self,
        machine: usize,
        process: u64,
        act: impl FnOnce(&mut Agent, &mut World) -> Step,
    ) -> Result<(), Violation> {
        let Some(agent) = self.agents[machine].as_mut().filter(|agent| agent.process == process) else {
            return Ok(());
        };
        match act(agent, &mut self.world) {
            Ok(()) => Ok(()),
            Err(Interrupt::Broken(violation)) => Err(violation),
            Err(Interrupt::Killed) => {
                let again = self.world.rng.u64(100..10_000);
                self.kill(machine, again);
                Ok(())
            }
        }
    }

    pub(crate) fn start_agent(&mut self, machine: usize) -> Result<(), Violation> {
        if self.agents[machine].is_some() || !self.world.machines[machine].is_on {
            return Ok(());
        }
        let agent = Agent::start(&mut self.world, machine);
        let process = agent.process;
        self.world.note(|| format!("{}: the agent of {machine} starts", agent.state.host));
        self.agents[machine] = Some(agent);
        self.with_agent(machine, process, |agent, world| agent.begin(world))
    }
}
