//! What people and faults do to a simulated fleet. This file is long because it has every incident.

use crate::agent::Agent;
use crate::current::{Current, instruction_of};
use crate::event::Event;
use crate::fleet::{Fleet, LOOK_MILLIS, OPERATOR_MILLIS};
use crate::machine::{Disk, Machine, Truth};
use crate::policies::{policy_of, stages_of};
use crate::scenario::Incident;
use crate::violation::Violation;
use crate::waiting_laws::AgentView;
use crate::world::World;
use planning::rollout::{HostResult, RECORD_RANGES, end_reads, governs, record_without, resolve, results};
use schema::freeze::FreezeScope;
use schema::frozen::FrozenBy;
use schema::instruction::Instruction;
use schema::keys::{self, Key, Prefix};
use schema::limit::LimitBy;
use schema::names::{EventId, HostName, Role, Token, Version};
use schema::order::InstructionOrder;
use schema::records::{
    Excuse, Freeze, LimitRule, LimitSize, OnHalt, RolloutPolicy, RosterEntry, StoreIdentity,
};
use schema::time::{EpochSeconds, Span};
use schema::transaction::Transaction;
use schema::writes::act::Act;
use schema::writes::operator::TargetRequest;
use schema::writes::{operator, rollout, stage};
use std::collections::BTreeMap;
use std::time::Duration;

/// Returns one of two names of roles and groups.
fn some_role(number: u32) -> Role {
    let name = if number == 0 { "web" } else { "db" };
    Role::new(name).unwrap_or_else(|_| unreachable!("{name} is a name"))
}

impl Fleet {
    pub(crate) fn kill(&mut self, machine: usize, again: u64) {
        self.agents[machine] = None;
        self.world.machines[machine].watch = None;
        self.world.after(again, Event::AgentStarts { machine });
    }

    pub(crate) fn cut(&mut self, machine: usize, lasts: u64) {
        let found = &mut self.world.machines[machine];
        found.break_connection();
        found.link.is_up = false;
        let connection = found.link.connection;
        if let Some(agent) = &self.agents[machine] {
            let process = agent.process;
            let notices = self.world.rng.u64(10..15_000);
            self.world.after(notices, Event::Breaks { machine, process, connection });
        }
        self.world.after(lasts, Event::LinkHeals { machine });
    }

    pub(crate) fn power_off(&mut self, machine: usize, lasts: u64) {
        self.agents[machine] = None;
        self.world.machines[machine].turn_off();
        self.world.after(lasts, Event::Boots { machine });
    }

    pub(crate) fn reinstall(&mut self, machine: usize) {
        self.power_off(machine, 30_000);
        self.world.machines[machine].disk = Disk::default();
        self.world.machines[machine].truth = Truth::new(self.world.scenario.apply_steps());
    }

    pub(crate) fn look(&mut self) -> Result<(), Violation> {
        let world = &mut self.world;
        for number in 0..world.machines.len() {
            let agent = self.agents[number].as_ref();
            let can_write = agent.is_some_and(|agent| agent.can_write(world));
            let goes_on = can_write && agent.is_some_and(|agent| agent.intent(world).is_under_way);
            let machine = &world.machines[number];
            world.laws.look(number, machine, can_write, world.now)?;
            world.laws.limits.look(&machine.host, goes_on, world.now)?;
            world.falls.look(number, machine, can_write, &world.store, world.now)?;
        }
        self.look_at_rollout()?;
        self.world.after(LOOK_MILLIS, Event::LawsLook);
        Ok(())
    }

    /// Checks whether what waits goes on.
    fn look_at_rollout(&mut self) -> Result<(), Violation> {
        let wall = self.world.wall();
        let World { store, waiting, stalled, now, .. } = &mut self.world;
        let agents = || self.agents.iter().flatten();
        let order = instruction_of(store).map(|instruction| instruction.order);
        let has = |key: Key| store.entry(&key.to_string()).is_some();
        let is_open = |order: &InstructionOrder| {
            agents().any(Agent::wants_to_start) || has(Key::RolloutRecord(*order)) && !has(Key::Ended(*order))
        };
        let Some(order) = order.filter(is_open) else {
            waiting.forget();
            stalled.forget();
            return Ok(());
        };
        let current = Current::read(order, store, wall);
        let views: Vec<AgentView> = agents().map(|agent| agent.says(order)).collect();
        let raft_term = store.raft_term();
        let looked = waiting.look(&current, &views, raft_term, *now);
        let looked = looked.and_then(|()| stalled.look(&current, &views, raft_term, *now));
        if looked.is_err() {
            self.note_waiting();
        }
        looked
    }

    /// Notes what the hosts know that wait.
    fn note_waiting(&mut self) {
        for agent in self.agents.iter().flatten().filter(|agent| agent.wants_to_start()) {
            self.world.note(|| format!("{} waits and knows {:?}", agent.state.host, agent.brakes.known()));
        }
    }

    pub(crate) fn happen(&mut self, incident: Incident) -> Result<(), Violation> {
        match incident {
            Incident::Trigger(number) => {
                let version = self.world.scenario.versions[number].0.clone();
                self.trigger(&version);
            }
            Incident::Unset => {
                let mut transaction = Transaction::idempotent("delete the desired version");
                transaction.delete(Key::CurrentVersion);
                self.operate(transaction);
            }
            Incident::Retry(machine) => {
                let host = self.world.machines[machine].host.clone();
                let found = self.world.store.read(&[Key::Retry(host.clone())]);
                let (act, at) = (self.act("retry"), self.world.wall());
                self.operate(operator::request_retry(&host, at, &found, &act));
            }
            Incident::KillAgent(machine, again) => self.kill(machine, again),
            Incident::PowerOff(machine, lasts) => self.power_off(machine, lasts),
            Incident::CutLink(machine, lasts) => self.cut(machine, lasts),
            Incident::CutAll(lasts) => {
                for machine in 0..self.world.machines.len() {
                    self.cut(machine, lasts);
                }
            }
            Incident::ChangeLeader => self.world.store.change_leader(self.world.now),
            Incident::Backup => self.backup = Some(self.world.store.clone()),
            Incident::Restore => self.restore(),
            Incident::Accept(number) => {
                let version = self.world.scenario.versions[number].0.clone();
                self.accept(&version);
            }
            Incident::Reinstall(machine) => self.reinstall(machine),
            Incident::Clone(machine) => {
                let number = self.world.machines.len();
                let original = &self.world.machines[machine];
                let (host, truth) = (original.host.clone(), original.truth.clone());
                let mut copy = Machine::new(host, format!("m{number}"), truth, self.world.now);
                copy.disk = original.disk.clone();
                copy.disk.runs.clear();
                self.world.add_machine(copy);
                self.agents.push(None);
                self.start_agent(number)?;
            }
            Incident::Decommission(machine, lasts) => self.decommission(machine, lasts),
            Incident::Freeze(kind, machine, lasts) => self.freeze(kind, machine, lasts),
            Incident::Unfreeze => self.unfreeze(),
            Incident::SetPolicy(seed) => {
                let change = self.policy_change(&policy_of(seed));
                change.into_iter().for_each(|change| self.operate(change));
            }
            Incident::LimitFleet(max, seconds) => {
                let (max, values) = (LimitSize::Hosts(max), BTreeMap::new());
                let limit = LimitRule { by: LimitBy::Fleet, max, values, keep_failed: Some(false) };
                let lost_after = Some(Span(Duration::from_secs(seconds)));
                let policy = RolloutPolicy { limits: vec![limit], lost_after, ..RolloutPolicy::default() };
                self.policy_change(&policy).into_iter().for_each(|change| self.operate(change));
            }
            Incident::LimitFailures(max, budget, rolls_back) => {
                let (max, values) = (LimitSize::Hosts(max), BTreeMap::new());
                let limit = LimitRule { by: LimitBy::Fleet, max, values, keep_failed: Some(false) };
                let failure_budget = Some(LimitSize::Hosts(budget));
                let on_halt = if rolls_back { OnHalt::RollBack } else { OnHalt::Stop };
                let policy = RolloutPolicy { limits: vec![limit], on_halt, ..RolloutPolicy::default() };
                let policy = RolloutPolicy { failure_budget, ..policy };
                self.policy_change(&policy).into_iter().for_each(|change| self.operate(change));
            }
            Incident::LimitShare(max, budget) => {
                let (max, values) = (LimitSize::Percent(max), BTreeMap::new());
                let limit = LimitRule { by: LimitBy::Fleet, max, values, keep_failed: Some(false) };
                let failure_budget = Some(LimitSize::Percent(budget));
                let none = RolloutPolicy::default();
                let policy = RolloutPolicy { limits: vec![limit], failure_budget, ..none };
                self.policy_change(&policy).into_iter().for_each(|change| self.operate(change));
            }
            Incident::SetStages(max, budget, seed) => {
                let (max, values) = (LimitSize::Hosts(max), BTreeMap::new());
                let limit = LimitRule { by: LimitBy::Fleet, max, values, keep_failed: Some(false) };
                let lost_after = Some(Span(Duration::from_secs(60)));
                let failure_budget = Some(LimitSize::Hosts(budget));
                let stages = stages_of(&mut fastrand::Rng::with_seed(seed));
                let none = RolloutPolicy::default();
                let policy =
                    RolloutPolicy { limits: vec![limit], lost_after, failure_budget, stages, ..none };
                self.policy_change(&policy).into_iter().for_each(|change| self.operate(change));
            }
            Incident::Excuse(machine) => self.excuse(machine),
            Incident::Resume => self.resume(),
            Incident::RollBack => self.roll_back(),
            Incident::RollBackTo(number) => {
                let version = self.world.scenario.versions[number].0.clone();
                self.roll_back_to(&version);
            }
            Incident::ReleaseClaims(machine) => self.release(machine),
            Incident::PowerOffHolder(lasts) => {
                self.holder().into_iter().for_each(|machine| self.power_off(machine, lasts));
            }
            Incident::CutHolder(lasts) => {
                self.holder().into_iter().for_each(|machine| self.cut(machine, lasts));
            }
            Incident::TriggerWith(number, seed) => {
                let version = self.world.scenario.versions[number].0.clone();
                self.trigger_with(&version, seed);
            }
            Incident::Put(number) => {
                let version = number.map(|number| self.world.scenario.versions[number].0.clone());
                self.put(version.as_ref());
            }
            Incident::SetNumbers(seed) => self.set_numbers(seed),
            Incident::LimitRacks(max, budget) => self.limit_racks(max, budget),
            Incident::SetWindow(max, opens_after, lasts) => self.set_window(max, opens_after, lasts),
            Incident::MoveToRack(machine, rack) => {
                let host = self.world.machines[machine].host.clone();
                self.move_to_rack(&host, rack);
            }
            Incident::ChangeRoster(machine) => {
                let host = self.world.machines[machine].host.clone();
                let change = self.add_host(&host);
                self.operate(change);
            }
        }
        Ok(())
    }

    pub(crate) fn act(&mut self, verb: &'static str) -> Act {
        let id = EventId::of(1_700_000_000_000 + self.world.now, &self.world.token("e"));
        Act::new(id, "ann", verb)
    }

    /// Sends a transaction of an operator. Others may write before it arrives.
    pub(crate) fn operate(&mut self, transaction: Transaction) {
        let delay = self.world.rng.u64(1..OPERATOR_MILLIS);
        self.world.after(delay, Event::OperatorCommits(transaction));
    }

    /// Sends the transaction of `orchestrate trigger_update`.
    pub(crate) fn write_target(&mut self, version: &Version) {
        let found = self.world.store.read(&[Key::CurrentVersion, Key::Store]);
        let act = self.act("trigger_update");
        self.operate(operator::set_target(&TargetRequest::new(version.clone()), false, &found, &act));
    }

    pub(crate) fn trigger(&mut self, version: &Version) {
        self.write_target(version);
        // The command writes the record of the rollout, unless it is cut off before.
        if self.world.rng.u32(0..3) > 0 {
            let delay = self.world.rng.u64(500..1_500);
            self.world.after(delay, Event::OperatorResolves);
        }
    }

    /// Writes the record of the rollout, as `orchestrate trigger_update` does.
    pub(crate) fn resolve(&mut self) {
        let World { store, .. } = &self.world;
        let found = store.read(&[Key::Store, Key::CurrentVersion]);
        let Some(instruction) = Instruction::find(&found) else { return };
        let order = instruction.order;
        let mut found = store.read_all(&rollout::record_keys(order), &RECORD_RANGES);
        if let Some(mutation) = self.world.mutation {
            mutation.read(&mut found);
        }
        if governs(order, &found) && found.get(&Key::RolloutRecord(order)).is_none() {
            let record = resolve(&instruction, &found, self.world.wall());
            let rollouts = found.entries.keys().map(String::as_str);
            let transaction = rollout::write_record(order, &record, &found, rollouts);
            self.operate(transaction);
        }
    }

    /// Lets a halted rollout go on, as `orchestrate rollout resume` does.
    pub(crate) fn resume(&mut self) {
        let found = self.world.store.read(&[Key::Store, Key::CurrentVersion]);
        let Some(instruction) = Instruction::find(&found) else { return };
        let order = instruction.order;
        let found = self.world.store.list(&Prefix::Rollout(order));
        let record = found.value_of(keys::RolloutRecord(order));
        if let Some(record) = record
            && found.get(&Key::Halt(order)).is_some()
        {
            let act = self.act("rollout resume");
            self.operate(rollout::resume(order, record, &found, &act));
        }
    }

    /// Lets the fleet go back, as `orchestrate rollout rollback` does.
    pub(crate) fn roll_back(&mut self) {
        let found = self.world.store.read_all(&[Key::Store, Key::CurrentVersion], &[Prefix::Rollouts]);
        let Some(instruction) = Instruction::find(&found) else { return };
        let record = found.value_of(keys::RolloutRecord(instruction.order));
        if let Some(good) = record.and_then(|record| record.good) {
            let act = self.act("rollout rollback");
            self.operate(operator::roll_back(&good, &found, &act));
        }
    }

    /// Lets the fleet go back to a version, as `orchestrate rollout rollback --to` does.
    fn roll_back_to(&mut self, version: &Version) {
        let found = self.world.store.read_all(&[Key::Store, Key::CurrentVersion], &[Prefix::Rollouts]);
        if Instruction::find(&found).is_some() {
            let act = self.act("rollout rollback");
            self.operate(operator::roll_back(version, &found, &act));
            let delay = self.world.rng.u64(500..1_500);
            self.world.after(delay, Event::OperatorResolves);
        }
    }

    /// Returns the transaction that writes a policy; `None` if the store has no identity.
    pub(crate) fn policy_change(&mut self, policy: &RolloutPolicy) -> Option<Transaction> {
        let found = self.world.store.read(&[Key::Store, Key::RolloutPolicy]);
        let identity = found.value_of(keys::Store)?;
        let act = self.act("policy set");
        Some(rollout::set_policy(policy, &identity, &found, &act))
    }

    /// Returns the lineage that most hosts belong to.
    pub(crate) fn lineage(&self) -> Option<Token> {
        let remembered = || self.agents.iter().flatten().filter_map(|agent| agent.state.store.as_ref());
        let count = |lineage: &Token| remembered().filter(|memory| memory.lineage == *lineage).count();
        remembered().map(|memory| memory.lineage.clone()).max_by_key(count)
    }

    /// Accepts the store with the lineage of most hosts, and the next epoch.
    pub(crate) fn accept(&mut self, version: &Version) {
        let found = self.world.store.read_all(&[Key::Store, Key::RolloutPolicy], &[Prefix::Freezes]);
        let identity = found.value_of(keys::Store);
        let Some(lineage) = self.lineage() else { return };
        let remembered = self.agents.iter().flatten().filter_map(|agent| agent.state.store.as_ref());
        let epoch = remembered.map(|store| store.epoch).chain(identity.map(|identity| identity.epoch)).max();
        let identity = StoreIdentity::new(lineage, epoch.unwrap_or(0) + 1);
        let act = self.act("store accept");
        let at = self.world.wall();
        self.operate(operator::accept_store(&identity, version, at, &found, &act));
    }

    fn restore(&mut self) {
        let Some(backup) = self.backup.clone() else { return };
        self.world.store.restore(&backup, self.world.now);
        let World { laws, ends, stages, falls, waiting, stalled, store, now, .. } = &mut self.world;
        waiting.forget();
        stalled.forget();
        stages.restored();
        falls.restored(store, *now);
        laws.restored(store, *now);
        ends.restored(store);
        self.world.check_leases();
        self.world.drop_late_requests();
        for machine in 0..self.world.machines.len() {
            self.cut(machine, 100);
        }
    }

    fn decommission(&mut self, machine: usize, lasts: u64) {
        let host = self.world.machines[machine].host.clone();
        let mut keys = vec![Key::CurrentVersion, Key::Store];
        keys.extend(Key::of_host(&host));
        let mut found = self.world.store.read(&keys);
        found.entries.extend(self.world.store.list(&Prefix::Claims).entries);
        for prefix in Prefix::before_host() {
            let suffix = format!("/{host}");
            let listed = self.world.store.list(&prefix).entries;
            found.entries.extend(listed.into_iter().filter(|(key, _)| key.ends_with(&suffix)));
        }
        let tombstone = RosterEntry { decommissioned: Some(self.world.wall()), ..RosterEntry::default() };
        let act = self.act("hosts decommission");
        for transaction in operator::decommission(&host, &tombstone, &found, &act) {
            self.operate(transaction);
        }
        let act = self.act("hosts decommission");
        self.operate(rollout::release_claims(&host, false, &found, &act));
        let back = self.add_host(&host);
        self.world.after(lasts.max(1_000), Event::OperatorCommits(back));
    }

    /// Writes a freeze, as `orchestrate freeze` does.
    fn freeze(&mut self, kind: u32, machine: usize, lasts: Option<u64>) {
        let host = self.world.machines[machine].host.clone();
        if self.world.store.entry(&Key::Store.to_string()).is_none() {
            return;
        }
        let scope = match kind {
            0 => FreezeScope::Fleet,
            1 => FreezeScope::Role(some_role(self.world.rng.u32(0..2))),
            2 => FreezeScope::Group(some_role(self.world.rng.u32(0..2))),
            3 => FreezeScope::Host(host),
            _ => FreezeScope::Pause,
        };
        self.write_freeze(&scope, lasts);
    }

    /// Sends the transaction of a freeze of these hosts, for this time if it is given.
    pub(crate) fn write_freeze(&mut self, scope: &FreezeScope, lasts: Option<u64>) {
        let found = self.world.store.read(&[Key::Store]);
        let identity = found.value_of(keys::Store);
        let Some(identity) = identity else { return };
        let seconds = lasts.map(|millis| i64::try_from(millis / 1000).unwrap_or(1).max(2));
        let lease = seconds.map_or(0, |seconds| self.world.store.grant(seconds, self.world.now));
        self.world.check_leases();
        let at = self.world.wall();
        let until = seconds.map(|seconds| EpochSeconds(at.0 + seconds));
        let freeze = Freeze { by: "ann".into(), reason: String::new(), at, until };
        let (token, act) = (self.world.token("f"), self.act("freeze"));
        self.operate(operator::add_freeze(scope, &token, &freeze, lease, &identity, &found, &act));
    }

    /// Removes the oldest freeze.
    pub(crate) fn unfreeze(&mut self) {
        let found = self.world.store.list(&Prefix::Freezes);
        let act = self.act("unfreeze");
        if let Some(FrozenBy { scope, token: Some(token), .. }) = FrozenBy::all(&found).next() {
            self.operate(operator::remove_freeze(&scope, &token, &found, &act));
        }
    }

    /// Excuses a host, as `orchestrate rollout excuse` does.
    pub(crate) fn excuse(&mut self, machine: usize) {
        let host = self.world.machines[machine].host.clone();
        let found = self.world.store.read(&[Key::Store, Key::CurrentVersion]);
        let Some(Instruction { order, .. }) = Instruction::find(&found) else { return };
        let (keys, ranges) = end_reads(order);
        let found = self.world.store.read_all(&keys, &ranges);
        let record = found.value_of(keys::RolloutRecord(order));
        let Some(record) = record else { return };
        let is_proven = results(order, &record, &found).get(&host) == Some(&HostResult::Proven);
        if !is_proven && found.get(&Key::Excused(order, host.clone())).is_none() {
            let record = record_without(&host, order, &record, &found);
            let excuse = Excuse { at: self.world.wall(), by: "ann".into(), reason: String::new() };
            let act = self.act("rollout excuse");
            self.operate(stage::excuse(&host, order, &excuse, &record, &found, &act));
        }
    }

    /// Returns a machine whose host holds claims.
    pub(crate) fn holder(&mut self) -> Option<usize> {
        let claimed = self.world.store.list(&Prefix::Claimed).entries;
        let holds = |machine: &Machine| {
            let entry = claimed.get(&Key::Claimed(machine.host.clone()).to_string());
            let claims = entry.and_then(|entry| keys::Claimed::read(&entry.value).ok());
            claims.is_some_and(|claims| !claims.claims.is_empty())
        };
        let machines = self.world.machines.iter().enumerate().take(self.originals);
        let holders: Vec<usize> = machines.filter(|(_, m)| holds(m)).map(|(number, _)| number).collect();
        self.world.rng.choice(holders)
    }

    /// Releases the claims of a host, as `orchestrate claims release` does.
    pub(crate) fn release(&mut self, machine: usize) {
        let host = self.world.machines[machine].host.clone();
        let mut found = self.world.store.read(&[Key::Claimed(host.clone())]);
        found.entries.extend(self.world.store.list(&Prefix::Claims).entries);
        let act = self.act("claims release");
        self.operate(rollout::release_claims(&host, true, &found, &act));
    }

    pub(crate) fn add_host(&mut self, host: &HostName) -> Transaction {
        let since = self.world.wall();
        let role = self.world.rng.bool().then(|| some_role(self.world.rng.u32(0..2)));
        let group = self.world.rng.bool().then(|| some_role(self.world.rng.u32(0..2)));
        let entry = RosterEntry { role, group, since, ..RosterEntry::default() };
        let found = self.world.store.read(&[Key::Host(host.clone())]);
        let act = self.act("hosts add");
        operator::add_host(host, &entry, &found, &act)
    }
}
