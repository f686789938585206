//! A small fleet in which time stands still, for the search over all orders of events: the store, the hosts with
//! their journals, and what each of them may do next. Decisions, views and transactions are the real ones; what a
//! host does between two writes that others can see is one action.

use crate::fleet::Fleet;
use crate::laws::{Intent, Laws, Writer};
use crate::machine::Machine;
use crate::mutation::Mutation;
use crate::script::Script;
use crate::store::{Committed, Store};
use crate::violation::{Violation, broken};
use crate::world::World;
use planning::host::SiteConfig;
use planning::host::{Brakes, BrakesMemory, HostState, store_view};
use planning::rollout::{Author, RECORD_RANGES, RolloutView, first_reads, resolve, second_reads};
use schema::followed::FollowedKeys;
use schema::freeze::FreezeScope;
use schema::instruction::Instruction;
use schema::keys::{self, Key, Prefix};
use schema::names::{EventId, Token, Version};
use schema::order::InstructionOrder;
use schema::records::Freeze;
use schema::snapshot::KeySnapshot;
use schema::time::{EpochSeconds, Now};
use schema::transaction::Transaction;
use schema::writes::Fence;
use schema::writes::act::Act;
use schema::writes::operator::{self, TargetRequest};
use schema::writes::rollout::{record_keys, write_record};
use std::cell::{Cell, OnceCell};
use std::rc::Rc;

/// The first revision of the store. No other number in it is as large, so revisions can be told from them.
pub(crate) const FIRST_REVISION: i64 = 7_000_000_000_000;

/// The keys of everybody that a host knows as of its last read.
const SHARED: [Key; 2] = [Key::Store, Key::CurrentVersion];

/// The ids of the writes of a host, one after the other.
pub(crate) const WRITE_IDS: [&str; 2] = ["write-a", "write-b"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Move {
    /// A host reads what it follows.
    Read(usize),
    /// A host goes on until its next write. The apply step fails, if it `fails`. Its agent is killed at this
    /// boundary: before or after it writes its journal, the version file or the store.
    Go { host: usize, fails: bool, killed_at: Option<u32> },
    /// A host that saw too many failed hosts halts the rollout.
    Halt(usize),
    /// An operator's command writes the record of the rollout.
    Resolve,
    /// An operator freezes the fleet.
    Freeze,
    /// An operator triggers another version.
    Trigger,
}

/// A host of the model.
#[derive(Debug, Clone)]
pub(crate) struct ModelHost {
    pub(crate) machine: Machine,
    /// What it read last of [`SHARED`]; `None` since its agent started.
    pub(crate) seen: Option<KeySnapshot>,
    pub(crate) brakes: BrakesMemory,
    /// Lease and revision of the claim of its name.
    pub(crate) held: (i64, i64),
    /// Changes with each write that was applied, so that a report is never taken for an earlier one.
    pub(crate) parity: bool,
    /// Its part of the digest of a state, once that is known.
    pub(crate) digest: Cell<Option<u64>>,
}

/// What does not change.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) policy: SiteConfig,
    pub(crate) mutation: Option<&'static Mutation>,
    pub(crate) next: Version,
    pub(crate) now: Now,
    millis: u64,
}

/// What a state has in common with all others that have the same store.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) digest: u64,
    /// The revisions of failures.
    pub(crate) failures: Vec<(InstructionOrder, i64)>,
}

/// A state of the fleet.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(crate) store: Rc<Store>,
    pub(crate) hosts: Vec<Rc<ModelHost>>,
    pub(crate) laws: Rc<Laws>,
    /// What the digest of the state takes from the store, once that is known.
    pub(crate) written: OnceCell<Rc<Written>>,
    /// The revisions of instructions, records and the policy, in order.
    pub(crate) named: Vec<i64>,
    pub(crate) may_freeze: bool,
    pub(crate) may_trigger: bool,
    pub(crate) kills_left: u32,
}

/// The agent was killed.
pub(crate) struct Killed;

/// The boundaries that an action passes.
pub(crate) struct Boundaries {
    pub(crate) passed: u32,
    pub(crate) killed_at: Option<u32>,
}

impl Boundaries {
    pub(crate) fn pass(&mut self) -> Result<(), Killed> {
        self.passed += 1;
        if Some(self.passed) == self.killed_at { Err(Killed) } else { Ok(()) }
    }
}

fn act(verb: &'static str) -> Act {
    let token = Token::new("e").unwrap_or_else(|_| unreachable!("a token"));
    Act::new(EventId::of(1_700_000_000_000, &token), "ann", verb)
}

impl Model {
    /// Returns the fleet of a script when it has settled, its policy stands and a version was triggered.
    pub(crate) fn of_script(
        script: &Script,
        first: &Version,
        next: Version,
        mutation: Option<&'static Mutation>,
    ) -> Result<(Self, Setting), Violation> {
        let mut fleet = Fleet::settled(script, FIRST_REVISION)?;
        let held = |agent: &crate::agent::Agent| agent.claim.held().unwrap_or_default();
        let hosts = fleet.agents.iter().flatten().zip(&fleet.world.machines).map(|(agent, machine)| {
            let mut machine = machine.clone();
            machine.disk.journal = Some(agent.state.clone());
            let (brakes, held) = (BrakesMemory::default(), held(agent));
            Rc::new(ModelHost { machine, seen: None, brakes, held, parity: false, digest: Cell::new(None) })
        });
        let hosts = hosts.collect();
        let (millis, now) = (fleet.world.now, fleet.world.clock(0));
        let setting = Setting { policy: script.agent.clone(), mutation, next, now, millis };
        let change = script.policy.as_ref().and_then(|policy| fleet.policy_change(policy));
        let World { store, laws, .. } = fleet.world;
        let (may_freeze, may_trigger, kills_left) = (true, true, 1);
        let (mut store, laws) = (Rc::new(store), Rc::new(laws));
        Rc::make_mut(&mut store).forget_history(millis);
        let mut model = Self {
            store,
            hosts,
            laws,
            named: Vec::new(),
            written: OnceCell::new(),
            may_freeze,
            may_trigger,
            kills_left,
        };
        model.name_revisions();
        if let Some(change) = change {
            model.commit(&setting, change, &Writer::Operator)?;
        }
        model.trigger(&setting, first)?;
        Ok((model, setting))
    }

    pub(crate) fn commit(
        &mut self,
        setting: &Setting,
        mut transaction: Transaction,
        writer: &Writer,
    ) -> Result<Option<Committed>, Violation> {
        if let Some(mutation) = setting.mutation {
            mutation.transaction(&mut transaction);
        }
        let machines: Vec<Machine> = self.hosts.iter().map(|host| host.machine.clone()).collect();
        if let Writer::Host(host, Intent { starts: Some(version), .. }) = writer {
            Rc::make_mut(&mut self.laws).expect_start(&self.store, &machines[*host], setting.millis, version);
        }
        let Ok(committed) = Rc::make_mut(&mut self.store).commit(&transaction, setting.millis) else {
            return Ok(None);
        };
        if committed.applied {
            Rc::make_mut(&mut self.laws).note(&committed.changes, writer, &machines, setting.millis)?;
        }
        if matches!(writer, Writer::Operator) {
            self.name_revisions();
        }
        self.written = OnceCell::new();
        Rc::make_mut(&mut self.laws).forget_counts();
        Ok(Some(committed))
    }

    /// Gives names to the revisions of what an operator wrote.
    fn name_revisions(&mut self) {
        let found = self.store.read(&[Key::Store, Key::CurrentVersion, Key::RolloutPolicy]);
        let record = Instruction::find(&found).map(|found| Key::RolloutRecord(found.order));
        let record = record.map(|key| self.store.read(&[key]));
        let entries = found.entries.values().chain(record.iter().flat_map(|found| found.entries.values()));
        self.named.extend(entries.map(|entry| entry.mod_revision));
        self.named.sort_unstable();
        self.named.dedup();
    }

    fn instruction(&self) -> Option<Instruction> {
        Instruction::find(&self.store.read(&SHARED))
    }

    fn trigger(&mut self, setting: &Setting, version: &Version) -> Result<(), Violation> {
        let found = self.store.read(&SHARED);
        let transaction =
            operator::set_target(&TargetRequest::new(version.clone()), false, &found, &act("trigger_update"));
        self.commit(setting, transaction, &Writer::Operator).map(drop)
    }

    /// Returns what may happen next. Whether it changes anything is found out by doing it.
    pub(crate) fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        for host in 0..self.hosts.len() {
            moves.push(Move::Read(host));
            moves.push(Move::Go { host, fails: false, killed_at: None });
            moves.push(Move::Halt(host));
        }
        moves.push(Move::Resolve);
        moves.extend(self.may_freeze.then_some(Move::Freeze));
        moves.extend(self.may_trigger.then_some(Move::Trigger));
        moves
    }

    /// Does a move. Returns how many boundaries it passed, and whether it met an apply step. One that is not possible
    /// changes nothing.
    pub(crate) fn step(&mut self, setting: &Setting, next: Move) -> Result<(u32, bool), Violation> {
        match next {
            Move::Read(host) => self.read(host, setting),
            Move::Halt(host) => self.halt(host, setting)?,
            Move::Go { host, fails, killed_at } => return self.go(setting, host, fails, killed_at),
            Move::Resolve => {
                let Some(instruction) = self.instruction() else { return Ok((0, false)) };
                let order = instruction.order;
                let found = self.store.read_all(&record_keys(order), &RECORD_RANGES);
                if found.get(&Key::RolloutRecord(order)).is_some() {
                    return Ok((0, false));
                }
                let record = resolve(&instruction, &found, setting.now.wall);
                let rollouts = found.entries.keys().map(String::as_str);
                let transaction = write_record(order, &record, &found, rollouts);
                self.commit(setting, transaction, &Writer::Operator)?;
            }
            Move::Freeze => {
                self.may_freeze = false;
                let found = self.store.read(&[Key::Store]);
                let identity = found.value_of(keys::Store);
                let (Some(identity), Ok(token)) = (identity, Token::new("f")) else { return Ok((0, false)) };
                let freeze =
                    Freeze { by: "ann".into(), reason: String::new(), at: EpochSeconds(0), until: None };
                let (scope, act) = (FreezeScope::Fleet, act("freeze"));
                let transaction = operator::add_freeze(&scope, &token, &freeze, 0, &identity, &found, &act);
                self.commit(setting, transaction, &Writer::Operator)?;
            }
            Move::Trigger => {
                self.may_trigger = false;
                self.trigger(setting, &setting.next)?;
            }
        }
        Ok((0, false))
    }

    fn read(&mut self, number: usize, setting: &Setting) {
        let seen = self.store.read(&SHARED);
        let host = Rc::make_mut(&mut self.hosts[number]);
        host.digest.set(None);
        let instruction = Instruction::find(&seen);
        host.seen = Some(seen);
        let (Some(instruction), Some(_)) = (instruction, host.brakes.wanted_since()) else { return };
        let name = &host.machine.host;
        let mut found = self.store.read_together(&first_reads(name, instruction.order));
        let more = second_reads(name, &instruction, &found);
        found.entries.extend(self.store.read_together(&more).entries);
        let view = RolloutView::new(name, &instruction, &found, setting.now);
        host.brakes.take(view);
    }

    fn halt(&mut self, number: usize, setting: &Setting) -> Result<(), Violation> {
        let host = self.hosts[number].clone();
        let Brakes::Known(view) = host.brakes.known() else { return Ok(()) };
        let target = host.seen.as_ref().and_then(Instruction::find);
        let Some(target) = target.filter(|target| target.order == view.order) else { return Ok(()) };
        let author = Author { by: host.machine.host.to_string(), at: setting.now.wall };
        let Some(mut halt) = view.halts(&target.version, author).into_iter().next() else { return Ok(()) };
        host.fence(&self.store).add_to(&mut halt, &host.machine.host);
        self.commit(setting, halt, &Writer::Host(number, host.intent())).map(drop)
    }

    /// Where nothing more happens, every host has the desired version or failed, unless something holds the fleet.
    pub(crate) fn check_end(&self) -> Result<(), Violation> {
        let Some(Instruction { order, version }) = self.instruction() else { return Ok(()) };
        let freezes = self.store.list(&Prefix::FreezesOf(FreezeScope::Fleet)).entries;
        let is_halted = self.store.entry(&Key::Halt(order).to_string()).is_some();
        if is_halted || !freezes.is_empty() {
            return Ok(());
        }
        let is_through = |host: &ModelHost| {
            let state = host.machine.disk.journal.as_ref();
            let attempt = state.and_then(|state| state.attempt.as_ref());
            let has_failed = attempt.is_some_and(|a| a.instruction.order == order && a.end().is_some());
            has_failed || self.laws.listed(&host.machine.host) == Some(&version)
        };
        match self.hosts.iter().find(|host| !is_through(host)) {
            Some(host) => {
                broken("R7", format!("nothing more happens, and {} has not {version}", host.machine.host))
            }
            None => Ok(()),
        }
    }
}

impl ModelHost {
    pub(crate) fn instance(&self) -> Token {
        let none = || Token::new("none").unwrap_or_else(|_| unreachable!("a token"));
        self.machine.disk.instance.clone().unwrap_or_else(none)
    }

    pub(crate) fn write_id(&self) -> Token {
        let text = WRITE_IDS[usize::from(self.parity)];
        Token::new(text).unwrap_or_else(|_| unreachable!("a token"))
    }

    pub(crate) fn fence(&self, store: &Store) -> Fence {
        let (live_lease, live_revision) = self.held;
        let store_revision = store.read(&[Key::Store]).revision_of(&Key::Store);
        Fence { live_revision, live_lease, store_revision }
    }

    pub(crate) fn intent(&self) -> Intent {
        let state = self.machine.disk.journal.as_ref();
        Intent {
            instance: self.instance(),
            starts: None,
            validated: self.machine.truth.validated.clone(),
            is_under_way: state.is_some_and(HostState::is_under_way),
            is_repair: false,
        }
    }

    /// Returns what the host knows: its own keys, which nobody else writes, and the others as it saw them last.
    pub(crate) fn followed(&self, store: &Store, seen: &KeySnapshot, state: &HostState) -> FollowedKeys {
        let name = &self.machine.host;
        let mut keys = store_view::scope(name).keys();
        let listing = state.listing().map(|version| Key::RunningVersion(version.clone(), name.clone()));
        let polled_also: Vec<Key> = listing.into_iter().chain([Key::Claimed(name.clone())]).collect();
        keys.retain(|key| !SHARED.contains(key));
        keys.extend(polled_also.iter().cloned());
        let mut found = store.read(&keys);
        found.entries.extend(seen.entries.clone());
        let read_revision = found.revision;
        FollowedKeys { keys: found, reads: 1, read_revision, polled_also, ..FollowedKeys::default() }
    }
}
