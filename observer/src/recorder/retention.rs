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
    /// Returns the time before which segments are old, in milliseconds since 1970.
    pub(super) fn oldest(&self, now: i64) -> i64 {
        now.saturating_sub(i64::try_from(self.keep.as_millis()).unwrap_or(i64::MAX))
    }

    /// Decides about the segments of one recorder, which `uploads` them or does not. No hole appears: without an object store
    /// the oldest ones go first, and with one only what is in it makes room. The last segment stays, because it may still grow.
    pub(super) fn tidy(&self, mut own: Vec<OwnSegment>, uploads: bool, now: i64) -> Tidying {
        // A clock that goes back makes equal times.
        own.sort_by_key(|segment| (segment.listed.name.begun, segment.listed.name.revision));
        let recording = Recording::new(own.iter().map(|segment| segment.listed.name.clone()));
        let expired = recording.ended_before(self.oldest(now));
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
