//! Tests of recordings: random histories, damage, several recorders, and the golden recording.
//!
//! This file is long because all tests record the same store.

use super::*;
use proptest::prelude::*;
use schema::keys::Prefix;
use schema::names::Token;
use schema::snapshot::{Entry, KeySnapshot};
use std::collections::BTreeMap;

mod history;
mod upkeep;

type Entries = BTreeMap<String, Entry>;
/// A key that changes, with its new value; `None` deletes it.
type Write = (String, Option<Vec<u8>>);

#[derive(Debug, Default)]
struct Segments(BTreeMap<SegmentName, Vec<u8>>);

impl Source for Segments {
    fn load(&self, name: &SegmentName) -> Result<Vec<u8>, PlaceError> {
        self.0.get(name).cloned().ok_or(PlaceError::Gone)
    }
}

fn token(text: &str) -> Token {
    Token::new(text).unwrap()
}

fn branch(name: &str) -> Branch {
    Branch { lineage: token("lineage"), epoch: 1, branch: token(name) }
}

/// A store whose every state is kept. Revision R is at second R.
#[derive(Debug, Clone, Default)]
struct StoreHistory {
    states: Vec<Entries>,
    changes: Vec<Vec<(String, Option<Entry>)>>,
}

impl StoreHistory {
    /// Revision 1 is empty, as in an etcd without keys.
    fn new() -> Self {
        Self { states: vec![Entries::new(); 2], changes: vec![Vec::new(); 2] }
    }

    fn revision(&self) -> i64 {
        self.states.len() as i64 - 1
    }

    fn write(&mut self, writes: Vec<Write>) {
        let revision = self.revision() + 1;
        let mut state = self.states.last().unwrap().clone();
        let mut changes = Vec::new();
        for (key, value) in writes {
            let before = state.remove(&key);
            let entry = value.map(|value| Entry {
                value,
                create_revision: before.as_ref().map_or(revision, |before| before.create_revision),
                mod_revision: revision,
                lease: revision % 3,
                version: before.as_ref().map_or(1, |before| before.version + 1),
            });
            if let Some(entry) = &entry {
                state.insert(key.clone(), entry.clone());
            }
            changes.push((key, entry));
        }
        self.states.push(state);
        self.changes.push(changes);
    }

    fn of(writes: impl IntoIterator<Item = Vec<Write>>) -> Self {
        let mut history = Self::new();
        writes.into_iter().for_each(|writes| history.write(writes));
        history
    }

    /// Records the revisions from one to another as a segment.
    fn segment(&self, (first, last): (i64, i64), of: &SegmentName, continues: bool) -> Vec<u8> {
        let mut writer = self.begin(first, of, continues);
        for revision in first + 1..=last {
            let between = Between { after: Some(revision * 1000 - 100), by: revision * 1000 };
            let changes = &self.changes[revision as usize];
            writer.change(revision, between, false, changes).unwrap();
        }
        writer.finish().unwrap()
    }

    fn begin(&self, first: i64, of: &SegmentName, continues: bool) -> SegmentWriter<Vec<u8>> {
        let header = Header {
            format: 0,
            program: "test".into(),
            lineage: of.branch.lineage.clone(),
            epoch: of.branch.epoch,
            branch: of.branch.branch.clone(),
            recorder: of.recorder.clone(),
            revision: 0,
            keys: 0,
            between: Between { after: None, by: of.begun },
            restored: false,
            continues,
            gap: None,
            erased: Vec::new(),
        };
        let entries = self.states[first as usize].clone();
        let snapshot = KeySnapshot { revision: first, raft_term: 1, entries };
        SegmentWriter::begin(Vec::new(), header, &snapshot, Concealer::new(b"key")).unwrap()
    }

    /// Returns segments with these revisions, all of one recorder. Each continues the one before if that ends with
    /// its first revision.
    fn record(&self, recorder: &str, parts: &[(i64, i64)], into: &mut Segments, branch: Branch) {
        let mut before = None;
        for &(first, last) in parts {
            let name = SegmentName {
                branch: branch.clone(),
                recorder: token(recorder),
                revision: first,
                begun: first * 1000,
            };
            let bytes = self.segment((first, last), &name, before == Some(first));
            into.0.insert(name, bytes);
            before = Some(last);
        }
    }
}

fn put(key: &str, value: &str) -> Write {
    (key.to_owned(), Some(value.as_bytes().to_vec()))
}

fn name(branch_name: &str, recorder: &str, revision: i64) -> SegmentName {
    SegmentName { branch: branch(branch_name), recorder: token(recorder), revision, begun: revision * 1000 }
}

fn ask(at: &str, segments: &Segments) -> Result<Past, RecordingError> {
    let at = At::read(at, 0).unwrap_or_else(|error| panic!("{error}"));
    Recording::new(segments.0.keys().cloned()).at(&at, segments)
}

/// Returns the keys at a moment, or why they are not known.
fn keys_at(at: &str, segments: &Segments) -> Result<Entries, String> {
    ask(at, segments).map(|past| past.into_snapshot().entries).map_err(|error| error.to_string())
}

/// Revisions 2 to 9, each of which changes key `a`, and some others.
fn nine() -> StoreHistory {
    StoreHistory::of((2..10).map(|revision| {
        let mut writes = vec![put("/a", &revision.to_string())];
        match revision {
            3 => writes.push(put("/b", "three")),
            5 => writes.push(("/b".into(), None)),
            7 => writes.push(("/c".into(), Some(vec![0xff, 0]))),
            _ => {}
        }
        writes
    }))
}

fn writes() -> impl Strategy<Value = Vec<Vec<Write>>> {
    let value = prop_oneof![
        prop::option::of(prop::collection::vec(any::<u8>(), 0..40)),
        ".{0,20}".prop_map(|text| Some(text.into_bytes())),
    ];
    let keys = prop::sample::subsequence(vec!["/a", "/b", "/orchestrate/c", "/orchestrate/d\n\""], 1..4);
    let of_revision = (keys, prop::collection::vec(value, 4));
    let of_revision = of_revision.prop_map(|(keys, values)| {
        keys.into_iter().zip(values).map(|(key, value)| (key.to_owned(), value)).collect()
    });
    prop::collection::vec(of_revision, 1..30)
}

proptest! {
    #[test]
    fn every_revision_is_as_it_was(writes in writes(), cuts in prop::collection::btree_set(1..30i64, 0..4)) {
        let history = StoreHistory::of(writes);
        let last = history.revision();
        let mut ends: Vec<i64> = cuts.into_iter().filter(|cut| *cut < last).collect();
        ends.insert(0, 1);
        ends.push(last);
        let parts: Vec<(i64, i64)> = ends.windows(2).map(|ends| (ends[0], ends[1])).collect();
        let mut segments = Segments::default();
        history.record("r", &parts, &mut segments, branch("b"));
        for revision in 1..=last {
            let past = ask(&revision.to_string(), &segments).unwrap();
            prop_assert_eq!(&past.clone().into_snapshot().entries, &history.states[revision as usize]);
            prop_assert_eq!(past.moment.revision, revision);
        }
        prop_assert!(keys_at(&(last + 1).to_string(), &segments).is_err());
    }

    /// A recorder that dies leaves the beginning of a file. It says nothing that was not so.
    #[test]
    fn a_part_of_a_file_says_what_was_so_or_nothing(writes in writes(), cut in 0.0..1.0f64) {
        let history = StoreHistory::of(writes);
        let mut writer = history.begin(1, &name("b", "r", 1), false);
        for revision in 2..=history.revision() {
            let between = Between { after: None, by: revision * 1000 };
            writer.change(revision, between, false, &history.changes[revision as usize]).unwrap();
            writer.flush().unwrap();
        }
        let whole = writer.finish().unwrap();
        let cut = &whole[..(whole.len() as f64 * cut) as usize];
        match Segment::read(cut) {
            Ok(segment) => {
                prop_assert!(!segment.closed);
                let last = segment.last_revision();
                let keys = segment.clone().into_keys_at(last).unwrap();
                let entries: Entries = keys.into_iter().map(|(key, entry)| (key, entry.into_entry())).collect();
                prop_assert_eq!(&entries, &history.states[last as usize]);
                // Also if what follows was never written.
                for rest in [&[][..], &[0; 512]] {
                    let rebuilt = Segment::rebuild(&[cut, rest].concat()).unwrap();
                    let rebuilt = Segment::read(&rebuilt).unwrap();
                    prop_assert_eq!(rebuilt, Segment { closed: true, ..segment.clone() });
                }
            }
            Err(error) => {
                prop_assert_eq!(error, SegmentError::Unfinished);
                prop_assert_eq!(Segment::rebuild(cut), None);
            }
        }
    }
}

#[test]
fn a_closed_segment_with_one_flipped_bit_is_refused() {
    let whole = nine().segment((1, 9), &name("b", "r", 1), false);
    assert!(Segment::read(&whole).unwrap().closed);
    assert_eq!(Segment::rebuild(&whole), None, "it is closed already");
    for bit in 0..whole.len() * 8 {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let read = Segment::read(&flipped);
        assert!(read.is_err(), "bit {bit}: {read:?}");
    }
}

/// The file was written by the first version that wrote format 1, and never changes.
#[test]
fn the_golden_recording_is_read() {
    let golden = include_bytes!("golden-1.rec");
    let segment = Segment::read(golden).unwrap();
    assert_eq!((segment.header.format, segment.closed), (1, true));
    let mut segments = Segments::default();
    segments.0.insert(name("b", "r", 1), golden.to_vec());
    let history = nine();
    for revision in 1..=9 {
        let expected = Ok(history.states[revision as usize].clone());
        assert_eq!(keys_at(&revision.to_string(), &segments), expected, "{revision}");
    }
}

#[test]
fn a_segment_of_a_newer_format_is_named() {
    let newer = super::frame::frame(super::frame::Kind::Header, br#"{"format":2,"program":"9.9"}"#).unwrap();
    let bytes = [&super::frame::BEGIN[..], &newer].concat();
    let error = Segment::read(&bytes).unwrap_err();
    assert_eq!(error, SegmentError::Newer { format: 2, program: "9.9".into() });
    assert_eq!(
        error.to_string(),
        "it has format 2, written by version 9.9; this program reads formats up to 1"
    );
}

#[test]
fn a_frame_that_becomes_too_large_is_refused() {
    let bomb = vec![b' '; 17 * 1024 * 1024];
    let frame = super::frame::frame(super::frame::Kind::Header, &bomb).unwrap();
    let error = Segment::read(&[&super::frame::BEGIN[..], &frame].concat()).unwrap_err();
    assert!(matches!(&error, SegmentError::Damaged { at: 8, .. }), "{error}");
}

#[test]
fn values_that_may_be_secret_are_hidden() {
    let (secret, other) = (format!("{}token", Prefix::Config), format!("{}other", Prefix::Config));
    let history =
        StoreHistory::of([vec![put(&secret, "hunter2"), put(&other, "hunter2"), put("/a", "open")]]);
    let bytes = history.segment((2, 2), &name("b", "r", 2), false);
    let segment = Segment::read(&bytes).unwrap();
    let value = |key: &str| segment.keys[key].value.clone();
    let RecordedValue::Hidden(hidden) = value(&secret) else { panic!("{:?}", value(&secret)) };
    assert_eq!((hidden.bytes, hidden.hash.len()), (7, 16));
    assert_eq!(value(&other), RecordedValue::Hidden(hidden.clone()), "equal values have equal hashes");
    assert_eq!(value("/a"), RecordedValue::Plain(b"open".to_vec()));
    // An event tells who changed a value, and not to what.
    let event = |what: &str, to: &str| {
        format!(r#"{{"by":"ann","client":"c","verb":"values set","what":"{what}","from":"old","to":"{to}"}}"#)
    };
    let keys = ["/orchestrate/events/1-a", "/orchestrate/events/2-b", "/orchestrate/events/3-c"];
    let events =
        [event(&secret, "hunter2"), event("/current_version", "43"), "no event, but hunter3".to_owned()];
    let writes = keys.iter().zip(&events).map(|(key, event)| put(key, event)).collect();
    let bytes = StoreHistory::of([writes]).segment((2, 2), &name("b", "r", 2), false);
    let recorded = Segment::read(&bytes).unwrap();
    let text = |key: &str| match &recorded.keys[key].value {
        RecordedValue::Plain(value) => String::from_utf8(value.clone()).unwrap(),
        hidden @ RecordedValue::Hidden(_) => panic!("{hidden:?}"),
    };
    let without = event(&secret, "(not recorded)").replace("\"old\"", "\"(not recorded)\"");
    assert_eq!(keys.map(text), [without, events[1].clone(), events[2].clone()]);
    let differently = Concealer::new(b"another key");
    let header = segment.header.clone();
    let snapshot = KeySnapshot { revision: 2, raft_term: 1, entries: history.states[2].clone() };
    let writer = SegmentWriter::begin(Vec::new(), header, &snapshot, differently).unwrap();
    let segment = Segment::read(&writer.finish().unwrap()).unwrap();
    assert_ne!(segment.keys[&secret].value, RecordedValue::Hidden(hidden), "another recorder, another hash");
}

#[test]
fn recorders_fill_the_gaps_of_each_other() {
    let (history, mut segments) = (nine(), Segments::default());
    history.record("one", &[(1, 3), (6, 9)], &mut segments, branch("b"));
    assert_eq!(
        keys_at("4", &segments).unwrap_err(),
        "revision 4 is not recorded: recorder one in lineage/1/b: nothing between the revisions 3 and 6"
    );
    history.record("two", &[(2, 7)], &mut segments, branch("b"));
    for revision in 1..=9 {
        let expected = Ok(history.states[revision as usize].clone());
        assert_eq!(keys_at(&revision.to_string(), &segments), expected, "{revision}");
    }
    let past = ask("7", &segments).unwrap();
    assert_eq!(past.segments, [name("b", "one", 6), name("b", "two", 2)]);
}

#[test]
fn segments_that_disagree_are_both_named() {
    let (history, mut segments) = (nine(), Segments::default());
    history.record("one", &[(1, 9)], &mut segments, branch("b"));
    let mut wrong = nine();
    wrong.states[4].get_mut("/a").unwrap().value = b"wrong".to_vec();
    wrong.record("two", &[(4, 9)], &mut segments, branch("b"));
    assert_eq!(
        keys_at("4", &segments).unwrap_err(),
        format!(
            "two segments disagree about \"/a\" at revision 4: {} and {}",
            name("b", "one", 1),
            name("b", "two", 4)
        )
    );
    assert!(keys_at("3", &segments).is_ok(), "one of them does not cover it");
    assert!(keys_at("5", &segments).is_ok(), "there they agree");
}

#[test]
fn a_revision_of_two_histories_is_ambiguous_where_they_differ() {
    let (history, mut segments) = (nine(), Segments::default());
    history.record("r", &[(1, 9)], &mut segments, branch("first"));
    let mut restored = nine();
    restored.states.truncate(6);
    restored.changes.truncate(6);
    restored.write(vec![put("/a", "restored")]);
    restored.record("r", &[(5, 6)], &mut segments, branch("second"));
    assert_eq!(
        keys_at("6", &segments).unwrap_err(),
        "several histories have revision 6: lineage/1/first/6, lineage/1/second/6; name one of them"
    );
    let of_second = keys_at("lineage/1/second/6", &segments).unwrap();
    assert_eq!(of_second["/a"].value, b"restored");
    assert_eq!(keys_at("lineage/1/first/6", &segments).unwrap()["/a"].value, b"6");
    assert_eq!(keys_at("5", &segments).unwrap(), history.states[5], "there they are equal");
    assert_eq!(keys_at("7", &segments).unwrap(), history.states[7], "only one has it");
    assert_eq!(
        keys_at("lineage/1/second/7", &segments).unwrap_err(),
        "lineage/1/second/7 is not recorded: recorder r in lineage/1/second: it ends with revision 6"
    );
}

#[test]
fn a_revision_that_another_history_may_have_is_ambiguous() {
    let (history, mut segments) = (nine(), Segments::default());
    history.record("r", &[(1, 9)], &mut segments, branch("first"));
    // A history in whose gap the revision is.
    history.record("r", &[(1, 2), (6, 7)], &mut segments, branch("gap"));
    assert_eq!(
        keys_at("4", &segments).unwrap_err(),
        "several histories have revision 4: lineage/1/first/4, lineage/1/gap (not recorded); name one of them"
    );
    assert_eq!(keys_at("lineage/1/first/4", &segments).unwrap(), history.states[4]);
    let at = super::at::time_text(4000);
    assert!(matches!(ask(&at, &segments), Err(RecordingError::Ambiguous { .. })), "also by its time");
    assert_eq!(keys_at("8", &segments).unwrap(), history.states[8], "so far the other one has not come");
    // A history that began with a restoration: nobody saw its first revisions.
    let mut segments = Segments::default();
    history.record("r", &[(1, 9)], &mut segments, branch("first"));
    let of_restored = name("restored", "r", 7);
    let writer = history.begin(7, &of_restored, false);
    let mut segment = Segment::read(&writer.finish().unwrap()).unwrap();
    segment.header.restored = true;
    let snapshot = KeySnapshot { revision: 7, raft_term: 1, entries: history.states[7].clone() };
    let writer = SegmentWriter::begin(Vec::new(), segment.header, &snapshot, Concealer::new(b"key")).unwrap();
    segments.0.insert(of_restored, writer.finish().unwrap());
    assert!(keys_at("5", &segments).unwrap_err().contains("lineage/1/restored (not recorded)"));
    assert_eq!(keys_at("9", &segments).unwrap(), history.states[9]);
    // Three that differ.
    let other = StoreHistory::of((2..=9).map(|n| vec![put("/a", &format!("other {n}"))]));
    let third = StoreHistory::of((2..=9).map(|n| vec![put("/a", &format!("third {n}"))]));
    other.record("r", &[(1, 9)], &mut segments, branch("other"));
    third.record("r", &[(1, 9)], &mut segments, branch("third"));
    assert_eq!(
        keys_at("9", &segments).unwrap_err(),
        "several histories have revision 9: lineage/1/first/9, lineage/1/other/9, lineage/1/third/9; name one of them"
    );
    let damaged = segments.0.keys().find(|name| name.branch == branch("third")).expect("a segment").clone();
    segments.0.insert(damaged, b"something else".into());
    let expected = "lineage/1/first/9, lineage/1/other/9, lineage/1/third (lineage/1/third/r/";
    let error = keys_at("9", &segments).unwrap_err();
    assert!(error.contains(expected) && error.contains("this is not a segment"), "{error}");
}

#[test]
fn a_revision_in_which_nothing_that_is_recorded_changed_is_known() {
    // Revisions 5 and 6 belong to somebody else.
    let mut history = StoreHistory::of((2..=4).map(|n| vec![put("/a", &n.to_string())]));
    [vec![], vec![], vec![put("/a", "7")]].into_iter().for_each(|writes| history.write(writes));
    let mut writer = history.begin(1, &name("b", "r", 1), false);
    for revision in 2..=4 {
        let between = Between { after: None, by: revision * 1000 };
        writer.change(revision, between, false, &history.changes[revision as usize]).unwrap();
    }
    writer.mark(6, 6500).unwrap();
    let mut segments = Segments(BTreeMap::from([(name("b", "r", 1), writer.finish().unwrap())]));
    for revision in [4, 5, 6] {
        assert_eq!(keys_at(&revision.to_string(), &segments).unwrap(), history.states[4], "{revision}");
    }
    assert_eq!(ask(&super::at::time_text(6000), &segments).unwrap().moment.revision, 4);
    let next = name("b", "r", 6);
    segments.0.insert(next.clone(), history.segment((6, 7), &next, true));
    let past = ask("6", &segments).unwrap();
    assert_eq!((past.segments[0].revision, past.between.by), (1, 6500), "it was seen first by the mark");
    assert_eq!(keys_at("7", &segments).unwrap(), history.states[7]);
}

#[test]
fn a_revision_has_the_time_at_which_it_was_first_seen() {
    let (history, mut segments) = (nine(), Segments::default());
    history.record("r", &[(1, 4)], &mut segments, branch("b"));
    // The recorder was started again twice, days later, and nothing had changed.
    for (day, continues) in [(100_000, true), (200_000, true), (300_000, false)] {
        let later = SegmentName { begun: day, ..name("b", "r", 4) };
        segments
            .0
            .insert(later.clone(), history.segment((4, if continues { 4 } else { 9 }), &later, continues));
        let past = ask("4", &segments).unwrap();
        assert_eq!((past.between.by, past.segments[0].revision), (4000, 1), "{day}");
    }
}

#[test]
fn a_damaged_segment_is_named_and_others_are_used() {
    let (history, mut segments) = (nine(), Segments::default());
    history.record("one", &[(1, 9)], &mut segments, branch("b"));
    let damaged = segments.0.get_mut(&name("b", "one", 1)).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    let problem = keys_at("4", &segments).unwrap_err();
    assert!(problem.contains("is damaged at byte"), "{problem}");
    history.record("two", &[(2, 7)], &mut segments, branch("b"));
    let past = ask("4", &segments).unwrap();
    assert_eq!(past.segments, [name("b", "two", 2)]);
    assert!(past.problems[0].contains("is damaged at byte"), "{:?}", past.problems);
}

#[test]
fn a_segment_under_a_wrong_name_is_refused() {
    let mut segments = Segments::default();
    segments.0.insert(name("other", "r", 1), nine().segment((1, 9), &name("b", "r", 1), false));
    let problem = keys_at("4", &segments).unwrap_err();
    assert!(problem.contains("its header does not match its name"), "{problem}");
}

/// Records revisions 1 to 9 with a contact that was lost after revision 4, until 7.9 s.
fn with_lost_contact() -> Segments {
    let history = nine();
    let mut writer = history.begin(1, &name("b", "r", 1), false);
    for revision in 2..=9i64 {
        let changes = &history.changes[revision as usize];
        let (after, by, afterwards) = match revision {
            5..=7 => (4500, 7900, true),
            _ => (revision * 1000 - 100, revision * 1000, false),
        };
        writer.change(revision, Between { after: Some(after), by }, afterwards, changes).unwrap();
        if revision == 4 {
            writer.mark(4, 4500).unwrap();
        }
    }
    writer.mark(9, 9500).unwrap();
    Segments(BTreeMap::from([(name("b", "r", 1), writer.finish().unwrap())]))
}

#[test]
fn a_time_means_the_last_revision_that_surely_was_not_after_it() {
    let segments = with_lost_contact();
    let check = |millis: i64, expected: Result<(i64, bool), &str>| {
        let time = super::at::time_text(millis);
        let found = ask(&time, &segments).map(|past| (past.moment.revision, past.uncertain.is_some()));
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{millis}"),
            (Err(error), Err(expected)) => {
                let error = error.to_string();
                assert!(error.contains(expected), "{millis}: {error}");
            }
            (found, expected) => panic!("{millis}: {found:?}, not {expected:?}"),
        }
    };
    check(999, Err("it begins at 1970-01-01T00:00:01.000Z"));
    check(1000, Ok((1, false)));
    check(2000, Ok((2, false)));
    check(2899, Ok((2, false)));
    check(2950, Ok((2, true)));
    check(3000, Ok((3, false)));
    check(4400, Ok((4, false)));
    check(4500, Ok((4, false)));
    check(
        5000,
        Err("it had no contact with the store from 1970-01-01T00:00:04.500Z to 1970-01-01T00:00:07.900Z"),
    );
    check(7900, Ok((7, false)));
    check(9400, Ok((9, false)));
    check(9500, Ok((9, false)));
    check(9501, Err("it ends at 1970-01-01T00:00:09.500Z"));
}

#[test]
fn a_time_between_two_segments_is_known_if_the_second_continues_the_first() {
    let (history, mut segments) = (nine(), Segments::default());
    history.record("r", &[(1, 4)], &mut segments, branch("b"));
    let next = SegmentName { begun: 4700, ..name("b", "r", 4) };
    segments.0.insert(next.clone(), history.segment((4, 9), &next, true));
    let at = |millis: i64| ask(&super::at::time_text(millis), &segments).map(|past| past.moment.revision);
    assert_eq!((at(4300), at(4600), at(4700)), (Ok(4), Ok(4), Ok(4)));
    segments.0.insert(next.clone(), history.segment((4, 9), &next, false));
    let error = ask(&super::at::time_text(4300), &segments).unwrap_err().to_string();
    let gap = "nothing from 1970-01-01T00:00:04.000Z to 1970-01-01T00:00:04.700Z";
    assert!(error.contains(gap), "{error}");
}

#[test]
fn moments_are_read_from_text() {
    let check = |text: &str, expected: Option<At>| {
        assert_eq!(At::read(text, 10_000_000).ok(), expected, "{text}");
    };
    check("1234", Some(At::Revision(1234)));
    check("2h", Some(At::Time(10_000_000 - 7_200_000)));
    check("1970-01-01T00:00:05Z", Some(At::Time(5000)));
    check("1970-01-01T02:00:05.25+02:00", Some(At::Time(5250)));
    check("lineage/1/b/7", Some(At::Moment(Moment { branch: branch("b"), revision: 7 })));
    for bad in ["", "0", "-1", "x", "1970-01-01", "a/b", "lineage/x/b/7", "lineage/1/b/0", "lineage/1/b c/1"]
    {
        check(bad, None);
    }
}

#[test]
fn names_of_segments_are_read_back() {
    let of = name("b", "r", 12);
    assert_eq!(of.to_string(), "lineage/1/b/r/0000000000000000012-0000000000000012000.rec");
    assert_eq!(SegmentName::read(&of.to_string()), Some(of));
    for bad in [
        "",
        "lineage/1/b/r",
        "lineage/1/b/r/12-1.rec",
        "lineage/x/b/r/0000000000000000012-0000000000000012000.rec",
    ] {
        assert_eq!(SegmentName::read(bad), None, "{bad}");
    }
}
