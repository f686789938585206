use super::*;
use archive::recording::{Between, Header, SegmentWriter};
use schema::snapshot::Entry;
use std::time::Duration;

fn token(text: &str) -> Token {
    Token::new(text).unwrap()
}

fn snapshot(revision: i64, value: &str) -> KeySnapshot {
    let entry = |at: i64, value: &str| Entry {
        value: value.into(),
        create_revision: at,
        mod_revision: at,
        lease: 0,
        version: 1,
    };
    let entries = [("/a", entry(3, value)), ("/b", entry(revision, "newest"))];
    let entries = entries.map(|(key, entry)| (key.to_owned(), entry)).into();
    KeySnapshot { revision, raft_term: 1, entries }
}

fn record(place: &RecordingDirectory, branch: &Branch, begun: i64, snapshot: &KeySnapshot) -> SegmentName {
    let (recorder, revision) = (place.recorder.clone(), snapshot.revision);
    let name = SegmentName { branch: branch.clone(), recorder: recorder.clone(), revision, begun };
    let header = Header {
        format: 0,
        program: "test".into(),
        lineage: branch.lineage.clone(),
        epoch: branch.epoch,
        branch: branch.branch.clone(),
        recorder,
        revision,
        keys: 0,
        between: Between { after: None, by: begun },
        restored: false,
        continues: false,
        gap: None,
        erased: Vec::new(),
    };
    let file = place.create(&name).unwrap();
    SegmentWriter::begin(file, header, snapshot, place.concealer()).unwrap().finish().unwrap();
    name
}

fn open(directory: &Path, recorder: &str) -> RecordingDirectory {
    let state = directory.join(recorder);
    fs::create_dir_all(&state).unwrap();
    let settings = RecorderSettings {
        directory: directory.join("recording"),
        keep: Duration::from_secs(60),
        max_bytes: 1024 * 1024,
        upload: None,
    };
    RecordingDirectory::open(&settings, &state).unwrap()
}

#[test]
fn a_restored_store_is_another_branch_however_that_is_seen() {
    let directory = tempfile::tempdir().unwrap();
    let place = open(directory.path(), "one");
    assert_eq!(place.recorder, open(directory.path(), "one").recorder, "it keeps its name");
    let identity = || Some((token("lineage"), 1));
    let check = |place: &RecordingDirectory,
                 snapshot: &KeySnapshot,
                 restored: bool,
                 branch: &str,
                 continues: bool| {
        let found = place.branch_of(identity(), snapshot, restored, 77).unwrap();
        assert_eq!((found.branch.branch.as_str(), found.continues), (branch, continues));
        found.branch
    };
    let first = check(&place, &snapshot(9, "a"), false, "0", false);
    record(&place, &first, 1000, &snapshot(9, "a"));
    check(&place, &snapshot(9, "a"), false, "0", true);
    check(&place, &snapshot(12, "a"), false, "0", false);
    check(&place, &snapshot(12, "a"), true, "77", false);
    check(&place, &snapshot(8, "a"), false, "77", false);
    // It passed the old revision before anybody looked.
    check(&place, &snapshot(12, "other"), false, "77", false);
    // Another recorder joins in; it may be behind the first one.
    let other = open(directory.path(), "two");
    check(&other, &snapshot(9, "a"), false, "0", false);
    check(&other, &snapshot(8, "a"), false, "0", false);
    check(&other, &snapshot(9, "other"), false, "77", false);
    // Another epoch, and a store without an identity, start again.
    let accepted = place.branch_of(Some((token("lineage"), 2)), &snapshot(12, "a"), false, 77).unwrap();
    assert_eq!(accepted.branch.to_string(), "lineage/2/0");
    assert_eq!(place.branch_of(None, &snapshot(12, "a"), false, 77).unwrap().branch.to_string(), "none/0/0");
}

#[test]
fn values_that_were_erased_from_an_event_are_no_other_history() {
    let directory = tempfile::tempdir().unwrap();
    let place = open(directory.path(), "one");
    let event = |from: &str| {
        let key = format!("{}1-a", schema::keys::Prefix::Events);
        let value =
            format!(r#"{{"format":1,"by":"ann","client":"c","verb":"v","what":"/a","from":"{from}"}}"#);
        let mut snapshot = snapshot(9, "a");
        let entry = Entry { value: value.into(), ..snapshot.entries["/a"].clone() };
        snapshot.entries.insert(key, entry);
        snapshot
    };
    let branch = Branch { lineage: token("l"), epoch: 1, branch: token("0") };
    let name = record(&place, &branch, 1000, &event("a-secret"));
    let bytes = place.directory.load(&name).unwrap();
    let mark = archive::recording::Erased { at: 0, what: "the values of /a".into() };
    let erased = archive::recording::erase(&bytes, |key| key == "/a", &mark).unwrap().expect("it had some");
    place.directory.replace(&name, &erased).unwrap();
    let found = |snapshot: &KeySnapshot| {
        place.branch_of(Some((token("l"), 1)), snapshot, false, 77).unwrap().branch.branch.to_string()
    };
    assert_eq!(found(&event("a-secret")), "0");
    let mut other = event("a-secret");
    let entry = other.entries.values_mut().next_back().expect("the event");
    entry.value = String::from_utf8(entry.value.clone()).unwrap().replace("ann", "bob").into();
    assert_eq!(found(&other), "77", "by somebody else it is another event");
}

#[test]
fn what_a_dead_recorder_left_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let place = open(directory.path(), "one");
    let branch = Branch { lineage: token("l"), epoch: 1, branch: token("0") };
    let name = record(&place, &branch, 1000, &snapshot(9, "a"));
    let path = place.directory.path_of(&name);
    let whole = fs::read(&path).unwrap();
    // The one before it was left because the disk was full; a third one says nothing.
    let earlier = record(&place, &branch, 900, &snapshot(8, "a"));
    let of_earlier = fs::read(place.directory.path_of(&earlier)).unwrap();
    let nothing = record(&place, &branch, 1100, &snapshot(10, "a"));
    for (name, bytes) in [(&earlier, &of_earlier[..]), (&name, &whole), (&nothing, &whole[..20])] {
        let cut = if *name == nothing { bytes } else { &bytes[..bytes.len() - 5] };
        fs::write(place.directory.path_of(name), cut).unwrap();
    }
    let place = open(directory.path(), "one");
    place.close_left();
    assert_eq!(fs::read(&path).unwrap(), whole);
    assert_eq!(fs::read(place.directory.path_of(&earlier)).unwrap(), of_earlier);
    assert_eq!(place.own_names().unwrap(), [earlier, name]);
}

#[test]
fn only_own_segments_are_removed_and_each_with_its_mark() {
    let directory = tempfile::tempdir().unwrap();
    let (place, other) = (open(directory.path(), "one"), open(directory.path(), "two"));
    let branch = Branch { lineage: token("l"), epoch: 1, branch: token("0") };
    let now = now_millis();
    let begun = [90, 70, 50, 30].map(|age| now - age * 1000);
    let names = begun.map(|at| record(&place, &branch, at, &snapshot(at / 1000, "a")));
    let of_other = record(&other, &branch, 10_000, &snapshot(10, "a"));
    place.directory.note_uploaded(&names[0], "s3://b").unwrap();
    assert!(
        place.directory.is_uploaded(&names[0], "s3://b") && !place.directory.is_uploaded(&names[0], "s3://c")
    );
    let (tidying, failed) = place.tidy().unwrap();
    assert!(failed.is_none());
    assert_eq!((&tidying.expired[..], &tidying.crowded_out[..]), (&names[..1], &[][..]));
    assert_eq!(place.own_names().unwrap(), names[1..]);
    assert!(place.directory.path_of(&of_other).exists() && !place.directory.is_uploaded(&names[0], "s3://b"));
}
