//! How an agent follows the keys of its host: reads at intervals and the watch in between.

use crate::agent::{Agent, PendingRead, Step, watch_backoff};
use crate::event::{Answer, Call, Event, Sender, Task};
use crate::store::Change;
use crate::world::World;
use planning::host::store_view;
use schema::followed::Scope;
use schema::keys::Key;
use schema::records::STORE_FORMAT;
use schema::snapshot::KeySnapshot;

/// Returns an identity whose format is newer than the agent, as that of a store with brakes is for an older one.
fn as_read_by_older(value: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(value);
    let format = |number: u32| format!("\"format\":{number},");
    text.replacen(&format(STORE_FORMAT), &format(STORE_FORMAT + 1), 1).into_bytes()
}

impl Agent {
    /// Reads the followed keys.
    pub(crate) fn read_keys(&mut self, world: &mut World, is_second: bool) {
        let scope = Scope {
            polled_also: store_view::polled_also(&self.followed, &self.state.host, self.state.listing()),
            ..store_view::scope(&self.state.host)
        };
        let sender = world.send(self.machine, self.process, Task::Mirror, Call::Read(scope.keys()));
        self.read = Some(PendingRead { sender, marks: self.marks, is_second, scope });
    }

    /// Requests a read. Requests that arrive together cause one read.
    pub(crate) fn request_read(&mut self, world: &mut World) {
        if self.read.is_some() {
            self.reads_again = true;
        } else {
            self.mirror_due_in(world, 1);
        }
    }

    pub(crate) fn mirror_due_in(&mut self, world: &mut World, millis: u64) {
        self.mirror_timer = world.number();
        let (machine, process, timer) = (self.machine, self.process, self.mirror_timer);
        world.after(millis, Event::Due { machine, process, task: Task::Mirror, timer });
    }

    /// The answer that the mirror waits for has come.
    pub(crate) fn mirror_answer(&mut self, world: &mut World, sender: Sender, answer: Answer) -> Step {
        let Some(pending) = self.read.take_if(|pending| pending.sender.request == sender.request) else {
            return Ok(());
        };
        let Answer::Read(found) = answer else {
            return self.disconnected(world);
        };
        let regress = pending.marks.regress(&found);
        self.marks.raise(found.revision, found.raft_term);
        if !regress.is_none() && !pending.is_second {
            self.read_keys(world, true);
            return Ok(());
        }
        let mut found = self.as_read(world, found);
        if let Some(mutation) = world.mutation {
            mutation.follows(self.life, &mut found);
        }
        self.followed.take_read(found, regress, &pending.scope);
        for change in std::mem::take(&mut self.unseen) {
            self.take_change(world, change);
        }
        self.is_connected = world.machines[self.machine].watch == Some((self.process, sender.connection));
        self.mirror_failures = 0;
        if std::mem::take(&mut self.reads_again) {
            self.read_keys(world, false);
        } else {
            let backstop = world.rng.u64(15_000..45_000);
            self.mirror_due_in(world, backstop);
        }
        self.run(world)
    }

    /// Changes have reached the watch.
    pub(crate) fn watched(&mut self, world: &mut World, changes: Vec<Change>) -> Step {
        if self.read.is_some() {
            self.unseen.extend(changes);
            return Ok(());
        }
        changes.into_iter().for_each(|change| self.take_change(world, change));
        self.run(world)
    }

    /// Returns what an agent of this age makes of what it reads: an older one refuses a store with brakes.
    fn as_read(&self, world: &World, mut found: KeySnapshot) -> KeySnapshot {
        if world.machines[self.machine].is_older
            && let Some(entry) = found.entries.get_mut(&Key::Store.to_string())
        {
            entry.value = as_read_by_older(&entry.value);
        }
        found
    }

    pub(crate) fn take_change(&mut self, world: &World, mut change: Change) {
        if world.machines[self.machine].is_older
            && let Some(entry) = change.entry.as_mut()
            && change.key == Key::Store.to_string()
        {
            entry.value = as_read_by_older(&entry.value);
        }
        self.marks.raise(change.revision, 0);
        self.followed.take_event(&change.key, change.revision, change.entry);
    }

    /// The connection of the mirror broke.
    pub(crate) fn disconnected(&mut self, world: &mut World) -> Step {
        self.is_connected = false;
        self.read = None;
        self.unseen.clear();
        self.mirror_failures += 1;
        let delay = watch_backoff().spread(self.mirror_failures, world.rng.f64());
        self.mirror_due_in(world, delay.as_millis().max(1) as u64);
        self.run(world)
    }
}
