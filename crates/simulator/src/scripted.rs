//! Runs the fleet of a script.

use crate::event::Event;
use crate::fleet::{Fleet, LOOK_MILLIS, OPERATOR_MILLIS};
use crate::history::{History, Notes};
use crate::laws::{Writer, check_settled};
use crate::machine::{Machine, Truth};
use crate::mutation::Mutation;
use crate::scenario::{MachineFlaw, Scenario};
use crate::script::{Act, Script};
use crate::store::Store;
use crate::violation::{Violation, broken};
use crate::world::World;
use schema::codec;
use schema::keys::{Key, Prefix};
use schema::names::{HostName, Version};
use schema::snapshot::KeySnapshot;
use schema::transaction::Transaction;

/// Time within which a fleet settles on its first version, in milliseconds.
const SETTLES_WITHIN: u64 = 30 * 60_000;

/// Time after which `trigger_update` writes the record of the rollout, in milliseconds.
const RECORD_AFTER: u64 = 600;

fn base() -> Version {
    Version::new("base").unwrap_or_else(|_| unreachable!("a version"))
}

/// Runs the fleet of a script.
///
/// # Errors
/// Returns the first law that was broken.
pub fn run_script(script: &Script, mutation: Option<&'static Mutation>) -> Result<History, Violation> {
    Fleet::scripted(script, mutation, false).run_script(script)
}

/// Runs the fleet of a script, and returns what happened line by line with the result.
pub fn trace_script(
    script: &Script,
    mutation: Option<&'static Mutation>,
) -> (Vec<String>, Result<History, Violation>) {
    let mut fleet = Fleet::scripted(script, mutation, true);
    let result = fleet.run_script(script);
    (fleet.world.take_trace(), result)
}

impl Fleet {
    fn scripted(script: &Script, mutation: Option<&'static Mutation>, traces: bool) -> Self {
        let number_of = |host: &HostName| script.hosts.iter().position(|entry| entry.host == *host);
        let flaws = script.flaws.iter().map(|(version, flaw)| {
            let machines = flaw.hosts.iter().filter_map(number_of).collect();
            (version.clone(), MachineFlaw { what: flaw.what, machines })
        });
        let flaws = flaws.collect();
        let scenario = Scenario::of_script(script, flaws);
        let rng = fastrand::Rng::with_seed(script.seed);
        let mut world = World::new(scenario, rng, mutation, traces);
        for (number, entry) in script.hosts.iter().enumerate() {
            let truth = Truth::new(world.scenario.apply_steps());
            let machine = Machine::new(entry.host.clone(), format!("m{number}"), truth, 0);
            world.add_machine(Machine { is_older: entry.is_older, ..machine });
            let starts = world.rng.u64(0..1_000);
            world.at(starts, Event::AgentStarts { machine: number });
        }
        world.at(LOOK_MILLIS, Event::LawsLook);
        Self::of_world(world, base())
    }

    /// Returns the fleet of a script when it has settled. The revisions of its store begin with this one.
    pub(crate) fn settled(script: &Script, first_revision: i64) -> Result<Self, Violation> {
        let mut fleet = Self::scripted(script, None, false);
        fleet.world.store = Store::starting_at(first_revision);
        fleet.write_roster(script)?;
        fleet.settle()?;
        Ok(fleet)
    }

    fn run_script(&mut self, script: &Script) -> Result<History, Violation> {
        self.write_roster(script)?;
        self.settle()?;
        let began = self.world.now;
        self.world.scenario.crashes = script.crashes;
        self.world.scenario.network = script.network;
        self.world.scenario.began = began;
        self.world.notes = Some(Notes::since(began));
        if let Some(change) = script.policy.as_ref().and_then(|policy| self.policy_change(policy)) {
            self.world.commit(&change, &Writer::Operator)?;
        }
        for (at, act) in &script.acts {
            self.world.at(began + at, Event::Acts(Box::new(act.clone())));
        }
        // What an operator does takes a moment.
        let last_act = script.acts.iter().map(|(at, _)| *at).max().unwrap_or(0);
        let last_act = began + last_act + OPERATOR_MILLIS;
        while let Some(event) = self.world.next() {
            self.handle(event)?;
            let is_over = self.world.notes.as_ref().is_some_and(|notes| notes.is_over);
            let may_end = script.ends_with_rollout && is_over && self.world.now > last_act;
            if may_end || self.world.now >= began + script.lasts {
                break;
            }
        }
        Ok(self.history(began))
    }

    /// Writes the roster and the first desired version.
    fn write_roster(&mut self, script: &Script) -> Result<(), Violation> {
        for entry in &script.hosts {
            let mut transaction = Transaction::idempotent("add a host");
            transaction.put(Key::Host(entry.host.clone()), codec::write(&entry.roster), 0);
            self.world.commit(&transaction, &Writer::Operator)?;
        }
        self.put_version(&base())
    }

    fn put_version(&mut self, version: &Version) -> Result<(), Violation> {
        let mut transaction = Transaction::idempotent("put the desired version");
        transaction.put(Key::CurrentVersion, version.as_str(), 0);
        self.world.commit(&transaction, &Writer::Operator).map(drop)
    }

    /// Runs the fleet until it has settled on its first version.
    fn settle(&mut self) -> Result<(), Violation> {
        let mut next_look = 2_000;
        while let Some(event) = self.world.next() {
            self.handle(event)?;
            if self.world.now < next_look {
                continue;
            }
            next_look = self.world.now + 1_000;
            match self.check_all_settled() {
                Ok(()) => return Ok(()),
                Err(violation) if self.world.now > SETTLES_WITHIN => return Err(violation),
                Err(_) => {}
            }
        }
        broken("I4", "the fleet does not settle on its first version")
    }

    fn check_all_settled(&self) -> Result<(), Violation> {
        for (machine, agent) in self.world.machines.iter().zip(&self.agents) {
            let Some(agent) = agent else { return broken("I4", "an agent does not run") };
            check_settled(&self.world.laws, machine, &agent.state, &base())?;
        }
        Ok(())
    }

    fn whole_store(&self) -> KeySnapshot {
        self.world.store.read_all(&Key::singles(), Prefix::WHOLE)
    }

    fn history(&mut self, began: u64) -> History {
        let listed = |machine: &Machine| {
            let version = self.world.laws.listed(&machine.host)?;
            Some((machine.host.clone(), version.clone()))
        };
        History {
            listed: self.world.machines.iter().filter_map(listed).collect(),
            end: self.whole_store(),
            looks: std::mem::take(&mut self.looks),
            log: self.world.notes.take().unwrap_or_default().log,
            lasted: self.world.now - began,
            summary: self.summary(),
        }
    }

    /// Does what a script says.
    pub(crate) fn perform(&mut self, act: Act) -> Result<(), Violation> {
        let machine = |fleet: &Self, host: &HostName| {
            let mut machines = fleet.world.machines.iter();
            machines.position(|machine| machine.host == *host).unwrap_or_else(|| panic!("no host {host}"))
        };
        match act {
            Act::Trigger(version) => {
                self.write_target(&version);
                self.world.after(RECORD_AFTER, Event::OperatorResolves);
            }
            Act::Put(version) => self.put_version(&version)?,
            Act::SetPolicy(policy) => {
                if let Some(change) = self.policy_change(&policy) {
                    self.world.commit(&change, &Writer::Operator)?;
                }
            }
            Act::Resume => self.resume(),
            Act::RollBack => self.roll_back(),
            Act::Excuse(host) => self.excuse(machine(self, &host)),
            Act::ReleaseClaims(host) => self.release(machine(self, &host)),
            Act::Freeze(scope) => self.write_freeze(&scope, None),
            Act::Unfreeze => self.unfreeze(),
            Act::Accept(version) => self.accept(&version),
            Act::KillAgent(host, again) => self.kill(machine(self, &host), again),
            Act::PowerOff(host, lasts) => self.power_off(machine(self, &host), lasts),
            Act::CutLink(host, lasts) => self.cut(machine(self, &host), lasts),
            Act::StandStill(host, lasts) => {
                let number = machine(self, &host);
                if let Some(agent) = &mut self.agents[number] {
                    agent.ending.stands_still = true;
                    let (machine, process) = (agent.machine, agent.process);
                    self.world.after(lasts, Event::LooksAgain { machine, process });
                }
            }
            Act::ChangeLeader => self.world.store.change_leader(self.world.now),
            Act::Look => {
                let found = self.whole_store();
                self.looks.push(found);
            }
        }
        Ok(())
    }
}
