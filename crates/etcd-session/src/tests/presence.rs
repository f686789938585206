use super::{Fixture, host, version};
use crate::{Deadline, Gate, Mirror, MirrorOptions, Presence, PresenceConfig, PresenceState, Statement};
use etcd_client::PutOptions;
use schema::codec;
use schema::followed::Scope;
use schema::keys::Key;
use schema::names::Token;
use schema::records::{Driver, LiveClaim, RosterEntry, StoreIdentity};
use schema::store_trust::StoreMemory;
use solo_etcd::in_process::{LIMIT, Link, wait_until};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

const LEASE: Duration = Duration::from_secs(30);

fn claim(instance: &str, boot: &str) -> LiveClaim {
    LiveClaim {
        instance: Token::new(instance).expect("a token"),
        machine_id: format!("machine of {instance}"),
        boot_id: boot.to_owned(),
        addresses: Vec::new(),
        agent_version: String::new(),
        driver: Driver::Agent,
        store_format: 1,
    }
}

fn config(claim: LiveClaim) -> PresenceConfig {
    PresenceConfig {
        host: host(),
        former: None,
        claim,
        roster: RosterEntry::default(),
        resume: true,
        lease: LEASE,
    }
}

/// A running claim task with its gate.
struct Claiming {
    gate: watch::Sender<Gate>,
    presence: Presence,
    states: watch::Receiver<PresenceState>,
    task: JoinHandle<()>,
}

impl Drop for Claiming {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Claiming {
    /// Starts to claim the name. The gate is open.
    fn start(fixture: &Fixture, config: PresenceConfig) -> Self {
        Self::behind(fixture, config, Gate { open: true, ..Gate::default() })
    }

    fn behind(fixture: &Fixture, config: PresenceConfig, gate: Gate) -> Self {
        let gate = watch::Sender::new(gate);
        let (presence, task) = Presence::new(fixture.session.clone(), config, gate.subscribe());
        let states = presence.states();
        Self { gate, presence, states, task: tokio::spawn(task) }
    }

    /// Waits until the name is held under another revision than this one.
    async fn held_other_than(&mut self, other: i64) -> (i64, i64) {
        let is_held = |state: &PresenceState| matches!(state, PresenceState::Held { live_revision, .. } if *live_revision != other);
        match wait_until(&mut self.states, "the claim", is_held).await {
            PresenceState::Held { lease, live_revision } => (lease, live_revision),
            state => panic!("{state:?}"),
        }
    }

    async fn held(&mut self) -> (i64, i64) {
        self.held_other_than(0).await
    }
}

fn keys() -> [Key; 4] {
    [Key::Live(host()), Key::Host(host()), Key::Announced(host()), Key::RunningVersion(version("1"), host())]
}

/// Announces version 1, as an agent does that proved it.
async fn announce(fixture: &mut Fixture, lease: i64) {
    let [_, _, announced, listing] = keys();
    fixture.put(&announced, "1").await;
    let options = PutOptions::new().with_lease(lease);
    fixture.others.put(listing.to_string(), "1", Some(options)).await.expect("written");
}

#[tokio::test(start_paused = true)]
async fn a_name_is_claimed_when_the_gate_opens_and_kept() {
    let fixture = Fixture::new().await;
    let mut claiming = Claiming::behind(&fixture, config(claim("a", "boot")), Gate::default());
    sleep(LIMIT).await;
    assert_eq!(*claiming.states.borrow(), PresenceState::NotYet, "the gate is closed");
    assert_eq!(fixture.read(&keys()).await.entries.len(), 0);
    claiming.gate.send_modify(|gate| gate.open = true);
    let (lease, live_revision) = claiming.held().await;
    let found = fixture.read(&keys()).await;
    let live = found.get(&keys()[0]).expect("a claim");
    assert_eq!((live.lease, live.mod_revision), (lease, live_revision));
    assert!(found.get(&keys()[1]).is_some(), "the host is on the roster");
    sleep(20 * LEASE).await;
    assert_eq!(fixture.read(&keys()).await.entries, found.entries, "nothing was written again");
    assert_eq!(*claiming.states.borrow(), PresenceState::Held { lease, live_revision });
}

#[tokio::test(start_paused = true)]
async fn an_interruption_shorter_than_the_lease_changes_nothing() {
    let fixture = Fixture::new().await;
    let mut claiming = Claiming::start(&fixture, config(claim("a", "boot")));
    let (lease, live_revision) = claiming.held().await;
    for link in [Link::Refusing, Link::Silent, Link::WithoutAnswers] {
        fixture.store.set_link(link);
        fixture.store.cut();
        sleep(LEASE / 3).await;
        fixture.store.set_link(Link::Open);
        sleep(3 * LEASE).await;
        assert_eq!(*claiming.states.borrow(), PresenceState::Held { lease, live_revision }, "{link:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_kept_alive_ends_when_its_time_is_over() {
    let fixture = Fixture::new().await;
    let mut claiming = Claiming::start(&fixture, config(claim("a", "boot")));
    let end = claiming.presence.lease_end();
    assert!(end.has_passed() || *claiming.states.borrow() == PresenceState::NotYet, "nothing is claimed yet");
    claiming.held().await;
    sleep(20 * LEASE).await;
    assert!(!end.has_passed(), "it is kept alive");
    for link in [Link::Refusing, Link::Silent] {
        fixture.store.set_link(link);
        fixture.store.cut();
        sleep(LEASE / 2).await;
        assert!(!end.has_passed(), "{link:?}: it may be kept alive in time");
        sleep(LEASE / 2 + Duration::from_millis(1)).await;
        assert!(end.has_passed(), "{link:?}: nobody kept it alive");
        fixture.store.set_link(Link::Open);
        sleep(3 * LEASE).await;
        assert!(!end.has_passed(), "{link:?}: it is kept alive, or the name is claimed again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_lost_is_replaced_and_the_old_listing_does_not_come_back() {
    for link in [Link::Refusing, Link::Silent] {
        let mut fixture = Fixture::new().await;
        let mut claiming = Claiming::start(&fixture, config(claim("a", "boot")));
        let (lease, live_revision) = claiming.held().await;
        announce(&mut fixture, lease).await;
        fixture.store.set_link(link);
        fixture.store.cut();
        sleep(2 * LEASE).await;
        let gone = fixture.read(&keys()).await;
        assert!(gone.get(&keys()[0]).is_none() && gone.get(&keys()[3]).is_none(), "{link:?}: {gone:?}");
        fixture.store.set_link(Link::Open);
        let (new_lease, _) = claiming.held_other_than(live_revision).await;
        assert_ne!(new_lease, lease);
        let now = fixture.read(&keys()).await;
        assert_eq!(now.get(&keys()[0]).map(|live| live.lease), Some(new_lease), "{link:?}");
        assert!(now.get(&keys()[2]).is_none() && now.get(&keys()[3]).is_none(), "{link:?}: {now:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_revoked_is_replaced() {
    let mut fixture = Fixture::new().await;
    let mut claiming = Claiming::start(&fixture, config(claim("a", "boot")));
    let (lease, live_revision) = claiming.held().await;
    fixture.others.lease_revoke(lease).await.expect("revoked");
    let before = Instant::now();
    let (new_lease, _) = claiming.held_other_than(live_revision).await;
    assert_ne!(new_lease, lease);
    assert!(before.elapsed() < LEASE / 2, "the next keep-alive shows it: {:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_was_lost_is_found_and_held_once() {
    let mut fixture = Fixture::new().await;
    let lost = fixture.store.lose_answer(Link::Open);
    let mut claiming = Claiming::start(&fixture, config(claim("a", "boot")));
    let (lease, live_revision) = claiming.held().await;
    tokio::time::timeout(LIMIT, lost).await.expect("an answer was lost");
    let live = fixture.read(&keys()).await;
    let live = live.get(&keys()[0]).expect("a claim");
    assert_eq!((live.lease, live.mod_revision), (lease, live_revision));
    // Leases without keys end by themselves; one is left.
    sleep(3 * LEASE).await;
    let leases = fixture.others.leases().await.expect("leases");
    assert_eq!(leases.leases().iter().map(|lease| lease.id()).collect::<Vec<_>>(), [lease]);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_another_agent_holds_is_contested_until_that_agent_ends() {
    let fixture = Fixture::new().await;
    let mut first = Claiming::start(&fixture, config(claim("a", "boot")));
    let (_, live_revision) = first.held().await;
    let other = Fixture { session: crate::Session::through(fixture.store.clone()), ..fixture };
    let mut second = Claiming::start(&other, config(claim("b", "boot")));
    let is_contested = |state: &PresenceState| matches!(state, PresenceState::Contested { .. });
    let contested = wait_until(&mut second.states, "the conflict", is_contested).await;
    assert!(format!("{contested:?}").contains("instance a on machine"), "{contested:?}");
    sleep(5 * LEASE).await;
    assert_eq!(other.read(&keys()).await.revision_of(&keys()[0]), live_revision, "nothing was written");
    drop(first);
    let before = Instant::now();
    second.held_other_than(live_revision).await;
    assert!(before.elapsed() < 2 * LEASE, "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_resumed_by_the_same_instance_on_the_same_boot_alone() {
    let check = async |next: PresenceConfig, is_resumed: bool| {
        let mut fixture = Fixture::new().await;
        let mut first = Claiming::start(&fixture, config(claim("a", "boot 1")));
        let (lease, live_revision) = first.held().await;
        announce(&mut fixture, lease).await;
        let before = fixture.read(&keys()).await;
        drop(first);
        let what = format!("{next:?}");
        let mut second = Claiming::start(&fixture, next);
        let held = second.held().await;
        let after = fixture.read(&keys()).await;
        assert_eq!(held == (lease, live_revision), is_resumed, "{what}");
        assert_eq!(after.entries == before.entries, is_resumed, "{what}");
        assert_eq!(after.get(&keys()[3]).is_some(), is_resumed, "{what}: the listing of another boot");
    };
    check(config(claim("a", "boot 1")), true).await;
    check(config(claim("a", "boot 2")), false).await;
    check(PresenceConfig { resume: false, ..config(claim("a", "boot 1")) }, false).await;
}

#[tokio::test(start_paused = true)]
async fn keys_that_somebody_deleted_are_written_again_after_a_check() {
    for index in [0, 1] {
        let mut fixture = Fixture::new().await;
        let mut claiming = Claiming::start(&fixture, config(claim("a", "boot")));
        let (_, live_revision) = claiming.held().await;
        fixture.delete(&keys()[index]).await;
        claiming.presence.check_now();
        claiming.held_other_than(live_revision).await;
        let found = fixture.read(&keys()).await;
        assert!(found.get(&keys()[0]).is_some() && found.get(&keys()[1]).is_some(), "{found:?}");
    }
}

/// A restored store holds the claim and the lease of the time of its backup. They belong to a
/// history that has ended, so they must not be kept alive.
#[tokio::test(start_paused = true)]
async fn in_a_restored_store_the_old_lease_is_not_kept_alive() {
    let mut fixture = Fixture::new().await;
    let lineage = Token::new("l").expect("a token");
    let identity = codec::write(&StoreIdentity::new(lineage.clone(), 0));
    let store_revision = fixture.put(&Key::Store, &identity).await;
    let memory = |revision| StoreMemory {
        lineage: lineage.clone(),
        epoch: 0,
        revision,
        raft_term: 1,
        target_revision: None,
        report_revision: None,
        went_back: None,
    };
    let gate = Gate { open: true, store_revision, history: 0, memory: Some(memory(store_revision)) };
    // The watch of the agent's mirror notices that the connection broke.
    let scope = Scope { watched: vec![Key::CurrentVersion], ..Scope::default() };
    let (_mirror, task) = Mirror::new(fixture.session.clone(), scope, MirrorOptions::default());
    tokio::spawn(task);
    let mut claiming = Claiming::behind(&fixture, config(claim("a", "boot")), gate);
    let (lease, live_revision) = claiming.held().await;
    announce(&mut fixture, lease).await;
    let backup = fixture.store.backup();
    let newest = fixture.put(&Key::CurrentVersion, "2").await;
    claiming.gate.send_modify(|gate| gate.memory = Some(memory(newest)));
    fixture.session.remember_marks(newest, 1);
    fixture.restore(backup).await;
    wait_until(&mut claiming.states, "the claim is given up", |s| *s == PresenceState::NotYet).await;
    // The host finds out that the store went back.
    claiming.gate.send_modify(|gate| gate.open = false);
    sleep(3 * LEASE).await;
    let found = fixture.read(&keys()).await;
    assert!(found.get(&keys()[0]).is_none(), "the old lease has ended: {found:?}");
    // After an operator accepted the store, a new history begins.
    fixture.session.begin_history(found.revision, found.raft_term);
    let mut of_new_history = memory(found.revision);
    of_new_history.raft_term = found.raft_term;
    claiming.gate.send_modify(|gate| {
        (gate.open, gate.history, gate.memory) = (true, 1, Some(of_new_history));
    });
    let (new_lease, _) = claiming.held_other_than(live_revision).await;
    assert_ne!(new_lease, lease);
    let found = fixture.read(&keys()).await;
    assert!(found.get(&keys()[3]).is_none(), "the listing of the backup: {found:?}");
}

/// Nobody would judge the store any more.
#[tokio::test(start_paused = true)]
async fn a_claim_task_ends_with_its_gate() {
    let fixture = Fixture::new().await;
    let mut claiming = Claiming::start(&fixture, config(claim("a", "boot")));
    claiming.held().await;
    claiming.gate = watch::Sender::new(Gate::default());
    tokio::time::timeout(LIMIT, &mut claiming.task).await.expect("it ends").expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn a_lease_under_which_the_store_says_what_is_untrue_ends_within_its_time() {
    let fixture = Fixture::new().await;
    let mut claiming = Claiming::start(&fixture, config(claim("a", "boot")));
    let (lease, live_revision) = claiming.held().await;
    let began = Instant::now();
    claiming.presence.contradictions().note(Statement::Listing, lease, true);
    let (other, _) = claiming.held_other_than(live_revision).await;
    assert!(began.elapsed() < LEASE / 2, "{:?}: the lease is revoked before it expires", began.elapsed());
    assert_ne!(other, lease);
    let left = fixture.session.lease_seconds_left(lease, Deadline::within(LIMIT)).await.expect("an answer");
    assert!(left < 0, "the lease is gone: {left}");
    sleep(20 * LEASE).await;
    let state = claiming.states.borrow().clone();
    assert!(
        matches!(state, PresenceState::Held { lease, .. } if lease == other),
        "what was untrue is gone: {state:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_back_in_time_costs_no_lease() {
    let fixture = Fixture::new().await;
    let mut claiming = Claiming::start(&fixture, config(claim("a", "boot")));
    let (lease, live_revision) = claiming.held().await;
    let contradictions = claiming.presence.contradictions();
    // More often than keep-alives are due, and for longer than the lease.
    for _ in 0..20 {
        contradictions.note(Statement::Health, lease, true);
        sleep(LEASE / 6).await;
        contradictions.note(Statement::Health, lease, false);
        sleep(LEASE / 60).await;
    }
    // A note about an earlier lease says nothing about this one.
    contradictions.note(Statement::Listing, lease + 1, true);
    sleep(20 * LEASE).await;
    assert_eq!(*claiming.states.borrow(), PresenceState::Held { lease, live_revision });
}
