//! Tests of what changed before a moment.

use super::*;

/// Returns the history from a second to a revision, as its first keys, its steps and its gaps.
fn history(from: i64, to: i64, segments: &Segments) -> Option<(Entries, Vec<i64>, Vec<String>)> {
    let moment = Moment { branch: branch("0"), revision: to };
    let found =
        Recording::new(segments.0.keys().cloned()).history(from * 1000, &moment, |_| true, segments)?;
    let keys = found.keys.into_iter().map(|(key, entry)| (key, entry.into_entry())).collect();
    Some((keys, found.steps.iter().map(|step| step.revision).collect(), found.gaps))
}

#[test]
fn what_changed_is_told_across_segments_and_a_gap_is_a_difference() {
    let nine = nine();
    let check = |parts: &[(i64, i64)], (from, to): (i64, i64), steps: &[i64], gaps: &[&str]| {
        let mut segments = Segments::default();
        nine.record("one", parts, &mut segments, branch("0"));
        let (keys, found, found_gaps) = history(from, to, &segments).expect("a history");
        let first = from.max(parts[0].0) as usize;
        assert_eq!(keys, nine.states[first], "{parts:?} from {from}");
        assert_eq!(found, steps, "{parts:?} from {from} to {to}");
        assert_eq!(found_gaps.len(), gaps.len(), "{found_gaps:?}");
        assert!(
            found_gaps.iter().zip(gaps).all(|(found_gaps, part)| found_gaps.contains(part)),
            "{found_gaps:?}"
        );
    };
    check(&[(2, 9)], (4, 7), &[5, 6, 7], &[]);
    check(&[(2, 5), (5, 9)], (4, 7), &[5, 6, 7], &[]);
    check(&[(2, 5), (5, 9)], (5, 9), &[6, 7, 8, 9], &[]);
    check(&[(2, 9)], (9, 9), &[], &[]);
    check(&[(4, 9)], (2, 6), &[5, 6], &["nothing is recorded before 1970-01-01T00:00:04"]);
    check(
        &[(2, 4), (7, 9)],
        (3, 8),
        &[4, 7, 8],
        &["between the revisions 4 and 7 only the difference is known"],
    );
    // A gap before the start does not matter.
    check(&[(2, 3), (5, 9)], (7, 8), &[8], &[]);
}

#[test]
fn the_recorder_with_the_fewest_gaps_tells_and_a_moment_that_nobody_knows_has_no_history() {
    let nine = nine();
    let mut segments = Segments::default();
    nine.record("one", &[(2, 4), (7, 9)], &mut segments, branch("0"));
    nine.record("two", &[(2, 8)], &mut segments, branch("0"));
    let (_, steps, gaps) = history(3, 8, &segments).expect("a history");
    assert_eq!((steps, gaps), (vec![4, 5, 6, 7, 8], vec![]));
    assert_eq!(history(3, 12, &segments), None);
    // A segment that cannot be read is said, and the others still tell.
    segments.0.retain(|name, _| name.recorder == token("one"));
    nine.record("one", &[(4, 7)], &mut segments, branch("0"));
    segments.0.get_mut(&name("0", "one", 4)).expect("a segment")[40] ^= 1;
    let (_, steps, gaps) = history(3, 8, &segments).expect("a history");
    assert_eq!(steps, [4, 7, 8]);
    assert!(gaps[0].contains("it is damaged") && gaps[1].contains("only the difference"), "{gaps:?}");
}

proptest! {
    #[test]
    fn the_changes_lead_from_the_first_keys_to_the_last_ones(
        writes in writes(),
        cuts in prop::collection::btree_set(2..30i64, 0..4),
        from in 0..30i64,
    ) {
        let of = StoreHistory::of(writes);
        let last = of.revision();
        let mut ends: Vec<i64> = cuts.into_iter().filter(|cut| (2..last).contains(cut)).collect();
        ends.push(last);
        let mut first = 2;
        let parts: Vec<(i64, i64)> = ends.iter().map(|end| (std::mem::replace(&mut first, *end), *end)).collect();
        let mut segments = Segments::default();
        of.record("one", &parts, &mut segments, branch("0"));
        let moment = Moment { branch: branch("0"), revision: last };
        let found = Recording::new(segments.0.keys().cloned()).history(from * 1000, &moment, |_| true, &segments).unwrap();
        let mut keys = found.keys;
        for (key, entry) in found.steps.into_iter().flat_map(|step| step.changes) {
            match entry {
                Some(entry) => _ = keys.insert(key, entry),
                None => _ = keys.remove(&key),
            }
        }
        let keys: Entries = keys.into_iter().map(|(key, entry)| (key, entry.into_entry())).collect();
        prop_assert_eq!(&keys, of.states.last().unwrap());
    }
}
