//! How new a snapshot is. A read of the store shows a revision; a snapshot that reaches it is as new as the start of the
//! read.

use tokio::time::Instant;

/// A revision that the store had, and when the read that showed it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reading {
    revision: i64,
    began: Instant,
}

/// The reading that a snapshot has to catch up with.
#[derive(Debug, Default)]
pub(crate) struct Freshness {
    awaited: Option<Reading>,
}

impl Freshness {
    /// Notes what a read showed. An earlier reading that was not reached yet is reached sooner, so it stays. But if it
    /// was higher, it is of a store that was restored since.
    pub(crate) fn note(&mut self, revision: i64, began: Instant) {
        if self.awaited.is_none_or(|awaited| awaited.revision > revision) {
            self.awaited = Some(Reading { revision, began });
        }
    }

    /// Returns the revision that the snapshot has to reach; 0 if it has reached all.
    pub(crate) fn awaited(&self) -> i64 {
        self.awaited.map_or(0, |awaited| awaited.revision)
    }

    /// Returns the time before which everything is in a snapshot of this revision, if a reading proves one again.
    pub(crate) fn reach(&mut self, revision: i64) -> Option<Instant> {
        self.awaited.take_if(|awaited| awaited.revision <= revision).map(|awaited| awaited.began)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_snapshot_is_as_new_as_the_begin_of_the_reads_that_it_has_reached() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut freshness = Freshness::default();
        assert_eq!((freshness.awaited(), freshness.reach(9)), (0, None));
        freshness.note(10, at(1));
        freshness.note(12, at(2));
        assert_eq!((freshness.awaited(), freshness.reach(9)), (10, None));
        assert_eq!(freshness.reach(11), Some(at(1)));
        assert_eq!(freshness.reach(11), None, "it proves nothing new");
        freshness.note(12, at(3));
        assert_eq!(freshness.reach(12), Some(at(3)));
        // The last read of a store that was restored to revision 5.
        freshness.note(1000, at(4));
        freshness.note(6, at(5));
        assert_eq!((freshness.awaited(), freshness.reach(6)), (6, Some(at(5))));
    }
}
