use super::Fixture;
use crate::{Mirror, MirrorOptions, Snapshot};
use schema::followed::Scope;
use schema::keys::Key;
use solo_etcd::in_process::{LIMIT, Link, wait_until};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

const WATCHED: [Key; 2] = [Key::CurrentVersion, Key::Store];
const POLLED: Key = Key::DropStale;

fn start(fixture: &Fixture) -> (Mirror, watch::Receiver<Arc<Snapshot>>) {
    let (mirror, snapshots, _) = start_task(fixture);
    (mirror, snapshots)
}

fn start_task(fixture: &Fixture) -> (Mirror, watch::Receiver<Arc<Snapshot>>, JoinHandle<()>) {
    let scope = Scope { watched: WATCHED.to_vec(), polled: vec![POLLED], polled_also: Vec::new() };
    let (mirror, task) = Mirror::new(fixture.session.clone(), scope, MirrorOptions::default());
    let snapshots = mirror.snapshots();
    (mirror, snapshots, tokio::spawn(task))
}

fn value<'a>(snapshot: &'a Snapshot, key: &Key) -> Option<&'a str> {
    snapshot.followed.keys.get(key).map(|entry| std::str::from_utf8(&entry.value).expect("text"))
}

/// Waits until the mirror is connected and shows this value of `/current_version`.
async fn wait_for_version(snapshots: &mut watch::Receiver<Arc<Snapshot>>, version: &str) -> Arc<Snapshot> {
    wait_until(snapshots, version, |s| s.connected && value(s, &Key::CurrentVersion) == Some(version)).await
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_watched_key_is_shown_at_once() {
    let mut fixture = Fixture::new().await;
    fixture.put(&Key::CurrentVersion, "1").await;
    let (_mirror, mut snapshots) = start(&fixture);
    let listed = wait_for_version(&mut snapshots, "1").await;
    assert_eq!((listed.followed.reads, listed.error.clone()), (1, None));
    let before = tokio::time::Instant::now();
    let revision = fixture.put(&Key::CurrentVersion, "2").await;
    let changed = wait_for_version(&mut snapshots, "2").await;
    assert_eq!(
        (changed.followed.reads, changed.followed.keys.revision),
        (1, revision),
        "the watch showed it, no read"
    );
    assert!(before.elapsed() < Duration::from_millis(100), "{:?}", before.elapsed());
    fixture.delete(&Key::CurrentVersion).await;
    wait_until(&mut snapshots, "deleted", |s| value(s, &Key::CurrentVersion).is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn after_a_cut_the_watch_continues_and_one_read_proves_the_store() {
    let mut fixture = Fixture::new().await;
    fixture.put(&Key::CurrentVersion, "1").await;
    fixture.put(&Key::Store, "s").await;
    let (_mirror, mut snapshots) = start(&fixture);
    wait_for_version(&mut snapshots, "1").await;
    fixture.store.disconnect();
    let cut = wait_until(&mut snapshots, "the cut", |s| !s.connected).await;
    assert!(cut.error.is_some() && value(&cut, &Key::CurrentVersion) == Some("1"), "{cut:?}");
    fixture.put(&Key::CurrentVersion, "2").await;
    fixture.delete(&Key::Store).await;
    fixture.store.set_link(Link::Open);
    let resumed = wait_for_version(&mut snapshots, "2").await;
    assert_eq!((resumed.followed.reads, value(&resumed, &Key::Store)), (2, None));
    assert!(resumed.error.is_none() && resumed.followed.regress.is_none(), "{resumed:?}");
}

#[tokio::test(start_paused = true)]
async fn after_a_compaction_the_keys_are_listed_again() {
    let mut fixture = Fixture::new().await;
    fixture.put(&Key::CurrentVersion, "1").await;
    fixture.put(&Key::Store, "s").await;
    let (_mirror, mut snapshots) = start(&fixture);
    wait_for_version(&mut snapshots, "1").await;
    fixture.store.disconnect();
    wait_until(&mut snapshots, "the cut", |s| !s.connected).await;
    fixture.delete(&Key::Store).await;
    let revision = fixture.put(&Key::CurrentVersion, "2").await;
    fixture.compact(revision).await;
    fixture.store.set_link(Link::Open);
    let listed = wait_for_version(&mut snapshots, "2").await;
    assert_eq!(value(&listed, &Key::Store), None, "a deletion that no event reported");
    // The new watch works.
    fixture.put(&Key::CurrentVersion, "3").await;
    wait_for_version(&mut snapshots, "3").await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_answers_nothing_is_noticed_within_twenty_seconds() {
    for link in [Link::Silent, Link::WithoutAnswers] {
        let mut fixture = Fixture::new().await;
        fixture.put(&Key::CurrentVersion, "1").await;
        let (_mirror, mut snapshots) = start(&fixture);
        wait_for_version(&mut snapshots, "1").await;
        fixture.store.set_link(link);
        let before = tokio::time::Instant::now();
        wait_until(&mut snapshots, "the silence", |s| !s.connected).await;
        assert!(before.elapsed() < Duration::from_secs(20), "{link:?}: {:?}", before.elapsed());
        fixture.put(&Key::CurrentVersion, "2").await;
        fixture.store.set_link(Link::Open);
        wait_for_version(&mut snapshots, "2").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_went_back_is_reported_with_both_revisions() {
    let mut fixture = Fixture::new().await;
    fixture.put(&Key::CurrentVersion, "1").await;
    let backup = fixture.store.backup();
    let (_mirror, mut snapshots) = start(&fixture);
    fixture.put(&Key::CurrentVersion, "2").await;
    let newest = fixture.put(&Key::CurrentVersion, "3").await;
    wait_for_version(&mut snapshots, "3").await;
    fixture.restore(backup).await;
    let back = wait_until(&mut snapshots, "the regress", |s| !s.followed.regress.is_none()).await;
    assert_eq!(back.followed.regress.revision, Some((newest, 2)), "{back:?}");
    assert_eq!(value(&back, &Key::CurrentVersion), Some("1"), "the snapshot shows what was read");
    // The mirror follows the store; what the store says is judged elsewhere.
    fixture.session.begin_history(back.followed.read_revision, back.followed.keys.raft_term);
    fixture.put(&Key::CurrentVersion, "other").await;
    let other = wait_for_version(&mut snapshots, "other").await;
    let read = wait_until(&mut snapshots, "a read", |s| s.followed.reads > other.followed.reads).await;
    assert!(read.followed.regress.is_none(), "a new history has begun: {read:?}");
}

#[tokio::test(start_paused = true)]
async fn polled_keys_are_read_with_each_resync() {
    let mut fixture = Fixture::new().await;
    let (mirror, mut snapshots) = start(&fixture);
    let first = wait_until(&mut snapshots, "the first read", |s| s.connected).await;
    fixture.put(&POLLED, "p").await;
    fixture.put(&Key::CurrentVersion, "1").await;
    let watched = wait_for_version(&mut snapshots, "1").await;
    assert_eq!((watched.followed.reads, value(&watched, &POLLED)), (first.followed.reads, None));
    for _ in 0..5 {
        mirror.request_resync();
    }
    let read = wait_until(&mut snapshots, "the requested read", |s| value(s, &POLLED) == Some("p")).await;
    assert_eq!(read.followed.reads, first.followed.reads + 1, "requests that arrive together are one read");
    // Without a request the backstop reads within one and a half times its mean.
    fixture.delete(&POLLED).await;
    let before = tokio::time::Instant::now();
    let later = wait_until(&mut snapshots, "the backstop", |s| value(s, &POLLED).is_none()).await;
    assert!(before.elapsed() <= Duration::from_secs(46), "{:?}", before.elapsed());
    assert!(later.connected && later.error.is_none(), "{later:?}");
}

#[tokio::test(start_paused = true)]
async fn keys_that_are_polled_as_well_replace_the_ones_before() {
    let mut fixture = Fixture::new().await;
    let announced = Key::Announced(super::host());
    let live = Key::Live(super::host());
    fixture.put(&announced, "1").await;
    fixture.put(&live, "l").await;
    let (mirror, mut snapshots) = start(&fixture);
    wait_until(&mut snapshots, "the first read", |s| s.connected).await;
    for (keys, found) in [([announced.clone()], "1"), ([live.clone()], "l")] {
        mirror.poll_also(&keys);
        mirror.request_resync();
        let read = wait_until(&mut snapshots, "the read", |s| s.followed.polled_also == keys).await;
        assert_eq!(value(&read, &keys[0]), Some(found));
    }
    let last = snapshots.borrow().clone();
    assert_eq!(value(&last, &announced), None, "a key that is not polled any more is not shown");
}

#[tokio::test(start_paused = true)]
async fn a_mirror_that_ended_is_an_error_for_its_readers() {
    let fixture = Fixture::new().await;
    let (_mirror, mut snapshots, task) = start_task(&fixture);
    wait_until(&mut snapshots, "the first read", |s| s.connected).await;
    task.abort();
    let ended = tokio::time::timeout(LIMIT, async { while snapshots.changed().await.is_ok() {} }).await;
    assert!(ended.is_ok(), "readers would wait for ever");
}

/// A read before the watch has begun again shows the changes of the interruption. The watch will
/// deliver them, so that is no reason to break off again and to wait for long.
#[tokio::test(start_paused = true)]
async fn a_read_that_comes_before_the_watch_has_begun_does_not_end_it() {
    let mut fixture = Fixture::new().await;
    let (mirror, mut snapshots) = start(&fixture);
    wait_until(&mut snapshots, "the first read", |s| s.connected).await;
    for number in 0..20 {
        fixture.store.disconnect();
        wait_until(&mut snapshots, "the cut", |s| !s.connected).await;
        // On the paused clock: so many attempts fail that the next delay would be long.
        tokio::time::sleep(Duration::from_secs(200)).await;
        let version = number.to_string();
        fixture.put(&Key::CurrentVersion, &version).await;
        mirror.request_resync();
        fixture.store.set_link(Link::Open);
        wait_until(&mut snapshots, "the version", |s| {
            let error = s.error.as_ref().map(ToString::to_string).unwrap_or_default();
            assert!(!error.contains("had not delivered"), "{number}: {error}");
            s.connected && value(s, &Key::CurrentVersion) == Some(version.as_str())
        })
        .await;
    }
}
