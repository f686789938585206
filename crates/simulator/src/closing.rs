//! How an agent finds out that its rollout has ended.

use crate::agent::{Agent, Step};
use crate::ending::{EndWait, Ending};
use crate::event::{Answer, Call, Event, Sender, Task};
use crate::world::World;
use planning::host::{EndSearch, Fact, Target};
use planning::rollout::{
    ClosingTask, EndTask, HolderTask, closing_reads, closing_task, end_reads, end_task, start_timer,
};
use schema::order::InstructionOrder;
use schema::records::{Ended, StageOpening};
use schema::transaction::Transaction;
use schema::writes::rollout::begin_closing;
use schema::writes::stage::time_soak;
use std::ops::Range;

/// The delays of `agent/src/rollout_end.rs`: until the host that looks does so again, and after a change. In drawn
/// fleets it looks less often, and the seeds mean the same fleets as ever.
const LOOK_MILLIS: Range<u64> = 5_000..5_500;
const NEXT_CHANGE_MILLIS: Range<u64> = 1_000..1_500;

impl Agent {
    fn looks_for(&self) -> Option<EndSearch> {
        match &self.target {
            Target::Known(target) => self.brakes.looks_for_end(&self.state, target),
            _ => None,
        }
    }

    /// Begins to look for the end of the rollout, or stops.
    pub(crate) fn follow_end(&mut self, world: &mut World) {
        let search = self.looks_for().or_else(|| self.ending.search.filter(|_| self.ending.holds));
        if self.ending.search != search {
            self.ending = Ending { search, seen: self.ending.seen, ..Ending::default() };
            if search.is_some() {
                self.end_due(world, 1..1_000);
            }
        }
    }

    fn end_due(&mut self, world: &mut World, millis: std::ops::Range<u64>) {
        self.ending.timer = world.number();
        let (machine, process, timer) = (self.machine, self.process, self.ending.timer);
        let delay = world.rng.u64(millis);
        world.after(delay, Event::Due { machine, process, task: Task::End, timer });
    }

    fn ask_about_end(&mut self, world: &mut World, wait: EndWait, call: Call) {
        self.ending.wait = wait;
        self.ending.marks = self.marks;
        self.ending.request = world.send(self.machine, self.process, Task::End, call).request;
    }

    fn write_end(&mut self, world: &mut World, wait: EndWait, transaction: Transaction) {
        let intent = self.intent(world);
        self.ending.wait = wait;
        self.ending.request = self.commit(world, Task::End, transaction, intent).request;
    }

    pub(crate) fn look_for_end(&mut self, world: &mut World) {
        let Some(EndSearch { order, .. }) = self.ending.search else { return };
        let watches = world.scenario.is_scripted();
        self.end_due(world, if watches { LOOK_MILLIS } else { 20_000..40_000 });
        if !self.can_write(world) {
            return;
        }
        self.ask_about_end(world, EndWait::Asks, Call::Read(closing_reads(order).into()));
    }

    fn read_end(&mut self, world: &mut World, order: InstructionOrder) {
        let (keys, ranges) = end_reads(order);
        self.ending.holds = true;
        self.ask_about_end(world, EndWait::Reads, Call::ReadAll(keys, ranges));
    }

    pub(crate) fn end_answer(&mut self, world: &mut World, sender: Sender, answer: Answer) -> Step {
        if self.ending.request != sender.request {
            return Ok(());
        }
        let wait = std::mem::replace(&mut self.ending.wait, EndWait::Nothing);
        if !self.is_of_judged(self.ending.marks, &answer) {
            return Ok(());
        }
        let order = self.ending.search.map(|search| search.order);
        let (Some(order), Some(fence)) = (order, self.fence()) else { return Ok(()) };
        match (wait, answer) {
            (EndWait::Asks, Answer::Read(found)) => {
                self.ending.holds = false;
                let seen = (&mut self.ending.seen, world.clock(self.machine).boot);
                match closing_task(order, fence.live_lease, &found, seen) {
                    ClosingTask::Stop => return self.ended(world, order),
                    // Simulated operators and hosts that wait write the record.
                    ClosingTask::Wait | ClosingTask::WriteRecord => self.end_due(world, 150_000..450_000),
                    ClosingTask::Begin(mark) => {
                        // If the answer is lost, the mark may be there, and nobody else looks.
                        self.ending.holds = true;
                        let transaction = begin_closing(&self.state.host, fence, order, mark);
                        self.write_end(world, EndWait::Begins, transaction);
                    }
                    ClosingTask::Look => self.read_end(world, order),
                }
            }
            (EndWait::Begins, Answer::Committed(committed, _)) => {
                if committed.applied {
                    self.read_end(world, order);
                } else {
                    self.ending.holds = false;
                    self.end_due(world, 150_000..450_000);
                }
            }
            (EndWait::Reads, Answer::Read(mut found)) => {
                if let Some(mutation) = world.mutation {
                    mutation.read(&mut found);
                }
                let ended = Ended { at: world.wall(), by: self.state.host.to_string() };
                match end_task(order, &found, &ended) {
                    EndTask::Stop => return self.ended(world, order),
                    EndTask::Wait => {}
                    EndTask::Stage(transaction) => self.change_for_end(world, transaction),
                    EndTask::Soak(stage, length) => {
                        let call = Call::Grant(length.0.as_secs().cast_signed());
                        self.ask_about_end(world, EndWait::GrantsSoak(stage, found), call);
                    }
                    EndTask::LookAfter(holders) => {
                        let call = Call::Holders(holders.clone());
                        self.ask_about_end(world, EndWait::ReadsHolders(holders), call);
                    }
                    EndTask::Halt(halts) => {
                        if let Some(halt) = halts.into_iter().next() {
                            self.change_for_end(world, halt);
                        }
                    }
                    EndTask::End(mut transaction) => {
                        fence.add_to(&mut transaction, &self.state.host);
                        self.write_end(world, EndWait::Ends, transaction);
                    }
                }
            }
            (EndWait::Ends, Answer::Committed(committed, _)) if committed.applied => {
                return self.ended(world, order);
            }
            (EndWait::ChangesHolder, Answer::Committed(committed, _))
                if committed.applied && world.scenario.is_scripted() =>
            {
                self.end_due(world, NEXT_CHANGE_MILLIS);
            }
            (EndWait::ReadsHolders(holders), Answer::Read(found)) => {
                let by = (self.state.host.to_string(), world.wall());
                match holders.tasks(&found, &by).into_iter().next() {
                    Some(HolderTask::Time(host, lost_after)) => {
                        let call = Call::Grant(lost_after.0.as_secs().cast_signed());
                        self.ask_about_end(world, EndWait::GrantsTimer(host, found), call);
                    }
                    Some(HolderTask::Commit(transaction)) => self.change_for_end(world, transaction),
                    None => {}
                }
            }
            (EndWait::GrantsSoak(stage, found), Answer::Granted(timer)) => {
                let opening = StageOpening { at: world.wall(), by: self.state.host.to_string() };
                self.change_for_end(world, time_soak((order, stage), timer, &opening, &found));
            }
            (EndWait::GrantsTimer(host, found), Answer::Granted(timer)) => {
                if let Some(transaction) = start_timer(&host, timer, &found) {
                    self.change_for_end(world, transaction);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn change_for_end(&mut self, world: &mut World, mut transaction: Transaction) {
        let Some(fence) = self.fence() else { return };
        fence.add_to(&mut transaction, &self.state.host);
        self.write_end(world, EndWait::ChangesHolder, transaction);
    }

    fn ended(&mut self, world: &mut World, order: InstructionOrder) -> Step {
        self.ending.holds = false;
        world.note(|| format!("{}: the rollout has ended", self.state.host));
        if let Target::Known(target) = &self.target
            && self.state.looks_for_end(target)
        {
            self.record(world, Fact::RolloutEnded(order));
        }
        self.run(world)
    }
}
