use super::{Others, host, service, settings};
use crate::catalog::{Fencing, Loaded, PublishedServices, Publisher, PublisherInputs};
use crate::checks::CheckRegistry;
use crate::files::Directory;
use crate::reconcile::{self, Passes};
use catalog::definitions::{Definitions, ServiceAddress, ServiceDefinition};
use etcd_session::{Gate, Mirror, MirrorOptions, Presence, PresenceConfig, PresenceState, Session};
use schema::followed::Scope;
use schema::health::Health;
use schema::keys::Key;
use schema::names::Token;
use schema::records::{Driver, LiveClaim, RosterEntry, ServiceRecord};
use schema::snapshot::KeySnapshot;
use solo_etcd::core::Command;
use solo_etcd::in_process::{InProcess, Link, wait_until};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const NAME: &str = "h1";
const LEASE: Duration = Duration::from_secs(30);

/// An agent as far as its services are concerned: it claims its name and publishes.
struct Agent {
    session: Session,
    gate: watch::Sender<Gate>,
    fencing: watch::Sender<Fencing>,
    loaded: watch::Sender<Arc<Loaded>>,
    published: watch::Receiver<Arc<PublishedServices>>,
    presence: Presence,
    _mirror: Mirror,
    tasks: JoinSet<()>,
}

impl Agent {
    /// Starts an agent with its state directory.
    fn start(store: &InProcess, state: &TempDir, services: &[&str]) -> Self {
        let session = Session::through(store.clone());
        let claim = LiveClaim {
            instance: Token::new("a").expect("a token"),
            machine_id: "machine".into(),
            boot_id: "boot".into(),
            addresses: Vec::new(),
            agent_version: String::new(),
            driver: Driver::Agent,
            store_format: 1,
        };
        let gate = watch::Sender::new(Gate { open: true, ..Gate::default() });
        let roster = RosterEntry::default();
        let config =
            PresenceConfig { host: host(NAME), former: None, claim, roster, resume: true, lease: LEASE };
        let (presence, claiming) = Presence::new(session.clone(), config, gate.subscribe());
        let scope = Scope { watched: vec![Key::CurrentVersion], ..Scope::default() };
        // The watch of the mirror notices that a connection broke, as in an agent.
        let (mirror, mirroring) = Mirror::new(session.clone(), scope, MirrorOptions::default());
        let fencing = watch::Sender::new(Fencing { store_revision: Some(0), ..Fencing::default() });
        let loaded = watch::Sender::new(loaded(services));
        let inputs = PublisherInputs {
            settings: watch::Sender::new(settings("")).subscribe(),
            loaded: loaded.subscribe(),
            registry: Arc::new(CheckRegistry::default()),
            presence: presence.states(),
            contradictions: presence.contradictions(),
            fencing: fencing.subscribe(),
        };
        let directory = Directory::open_or_create(state.path()).expect("a directory");
        let (publisher, published) = Publisher::new(host(NAME), session.clone(), directory, inputs);
        let mut tasks = JoinSet::new();
        tasks.spawn(claiming);
        tasks.spawn(mirroring);
        tasks.spawn(reconcile::run(publisher, Passes::default()));
        Self { session, gate, fencing, loaded, published, presence, _mirror: mirror, tasks }
    }

    /// Waits until exactly these services are published.
    async fn publishes(&mut self, services: &[&str]) -> Arc<PublishedServices> {
        wait_until(&mut self.published, &format!("{services:?}"), |published| {
            let all_functional = published.services.values().all(|health| *health == Some(Health::Passing));
            let names: Vec<&str> = published.services.keys().map(|name| name.as_str()).collect();
            names == services && all_functional
        })
        .await
    }

    fn live_lease(&self) -> i64 {
        match *self.presence.states().borrow() {
            PresenceState::Held { lease, .. } => lease,
            ref state => panic!("{state:?}"),
        }
    }

    /// Ends the agent as `kill -9` does.
    async fn kill(mut self) {
        self.tasks.shutdown().await;
    }
}

fn loaded(services: &[&str]) -> Arc<Loaded> {
    let definition = |name: &&str| ServiceDefinition {
        address: Some(ServiceAddress::Ip("192.0.2.1".parse().expect("an address"))),
        ..ServiceDefinition::bare(service(name))
    };
    let services = services.iter().map(|name| (service(name), definition(name))).collect();
    let definitions = Arc::new(Definitions { services, host_checks: Vec::new() });
    Arc::new(Loaded { definitions, errors: Vec::new() })
}

fn keys(of: &str) -> [Key; 2] {
    [Key::Service(service(of), host(NAME)), Key::Health(service(of), host(NAME))]
}

async fn stored(others: &Others, of: &str) -> KeySnapshot {
    others.read(&keys(of)).await
}

/// Checks that the record hangs on the work lease and the health on the live lease.
async fn check_leases(others: &Others, agent: &Agent, of: &str) {
    let found = stored(others, of).await;
    let [record, health] = keys(of);
    let work_lease = agent.published.borrow().work_lease.clone().expect("a work lease");
    assert_eq!(format!("{:x}", found.get(&record).expect("a record").lease), work_lease);
    assert_eq!(found.get(&health).expect("a health").lease, agent.live_lease());
}

#[tokio::test(start_paused = true)]
async fn services_are_published_and_their_leases_are_kept() {
    let (store, state) = (InProcess::start(), TempDir::new().expect("a directory"));
    let others = Others::of(&store);
    let mut agent = Agent::start(&store, &state, &["db", "web"]);
    agent.publishes(&["db", "web"]).await;
    check_leases(&others, &agent, "db").await;
    let revision = store.revision();
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(store.revision(), revision, "nothing is written again");
    check_leases(&others, &agent, "web").await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_published_until_the_store_may_be_written() {
    let (store, state) = (InProcess::start(), TempDir::new().expect("a directory"));
    let others = Others::of(&store);
    let mut agent = Agent::start(&store, &state, &["db"]);
    agent.fencing.send_modify(|fencing| fencing.store_revision = None);
    sleep(LEASE).await;
    assert!(stored(&others, "db").await.entries.is_empty());
    agent.fencing.send_modify(|fencing| fencing.store_revision = Some(0));
    agent.publishes(&["db"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_starts_again_writes_nothing() {
    let (store, state) = (InProcess::start(), TempDir::new().expect("a directory"));
    let mut agent = Agent::start(&store, &state, &["db"]);
    agent.publishes(&["db"]).await;
    let revision = store.revision();
    agent.kill().await;
    let mut agent = Agent::start(&store, &state, &["db"]);
    agent.publishes(&["db"]).await;
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(store.revision(), revision);
}

#[tokio::test(start_paused = true)]
async fn keys_that_somebody_deleted_are_written_again() {
    for index in [0, 1] {
        let (store, state) = (InProcess::start(), TempDir::new().expect("a directory"));
        let others = Others::of(&store);
        let mut agent = Agent::start(&store, &state, &["db"]);
        agent.publishes(&["db"]).await;
        others.delete(keys("db")[index].clone()).await;
        sleep(Duration::from_secs(31)).await;
        assert_eq!(stored(&others, "db").await.entries.len(), 2, "key {index}");
        check_leases(&others, &agent, "db").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_lost_is_replaced() {
    let (store, state) = (InProcess::start(), TempDir::new().expect("a directory"));
    let others = Others::of(&store);
    let mut agent = Agent::start(&store, &state, &["db"]);
    let lease = agent.publishes(&["db"]).await.work_lease.clone().expect("a lease");
    let id = i64::from_str_radix(&lease, 16).expect("a number");
    store.apply(Command::LeaseRevoke(id)).await.expect("revoked");
    let other = |published: &Arc<PublishedServices>| {
        published.work_lease.as_ref().is_some_and(|now| *now != lease) && !published.services.is_empty()
    };
    wait_until(&mut agent.published, "another lease", other).await;
    check_leases(&others, &agent, "db").await;
}

/// A host that was away for longer than both leases publishes again under new ones.
#[tokio::test(start_paused = true)]
async fn a_host_that_was_cut_off_for_long_publishes_again() {
    for link in [Link::Refusing, Link::Silent] {
        let (store, state) = (InProcess::start(), TempDir::new().expect("a directory"));
        let others = Others::of(&store);
        let mut agent = Agent::start(&store, &state, &["db"]);
        agent.publishes(&["db"]).await;
        store.set_link(link);
        store.cut();
        sleep(Duration::from_secs(2000)).await;
        assert!(stored(&others, "db").await.entries.is_empty(), "{link:?}");
        store.set_link(Link::Open);
        let before = Instant::now();
        while stored(&others, "db").await.entries.len() < 2 {
            assert!(before.elapsed() < Duration::from_secs(120), "{link:?}");
            sleep(Duration::from_secs(1)).await;
        }
        check_leases(&others, &agent, "db").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_was_lost_is_sent_again_with_the_same_effect() {
    let (store, state) = (InProcess::start(), TempDir::new().expect("a directory"));
    let others = Others::of(&store);
    let mut agent = Agent::start(&store, &state, &[]);
    wait_until(&mut agent.presence.states(), "the claim", |s| matches!(s, PresenceState::Held { .. })).await;
    let lost = store.lose_answer(Link::Open);
    agent.loaded.send_replace(loaded(&["db", "web"]));
    agent.publishes(&["db", "web"]).await;
    lost.await;
    check_leases(&others, &agent, "db").await;
    check_leases(&others, &agent, "web").await;
    let revision = store.revision();
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(store.revision(), revision, "nothing is written again");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_not_defined_any_more_is_withdrawn_before_it_is_removed() {
    let (store, state) = (InProcess::start(), TempDir::new().expect("a directory"));
    let others = Others::of(&store);
    let mut agent = Agent::start(&store, &state, &["db", "web"]);
    agent.publishes(&["db", "web"]).await;
    let before = store.revision();
    agent.loaded.send_replace(loaded(&["web"]));
    agent.publishes(&["web"]).await;
    assert!(stored(&others, "db").await.entries.is_empty());
    let health = |at| store.value_at(&keys("db")[1].to_string(), at);
    assert_eq!(health(before + 1).as_deref(), Some(&b"withdrawn"[..]));
    assert_eq!(health(before + 2), None);
}

#[tokio::test(start_paused = true)]
async fn a_decommissioned_host_publishes_nothing() {
    let (store, state) = (InProcess::start(), TempDir::new().expect("a directory"));
    let others = Others::of(&store);
    let mut agent = Agent::start(&store, &state, &["db"]);
    agent.publishes(&["db"]).await;
    agent.fencing.send_modify(|fencing| fencing.decommissioned = true);
    agent.publishes(&[]).await;
    assert!(stored(&others, "db").await.entries.is_empty());
}

/// The leases of a restored store belong to a history that has ended.
#[tokio::test(start_paused = true)]
async fn in_a_restored_store_services_move_to_new_leases() {
    let (store, state) = (InProcess::start(), TempDir::new().expect("a directory"));
    let mut agent = Agent::start(&store, &state, &["db"]);
    let old = agent.publishes(&["db"]).await.work_lease.clone();
    let backup = store.backup();
    Others::of(&store).put(Key::CurrentVersion, "2", 0).await;
    store.restore(backup);
    let others = Others::of(&store);
    // The host found out that the store went back, and an operator accepted it.
    agent.session.begin_history(store.revision(), 1);
    agent.gate.send_modify(|gate| gate.history = 1);
    agent.fencing.send_modify(|fencing| fencing.history = 1);
    let moved =
        |published: &Arc<PublishedServices>| published.work_lease.is_some() && published.work_lease != old;
    wait_until(&mut agent.published, "new leases", moved).await;
    let before = Instant::now();
    while stored(&others, "db").await.get(&keys("db")[0]).map(|e| format!("{:x}", e.lease)) == old {
        assert!(before.elapsed() < Duration::from_secs(60));
        sleep(Duration::from_secs(1)).await;
    }
    sleep(Duration::from_secs(3600)).await;
    check_leases(&others, &agent, "db").await;
    let found = stored(&others, "db").await;
    let record = found.get(&keys("db")[0]).expect("a record");
    assert!(ServiceRecord::read(&host(NAME), &record.value).is_ok());
    let published: BTreeMap<_, _> = agent.published.borrow().services.clone();
    assert_eq!(published.len(), 1);
}
