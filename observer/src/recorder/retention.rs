//! Which segments of a recorder go. Pure decisions about a list.

use archive::recording::{ListedSegment, Recording, SegmentName};
use std::time::Duration;

/// What bounds the segments of a recorder in its directory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// How long they are kept.
    pub(super) keep: Duration,
    /// How much they take at most, in bytes.
    pub(super) max_bytes: u64,
}

/// A segment of a recorder in its directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OwnSegment {
    pub(super) listed: ListedSegment,
    /// True if it is in the object store too.
    pub(super) is_uploaded: bool,
}

/// What is to be done about the segments of a recorder in its directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tidying {
    /// These are removed because they are old, the oldest first.
    pub(super) expired: Vec<SegmentName>,
    /// These are removed because there is no room for them, the oldest first.
    pub(super) crowded_out: Vec<SegmentName>,
    /// How much remains, in bytes.
    pub(super) bytes: u64,
    /// True if nothing more may be recorded, because what waits for its upload takes all room.
    pub(super) is_full: bool,
}

impl Bounds {
    /// Returns the time before which segments are old, in milliseconds since 1970. `own` are all segments of the recorder.
    ///
    /// A clock that leaps ahead would make all of them old at once. So the time does not pass faster than segments are
    /// written: one that is [`LEAP_SEGMENTS`] back is at most [`LEAP`] old.
    pub(super) fn oldest<'a>(&self, own: impl Iterator<Item = &'a SegmentName>, now: i64) -> i64 {
        let mut begun: Vec<i64> = own.map(|name| name.begun).collect();
        begun.sort_unstable();
        let back = begun.get(begun.len().saturating_sub(LEAP_SEGMENTS));
        let passed = back.map_or(now, |begun| begun.saturating_add(millis(LEAP)).min(now));
        passed.saturating_sub(millis(self.keep))
    }
}

/// Number of segments that a recorder writes before it believes a clock that leapt ahead: some hours of them, or a day if
/// nothing changes.
const LEAP_SEGMENTS: usize = 24;
/// How far a clock may be ahead of the segment that is so many back. A segment without changes lasts an hour.
const LEAP: Duration = Duration::from_secs(2 * 24 * 3600);

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl Bounds {
    /// Decides about the segments of one recorder, which `uploads` them or does not. No hole appears: without an object store
    /// the oldest ones go first, and with one only what is in it makes room. The last segment stays, because it may still grow.
    pub(super) fn tidy(&self, mut own: Vec<OwnSegment>, uploads: bool, now: i64) -> Tidying {
        // A clock that goes back makes equal times.
        own.sort_by_key(|segment| (segment.listed.name.begun, segment.listed.name.revision));
        let recording = Recording::new(own.iter().map(|segment| segment.listed.name.clone()));
        let expired =
            recording.ended_before(self.oldest(own.iter().map(|segment| &segment.listed.name), now));
        own.retain(|segment| !expired.contains(&segment.listed.name));
        let mut bytes: u64 = own.iter().map(|segment| segment.listed.bytes).sum();
        let waiting: u64 =
            own.iter().filter(|segment| !segment.is_uploaded).map(|segment| segment.listed.bytes).sum();
        own.pop();
        let mut crowded_out = Vec::new();
        for segment in own {
            if bytes <= self.max_bytes {
                break;
            }
            if segment.is_uploaded || !uploads {
                bytes -= segment.listed.bytes;
                crowded_out.push(segment.listed.name);
            }
        }
        let is_full = uploads && waiting > self.max_bytes;
        Tidying { expired, crowded_out, bytes, is_full }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archive::recording::Branch;
    use schema::names::Token;

    fn segment(begun: i64, bytes: u64) -> ListedSegment {
        let token = |text: &str| Token::new(text).unwrap();
        let branch = Branch { lineage: token("l"), epoch: 1, branch: token("0") };
        let name = SegmentName { branch, recorder: token("one"), revision: begun, begun: begun * 1000 };
        ListedSegment { name, bytes }
    }

    #[test]
    fn a_clock_that_leaps_ahead_makes_nothing_old_before_a_day_of_segments() {
        let bounds = Bounds { keep: Duration::from_secs(30 * 86_400), max_bytes: 1_000 };
        let expired = |begun: &[i64], now: i64| {
            let own = begun.iter().map(|begun| OwnSegment { listed: segment(*begun, 1), is_uploaded: false });
            bounds.tidy(own.collect(), false, now * 1000).expired.len()
        };
        let day = 86_400;
        let month: Vec<i64> = (0..29).map(|n| n * day).collect();
        let (leapt, right) = (69 * day, 29 * day);
        assert_eq!(expired(&month, right), 0);
        assert_eq!(expired(&month, leapt), 0);
        let after = |count: i64| {
            let own = month.iter().copied().chain((0..count).map(|n| leapt + n * 3_600)).collect::<Vec<_>>();
            expired(&own, leapt + count * 3_600)
        };
        assert_eq!(after(12), 0);
        assert_eq!(after(30), 28);
    }

    #[test]
    fn old_segments_go_and_then_those_that_may_make_room() {
        let bounds = Bounds { keep: Duration::from_secs(60), max_bytes: 100 };
        let check = |own: &[(i64, u64)], uploaded: Option<&[i64]>, expected: (&[i64], &[i64], u64, bool)| {
            let segments = own.iter().map(|(begun, bytes)| OwnSegment {
                listed: segment(*begun, *bytes),
                is_uploaded: uploaded.is_some_and(|uploaded| uploaded.contains(begun)),
            });
            let segments: Vec<OwnSegment> = segments.collect();
            let names = |begun: &[i64]| begun.iter().map(|begun| segment(*begun, 0).name).collect::<Vec<_>>();
            let (expired, crowded_out, bytes, is_full) = expected;
            let expected =
                Tidying { expired: names(expired), crowded_out: names(crowded_out), bytes, is_full };
            assert_eq!(bounds.tidy(segments, uploaded.is_some(), 1_000_000), expected, "{own:?}");
        };
        check(&[], None, (&[], &[], 0, false));
        // One that began before the limit may have ended after it.
        check(&[(930, 10), (939, 10), (941, 10)], None, (&[930], &[], 20, false));
        check(&[(990, 40), (991, 40), (992, 30), (993, 40)], None, (&[], &[990, 991], 70, false));
        check(&[(990, 10), (991, 400)], None, (&[], &[990], 400, false));
        // With an object store, what is not in it stays, and then nothing more is recorded.
        check(&[(990, 40), (991, 40), (992, 40)], Some(&[991]), (&[], &[991], 80, false));
        check(&[(990, 60), (991, 40), (992, 40)], Some(&[991]), (&[], &[991], 100, false));
        check(&[(990, 61), (991, 40), (992, 40)], Some(&[991]), (&[], &[991], 101, true));
        check(&[(990, 60), (991, 40), (992, 40)], Some(&[]), (&[], &[], 140, true));
        check(&[(900, 60), (991, 40), (992, 40)], Some(&[]), (&[], &[], 140, true));
        check(&[(900, 60), (930, 40), (992, 40)], Some(&[]), (&[900], &[], 80, false));
        // The last one stays even if it is too large, and then the next one makes it go.
        check(&[(992, 400)], Some(&[]), (&[], &[], 400, true));
        check(&[(992, 400)], Some(&[992]), (&[], &[], 400, false));
        check(&[(992, 400), (993, 10)], Some(&[992]), (&[], &[992], 10, false));
    }
}
