use super::{Others, host, service, settings};
use crate::catalog::{CatalogSnapshot, Follower, Reader, Trust};
use crate::reconcile::{self, Passes, Reconcile, Wake};
use etcd_session::Session;
use schema::health::Health;
use schema::keys::Key;
use schema::records::ServiceRecord;
use solo_etcd::in_process::{InProcess, LIMIT, Link, wait_until};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

/// A follower of a store, and what others write there.
struct Fixture {
    store: InProcess,
    others: Others,
    trust: watch::Sender<Trust>,
    reader: Reader,
    snapshots: watch::Receiver<Arc<CatalogSnapshot>>,
}

impl Fixture {
    /// Starts a follower that trusts the store, with these settings.
    async fn new(text: &str) -> Self {
        let store = InProcess::start();
        let others = Others::of(&store);
        let trust = watch::Sender::new(Trust { epoch: Some(0), release: 0 });
        let session = Session::through(store.clone());
        let catalog = settings(text).catalog.clone();
        let (follower, reader) = Follower::new(session, catalog, trust.subscribe(), None);
        tokio::spawn(reconcile::run(follower, Passes::default()));
        let snapshots = reader.changes();
        Self { store, others, trust, reader, snapshots }
    }

    /// A host publishes an instance of a service.
    async fn publish(&self, of: &str, at: &str, health: Option<Health>) {
        let record = ServiceRecord {
            host: Some(host(at)),
            addresses: vec!["192.0.2.1".parse().expect("an address")],
            ..ServiceRecord::default()
        };
        self.others.put(Key::Service(service(of), host(at)), &record.write(), 0).await;
        if let Some(health) = health {
            self.others.put(Key::Health(service(of), host(at)), health.as_str(), 0).await;
        }
    }

    /// Waits until exactly these instances are shown, each with its health, by a connected follower.
    async fn shows(&mut self, of: &str, instances: &[(&str, Option<Health>)]) -> Arc<CatalogSnapshot> {
        let expected: BTreeMap<String, Option<Health>> =
            instances.iter().map(|(host, health)| ((*host).to_owned(), *health)).collect();
        wait_until(&mut self.snapshots, &format!("{of} {expected:?}"), |snapshot| {
            snapshot.connected && shown(snapshot, of) == expected
        })
        .await
    }
}

fn shown(snapshot: &CatalogSnapshot, of: &str) -> BTreeMap<String, Option<Health>> {
    let instances = snapshot.view.service(&service(of)).map(|service| service.instances());
    let shown = instances.into_iter().flatten();
    shown.map(|(host, instance)| (host.as_str().to_owned(), instance.health)).collect()
}

#[tokio::test(start_paused = true)]
async fn records_are_followed_and_health_is_when_somebody_asks() {
    let mut fixture = Fixture::new("").await;
    fixture.publish("db", "h1", Some(Health::Passing)).await;
    fixture.shows("db", &[("h1", None)]).await;
    fixture.reader.follow(&service("db"));
    fixture.shows("db", &[("h1", Some(Health::Passing))]).await;
    fixture.others.put(Key::Health(service("db"), host("h1")), "critical", 0).await;
    fixture.shows("db", &[("h1", Some(Health::Critical))]).await;
    fixture.publish("db", "h2", Some(Health::Passing)).await;
    fixture.shows("db", &[("h1", Some(Health::Critical)), ("h2", Some(Health::Passing))]).await;
}

#[tokio::test(start_paused = true)]
async fn health_that_nobody_asks_for_any_more_is_not_followed() {
    let mut fixture = Fixture::new("[catalog]\nforget_after = \"10m\"\n").await;
    fixture.publish("db", "h1", Some(Health::Passing)).await;
    fixture.reader.follow(&service("db"));
    fixture.shows("db", &[("h1", Some(Health::Passing))]).await;
    sleep(Duration::from_secs(300)).await;
    assert!(fixture.reader.snapshot().view.health_known(&service("db")));
    sleep(Duration::from_secs(400)).await;
    assert!(!fixture.reader.snapshot().view.health_known(&service("db")));
}

#[tokio::test(start_paused = true)]
async fn while_the_store_is_away_the_last_view_is_served_with_its_age() {
    for link in [Link::Refusing, Link::Silent, Link::WithoutAnswers] {
        let mut fixture = Fixture::new("[catalog]\nfollow = [\"db\"]\n").await;
        fixture.publish("db", "h1", Some(Health::Passing)).await;
        fixture.shows("db", &[("h1", Some(Health::Passing))]).await;
        fixture.store.set_link(link);
        if link == Link::Refusing {
            fixture.store.cut();
        }
        let before = Instant::now();
        wait_until(&mut fixture.snapshots, "the silence", |shown| !shown.connected).await;
        assert!(before.elapsed() < Duration::from_secs(20), "{link:?}: {:?}", before.elapsed());
        fixture.others.put(Key::Health(service("db"), host("h1")), "critical", 0).await;
        sleep(LIMIT).await;
        let snapshot = fixture.reader.snapshot();
        assert_eq!(shown(&snapshot, "db"), BTreeMap::from([("h1".into(), Some(Health::Passing))]));
        assert!(fixture.reader.age() >= LIMIT, "{link:?}: {:?}", fixture.reader.age());
        fixture.store.set_link(Link::Open);
        fixture.shows("db", &[("h1", Some(Health::Critical))]).await;
        assert_eq!(fixture.reader.age(), Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_compaction_the_catalog_is_what_the_store_has() {
    let mut fixture = Fixture::new("[catalog]\nfollow = [\"db\"]\n").await;
    fixture.publish("db", "h1", Some(Health::Passing)).await;
    fixture.publish("db", "h2", Some(Health::Passing)).await;
    fixture.shows("db", &[("h1", Some(Health::Passing)), ("h2", Some(Health::Passing))]).await;
    fixture.store.disconnect();
    wait_until(&mut fixture.snapshots, "the cut", |shown| !shown.connected).await;
    // The host withdraws the service as its agent does.
    fixture.others.put(Key::Health(service("db"), host("h1")), "withdrawn", 0).await;
    fixture.others.delete(Key::Service(service("db"), host("h1"))).await;
    fixture.others.delete(Key::Health(service("db"), host("h1"))).await;
    fixture.others.put(Key::Health(service("db"), host("h2")), "warning", 0).await;
    fixture.store.compact().await.expect("compacted");
    fixture.store.set_link(Link::Open);
    // No event reported the withdrawal, so the instance is missing rather than withdrawn. Alone it
    // is no fault of the whole service, and is gone at once.
    fixture.shows("db", &[("h2", Some(Health::Warning))]).await;
}

/// Nothing of a store that went back or belongs to another fleet is shown.
#[tokio::test(start_paused = true)]
async fn a_store_that_is_not_trusted_changes_nothing() {
    let mut fixture = Fixture::new("[catalog]\nfollow = [\"db\"]\n").await;
    fixture.publish("db", "h1", Some(Health::Passing)).await;
    let backup = fixture.store.backup();
    fixture.publish("db", "h2", Some(Health::Passing)).await;
    let both = [("h1", Some(Health::Passing)), ("h2", Some(Health::Passing))];
    fixture.shows("db", &both).await;
    fixture.store.restore(backup);
    fixture.others = Others::of(&fixture.store);
    fixture.trust.send_replace(Trust { epoch: None, release: 0 });
    wait_until(&mut fixture.snapshots, "the loss of trust", |shown| !shown.connected).await;
    for number in 0..10 {
        fixture.publish("db", &format!("other{number}"), Some(Health::Passing)).await;
    }
    sleep(LIMIT).await;
    let snapshot = fixture.reader.snapshot();
    assert_eq!(shown(&snapshot, "db").keys().collect::<Vec<_>>(), ["h1", "h2"]);
    // After an operator accepted the store, it is followed.
    fixture.trust.send_replace(Trust { epoch: Some(1), release: 0 });
    let shown_now = wait_until(&mut fixture.snapshots, "the accepted store", |snapshot| {
        snapshot.connected && shown(snapshot, "db").contains_key("other9")
    })
    .await;
    assert!(shown(&shown_now, "db").contains_key("h1"));
}

#[tokio::test(start_paused = true)]
async fn a_catalog_above_the_limit_is_not_taken_in() {
    let mut fixture = Fixture::new("[catalog]\nentries_max = 3\n").await;
    for name in ["h1", "h2", "h3"] {
        fixture.publish("db", name, None).await;
    }
    fixture.shows("db", &[("h1", None), ("h2", None), ("h3", None)]).await;
    fixture.publish("db", "h4", None).await;
    let over = wait_until(&mut fixture.snapshots, "the limit", |shown| shown.is_over).await;
    assert!(!over.connected);
    fixture.others.delete(Key::Service(service("db"), host("h1"))).await;
    let before = Instant::now();
    fixture.shows("db", &[("h2", None), ("h3", None), ("h4", None)]).await;
    assert!(before.elapsed() <= Duration::from_secs(61), "{:?}", before.elapsed());
}

/// A hundred changes at once are few snapshots, and the last one has all of them.
#[tokio::test(start_paused = true)]
async fn changes_that_come_together_are_shown_together() {
    let mut fixture = Fixture::new("").await;
    fixture.shows("db", &[]).await;
    let before = fixture.reader.snapshot().generation;
    let names: Vec<String> = (0..100).map(|number| format!("h{number:02}")).collect();
    for name in &names {
        fixture.publish("db", name, None).await;
    }
    let expected: Vec<(&str, Option<Health>)> = names.iter().map(|name| (name.as_str(), None)).collect();
    let last = fixture.shows("db", &expected).await;
    assert!(last.generation > before, "{}", last.generation);
}

/// Without the feed the catalog would be served as it was, and count as connected.
#[tokio::test(start_paused = true)]
async fn a_follower_without_its_feed_ends() {
    let store = InProcess::start();
    let trust = watch::Sender::new(Trust { epoch: Some(0), release: 0 });
    let catalog = settings("").catalog.clone();
    let (mut follower, _reader) =
        Follower::new(Session::through(store.clone()), catalog, trust.subscribe(), None);
    follower.pass(Wake::Started).await;
    follower.end_feeds();
    let ended = tokio::time::timeout(LIMIT, tokio::spawn(reconcile::run(follower, Passes::default()))).await;
    let panic = ended.expect("the task ends").expect_err("it panics").into_panic();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"a feed of the catalog has ended"));
}
