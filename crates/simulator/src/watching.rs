//! Who watches which keys.

use crate::machine::Machine;
use crate::store::Change;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The machines whose agents watch keys and ranges.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watching {
    keys: BTreeMap<String, BTreeSet<usize>>,
    /// The ranges of rollouts, with machine and process.
    ranges: BTreeMap<String, BTreeSet<(usize, u64)>>,
    /// The ranges of each machine.
    of_machine: BTreeMap<usize, (u64, Vec<String>)>,
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

    /// An agent watches exactly these ranges from now on.
    pub(crate) fn watch(&mut self, (machine, process): (usize, u64), ranges: Vec<String>) {
        self.forget(machine);
        for range in &ranges {
            self.ranges.entry(range.clone()).or_default().insert((machine, process));
        }
        self.of_machine.insert(machine, (process, ranges));
    }

    /// The agent of a machine watches no range any more.
    pub(crate) fn forget(&mut self, machine: usize) {
        let Some((process, ranges)) = self.of_machine.remove(&machine) else { return };
        for range in ranges {
            if let Some(watching) = self.ranges.get_mut(&range) {
                watching.remove(&(machine, process));
            }
        }
    }

    /// Remembers changes.
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

    /// Returns the agents that watch a range with this key.
    pub(crate) fn of_ranges(&self, key: &str) -> impl Iterator<Item = (usize, u64)> {
        (1..=key.len()).filter_map(|end| self.ranges.get(key.get(..end)?)).flatten().copied()
    }
}
