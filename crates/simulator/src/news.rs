//! How agents hear of changes in their rollouts. In fleets of scripts agents also watch their rollouts, as the real agents do; in
//! drawn fleets they read them at intervals, and the seeds mean the same fleets as ever.

use crate::agent::{Agent, RolloutTask, Step};
use crate::event::Event;
use crate::machine::Machine;
use crate::store::Change;
use crate::world::World;
use planning::host::Brakes;
use schema::keys::Prefix;
use std::collections::BTreeSet;
use std::ops::Range;

/// The delays of `agent/src/rollout.rs`: until everything is read again though no watch said that it changed, the
/// same far back in a queue, and until the first host that waits looks after the holders again.
const READ_MILLIS: Range<u64> = 15_000..45_000;
const QUEUE_READ_MILLIS: Range<u64> = 150_000..450_000;
const HOLDERS_MILLIS: Range<u64> = 15_000..20_000;
/// Delay of a watch, with the time in which other changes are awaited.
const NEWS_MILLIS: Range<u64> = 20..60;
/// Delay after a change that may open the stage of the host.
const STAGE_MILLIS: Range<u64> = 20..5_000;

impl World {
    /// Adds a machine.
    pub(crate) fn add_machine(&mut self, machine: Machine) {
        self.watching.add(self.machines.len(), &machine);
        self.machines.push(machine);
    }

    /// Tells agents that what they watch of their rollouts has changed.
    pub(crate) fn tell_of_rollouts(&mut self, changes: &[Change]) {
        let real = changes.iter().filter(|change| !change.is_nothing);
        let agents: BTreeSet<(usize, u64)> =
            real.clone().flat_map(|change| self.watching.of_ranges(&change.key)).collect();
        if self.scenario.is_scripted() {
            self.watching.remember(changes);
        }
        for (machine, process) in agents {
            let delay = self.rng.u64(NEWS_MILLIS);
            self.after(delay, Event::RolloutChanged { machine, process });
        }
    }
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
        world.watching.watch((self.machine, self.process), ranges);
        self.rollout_due(world);
    }

    /// Something that the agent watches of its rollout has changed.
    pub(crate) fn rollout_changed(&mut self, world: &mut World) -> Step {
        if self.brakes.wanted_since().is_none() {
            world.watching.forget(self.machine);
        } else if self.rollout_task == RolloutTask::Idle {
            let waits = matches!(self.brakes.known(), Brakes::Known(view) if view.waits_for_stage());
            let delay = if waits { world.rng.u64(STAGE_MILLIS) } else { 0 };
            self.rollout_due_in(world, delay);
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
