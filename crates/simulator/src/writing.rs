//! How an agent writes to the store: it sends the transaction of an effect, reads back after a lost
//! answer, and repeats what was not applied.

use crate::agent::{Agent, Pending, PendingWrite, Step, write_backoff};
use crate::event::{Answer, Call, Sender, Task};
use crate::laws::Intent;
use crate::world::{REQUEST_MILLIS, World};
use planning::host::{Decision, Fact, KnownStore, StoreWrite, store_view};
use schema::keys::Key;
use schema::plan::Effect;
use schema::snapshot::KeySnapshot;
use schema::why_not::WhyNot;
use schema::writes::host::Outcome;
use schema::writes::{Fence, WriteRefusal};

impl Agent {
    /// Writes what an effect says. The answer comes later.
    pub(crate) fn write(&mut self, world: &mut World, decision: &Decision, effect: Effect) -> Step {
        let Some((live_lease, live_revision)) = self.claim.held() else {
            self.refused(world, WriteRefusal::Claim);
            return Ok(());
        };
        if effect != Effect::Report || decision.needs_journal {
            self.save(world)?;
        }
        let published =
            store_view::published(&self.followed, &self.state.host, self.written.as_ref(), live_revision);
        let known = KnownStore {
            published,
            trust: &self.trust,
            followed: &self.followed,
            brakes: self.brakes.known(),
        };
        let Some(write) = StoreWrite::of_effect(&effect, &self.state, decision, known, world.wall()) else {
            return Ok(());
        };
        let store_revision = self.followed.keys.revision_of(&Key::Store);
        let fence = Fence { live_revision, live_lease, store_revision };
        let expected = write.expected();
        let starts = match &effect {
            Effect::CommitStart { instruction } => Some(instruction.version.clone()),
            _ => None,
        };
        let intent = Intent { starts, ..self.intent(world) };
        let deadline = world.now + REQUEST_MILLIS;
        let started = decision.started();
        let pending =
            PendingWrite { write, effect, started, fence, expected, intent, deadline, reads_back: false };
        self.send_write(world, Box::new(pending));
        Ok(())
    }

    pub(crate) fn send_write(&mut self, world: &mut World, pending: Box<PendingWrite>) {
        let content = pending.write.content(&self.state, pending.fence);
        let sender = if pending.reads_back {
            let call = Call::Read(content.keys_to_judge(&pending.expected));
            world.send(self.machine, self.process, Task::Loop, call)
        } else {
            let transaction = content.transaction(&pending.expected);
            self.commit(world, Task::Loop, transaction, pending.intent.clone())
        };
        self.pending = Some((sender, Pending::Write(pending)));
    }

    /// The answer that the loop waits for has come.
    pub(crate) fn loop_answer(&mut self, world: &mut World, sender: Sender, answer: Answer) -> Step {
        let Some((_, pending)) = self.pending.take_if(|(awaited, _)| awaited.request == sender.request)
        else {
            return Ok(());
        };
        match pending {
            Pending::Identity => {
                self.request_read(world);
                self.store_failed(world);
            }
            Pending::Write(pending) => self.write_answer(world, pending, answer)?,
        }
        self.run(world)
    }

    pub(crate) fn write_answer(
        &mut self,
        world: &mut World,
        mut pending: Box<PendingWrite>,
        answer: Answer,
    ) -> Step {
        let mut is_refused = false;
        let found: KeySnapshot = match answer {
            Answer::Committed(committed, revision) => {
                self.marks.raise(revision, 0);
                if committed.applied {
                    return self.written_at(world, *pending, revision);
                }
                is_refused = true;
                committed.found
            }
            Answer::Read(found) => {
                self.marks.raise(found.revision, found.raft_term);
                found
            }
            Answer::Lost if !pending.reads_back && world.now < pending.deadline => {
                pending.reads_back = true;
                self.send_write(world, pending);
                return Ok(());
            }
            _ => {
                self.write_failed(world);
                return Ok(());
            }
        };
        let content = pending.write.content(&self.state, pending.fence);
        let outcome = if is_refused {
            content.refused(&pending.expected, &found)
        } else {
            content.outcome(&pending.expected, &found)
        };
        match outcome {
            Outcome::Applied(revision) => self.written_at(world, *pending, revision),
            Outcome::Refused(refusal) => {
                self.refused(world, refusal);
                Ok(())
            }
            Outcome::Frozen(by) => {
                world.note(|| format!("{}: {by}", self.state.host));
                self.brakes.refuse(
                    &self.state,
                    WhyNot::Frozen(by),
                    found.revision,
                    world.clock(self.machine).boot,
                );
                self.rollout_due(world);
                Ok(())
            }
            Outcome::HeldBack => {
                world.note(|| format!("{}: held back by its rollout", self.state.host));
                self.brakes.refuse(
                    &self.state,
                    WhyNot::NotRead,
                    found.revision,
                    world.clock(self.machine).boot,
                );
                self.rollout_due(world);
                Ok(())
            }
            Outcome::Repeat(found) => {
                if world.now >= pending.deadline {
                    self.write_failed(world);
                    return Ok(());
                }
                pending.reads_back = false;
                pending.expected = found;
                self.send_write(world, pending);
                Ok(())
            }
        }
    }

    pub(crate) fn written_at(&mut self, world: &mut World, pending: PendingWrite, revision: i64) -> Step {
        self.boundary(world)?;
        self.failures = 0;
        let PendingWrite { write, effect, started, .. } = pending;
        let published = match write.applied(&mut self.state, revision) {
            Ok(published) => published,
            Err(refusal) => {
                self.refused(world, refusal);
                return Ok(());
            }
        };
        world.note(|| format!("{}: {effect} at revision {revision}", self.state.host));
        self.written = Some((revision, published));
        self.record(world, Fact::ReportWritten);
        self.boundary(world)?;
        if let Effect::CommitStart { .. } = effect {
            self.record(world, started);
        }
        Ok(())
    }

    pub(crate) fn refused(&mut self, world: &mut World, refusal: WriteRefusal) {
        world.note(|| format!("{}: refused by the {refusal}", self.state.host));
        if refusal == WriteRefusal::Claim {
            self.check_claim(world);
        }
        self.write_failed(world);
    }

    pub(crate) fn write_failed(&mut self, world: &mut World) {
        self.written = None;
        self.request_read(world);
        self.store_failed(world);
    }

    pub(crate) fn store_failed(&mut self, world: &mut World) {
        self.failures += 1;
        let delay = write_backoff().delay(self.failures, world.rng.f64());
        self.retry_at = world.clock(self.machine).boot.plus(delay);
    }
}
