//! Who watches which keys.

use crate::event::Task;
use crate::machine::Machine;
use crate::store::Change;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A task of a process of an agent on a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Watcher {
    pub(crate) machine: usize,
    pub(crate) process: u64,
    pub(crate) task: Task,
}

/// The machines whose agents watch keys and ranges.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watching {
    keys: BTreeMap<String, BTreeSet<usize>>,
    /// The ranges of rollouts, with the tasks that watch them.
    ranges: BTreeMap<String, BTreeSet<Watcher>>,
    /// The ranges of each task.
    of_task: BTreeMap<(usize, Task), (u64, Vec<String>)>,
    /// The last changes: a watch begins at the revision of a read, though its answer comes later.
    recent: VecDeque<(i64, String)>,
}

/// Number of changes that are remembered.
const RECENT: usize = 500;

impl Watching {
    /// Adds a machine, whose agents watch its keys.
    pub(crate) fn add(&mut self, number: usize, machine: &Machine) {
        for key in &machine.watched {
            self.keys.entry(key.clone()).or_default().insert(number);
        }
    }

    /// Returns the machines that watch one of these keys.
    pub(crate) fn of_keys(&self, changes: &[Change]) -> BTreeSet<usize> {
        changes.iter().filter_map(|change| self.keys.get(&change.key)).flatten().copied().collect()
    }

    /// A task of an agent watches exactly these ranges from now on.
    pub(crate) fn watch(&mut self, watcher: Watcher, ranges: Vec<String>) {
        let Watcher { machine, process, task } = watcher;
        self.forget(machine, task);
        for range in &ranges {
            self.ranges.entry(range.clone()).or_default().insert(watcher);
        }
        self.of_task.insert((machine, task), (process, ranges));
    }

    /// A task of the agent of a machine watches no range any more.
    pub(crate) fn forget(&mut self, machine: usize, task: Task) {
        let Some((process, ranges)) = self.of_task.remove(&(machine, task)) else { return };
        for range in ranges {
            if let Some(watching) = self.ranges.get_mut(&range) {
                watching.remove(&Watcher { machine, process, task });
            }
        }
    }

    pub(crate) fn remember(&mut self, changes: &[Change]) {
        let real = changes.iter().filter(|change| !change.is_nothing);
        self.recent.extend(real.map(|change| (change.revision, change.key.clone())));
        let excess = self.recent.len().saturating_sub(RECENT);
        self.recent.drain(..excess);
    }

    /// True if a key of these ranges changed after a revision.
    pub(crate) fn has_changed(&self, ranges: &[String], revision: i64) -> bool {
        let later = self.recent.iter().rev().take_while(|(at, _)| *at > revision);
        later.into_iter().any(|(_, key)| ranges.iter().any(|range| key.starts_with(range.as_str())))
    }

    /// Returns the tasks that watch a range with this key.
    pub(crate) fn of_ranges(&self, key: &str) -> impl Iterator<Item = Watcher> {
        (1..=key.len()).filter_map(|end| self.ranges.get(key.get(..end)?)).flatten().copied()
    }
}
