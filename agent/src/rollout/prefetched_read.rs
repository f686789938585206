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

    /// True if it says more than a read of this history of the store, and lacks no change that was received.
    /// `read_at` is the revision of the read, `changed_at` that of the newest change.
    pub(crate) fn is_newer(&self, history: u64, read_at: i64, changed_at: i64) -> bool {
        self.history == history && self.found.revision > read_at && self.found.revision >= changed_at
    }

    /// Returns what was read, and what was found; `None` if these reads are not all among them.
    pub(crate) fn with_all(&self, reads: &[Read]) -> Option<(&[Read], &KeySnapshot)> {
        has_all(&self.reads, reads).then_some((&self.reads, &self.found))
    }
}

/// True if these reads are among others.
pub(crate) fn has_all(others: &[Read], reads: &[Read]) -> bool {
    reads.iter().all(|read| others.contains(read))
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::keys::Key;

    const MARKS: Marks = Marks { history: 2, revision: 10, raft_term: 3 };

    fn found(revision: i64) -> Option<FoundRollout> {
        let found = KeySnapshot { revision, raft_term: 3, ..KeySnapshot::default() };
        FoundRollout::new(&MARKS, &[Read::Key(Key::Store), Read::Key(Key::RolloutPolicy)], found)
    }

    #[test]
    fn what_a_transaction_read_is_used_only_if_it_lacks_nothing() {
        let check = |history: u64, read_at: i64, changed_at: i64, expected: bool| {
            let is_newer = found(20).is_some_and(|found| found.is_newer(history, read_at, changed_at));
            assert_eq!(is_newer, expected, "{history} {read_at} {changed_at}");
        };
        check(2, 0, 0, true);
        check(2, 19, 20, true);
        check(2, 20, 20, false);
        // A change was received that the transaction did not see.
        check(2, 19, 21, false);
        check(2, 0, i64::MAX, false);
        check(3, 0, 0, false);
        assert_eq!(found(9), None, "the store went back before the transaction");
    }

    #[test]
    fn what_a_transaction_read_is_used_only_if_it_is_enough() {
        let found = found(20).expect("present");
        assert!(found.with_all(&[Read::Key(Key::RolloutPolicy)]).is_some());
        assert!(found.with_all(&[Read::Key(Key::RolloutPolicy), Read::Key(Key::Trigger)]).is_none());
    }
}
