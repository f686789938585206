//! When the store came to a revision, by the clock of this machine.

use archive::recording::Between;
use std::collections::VecDeque;

/// Number of readings that are remembered. There is one each second, and changes arrive much sooner than the oldest.
const REMEMBERED: usize = 64;

/// What reads of the store have shown. A read that shows a revision proves that later ones came after its start.
#[derive(Debug, Default)]
pub(super) struct Times {
    /// Revisions, each with the start of the last read that showed it, in milliseconds since 1970. Both only grow.
    readings: VecDeque<(i64, i64)>,
}

impl Times {
    /// Notes a read that began at a time and showed a revision.
    pub(super) fn note(&mut self, revision: i64, began: i64) {
        match self.readings.back_mut() {
            Some((last, at)) if *last == revision => *at = began.max(*at),
            Some((last, _)) if *last > revision => {}
            _ => self.readings.push_back((revision, began)),
        }
        if self.readings.len() > REMEMBERED {
            self.readings.pop_front();
        }
    }

    /// Returns the times between which the store came to a revision that was seen at `by`.
    pub(super) fn between(&self, revision: i64, by: i64) -> Between {
        let before = self.readings.iter().rev().find(|(read, _)| *read < revision);
        Between { after: before.map(|(_, began)| *began).filter(|after| *after <= by), by }
    }

    /// Forgets everything, because the store has another history.
    pub(super) fn clear(&mut self) {
        self.readings.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_came_after_the_last_read_that_did_not_show_it() {
        let mut times = Times::default();
        let after = |times: &Times, revision| times.between(revision, 5_000).after;
        assert_eq!(after(&times, 7), None);
        times.note(7, 1_000);
        times.note(7, 2_000);
        times.note(9, 3_000);
        // An answer of a member that is behind.
        times.note(8, 4_000);
        assert_eq!(
            [7, 8, 9, 10].map(|revision| after(&times, revision)),
            [None, Some(2_000), Some(2_000), Some(3_000)]
        );
        times.note(12, 9_000);
        assert_eq!(after(&times, 13), None, "this clock went back");
        (0..200).for_each(|n| times.note(20 + n, 10_000 + n));
        assert_eq!(times.between(20, 20_000).after, None, "too long ago to be remembered");
        assert_eq!(times.between(219, 20_000).after, Some(10_198));
        times.clear();
        assert_eq!(after(&times, 1000), None);
    }
}
