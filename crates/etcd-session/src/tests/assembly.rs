//! Several feeds, put together.

use super::Fixture;
use crate::{Assembly, Deadline, Feed, FeedEvent, FeedOptions, ReadOnlySession};
use schema::keys::{Key, Prefix};
use schema::names::{ConfigName, HostName, Version};
use schema::reads::Keys;
use solo_etcd::in_process::{LIMIT, Link};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::mpsc;

fn value(name: &str) -> Key {
    Key::Config(ConfigName::new(name).expect("a name"))
}

fn listing(host: &str) -> Key {
    Key::RunningVersion(Version::new("1").expect("a version"), HostName::new(host).expect("a name"))
}

fn session(fixture: &Fixture) -> ReadOnlySession {
    ReadOnlySession::of(fixture.session.clone())
}

/// A program that follows the whole store.
struct Follower {
    assembly: Assembly,
    feeds: Vec<Feed>,
    events: mpsc::Receiver<(u64, FeedEvent)>,
    went_back_to: Option<i64>,
}

impl Follower {
    fn start(fixture: &Fixture) -> Self {
        let (sender, events) = mpsc::channel(16);
        let options = FeedOptions { by_revision: true, ..FeedOptions::default() };
        let follow = |(number, keys)| session(fixture).follow(keys, options.clone(), number, sender.clone());
        let feeds = (0..).zip(Keys::all()).map(follow).collect();
        Self { assembly: Assembly::new(Keys::all()), feeds, events, went_back_to: None }
    }

    fn take(&mut self, number: u64, event: FeedEvent) {
        if let FeedEvent::WentBack(revision) = event {
            self.went_back_to = Some(revision);
        }
        self.assembly.take(usize::try_from(number).expect("a number"), event);
        self.assembly.advance();
        self.assembly.behind(0).for_each(|behind| self.feeds[behind].request_progress());
    }

    /// Takes events until a condition holds.
    async fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let deadline = tokio::time::Instant::now() + LIMIT;
        while !is_so(self) {
            match tokio::time::timeout_at(deadline, self.events.recv()).await {
                Ok(Some((number, event))) => self.take(number, event),
                Ok(None) => panic!("{what}: the feeds have ended"),
                Err(_) => panic!("{what}: not within {LIMIT:?}: {:?}", self.assembly),
            }
        }
    }

    fn values(&self) -> BTreeMap<String, Vec<u8>> {
        let entries = &self.assembly.snapshot().entries;
        entries.iter().map(|(key, entry)| (key.clone(), entry.value.clone())).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn the_snapshot_reaches_a_change_of_one_range_at_once() {
    let mut fixture = Fixture::new().await;
    let first = fixture.put(&value("a"), "1").await;
    let mut follower = Follower::start(&fixture);
    follower.until("the first", |f| f.assembly.snapshot().revision >= first).await;
    let begin = tokio::time::Instant::now();
    for revision in 1..20 {
        let key = if revision % 2 == 0 { value("b") } else { listing("h") };
        let written = fixture.put(&key, &revision.to_string()).await;
        follower.until("a change", |f| f.assembly.snapshot().revision >= written).await;
        assert_eq!(follower.values()[&key.to_string()], revision.to_string().into_bytes());
    }
    // The feeds request progress by themselves only after 15 s.
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
}

/// Whatever happens to the connection and the history, the snapshot is the store at its revision.
#[tokio::test(start_paused = true)]
async fn the_snapshot_is_never_a_mixture_of_revisions() {
    for seed in 0..20 {
        let mut random = super::feed::Random(seed);
        let mut fixture = Fixture::new().await;
        let mut follower = Follower::start(&fixture);
        let mut model: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let mut history = BTreeMap::from([(0, model.clone()), (1, model.clone())]);
        for step in 0..60 {
            let name = format!("k{}", random.below(3));
            let key = match random.below(3) {
                0 => value(&name),
                1 => listing(&name),
                _ => Key::CurrentVersion,
            };
            match random.below(10) {
                0..=3 => {
                    let revision = fixture.put(&key, &step.to_string()).await;
                    model.insert(key.to_string(), step.to_string().into_bytes());
                    history.insert(revision, model.clone());
                }
                4 => {
                    let revision = fixture.delete(&key).await;
                    model.remove(&key.to_string());
                    history.insert(revision, model.clone());
                }
                5 => fixture.store.cut(),
                6 => fixture.store.set_link(Link::Refusing),
                7 => fixture.store.set_link(Link::Open),
                8 => {
                    let newest = *history.keys().next_back().expect("a revision");
                    // A revision may be compacted only once.
                    let _ = fixture.others.compact(newest, None).await;
                }
                _ => {
                    let until = tokio::time::Instant::now() + Duration::from_millis(random.below(3000));
                    while let Ok(Some((number, event))) =
                        tokio::time::timeout_at(until, follower.events.recv()).await
                    {
                        follower.take(number, event);
                        let revision = follower.assembly.snapshot().revision;
                        let known = history.range(..=revision).next_back().map(|(_, keys)| keys);
                        assert_eq!(Some(&follower.values()), known, "seed {seed}, step {step}");
                    }
                }
            }
        }
        fixture.store.set_link(Link::Open);
        let last = fixture.put(&value("end"), "1").await;
        model.insert(value("end").to_string(), b"1".to_vec());
        follower.until(&format!("seed {seed}"), |f| f.assembly.snapshot().revision >= last).await;
        assert_eq!(follower.values(), model, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_went_back_is_followed_from_a_new_history_on() {
    let mut fixture = Fixture::new().await;
    fixture.put(&value("old"), "1").await;
    let backup = fixture.store.backup();
    let mut follower = Follower::start(&fixture);
    let last = fixture.put(&value("new"), "1").await;
    follower.until("the store", |f| f.assembly.snapshot().revision >= last).await;
    fixture.restore(backup).await;
    follower.until("the restored store", |f| f.went_back_to.is_some()).await;
    assert!(follower.values().contains_key(&value("new").to_string()), "the last snapshot stays");
    session(&fixture).begin_history(follower.went_back_to.expect("a revision"), 0);
    let mut follower = Follower::start(&fixture);
    follower.until("its keys", |f| f.assembly.snapshot().revision > 0).await;
    assert_eq!(follower.values().keys().collect::<Vec<_>>(), [&value("old").to_string()]);
}

#[tokio::test(start_paused = true)]
async fn a_range_is_unchanged_if_no_key_was_written_or_deleted() {
    let mut fixture = Fixture::new().await;
    fixture.put(&value("a"), "1").await;
    let since = fixture.put(&value("b"), "1").await;
    let elsewhere = fixture.put(&listing("h"), "1").await;
    let changed = fixture.put(&value("a"), "2").await;
    let deleted = fixture.delete(&value("b")).await;
    let created = fixture.put(&value("c"), "1").await;
    let session = session(&fixture);
    let own = Keys::Below(Prefix::Own);
    let check = async |keys: &Keys, (since, count): (i64, usize), at: i64| {
        session.is_unchanged(keys, since, count, at, Deadline::within(LIMIT)).await.expect("an answer")
    };
    assert!(check(&own, (since, 2), elsewhere).await);
    assert!(!check(&own, (since, 2), changed).await, "written");
    assert!(!check(&own, (changed, 2), deleted).await, "deleted");
    assert!(!check(&own, (changed, 2), created).await, "as many as before");
    assert!(check(&own, (created, 2), created).await);
    let version = Keys::One(Key::CurrentVersion);
    assert!(check(&version, (1, 0), created).await, "a key that is not there");
}
