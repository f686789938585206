//! How an agent finds out that its rollout has ended, as in `agent/src/rollout/driver.rs`.

use crate::agent::{Agent, Step};
use crate::ending::{EndWait, Ending, HeldMark};
use crate::event::{Answer, Call, Event, Sender, Task};
use crate::store::Committed;
use crate::watching::Watcher;
use crate::world::World;
use planning::host::{Fact, RolloutDriver, Target};
use planning::rollout::{
    Author, ClosingTask, EndTask, HolderTask, MARK_INTERVAL, MARK_SECONDS, NEWS_DELAY, RECORD_RANGES,
    ask_delay, closing_reads, closing_task, end_reads, end_task, resolve, start_timer,
};
use schema::instruction::Instruction;
use schema::keys::Key;
use schema::order::InstructionOrder;
use schema::records::{Closing, Ended, StageOpening};
use schema::snapshot::KeySnapshot;
use schema::store_trust::StoreTrust;
use schema::transaction::Transaction;
use schema::writes::rollout::{begin_closing, begin_resolving, record_keys, write_record};
use schema::writes::stage::{RolloutStage, time_soak};
use std::time::Duration;

/// Delay after a request that failed, in milliseconds.
const RETRY_MILLIS: u64 = 10_000;

fn millis(duration: Duration) -> u64 {
    duration.as_millis() as u64
}

impl Agent {
    fn looks_for(&self) -> Option<RolloutDriver> {
        match &self.target {
            Target::Known(target) => self.brakes.drives_rollout(&self.state, target),
            _ => None,
        }
    }

    /// Begins to look for the end of the rollout, or stops.
    pub(crate) fn follow_end(&mut self, world: &mut World) {
        let may_write = self.fence().is_some() && self.trust == StoreTrust::Trusted;
        if self.ending.mark.is_some_and(|mark| !may_write || mark.history != self.marks.history) {
            self.drop_mark(world);
        }
        let old = self.ending.search;
        let held = if self.ending.mark.is_some() { old } else { None };
        let search = if may_write { self.looks_for().or(held) } else { held };
        if old == search {
            return;
        }
        self.ending.search = search;
        let Some(RolloutDriver { order, driver_seen }) = search else { return self.stop_looking(world) };
        if held.is_none_or(|held| held.order != order) {
            self.stop_looking(world);
            let delay = driver_seen.first_ask_delay(world.rng.f64());
            self.end_due_in(world, millis(delay));
        }
    }

    fn stop_looking(&mut self, world: &mut World) {
        self.drop_mark(world);
        let (search, stands_still) = (self.ending.search, self.ending.stands_still);
        self.ending = Ending { search, stands_still, ..Ending::default() };
    }

    fn drop_mark(&mut self, world: &mut World) {
        if self.ending.mark.take().is_some() {
            world.watching.forget(self.machine, Task::End);
        }
    }

    fn end_due_in(&mut self, world: &mut World, millis: u64) {
        self.ending.timer = world.number();
        let (machine, process, timer) = (self.machine, self.process, self.ending.timer);
        world.after(millis, Event::Due { machine, process, task: Task::End, timer });
    }

    fn ask_later(&mut self, world: &mut World, hosts: u32) {
        let delay = ask_delay(hosts, world.rng.f64());
        self.end_due_in(world, millis(delay));
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

    /// Its time has come.
    pub(crate) fn look_for_end(&mut self, world: &mut World) {
        let Some(RolloutDriver { order, .. }) = self.ending.search else { return };
        self.ending.wait = EndWait::Nothing;
        // If no answer comes.
        self.end_due_in(world, RETRY_MILLIS);
        if !self.can_write(world) || self.ending.stands_still {
            return;
        }
        match self.ending.mark {
            None => self.ask_about_end(world, EndWait::Asks, Call::Read(closing_reads(order).into())),
            Some(mark) if mark.read_again[1] <= world.now => {
                let (keys, ranges) = end_reads(order);
                self.ask_about_end(world, EndWait::Reads, Call::ReadAll(keys, ranges));
            }
            Some(_) => self.keep_mark(world),
        }
    }

    /// Keeps the mark alive if that is due, after a look.
    fn keep_mark(&mut self, world: &mut World) {
        let Some(mark) = self.ending.mark else { return };
        let is_proven = self.claim.proven == world.machines[self.machine].link.connection;
        if mark.keep_at > world.now {
            let next = mark.keep_at.min(mark.read_again[1]);
            self.end_due_in(world, next.saturating_sub(world.now).max(1));
        } else if is_proven {
            self.ask_about_end(world, EndWait::KeepsMark, Call::KeepAlive(mark.lease));
        }
    }

    /// Something that the host with the mark watches has changed.
    pub(crate) fn end_changed(&mut self, world: &mut World) -> Step {
        let Some(mark) = &mut self.ending.mark else { return Ok(()) };
        if world.watching.has_changed(&self.ending.follows, mark.read_at) {
            let [earliest, latest] = mark.read_again;
            mark.read_again[1] = latest.min(earliest.max(world.now + millis(NEWS_DELAY)));
            let next = mark.read_again[1];
            if self.ending.wait == EndWait::Nothing {
                self.end_due_in(world, next.saturating_sub(world.now).max(1));
            }
        }
        Ok(())
    }

    /// The task stood still, and goes on.
    pub(crate) fn looks_again(&mut self, world: &mut World) -> Step {
        self.ending.stands_still = false;
        self.look_for_end(world);
        self.run(world)
    }

    pub(crate) fn end_answer(&mut self, world: &mut World, sender: Sender, answer: Answer) -> Step {
        if self.ending.request != sender.request || self.ending.stands_still {
            return Ok(());
        }
        let wait = std::mem::replace(&mut self.ending.wait, EndWait::Nothing);
        if !self.is_of_judged(self.ending.marks, &answer) {
            return Ok(());
        }
        let order = self.ending.search.map(|search| search.order);
        if self.fence().is_none() {
            return Ok(());
        }
        let Some(order) = order else { return Ok(()) };
        match (wait, answer) {
            (EndWait::Asks, Answer::Read(found)) => {
                match closing_task(order, &self.state.host, None, &found) {
                    ClosingTask::Stop => return self.ended(world, order),
                    ClosingTask::WriteRecord => {
                        let Some(fence) = self.fence() else { return Ok(()) };
                        let begin = begin_resolving(&self.state.host, fence, order);
                        self.write_end(world, EndWait::BeginsRecord, begin);
                    }
                    ClosingTask::Wait(hosts) => self.ask_later(world, hosts),
                    ClosingTask::Begin(revision, hosts) => {
                        let wait = EndWait::GrantsMark(revision, hosts);
                        self.ask_about_end(world, wait, Call::Grant(MARK_SECONDS));
                    }
                    ClosingTask::Look => {}
                }
            }
            (EndWait::BeginsRecord, Answer::Committed(Committed { applied: is_marked, .. }, _)) => {
                let call = Call::ReadAll(record_keys(order).into(), RECORD_RANGES.into());
                self.ask_about_end(world, EndWait::ReadsRecord { is_marked }, call);
            }
            (EndWait::ReadsRecord { is_marked }, Answer::Read(found)) => {
                self.write_missing_record(world, order, is_marked, found);
            }
            // With the record it looks soon, as in a fleet of one host.
            (EndWait::WritesRecord, Answer::Committed(committed, _)) => {
                self.ask_later(world, u32::from(committed.applied));
            }
            (EndWait::GrantsMark(revision, hosts), Answer::Granted(lease)) => {
                let keep_at = world.now + millis(MARK_INTERVAL);
                let (history, read_again) = (self.marks.history, [world.now; 2]);
                let mark = HeldMark { lease, history, keep_at, read_at: 0, read_again };
                self.write_mark(world, order, revision, hosts, mark);
            }
            (EndWait::Begins(mark), Answer::Committed(committed, _)) => {
                if committed.applied {
                    // A mark that was written again stays as it is.
                    self.ending.mark.get_or_insert(mark);
                    self.look_for_end(world);
                } else {
                    self.drop_mark(world);
                    self.ask_later(world, 0);
                }
            }
            (EndWait::KeepsMark, Answer::KeptAlive(is_alive)) => match &mut self.ending.mark {
                Some(mark) if is_alive => {
                    mark.keep_at = world.now + millis(MARK_INTERVAL);
                    self.keep_mark(world);
                }
                _ => {
                    self.drop_mark(world);
                    self.ask_later(world, 0);
                }
            },
            (EndWait::Reads, Answer::Read(found)) => return self.end_read(world, order, found),
            (EndWait::Ends, Answer::Committed(committed, _)) if committed.applied => {
                return self.ended(world, order);
            }
            (EndWait::ReadsHolders(holders), Answer::Read(found)) => {
                let author = Author { by: self.state.host.to_string(), at: world.wall() };
                match holders.tasks(&found, &author).into_iter().next() {
                    Some(HolderTask::Time(host, lost_after)) => {
                        let call = Call::Grant(lost_after.0.as_secs().cast_signed());
                        self.ask_about_end(world, EndWait::GrantsTimer(host, found), call);
                    }
                    Some(HolderTask::Commit(transaction)) => self.change_for_end(world, transaction),
                    None => self.keep_mark(world),
                }
            }
            (EndWait::GrantsSoak(stage, found), Answer::Granted(timer)) => {
                let opening = StageOpening { at: world.wall(), by: self.state.host.to_string(), hosts: 0 };
                self.change_for_end(world, time_soak(RolloutStage { order, stage }, timer, &opening, &found));
            }
            (EndWait::GrantsTimer(host, found), Answer::Granted(timer)) => {
                if let Some(transaction) = start_timer(&host, timer, &found) {
                    self.change_for_end(world, transaction);
                }
            }
            (EndWait::Ends | EndWait::ChangesHolder, Answer::Committed(..)) => self.keep_mark(world),
            _ => {}
        }
        Ok(())
    }

    /// Writes the record of a rollout that no host starts, because every host has the version already.
    fn write_missing_record(
        &mut self,
        world: &mut World,
        order: InstructionOrder,
        is_marked: bool,
        mut found: KeySnapshot,
    ) {
        let host = self.state.host.as_str().as_bytes();
        let is_own = is_marked || found.get(&Key::Resolving(order)).is_some_and(|mark| mark.value == host);
        if let Some(mutation) = world.mutation {
            mutation.read(&mut found);
        }
        match Instruction::find(&found).filter(|instruction| is_own && instruction.order == order) {
            Some(instruction) => {
                let record = resolve(&instruction, &found, world.wall());
                let rollouts = found.entries.keys().map(String::as_str);
                let transaction = write_record(order, &record, &found, rollouts);
                self.write_end(world, EndWait::WritesRecord, transaction);
            }
            None => self.ask_later(world, 0),
        }
    }

    /// Does what follows from a read of the fleet.
    fn end_read(&mut self, world: &mut World, order: InstructionOrder, mut found: KeySnapshot) -> Step {
        let Some(mark) = self.ending.mark else { return Ok(()) };
        if let Some(mutation) = world.mutation {
            mutation.read(&mut found);
        }
        if closing_task(order, &self.state.host, Some(mark.lease), &found) != ClosingTask::Look {
            self.drop_mark(world);
            return Ok(());
        }
        let ended = Ended { at: world.wall(), by: self.state.host.to_string() };
        let task = end_task(order, &found, &ended);
        self.ending.follows = task.follows(order).iter().map(ToString::to_string).collect();
        let watcher = Watcher { machine: self.machine, process: self.process, task: Task::End };
        world.watching.watch(watcher, self.ending.follows.clone());
        let again = task.read_again_after(Duration::ZERO).map(|delay| world.now + millis(delay));
        self.ending.mark = Some(HeldMark { read_at: found.revision, read_again: again, ..mark });
        // What changed while the answer was on its way.
        self.end_changed(world)?;
        match task {
            EndTask::Stop => return self.ended(world, order),
            EndTask::Wait(_) => self.keep_mark(world),
            EndTask::Tell(hosts) => {
                let revision = found.revision_of(&Key::Closing(order));
                self.write_mark(world, order, revision, hosts, mark);
            }
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
                let Some(fence) = self.fence() else { return Ok(()) };
                fence.add_to(&mut transaction, &self.state.host);
                self.write_end(world, EndWait::Ends, transaction);
            }
        }
        Ok(())
    }

    fn write_mark(
        &mut self,
        world: &mut World,
        order: InstructionOrder,
        revision: i64,
        hosts: u32,
        mark: HeldMark,
    ) {
        let Some(fence) = self.fence() else { return };
        let closing = Closing { at: world.wall(), by: self.state.host.to_string(), hosts };
        let begin = begin_closing(&self.state.host, fence, order, revision, mark.lease, &closing);
        self.write_end(world, EndWait::Begins(mark), begin);
    }

    fn change_for_end(&mut self, world: &mut World, mut transaction: Transaction) {
        let Some(fence) = self.fence() else { return };
        fence.add_to(&mut transaction, &self.state.host);
        self.write_end(world, EndWait::ChangesHolder, transaction);
    }

    fn ended(&mut self, world: &mut World, order: InstructionOrder) -> Step {
        self.drop_mark(world);
        // Nothing is left to find out.
        self.ending.timer = world.number();
        world.note(|| format!("{}: the rollout has ended", self.state.host));
        if let Target::Known(target) = &self.target
            && self.state.drives_rollout(target)
        {
            self.record(world, Fact::RolloutEnded(order));
        }
        self.run(world)
    }
}
