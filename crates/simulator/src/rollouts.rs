//! How an agent follows its rollout: it reads freezes and limits after a refused start, and writes the
//! record of the rollout if nobody else does.

use crate::agent::{Agent, RolloutTask, Step};
use crate::event::{Answer, Call, Event, Sender, Task};
use crate::world::World;
use planning::host::Target;
use planning::rollout::{Author, HolderTask, RECORD_RANGES, RecordTask, RolloutView, resolve, start_timer};
use schema::instruction::Instruction;
use schema::keys::Key;
use schema::order::InstructionOrder;
use schema::transaction::Transaction;
use schema::writes::Fence;
use schema::writes::rollout::{begin_resolving, record_keys, write_record};
use std::time::Duration;

impl Agent {
    pub(crate) fn fence(&self) -> Option<Fence> {
        let (live_lease, live_revision) = self.claim.held()?;
        let store_revision = self.followed.keys.revision_of(&Key::Store);
        Some(Fence { live_revision, live_lease, store_revision })
    }

    fn instruction(&self) -> Option<Instruction> {
        match &self.target {
            Target::Known(instruction) => Some(instruction.clone()),
            _ => None,
        }
    }

    /// Reads the rollout a little later. In drawn fleets that stands for the watch of the real agent.
    pub(crate) fn rollout_due(&mut self, world: &mut World) {
        let delays = if world.scenario.is_scripted() { self.rollout_delays() } else { 10..10_000 };
        let delay = world.rng.u64(delays);
        let delay = world.mutation.map_or(delay, |mutation| mutation.looks_again(delay));
        self.rollout_due_in(world, delay);
    }

    pub(crate) fn rollout_due_in(&mut self, world: &mut World, delay: u64) {
        self.rollout_timer = world.number();
        let (machine, process, timer) = (self.machine, self.process, self.rollout_timer);
        world.after(delay, Event::Due { machine, process, task: Task::Rollout, timer });
    }

    pub(crate) fn read_rollout(&mut self, world: &mut World) {
        if self.brakes.wanted_since().is_none() {
            return;
        }
        let Some(instruction) = self.instruction() else { return self.rollout_due(world) };
        self.rollout_task = RolloutTask::Reads;
        let call = Call::Rollout(self.state.host.clone(), instruction.clone());
        self.ask_about_rollout(world, call);
    }

    fn ask_about_rollout(&mut self, world: &mut World, call: Call) {
        self.rollout_marks = self.marks;
        self.rollout_request = world.send(self.machine, self.process, Task::Rollout, call).request;
    }

    fn write_for_rollout(&mut self, world: &mut World, transaction: Transaction) {
        let intent = self.intent(world);
        self.rollout_request = self.commit(world, Task::Rollout, transaction, intent).request;
    }

    fn read_roster(&mut self, world: &mut World, order: InstructionOrder) {
        self.rollout_task = RolloutTask::ReadsRoster;
        let call = Call::ReadAll(record_keys(order).into(), RECORD_RANGES.into());
        self.ask_about_rollout(world, call);
    }

    fn change_holder(&mut self, world: &mut World, mut transaction: Transaction) {
        let Some(fence) = self.fence() else { return };
        fence.add_to(&mut transaction, &self.state.host);
        self.rollout_task = RolloutTask::ChangesHolder;
        self.write_for_rollout(world, transaction);
    }

    pub(crate) fn rollout_answer(&mut self, world: &mut World, sender: Sender, answer: Answer) -> Step {
        // The task gave up an older request when its time came.
        if self.rollout_request != sender.request {
            return Ok(());
        }
        let task = std::mem::replace(&mut self.rollout_task, RolloutTask::Idle);
        self.rollout_due(world);
        if !self.is_of_judged(self.rollout_marks, &answer) {
            return Ok(());
        }
        let Some(instruction) = self.instruction() else { return Ok(()) };
        let order = instruction.order;
        match (task, answer) {
            (RolloutTask::Reads, Answer::Read(mut found)) => {
                if let Some(mutation) = world.mutation {
                    mutation.read(&mut found);
                }
                let now = world.clock(self.machine);
                let view = RolloutView::new(&self.state.host, &instruction, &found, now);
                let since = *self.lacks_record_since.get_or_insert(world.now);
                self.lacks_record_since = if view.lacks_record() { Some(since) } else { None };
                let task = view.record_task(Duration::from_millis(world.now - since));
                let holders = if view.is_queued() { view.holders() } else { None };
                let author = Author { by: self.state.host.to_string(), at: world.wall() };
                let halt = view.halts(&instruction.version, author).into_iter().next();
                let (ranges, revision) = (view.ranges(), view.revision);
                if !self.brakes.take(view) {
                    // It was read before the ticket was taken, so it is read again.
                    self.rollout_answered(world);
                    return Ok(());
                }
                self.watch_rollout(world, &ranges, revision);
                if let Some(halt) = halt {
                    self.change_holder(world, halt);
                } else if task == RecordTask::Write {
                    self.read_roster(world, order);
                } else if task == RecordTask::Begin
                    && let Some(fence) = self.fence()
                {
                    let transaction = begin_resolving(&self.state.host, fence, order);
                    self.rollout_task = RolloutTask::BeginsRecord;
                    self.write_for_rollout(world, transaction);
                } else if let Some(holders) = holders {
                    self.rollout_task = RolloutTask::ReadsHolders(holders.clone());
                    self.ask_about_rollout(world, Call::Holders(holders));
                }
            }
            (RolloutTask::ReadsHolders(holders), Answer::Read(found)) => {
                // The others have their turn at the next read.
                let author = Author { by: self.state.host.to_string(), at: world.wall() };
                match holders.tasks(&found, &author).into_iter().next() {
                    Some(HolderTask::Time(host, lost_after)) => {
                        self.rollout_task = RolloutTask::GrantsTimer(host, found);
                        let call = Call::Grant(lost_after.0.as_secs().cast_signed());
                        self.ask_about_rollout(world, call);
                    }
                    Some(HolderTask::Commit(transaction)) => self.change_holder(world, transaction),
                    None => {}
                }
            }
            (RolloutTask::GrantsTimer(host, found), Answer::Granted(timer)) => {
                if let Some(transaction) = start_timer(&host, timer, &found) {
                    self.change_holder(world, transaction);
                }
            }
            (RolloutTask::BeginsRecord, Answer::Committed(committed, _)) if committed.applied => {
                self.read_roster(world, order);
            }
            (RolloutTask::ReadsRoster, Answer::Read(mut found)) => {
                if let Some(mutation) = world.mutation {
                    mutation.read(&mut found);
                }
                let record = resolve(&instruction, &found, world.wall());
                let rollouts = found.entries.keys().map(String::as_str);
                let transaction = write_record(order, &record, &found, rollouts);
                self.rollout_task = RolloutTask::WritesRecord;
                self.write_for_rollout(world, transaction);
            }
            (RolloutTask::ChangesHolder | RolloutTask::WritesRecord, Answer::Committed(..)) => {
                self.rollout_news = true;
            }
            _ => {}
        }
        self.rollout_answered(world);
        self.run(world)
    }
}
