//! Tests of what keeps a recording in order: checks, removals and erasures.

use super::*;

/// Returns what a check finds, as the kind and a part of the message of each diagnostic.
fn diagnostics(segments: &Segments) -> Vec<(DiagnosticKind, String)> {
    let diagnostics = Recording::new(segments.0.keys().cloned()).check(segments);
    diagnostics.into_iter().map(|found| (found.kind, found.message)).collect()
}

fn mark() -> Erased {
    Erased { at: 86_400_000, what: "the values of /b".into() }
}

#[test]
fn a_check_tells_faults_from_what_is_true_of_a_recording() {
    let history = nine();
    let check = |change: &dyn Fn(&mut Segments), expected: &[(DiagnosticKind, &str)]| {
        let mut segments = Segments::default();
        history.record("one", &[(2, 5), (5, 7), (7, 9)], &mut segments, branch("0"));
        change(&mut segments);
        let found = diagnostics(&segments);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for ((kind, message), (wanted, part)) in found.iter().zip(expected) {
            assert!(kind == wanted && message.contains(part), "{found:?}");
        }
        assert_eq!(found.iter().any(|(kind, _)| kind.is_fault()), expected.iter().any(|(k, _)| k.is_fault()));
    };
    let middle = &name("0", "one", 5);
    check(&|_| {}, &[]);
    let missing = "it continues revision 7, and the segment before it ends with 5";
    check(&|segments| _ = segments.0.remove(middle), &[(DiagnosticKind::Missing, missing)]);
    // Of a segment that cannot be read is not known whether the next one continues it.
    check(
        &|segments| segments.0.get_mut(middle).unwrap()[40] ^= 1,
        &[(DiagnosticKind::Unreadable, "it is damaged")],
    );
    check(
        &|segments| _ = segments.0.get_mut(&name("0", "one", 7)).unwrap().pop(),
        &[(DiagnosticKind::NotClosed, "it ends with 9")],
    );
    check(
        &|segments| history.record("one", &[(9, 9)], segments, branch("0")),
        &[(DiagnosticKind::Gap, "nothing is recorded between the revisions 9 and 9")],
    );
    check(&|segments| history.record("two", &[(3, 8)], segments, branch("0")), &[]);
    let other = StoreHistory::of((2..10).map(|revision| vec![put("/a", &format!("other {revision}"))]));
    check(
        &|segments| other.record("two", &[(6, 8)], segments, branch("0")),
        &[
            (DiagnosticKind::Contradiction, "two segments disagree about \"/a\" at revision 7"),
            (DiagnosticKind::Contradiction, "two segments disagree about \"/a\" at revision 6"),
        ],
    );
}

#[test]
fn what_ended_before_a_time_leaves_no_hole() {
    let history = nine();
    let mut segments = Segments::default();
    history.record("one", &[(2, 4), (4, 6), (6, 7)], &mut segments, branch("0"));
    history.record("one", &[(8, 9)], &mut segments, branch("1"));
    history.record("two", &[(3, 9)], &mut segments, branch("0"));
    let check = |time: i64, expected: &[SegmentName]| {
        assert_eq!(Recording::new(segments.0.keys().cloned()).ended_before(time), expected, "{time}");
    };
    check(3999, &[]);
    check(4000, &[name("0", "one", 2)]);
    check(7999, &[name("0", "one", 2), name("0", "one", 4)]);
    // The last segment of a recorder stays, and the last one of a branch does not.
    check(i64::MAX, &[name("0", "one", 2), name("0", "one", 4), name("0", "one", 6)]);
}

#[test]
fn erased_values_are_gone_and_everything_else_is_as_it_was() {
    let event = |key: &str| {
        let event = format!(
            r#"{{"format":1,"at":1,"by":"x","verb":"v","what":"{key}","from":"a-secret","to":"a-secret"}}"#
        );
        put(&format!("{}1", Prefix::Events), &event)
    };
    let history = StoreHistory::of([
        vec![put("/a", "one"), put("/b", "a-secret")],
        vec![put("/b", "a-secret of revision 3"), event("/b")],
        vec![("/b".into(), Some(b"\xffa-secret".to_vec())), event("/a")],
        vec![put("/a", "five")],
        vec![("/b".into(), None)],
    ]);
    let mut segments = Segments::default();
    history.record("one", &[(2, 6)], &mut segments, branch("0"));
    let of = name("0", "one", 2);
    let before: Vec<Entries> = (2..=6).map(|at| keys_at(&at.to_string(), &segments).unwrap()).collect();
    let erased = erase(&segments.0[&of], |key| key == "/b", &mark()).unwrap().expect("it had values");
    segments.0.insert(of.clone(), erased.clone());
    let segment = Segment::read(&erased).unwrap();
    assert!(segment.closed && segment.header.erased == [mark()]);
    let event_key = format!("{}1", Prefix::Events);
    for (at, before) in (2..=6).zip(before) {
        let after = keys_at(&at.to_string(), &segments).unwrap();
        assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
        for (key, entry) in after {
            let was = before[&key].clone();
            let expected = match key.as_str() {
                "/b" => Entry { value: ERASED.into(), ..was },
                _ if key == event_key && at == 3 => {
                    let text = String::from_utf8(entry.value.clone()).unwrap();
                    assert!(text.contains(r#""from":"(erased)","#) && !text.contains("a-secret"), "{text}");
                    Entry { value: entry.value.clone(), ..was }
                }
                _ => was,
            };
            assert_eq!(entry, expected, "{key} at {at}");
        }
    }
    assert_eq!(ask("3", &segments).unwrap().erased, [mark()]);
    // A second time, and of a key that is not there, nothing is left to do.
    assert_eq!(erase(&erased, |key| key == "/b", &mark()), Ok(None));
    assert_eq!(erase(&erased, |key| key == "/other", &mark()), Ok(None));
    // A further erasure keeps the first mark.
    let both = erase(&erased, |key| key == "/a", &mark()).unwrap().expect("it had values");
    assert_eq!(Segment::read(&both).unwrap().header.erased, [mark(), mark()]);
}

#[test]
fn an_erased_value_contradicts_none_and_its_revision_is_still_compared() {
    let history = nine();
    let mut segments = Segments::default();
    history.record("one", &[(2, 9)], &mut segments, branch("0"));
    history.record("two", &[(2, 9)], &mut segments, branch("0"));
    let of = name("0", "one", 2);
    let erased = erase(&segments.0[&of], |key| key == "/b", &mark()).unwrap().expect("it had values");
    segments.0.insert(of, erased);
    assert_eq!(keys_at("4", &segments).unwrap()["/b"].value, ERASED.as_bytes());
    let other =
        StoreHistory::of((2..10).map(|revision| vec![put("/a", &revision.to_string()), put("/b", "other")]));
    other.record("two", &[(2, 9)], &mut segments, branch("0"));
    assert!(keys_at("4", &segments).unwrap_err().contains("disagree about \"/b\""));
}

#[test]
fn only_a_closed_and_whole_segment_is_rewritten() {
    let history = nine();
    let mut segments = Segments::default();
    history.record("one", &[(2, 9)], &mut segments, branch("0"));
    let bytes = &segments.0[&name("0", "one", 2)];
    let try_to = |bytes: &[u8]| erase(bytes, |_| true, &mark());
    assert_eq!(try_to(&bytes[..bytes.len() - 1]), Err(SegmentError::Unfinished));
    let mut damaged = bytes.clone();
    damaged[40] ^= 1;
    assert!(matches!(try_to(&damaged), Err(SegmentError::Damaged { .. })));
}

proptest! {
    #[test]
    fn an_erased_segment_is_whole_whatever_it_held(writes in writes()) {
        let history = StoreHistory::of(writes);
        let mut segments = Segments::default();
        let of = name("0", "one", 2);
        history.record("one", &[(2, history.revision())], &mut segments, branch("0"));
        let erased = erase(&segments.0[&of], |key| key.starts_with("/orchestrate/"), &mark()).unwrap();
        let before = Segment::read(&segments.0[&of]).unwrap();
        let after = erased.map_or(before.clone(), |bytes| Segment::read(&bytes).unwrap());
        prop_assert_eq!(after.last_revision(), before.last_revision());
        for revision in 2..=history.revision() {
            let keys = after.clone().into_keys_at(revision).unwrap();
            for (key, entry) in before.clone().into_keys_at(revision).unwrap() {
                let is_erased = key.starts_with("/orchestrate/");
                let now = keys[&key].clone().into_entry();
                let then = entry.into_entry();
                prop_assert_eq!(&now.value, if is_erased { ERASED.as_bytes() } else { &then.value[..] });
                prop_assert_eq!(Entry { value: Vec::new(), ..now }, Entry { value: Vec::new(), ..then });
            }
        }
    }
}
