use super::Fixture;
use crate::{Collected, Collector, Feed, FeedBegin, FeedEvent, FeedOptions};
use schema::keys::{Key, Prefix};
use schema::names::ConfigName;
use solo_etcd::in_process::{LIMIT, Link};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::mpsc;

fn key(name: &str) -> Key {
    Key::Config(ConfigName::new(name).expect("a name"))
}

/// A consumer of a feed: it keeps the keys as a real consumer does.
struct Consumer {
    events: mpsc::Receiver<(u64, FeedEvent)>,
    collector: Collector<String, String>,
    keys: BTreeMap<String, String>,
    revision: i64,
    connected: bool,
    /// Number of complete lists.
    lists: usize,
    feed: Feed,
}

impl Consumer {
    /// Starts a feed whose channel holds this many events.
    fn start(fixture: &Fixture, capacity: usize) -> Self {
        Self::start_with(fixture, capacity, FeedBegin::List)
    }

    fn start_with(fixture: &Fixture, capacity: usize, begin: FeedBegin) -> Self {
        let (sender, events) = mpsc::channel(capacity);
        let options = FeedOptions { begin, ..FeedOptions::default() };
        let feed = Feed::start(fixture.session.clone(), Prefix::Config, options, 1, sender);
        Self {
            events,
            collector: Collector::default(),
            keys: BTreeMap::new(),
            revision: 0,
            connected: false,
            lists: 0,
            feed,
        }
    }

    fn take(&mut self, event: FeedEvent) {
        let read = |key: &str, entry: Option<&schema::snapshot::Entry>| {
            let value = entry.map(|entry| String::from_utf8(entry.value.clone()).expect("text"));
            Some((key.rsplit('/').next().expect("a name").to_owned(), value))
        };
        match self.collector.take(event, read) {
            None => {}
            Some(Collected::Replaced(keys, revision)) => {
                (self.keys, self.revision) = (keys, revision);
                self.lists += 1;
            }
            Some(Collected::Changed(changes, revision)) => {
                assert!(revision >= self.revision, "{revision} after {}", self.revision);
                self.revision = revision;
                for (key, value) in changes {
                    match value {
                        Some(value) => self.keys.insert(key, value),
                        None => self.keys.remove(&key),
                    };
                }
            }
            Some(Collected::Connected(connected)) => self.connected = connected,
        }
    }

    /// Takes events until a condition holds.
    async fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let deadline = tokio::time::Instant::now() + LIMIT;
        while !is_so(self) {
            match tokio::time::timeout_at(deadline, self.events.recv()).await {
                Ok(Some((_, event))) => self.take(event),
                Ok(None) => panic!("{what}: the feed has ended"),
                Err(_) => panic!("{what}: not within {LIMIT:?}: {:?} {}", self.keys, self.connected),
            }
        }
    }

    async fn until_keys(&mut self, keys: &[(&str, &str)]) {
        let keys: BTreeMap<String, String> =
            keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        self.until(&format!("{keys:?}"), |consumer| consumer.connected && consumer.keys == keys).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_feed_lists_and_then_reports_each_change() {
    let mut fixture = Fixture::new().await;
    fixture.put(&key("a"), "1").await;
    fixture.put(&Key::CurrentVersion, "another range").await;
    let mut consumer = Consumer::start(&fixture, 16);
    consumer.until_keys(&[("a", "1")]).await;
    fixture.put(&key("b"), "2").await;
    fixture.put(&Key::CurrentVersion, "another range").await;
    fixture.delete(&key("a")).await;
    consumer.until_keys(&[("b", "2")]).await;
    assert_eq!(consumer.lists, 1);
}

#[tokio::test(start_paused = true)]
async fn a_feed_that_begins_now_reports_what_follows_its_connection_also_after_a_cut() {
    let mut fixture = Fixture::new().await;
    fixture.put(&key("a"), "1").await;
    let mut consumer = Consumer::start_with(&fixture, 16, FeedBegin::Now);
    consumer.until("the connection", |c| c.connected).await;
    fixture.put(&key("b"), "2").await;
    consumer.until_keys(&[("b", "2")]).await;
    fixture.store.disconnect();
    consumer.until("the cut", |c| !c.connected).await;
    fixture.put(&key("c"), "3").await;
    fixture.store.set_link(Link::Open);
    consumer.until_keys(&[("b", "2"), ("c", "3")]).await;
    assert_eq!(consumer.lists, 0);
}

#[tokio::test(start_paused = true)]
async fn after_a_cut_a_feed_continues_without_a_list() {
    let mut fixture = Fixture::new().await;
    fixture.put(&key("a"), "1").await;
    fixture.put(&key("b"), "1").await;
    let mut consumer = Consumer::start(&fixture, 16);
    consumer.until_keys(&[("a", "1"), ("b", "1")]).await;
    fixture.store.disconnect();
    consumer.until("the cut", |c| !c.connected).await;
    fixture.delete(&key("a")).await;
    fixture.put(&key("b"), "2").await;
    fixture.store.set_link(Link::Open);
    consumer.until_keys(&[("b", "2")]).await;
    assert_eq!(consumer.lists, 1);
}

#[tokio::test(start_paused = true)]
async fn after_a_compaction_a_feed_lists_again() {
    let mut fixture = Fixture::new().await;
    fixture.put(&key("a"), "1").await;
    fixture.put(&key("b"), "1").await;
    let mut consumer = Consumer::start(&fixture, 16);
    consumer.until_keys(&[("a", "1"), ("b", "1")]).await;
    fixture.store.disconnect();
    consumer.until("the cut", |c| !c.connected).await;
    fixture.delete(&key("a")).await;
    let revision = fixture.put(&key("b"), "2").await;
    fixture.compact(revision).await;
    fixture.store.set_link(Link::Open);
    consumer.until_keys(&[("b", "2")]).await;
    assert_eq!(consumer.lists, 2);
}

/// The history from the revision of a deletion on does not contain the deletion if it begins there
/// by a compaction (etcd issue 18089).
#[tokio::test(start_paused = true)]
async fn a_deletion_at_the_compacted_revision_is_not_missed() {
    let mut fixture = Fixture::new().await;
    fixture.put(&key("a"), "1").await;
    let mut consumer = Consumer::start(&fixture, 16);
    consumer.until_keys(&[("a", "1")]).await;
    fixture.store.disconnect();
    consumer.until("the cut", |c| !c.connected).await;
    let revision = fixture.delete(&key("a")).await;
    fixture.compact(revision).await;
    fixture.store.set_link(Link::Open);
    consumer.until_keys(&[]).await;
}

/// Nothing is dropped for a consumer that does not read: the store keeps the history until it is
/// compacted, and then the feed lists again.
#[tokio::test(start_paused = true)]
async fn a_slow_consumer_loses_nothing() {
    for is_compacted in [false, true] {
        let mut fixture = Fixture::new().await;
        fixture.put(&key("gone"), "0").await;
        let mut consumer = Consumer::start(&fixture, 1);
        consumer.until_keys(&[("gone", "0")]).await;
        fixture.delete(&key("gone")).await;
        let large = "x".repeat(20_000);
        let mut revision = 0;
        for n in 0..200 {
            revision = fixture.put(&key("large"), &format!("{n}{large}")).await;
        }
        if is_compacted {
            fixture.compact(revision).await;
        }
        fixture.put(&key("last"), "1").await;
        let newest = format!("199{large}");
        consumer.until_keys(&[("large", newest.as_str()), ("last", "1")]).await;
        assert_eq!(consumer.lists, if is_compacted { 2 } else { 1 }, "compacted: {is_compacted}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_answers_nothing_is_left_within_twenty_seconds() {
    let mut fixture = Fixture::new().await;
    let mut consumer = Consumer::start(&fixture, 16);
    consumer.until_keys(&[]).await;
    fixture.store.set_link(Link::WithoutAnswers);
    let before = tokio::time::Instant::now();
    consumer.until("the silence", |c| !c.connected).await;
    assert!(before.elapsed() < Duration::from_secs(20), "{:?}", before.elapsed());
    fixture.put(&key("a"), "1").await;
    fixture.store.set_link(Link::Open);
    consumer.until_keys(&[("a", "1")]).await;
}

/// A list of a store that went back would bring deleted keys to life.
#[tokio::test(start_paused = true)]
async fn a_store_that_went_back_is_not_listed() {
    let mut fixture = Fixture::new().await;
    fixture.put(&key("old"), "1").await;
    let backup = fixture.store.backup();
    let mut consumer = Consumer::start(&fixture, 16);
    fixture.delete(&key("old")).await;
    fixture.put(&key("new"), "1").await;
    consumer.until_keys(&[("new", "1")]).await;
    let lists = consumer.lists;
    fixture.restore(backup).await;
    let quiet = tokio::time::Instant::now() + LIMIT;
    while let Ok(Some((_, event))) = tokio::time::timeout_at(quiet, consumer.events.recv()).await {
        consumer.take(event);
    }
    assert_eq!((consumer.lists, consumer.connected), (lists, false), "{:?}", consumer.keys);
    assert_eq!(consumer.keys.keys().collect::<Vec<_>>(), ["new"]);
    // After an operator accepted the store, it counts.
    fixture.session.begin_history(2, 1);
    consumer.until("the list", |c| c.lists > lists).await;
    consumer.until_keys(&[("old", "1")]).await;
}

#[tokio::test(start_paused = true)]
async fn a_feed_ends_with_its_consumer() {
    let fixture = Fixture::new().await;
    let mut consumer = Consumer::start(&fixture, 16);
    consumer.until_keys(&[]).await;
    let Consumer { events, feed, .. } = consumer;
    assert!(!feed.has_ended());
    drop(events);
    let ended = async {
        while !feed.has_ended() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, ended).await.expect("the feed ends");
}

/// Whatever happens to the connection and the history, a consumer has in the end what the store has,
/// and never a key that the store did not have at the revision of the consumer.
#[tokio::test(start_paused = true)]
async fn whatever_happens_a_consumer_has_what_the_store_has() {
    for seed in 0..40 {
        let mut random = Random(seed);
        let mut fixture = Fixture::new().await;
        let mut consumer = Consumer::start(&fixture, 2);
        // The keys at each revision.
        let mut model: BTreeMap<String, String> = BTreeMap::new();
        let mut history: BTreeMap<i64, BTreeMap<String, String>> = BTreeMap::from([(1, model.clone())]);
        for step in 0..60 {
            let name = format!("k{}", random.below(5));
            match random.below(10) {
                0..=3 => {
                    let revision = fixture.put(&key(&name), &step.to_string()).await;
                    model.insert(name, step.to_string());
                    history.insert(revision, model.clone());
                }
                4 => {
                    let revision = fixture.delete(&key(&name)).await;
                    model.remove(&name);
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
                    while let Ok(Some((_, event))) =
                        tokio::time::timeout_at(until, consumer.events.recv()).await
                    {
                        consumer.take(event);
                        let known = history.range(..=consumer.revision).next_back().map(|(_, keys)| keys);
                        if consumer.lists > 0 {
                            assert_eq!(Some(&consumer.keys), known, "seed {seed}, step {step}");
                        }
                    }
                }
            }
        }
        fixture.store.set_link(Link::Open);
        fixture.put(&key("end"), "1").await;
        model.insert("end".into(), "1".into());
        consumer.until(&format!("seed {seed}: {model:?}"), |c| c.keys == model).await;
    }
}

/// A generator of numbers that are the same in each run (splitmix64).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}
