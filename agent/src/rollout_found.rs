//! What a transaction of this host read of its rollout, so that it is not read once more.

use schema::reads::Read;
use schema::snapshot::KeySnapshot;
use schema::store_marks::Marks;

/// What a transaction read of the rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundRollout {
    history: u64,
    reads: Vec<Read>,
    found: KeySnapshot,
}

impl FoundRollout {
    /// Returns all that these reads found; `None` if the store is behind the marks, which were taken before the
    /// transaction was sent.
    pub(crate) fn new(marks: &Marks, reads: &[Read], found: KeySnapshot) -> Option<Self> {
        let is_present = marks.regress(&found).is_none();
        is_present.then(|| Self { history: marks.history, reads: reads.to_vec(), found })
    }

    /// Returns what was read, and what was found; `None` if it is of another history of the store, not newer than a
    /// revision, or not as much as these reads.
    pub(crate) fn newer_than(
        &self,
        (history, revision): (u64, i64),
        reads: &[Read],
    ) -> Option<(&[Read], &KeySnapshot)> {
        let is_newer = self.history == history && self.found.revision > revision;
        (is_newer && has_all(&self.reads, reads)).then_some((&self.reads, &self.found))
    }
}

/// True if these reads are among others.
pub(crate) fn has_all(others: &[Read], reads: &[Read]) -> bool {
    reads.iter().all(|read| others.contains(read))
}
