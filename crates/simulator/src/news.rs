//! How agents hear of changes in their rollouts. The host that looks for the end watches its rollout, and in fleets of
//! scripts all hosts that wait do, as the real agents do. In drawn fleets those read it at intervals.

use crate::agent::{Agent, RolloutTask, Step};
use crate::event::{Event, Task};
use crate::machine::Machine;
use crate::store::Change;
use crate::watching::Watcher;
use crate::world::World;
use planning::host::Brakes;
use planning::rollout::opened_delay;
use schema::keys::Prefix;
use schema::order::InstructionOrder;
use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

/// The delays of `agent/src/rollout/follower.rs`: until everything is read again though no watch said that it changed, the
/// same far back in a queue, and until the first host that waits looks after the holders again.
const READ_MILLIS: Range<u64> = 15_000..45_000;
const QUEUE_READ_MILLIS: Range<u64> = 150_000..450_000;
const HOLDERS_MILLIS: Range<u64> = 15_000..20_000;
/// Delay of a watch, with the time in which other changes are awaited.
const NEWS_MILLIS: Range<u64> = 20..60;
/// The same of a watch that is slow.
const SLOW_MILLIS: Range<u64> = 1_000..60_000;

impl World {
    /// Adds a machine.
    pub(crate) fn add_machine(&mut self, machine: Machine) {
        self.watching.add(self.machines.len(), &machine);
        self.machines.push(machine);
    }

    /// Tells agents that what they watch of their rollouts has changed.
    pub(crate) fn tell_of_rollouts(&mut self, changes: &[Change]) {
        let real = changes.iter().filter(|change| !change.is_nothing);
        let tasks: BTreeSet<Watcher> =
            real.clone().flat_map(|change| self.watching.of_ranges(&change.key)).collect();
        self.watching.remember(changes);
        for Watcher { machine, process, task } in tasks {
            let is_slow = self.chance(self.scenario.network.is_slow);
            let delay = self.rng.u64(if is_slow { SLOW_MILLIS } else { NEWS_MILLIS });
            self.after(delay, Event::RolloutChanged { machine, process, task });
        }
    }
}

/// Returns the longest delay after the stage that was opened last.
fn opened_delay_of(order: InstructionOrder, world: &World) -> Option<Duration> {
    let found = world.store.read_all(&[], &[Prefix::OpenedOf(order)]);
    let last = found.entries.iter().max_by_key(|(_, entry)| entry.mod_revision);
    last.and_then(|(key, entry)| opened_delay(key, &entry.value))
}

impl Agent {
    /// Returns the delays until the rollout is read again.
    pub(crate) fn rollout_delays(&self) -> Range<u64> {
        match self.brakes.known() {
            Brakes::Known(view) if view.is_queued() && view.holders().is_some() => HOLDERS_MILLIS,
            Brakes::Known(view) if view.is_far_back() => QUEUE_READ_MILLIS,
            Brakes::Known(_) => READ_MILLIS,
            Brakes::Unasked | Brakes::Refused(..) => NEWS_MILLIS,
        }
    }

    /// Watches exactly these ranges, from a revision on.
    pub(crate) fn watch_rollout(&mut self, world: &mut World, ranges: &[Prefix], revision: i64) {
        if !world.scenario.is_scripted() {
            return;
        }
        let ranges: Vec<String> = ranges.iter().map(ToString::to_string).collect();
        self.rollout_news |= world.watching.has_changed(&ranges, revision);
        let watcher = Watcher { machine: self.machine, process: self.process, task: Task::Rollout };
        world.watching.watch(watcher, ranges);
        self.rollout_due(world);
    }

    /// Something that the agent watches of its rollout has changed.
    pub(crate) fn rollout_changed(&mut self, world: &mut World) -> Step {
        if self.brakes.wanted_since().is_none() {
            world.watching.forget(self.machine, Task::Rollout);
        } else if self.rollout_task == RolloutTask::Idle {
            let delay = match self.brakes.known() {
                Brakes::Known(view) if view.waits_for_stage() => {
                    let random = world.rng.f64();
                    let opened = opened_delay_of(view.order, world);
                    opened.map_or_else(|| view.stage_delay(random), |longest| longest.mul_f64(random))
                }
                _ => Duration::ZERO,
            };
            self.rollout_due_in(world, delay.as_millis() as u64);
        } else {
            self.rollout_news = true;
        }
        Ok(())
    }

    /// Reads again at once if something changed while the task did something, or if it changed something.
    pub(crate) fn rollout_answered(&mut self, world: &mut World) {
        let watches = world.scenario.is_scripted();
        if watches && self.rollout_task == RolloutTask::Idle && std::mem::take(&mut self.rollout_news) {
            let delay = world.rng.u64(NEWS_MILLIS);
            self.rollout_due_in(world, delay);
        }
    }
}
