//! Where recordings are kept: in bounded directories and in object stores, and how operators keep them in order.

use archive::recording::{Directory, Segment, SegmentName, Source};
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;
use tests::etcd::Etcd;
use tests::host::{CommandOutput, Host};
use tests::object_store::{Behaviour, KEY_ID, ObjectServer, SECRET};
use tests::recording::RecordingObserver;
use tests::store::Store;
use tests::wait;

/// A server of S3, and the file of its access key.
struct Bucket {
    server: ObjectServer,
    key: tempfile::NamedTempFile,
}

impl Bucket {
    fn start() -> Self {
        let key = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(key.path(), format!("{KEY_ID}\n{SECRET}\n")).expect("written");
        Self { server: ObjectServer::start(), key }
    }

    /// Returns the settings of a recorder that uploads to it.
    fn settings(&self) -> String {
        let (to, endpoint) = (self.server.url("recording"), self.server.endpoint());
        format!(
            "[recorder.upload]\nto = {to:?}\nendpoint = {endpoint:?}\ncredentials = {:?}\n",
            self.key.path()
        )
    }

    /// Runs a verb of the command on the recording in the bucket. There is no store.
    fn ask(&self, away: &Host, words: &[&str]) -> CommandOutput {
        let (url, endpoint) = (self.server.url("recording"), self.server.endpoint());
        let key = self.key.path().display().to_string();
        let options =
            ["--recording", &url, "--s3-endpoint", &endpoint, "--s3-credentials", &key].map(str::to_owned);
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).chain(options).collect();
        away.command(&words.iter().map(String::as_str).collect::<Vec<_>>(), "")
    }

    /// Returns the segments in the bucket.
    fn names(&self) -> Vec<SegmentName> {
        names(&self.server.file_of("recording"))
    }

    fn wait_for_segments(&self, count: usize, recorder: &RecordingObserver) {
        let uploaded = || (self.names().len() == count).then_some(());
        wait::until("the segments are uploaded", uploaded, || {
            format!("{:?}\n{}", self.names(), recorder.observer.log())
        });
    }
}

fn names(directory: &Path) -> Vec<SegmentName> {
    let mut names = Directory::new(directory).names().unwrap_or_default();
    names.sort_by_key(|name| name.begun);
    names
}

fn away() -> Host {
    Host::new("elsewhere", &["http://127.0.0.1:1".to_owned()])
}

/// Starts the recorder again, which closes its segment and begins another one.
fn again(mut recorder: RecordingObserver) -> RecordingObserver {
    let before = names(&recorder.directory).len();
    recorder.observer.signal(Signal::TERM);
    wait::until("the observer ends", || recorder.observer.ended(), String::new);
    recorder.observer = recorder.observer.again();
    let begun = || (names(&recorder.directory).len() > before).then_some(());
    wait::until("the recorder begins a segment", begun, || recorder.observer.log());
    recorder
}

#[test]
fn what_is_uploaded_answers_like_the_directory_and_in_its_place() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let bucket = Bucket::start();
    let mut recorder = RecordingObserver::start_with(&etcd.endpoints(), &bucket.settings());
    let mut revisions = Vec::new();
    for version in ["41", "42", "43"] {
        let revision = store.put("/current_version", version);
        recorder.wait_for(revision);
        revisions.push((revision.to_string(), version));
        recorder = again(recorder);
    }
    bucket.wait_for_segments(3, &recorder);
    let away = away();
    let local = recorder.directory.display().to_string();
    for (at, version) in &revisions {
        let from_bucket = bucket.ask(&away, &["current_version", "--at", at, "-o", "json"]);
        let from_directory =
            away.command(&["current_version", "--recording", &local, "--at", at, "-o", "json"], "");
        let answer = |output: &CommandOutput| {
            assert_eq!(output.code, 0, "{output:?}");
            serde_json::from_str::<Value>(&output.out).expect("JSON")["answer"].clone()
        };
        assert_eq!(answer(&from_bucket), answer(&from_directory), "{at}");
        assert!(from_bucket.out.contains(version), "{from_bucket:?}");
    }
    // The observer answers what its directory has not any more, and says so.
    let own = names(&recorder.directory);
    assert_eq!(own.len(), 4, "three that are uploaded, and the open one: {own:?}");
    for name in &own[..2] {
        Directory::new(&recorder.directory).remove(name).expect("removed");
    }
    let path = format!("/v1/status?at={}", revisions[0].0);
    let shown: Value = serde_json::from_str(&recorder.observer.get(&path).body).expect("JSON");
    assert_eq!(shown["answer"]["desired"]["version"], "41", "{shown}");
    let place = shown["past"]["recording"].as_str().expect("text");
    assert!(place.contains(&local) && place.contains("s3://"), "{place}");
    // Nothing of the bucket is wrong, and then something is.
    let checked = bucket.ask(&away, &["recording", "check"]);
    assert!(checked.code == 0 && checked.out.contains("3 segments, no fault"), "{checked:?}");
    let file = bucket.server.file_of("recording").join(bucket.names()[1].to_string());
    let mut bytes = std::fs::read(&file).expect("an object");
    bytes[60] ^= 1;
    std::fs::write(&file, bytes).expect("written");
    let checked = bucket.ask(&away, &["recording", "check", "-o", "json"]);
    let json: Value = serde_json::from_str(&checked.out).expect("JSON");
    let unreadable = |found: &&Value| found["diagnostic"] == "unreadable";
    let damaged = json["diagnostics"].as_array().expect("a list").iter().find(unreadable).expect("a fault");
    assert_eq!((checked.code, &damaged["segment"]), (1, &bucket.names()[1].to_string().into()), "{json}");
    // A store that cannot be read is not an empty recording.
    bucket.server.behave(Behaviour::Refuse);
    let listed = bucket.ask(&away, &["recording", "list"]);
    assert!(listed.code == 2 && listed.err.contains("403"), "{listed:?}");
}

/// Writes random bytes under one key until they are so many, and returns the last revision.
fn write_mib(store: &Store, mib: usize) -> i64 {
    let random = |n: usize| {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(n as u64 + 1);
        let mut next = || {
            // xorshift64: what it gives cannot be compressed.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        };
        (0..128 * 1024).flat_map(|_| next()).collect::<Vec<u8>>()
    };
    (0..mib)
        .map(|n| store.try_put("/orchestrate/reports/h1", &random(n)).expect("written"))
        .max()
        .expect("one")
}

#[test]
fn a_full_directory_stops_the_recorder_until_segments_are_uploaded_and_the_gap_says_why() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let bucket = Bucket::start();
    bucket.server.behave(Behaviour::Unavailable);
    let settings = format!("max_mib = 32\n{}", bucket.settings());
    let recorder = RecordingObserver::start_with(&etcd.endpoints(), &settings);
    let first = store.put("/current_version", "41");
    recorder.wait_for(first);
    let has_failed = || (recorder.metric("recording_failures_total") >= 1).then_some(());
    let waited = Duration::from_secs(120);
    let mut last = first;
    wait::until_within(
        waited,
        "the recorder stops because its directory is full",
        || {
            last = write_mib(&store, 4);
            has_failed()
        },
        || recorder.observer.log(),
    );
    let log = recorder.observer.log();
    assert!(log.contains("wait in its directory for their upload"), "{log}");
    let bytes = |path: &Path| {
        names(path)
            .iter()
            .map(|name| path.join(name.to_string()))
            .map(|p| p.metadata().map_or(0, |m| m.len()))
            .sum::<u64>()
    };
    let (most, taken) = (48 * 1024 * 1024, bytes(&recorder.directory));
    assert!(taken < most, "{taken} of 32 MiB, and one segment more");
    // What was recorded before can be asked for.
    let away = away();
    let local = recorder.directory.display().to_string();
    let ask =
        |at: i64| away.command(&["current_version", "--recording", &local, "--at", &at.to_string()], "");
    assert_eq!((ask(first).code, ask(first).out.trim()), (0, "41"));
    // The observer asks the bucket too, and without it answers from its directory alone.
    let shown: Value =
        serde_json::from_str(&recorder.observer.get(&format!("/v1/status?at={first}")).body).expect("JSON");
    assert_eq!(
        (&shown["answer"]["desired"]["version"], &shown["past"]["recording"]),
        (&"41".into(), &local.clone().into())
    );
    // Nothing of this is recorded. The newest revision is the one with which the recorder goes on.
    let lost = store.put("/current_version", "42");
    assert!(lost > last);
    store.put("/current_version", "42");
    bucket.server.behave(Behaviour::Serve);
    let resumed = || (recorder.metric("recording_gaps_total") >= 1).then_some(());
    wait::until_within(waited, "the recorder goes on", resumed, || recorder.observer.log());
    let after = store.put("/current_version", "43");
    // Where little was uploaded yet, the directory may be full once more.
    let goes_on = || (recorder.recorded_revision() >= after).then_some(());
    wait::until_within(waited, "the newest revision is recorded", goes_on, || recorder.observer.log());
    assert_eq!(ask(after).out.trim(), "43");
    // Its directory had to make room for the new segment; of the gap, the observer knows both ends.
    let answer = recorder.observer.get(&format!("/v1/status?at={lost}")).body;
    assert!(
        answer.contains("nothing between the revisions") && answer.contains("it could not be written: "),
        "{answer}"
    );
    let is_uploaded = || (recorder.metric("recording_bytes") <= 32 * 1024 * 1024).then_some(());
    wait::until_within(waited, "there is room again", is_uploaded, || recorder.observer.log());
    // The bucket has all of it, and what had to make room is answered from there.
    assert_eq!(bucket.ask(&away, &["current_version", "--at", &first.to_string()]).out.trim(), "41");
}

#[test]
fn an_operator_lists_prunes_and_erases() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut recorder = RecordingObserver::start(&etcd.endpoints());
    let first = store.put("/current_version", "41");
    store.put("/orchestrate/reports/h1", "{\"note\":\"a-secret-value\"}");
    let secret = store.put("/orchestrate/reports/h2", "{\"note\":\"a-secret-value\"}");
    recorder.wait_for(secret);
    recorder = again(recorder);
    let last = store.put("/current_version", "42");
    recorder.wait_for(last);
    let away = away();
    let local = recorder.directory.display().to_string();
    let run = |words: &str| {
        let words: Vec<&str> = words.split(' ').chain(["--recording", &local]).collect();
        away.command(&words, "")
    };
    let json = |words: &str| -> Value {
        let output = run(&format!("{words} -o json"));
        serde_json::from_str(&output.out).unwrap_or_else(|error| panic!("{words}: {error}: {output:?}"))
    };
    let listed = json("recording list");
    let row = &listed["recorders"][0];
    assert_eq!(
        (row["segment_count"].as_u64(), row["last_revision"].as_i64()),
        (Some(2), Some(last)),
        "{listed}"
    );
    let text = run("recording list").out;
    assert!(text.contains("SEGMENTS") && text.contains(&format!("{last}, 20")), "{text}");
    // The open segment has the keys too, and cannot be changed yet.
    let erased = run("recording erase /orchestrate/reports/h1 --below /orchestrate/reports/h2");
    assert!(erased.code == 2 && erased.err.contains("it is not closed, so it may have values"), "{erased:?}");
    assert!(erased.out.contains("rewritten: 1 of 2 segments"), "{erased:?}");
    let [closed, open] = &names(&recorder.directory)[..] else { panic!("two segments") };
    let directory = Directory::new(&recorder.directory);
    let holds_secret = |name: &SegmentName| {
        let segment = Segment::read(&directory.load(name).expect("read")).expect("a segment");
        format!("{segment:?}").contains(format!("{:?}", b"a-secret-value").trim_matches(['[', ']']))
    };
    assert!(!holds_secret(closed) && holds_secret(open));
    let past = run(&format!("logs h1 --at {secret}"));
    assert!(past.err.contains("erased at 20") && past.err.contains("/orchestrate/reports/h1"), "{past:?}");
    assert_eq!(run(&format!("current_version --at {first}")).out.trim(), "41", "all else is as it was");
    // A rehearsal changes nothing, and a second time nothing is left to do.
    recorder = again(recorder);
    let rehearsed = json("recording erase --below /orchestrate/reports/ --dry-run");
    assert_eq!(rehearsed["rewritten_segments"].as_array().map(Vec::len), Some(1), "{rehearsed}");
    let erased = json("recording erase --below /orchestrate/reports/");
    assert_eq!(erased["rewritten_segments"], rehearsed["rewritten_segments"]);
    let checked = json("recording check");
    let kinds = |kind: &str| {
        let all = checked["diagnostics"].as_array().expect("a list");
        all.iter().filter(|found| found["diagnostic"] == kind).count()
    };
    assert_eq!((kinds("erased"), kinds("not_closed")), (2, 1), "{checked}");
    // The recorder goes on with what it has erased: it is no other history.
    let newest = store.put("/current_version", "43");
    recorder.wait_for(newest);
    assert_eq!(run(&format!("current_version --at {newest}")).out.trim(), "43");
    // Two of three are older than no time at all; the last one stays.
    let pruned = run("recording prune --older-than 1ms --dry-run");
    assert!(pruned.out.contains("would be removed: 2 of 3 segments"), "{pruned:?}");
    let none = run("recording prune --older-than 1h");
    assert!(none.out.contains("removed: 0 of 3 segments"), "{none:?}");
    assert_eq!(run("recording prune --older-than 1ms --recorder nobody").code, 1);
    let pruned = json("recording prune --older-than 1ms");
    assert_eq!(pruned["removed_segments"].as_array().map(Vec::len), Some(2), "{pruned}");
    assert_eq!(names(&recorder.directory).len(), 1);
    assert_eq!(run(&format!("current_version --at {first}")).code, 2);
    assert_eq!(run(&format!("current_version --at {newest}")).code, 0);
}
