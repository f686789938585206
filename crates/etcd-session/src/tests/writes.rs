use super::{Fixture, host, version};
use crate::read::VALUES_TOGETHER;
use crate::{Class, Deadline, HostWritten, StoreError, TARGET_KEYS, TargetSet, Written};
use schema::health::Health;
use schema::keys::{Key, Prefix, StatusState};
use schema::names::{EventId, HostName, ServiceName, StatusType, Token};
use schema::reads::Read;
use schema::records::{Report, StatusRecord};
use schema::time::EpochSeconds;
use schema::transaction::{Compare, Transaction};
use schema::writes::act::Act;
use schema::writes::host::{ExpectedKeys, FailureChange, HostWrite, Listing};
use schema::writes::operator::TargetRequest;
use schema::writes::services::{ServiceChange, ServiceWrite};
use schema::writes::{Fence, HostStatus, WriteRefusal};
use solo_etcd::in_process::{LIMIT, Link};
use std::time::Duration;
use tokio::time::{Instant, sleep};

fn report(write_id: &str) -> Report {
    Report::idle(EpochSeconds(1), Token::new(write_id).expect("a token"))
}

/// A store in which the host holds its name.
struct Claimed {
    fixture: Fixture,
    fence: Fence,
}

impl Claimed {
    async fn new() -> Self {
        let mut fixture = Fixture::new().await;
        let store_revision = fixture.put(&Key::Store, "{}").await;
        let live_lease = fixture.others.lease_grant(3600, None).await.expect("a lease").id();
        let options = etcd_client::PutOptions::new().with_lease(live_lease);
        let live = fixture.others.put(Key::Live(host()).to_string(), "{}", Some(options)).await;
        let live_revision = live.expect("written").header().expect("a header").revision();
        Self { fixture, fence: Fence { live_revision, live_lease, store_revision } }
    }

    /// Lists the host under a version, with a result.
    async fn list(&self, of: &str, report: &Report, listed: Option<&str>) -> Result<HostWritten, StoreError> {
        self.write(Listing::Set(version(of), EpochSeconds(1)), report, (listed, 0)).await
    }

    /// Writes a listing, with a result, over the listing and the revision of the report that the host knows.
    async fn write(
        &self,
        listing: Listing,
        report: &Report,
        (listed, report_revision): (Option<&str>, i64),
    ) -> Result<HostWritten, StoreError> {
        let record = StatusRecord {
            at: EpochSeconds(1),
            version: None,
            code: Some(0),
            reason: String::new(),
            cause: None,
        };
        let write = HostWrite {
            host: &host(),
            fence: self.fence,
            start: None,
            listing,
            statuses: vec![HostStatus { kind: StatusType::apply(), state: StatusState::Success, record }],
            claims: None,
            failure: FailureChange::Keep,
            progress: None,
            report,
            rollout_reads: &[],
        };
        let expected = ExpectedKeys {
            announced: listed.map(|text| text.as_bytes().to_vec()),
            report_revision,
            ..ExpectedKeys::default()
        };
        let deadline = Deadline::within(Duration::from_secs(20));
        self.fixture.session.write_host(&write, expected, deadline).await.map(|(written, _)| written)
    }

    /// Returns the versions under which the host is listed.
    async fn listed(&self) -> Vec<&'static str> {
        let versions = ["1", "2", "3"];
        let keys = versions.map(|text| Key::RunningVersion(version(text), host()));
        let found = self.fixture.read(&keys).await;
        let listed = versions.into_iter().zip(&keys).filter(|(_, key)| found.get(key).is_some());
        listed.map(|(text, _)| text).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_recognises_its_own_write_after_the_answer_was_lost() {
    let mut claimed = Claimed::new().await;
    // The connection exists before the answer is lost.
    claimed.list("1", &report("w1"), None).await.expect("written");
    let lost = tokio::spawn(claimed.fixture.store.lose_answer(Link::Open));
    let written = claimed.list("2", &report("w2"), Some("1")).await;
    lost.await.expect("an answer was lost");
    let found = claimed.fixture.read(&[Key::Report(host())]).await;
    assert_eq!(written, Ok(HostWritten::Done(found.revision_of(&Key::Report(host())))));
    assert_eq!(claimed.listed().await, ["2"]);
    let count = claimed.fixture.others.get(Key::Report(host()).to_string(), None).await.expect("read");
    assert_eq!(count.kvs()[0].version(), 2, "it was written once");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_was_not_sent_is_repeated() {
    let claimed = Claimed::new().await;
    claimed.list("1", &report("w1"), None).await.expect("written");
    claimed.fixture.store.disconnect();
    let store = claimed.fixture.store.clone();
    tokio::spawn(async move {
        sleep(Duration::from_secs(5)).await;
        store.set_link(Link::Open);
    });
    assert!(matches!(claimed.list("2", &report("w2"), Some("1")).await, Ok(HostWritten::Done(_))));
    assert_eq!(claimed.listed().await, ["2"]);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_nobody_answers_ends_with_its_deadline_and_may_be_applied() {
    for link in [Link::Silent, Link::WithoutAnswers] {
        let claimed = Claimed::new().await;
        claimed.list("1", &report("w1"), None).await.expect("written");
        claimed.fixture.store.set_link(link);
        let before = Instant::now();
        let error = claimed.list("2", &report("w2"), Some("1")).await.expect_err("nobody answers");
        assert_eq!(error.class(), Class::Unknown, "{link:?}: {error}");
        assert!(before.elapsed() <= Duration::from_secs(21), "{link:?}: {:?}", before.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_store_takes_a_listing_back_and_keeps_a_true_one() {
    let another = || Listing::Set(version("2"), EpochSeconds(1));
    for (listing, left) in [(Listing::Remove, vec![]), (another(), vec![]), (Listing::Keep, vec!["1"])] {
        let mut claimed = Claimed::new().await;
        let written = claimed.list("1", &report("w1"), None).await;
        let Ok(HostWritten::Done(at)) = written else { panic!("{written:?}") };
        claimed.fixture.fill().await;
        // An earlier attempt that arrives late deletes nothing.
        let late = claimed.write(listing.clone(), &report("w0"), (Some("1"), at - 1)).await;
        assert!(matches!(late, Err(StoreError::NoSpace { .. })), "{late:?}");
        assert_eq!(claimed.listed().await, ["1"]);
        let refused = claimed.write(listing.clone(), &report("w2"), (Some("1"), at)).await;
        assert!(matches!(refused, Err(StoreError::NoSpace { .. })), "{refused:?}");
        assert_eq!(claimed.listed().await, left, "{listing:?}");
        let announced = claimed.fixture.read(&[Key::Announced(host())]).await;
        assert_eq!(announced.get(&Key::Announced(host())).is_some(), !left.is_empty(), "{listing:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_store_takes_back_the_health_that_got_worse() {
    let mut claimed = Claimed::new().await;
    let services = ["bad", "fine"].map(|name| ServiceName::new(name).expect("a name"));
    let write = |health: [Health; 2]| {
        let say = |health| ServiceChange::Say { record: None, health: Some(health) };
        let changes = services.iter().cloned().zip(health.map(say)).collect();
        (changes, claimed.fence)
    };
    let [good, worse] = [[Health::Passing; 2], [Health::Critical, Health::Warning]].map(write);
    let name = host();
    let of = |(changes, fence)| ServiceWrite { host: &name, fence, work_lease: 0, changes };
    let (good, worse) = (of(good), of(worse));
    let deadline = || Deadline::within(LIMIT);
    let written = claimed.fixture.session.write_services(&good, deadline()).await;
    assert!(matches!(written, Ok(Written::Done(_))), "{written:?}");
    claimed.fixture.fill().await;
    let refused = claimed.fixture.session.write_services(&worse, deadline()).await;
    assert!(matches!(refused, Err(StoreError::NoSpace { .. })), "{refused:?}");
    assert!(claimed.fixture.session.take_back_health(&worse, deadline()).await);
    let keys = services.map(|service| Key::Health(service, host()));
    let found = claimed.fixture.read(&keys).await;
    assert_eq!(keys.each_ref().map(|key| found.get(key).is_some()), [false, true]);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_lost_its_claim_or_its_store_writes_nothing() {
    for (key, refusal) in [(Key::Live(host()), WriteRefusal::Claim), (Key::Store, WriteRefusal::Store)] {
        let mut claimed = Claimed::new().await;
        claimed.fixture.put(&key, "another").await;
        assert_eq!(claimed.list("1", &report("w"), None).await, Ok(HostWritten::Refused(refusal)));
        assert!(claimed.listed().await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_listed_otherwise_than_it_believes_is_listed_once() {
    let claimed = Claimed::new().await;
    claimed.list("1", &report("w1"), None).await.expect("written");
    for (n, believed) in [None, Some("3"), Some("1")].into_iter().enumerate() {
        let of = ["2", "1", "2"][n];
        let written = claimed.list(of, &report(&format!("n{n}")), believed).await;
        assert!(matches!(written, Ok(HostWritten::Done(_))), "{written:?}");
        assert_eq!(claimed.listed().await, [of], "believed {believed:?}");
    }
}

/// A lost answer at each of many moments: the host is listed once, and the report is written once.
#[tokio::test(start_paused = true)]
async fn however_the_connection_breaks_a_write_is_applied_once() {
    for break_after in 0..40 {
        let mut claimed = Claimed::new().await;
        claimed.list("1", &report("w1"), None).await.expect("written");
        let store = claimed.fixture.store.clone();
        tokio::spawn(async move {
            for _ in 0..break_after {
                tokio::task::yield_now().await;
            }
            store.cut();
        });
        let written = claimed.list("2", &report("w2"), Some("1")).await;
        assert!(matches!(written, Ok(HostWritten::Done(_))), "{break_after}: {written:?}");
        assert_eq!(claimed.listed().await, ["2"], "{break_after}");
        let found = claimed.fixture.others.get(Key::Report(host()).to_string(), None).await.expect("read");
        assert_eq!(found.kvs()[0].version(), 2, "{break_after}");
    }
}

fn act(random: &str) -> Act {
    Act::new(EventId::of(1_000_000, &Token::new(random).expect("a token")), "ann", "trigger_update")
}

#[tokio::test(start_paused = true)]
async fn an_instruction_whose_answer_was_lost_is_found_by_its_event() {
    let mut fixture = Fixture::new().await;
    fixture.put(&Key::CurrentVersion, "1").await;
    let before = fixture.session.read_keys(&TARGET_KEYS, Deadline::within(LIMIT)).await.expect("connected");
    let lost = tokio::spawn(fixture.store.lose_answer(Link::Open));
    let set = fixture
        .session
        .set_target(&TargetRequest::new(version("2")), before, &act("a"), Deadline::within(LIMIT))
        .await;
    lost.await.expect("an answer was lost");
    let keys = [Key::CurrentVersion, Key::Event(act("a").id)];
    let found = fixture.read(&keys).await;
    assert_eq!(
        set,
        Ok(TargetSet {
            revision: found.revision_of(&keys[0]),
            changed: true,
            has_brakes: false,
            found: None
        })
    );
    assert_eq!(found.revision_of(&keys[0]), found.revision_of(&keys[1]));
    let count = fixture.others.get(Key::CurrentVersion.to_string(), None).await.expect("read");
    assert_eq!(count.kvs()[0].version(), 2, "it was written once");
}

#[tokio::test(start_paused = true)]
async fn an_instruction_never_overwrites_a_newer_one_after_a_lost_answer() {
    let mut fixture = Fixture::new().await;
    fixture.put(&Key::CurrentVersion, "1").await;
    let before = fixture.session.read_keys(&TARGET_KEYS, Deadline::within(LIMIT)).await.expect("connected");
    // While nothing can be read back, another operator gives an instruction.
    let lost = fixture.store.lose_answer(Link::Refusing);
    let session = fixture.session.clone();
    let setting = tokio::spawn(async move {
        session
            .set_target(&TargetRequest::new(version("2")), before, &act("a"), Deadline::within(LIMIT))
            .await
    });
    lost.await;
    fixture.put(&Key::CurrentVersion, "3").await;
    fixture.store.set_link(Link::Open);
    let error = setting.await.expect("no panic").expect_err("another instruction is in force");
    assert_eq!(error.class(), Class::Unknown, "{error}");
    assert!(error.to_string().contains("another instruction stands there now"), "{error}");
    let found = fixture.read(&[Key::CurrentVersion]).await;
    assert_eq!(found.get(&Key::CurrentVersion).map(|entry| entry.value.clone()), Some(b"3".to_vec()));
}

#[tokio::test(start_paused = true)]
async fn only_an_idempotent_transaction_is_sent_again_after_a_lost_answer() {
    let key = Key::DropStale;
    for is_idempotent in [true, false] {
        let mut fixture = Fixture::new().await;
        fixture.session.read_keys(&[Key::Store], Deadline::within(LIMIT)).await.expect("connected");
        let mut transaction = Transaction::idempotent("test");
        transaction.idempotent = is_idempotent;
        transaction.put(key.clone(), "1", 0);
        let lost = tokio::spawn(fixture.store.lose_answer(Link::Open));
        let committed = fixture.session.commit(&transaction, Deadline::within(LIMIT)).await;
        lost.await.expect("an answer was lost");
        match committed {
            Ok(committed) => assert!(is_idempotent && committed.applied),
            Err(error) => assert!(!is_idempotent && error.class() == Class::Unknown, "{error}"),
        }
        let found = fixture.others.get(key.to_string(), None).await.expect("read");
        assert_eq!(found.kvs()[0].version(), if is_idempotent { 2 } else { 1 });
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_refused_transaction_reads_is_returned() {
    let mut fixture = Fixture::new().await;
    let revision = fixture.put(&Key::CurrentVersion, "1").await;
    let mut transaction = Transaction::idempotent("test").when(Compare::absent(Key::CurrentVersion));
    transaction.reads = vec![Key::CurrentVersion, Key::Store];
    transaction.put(Key::DropStale, "1", 0);
    let committed = fixture.session.commit(&transaction, Deadline::within(LIMIT)).await.expect("answered");
    assert!(!committed.applied);
    assert_eq!(committed.found.revision_of(&Key::CurrentVersion), revision);
    assert!(committed.found.get(&Key::Store).is_none());
}

#[tokio::test(start_paused = true)]
async fn what_a_writer_wants_to_know_next_is_read_after_its_operations_or_instead_of_them() {
    let mut fixture = Fixture::new().await;
    fixture.put(&Key::Store, "{}").await;
    let read = |count: u32| Read::NextAfter { range: Prefix::Hosts, key: Key::Host(host()), count };
    let transaction = |compare: Compare| {
        let mut transaction = Transaction::idempotent("test").when(compare);
        transaction.reads = vec![Key::CurrentVersion];
        transaction.reads_after = vec![Read::Key(Key::DropStale), Read::Range(Prefix::Hosts), read(2)];
        transaction.reads_instead = vec![Read::Key(Key::Store)];
        transaction.put(Key::DropStale, "1", 0);
        transaction
    };
    let refused = transaction(Compare::absent(Key::Store));
    let committed = fixture.session.commit(&refused, Deadline::within(LIMIT)).await.expect("answered");
    assert!(!committed.applied && committed.is_whole);
    assert!(committed.found.get(&Key::Store).is_some() && committed.found.entries.len() == 1);
    for n in 0..VALUES_TOGETHER {
        fixture.put(&Key::Host(HostName::new(format!("h{n}")).expect("a name")), "{}").await;
    }
    let applied = transaction(Compare::absent(Key::CurrentVersion));
    let committed = fixture.session.commit(&applied, Deadline::within(LIMIT)).await.expect("answered");
    assert!(committed.applied && committed.is_whole);
    assert_eq!(committed.found.revision, committed.revision);
    assert_eq!(committed.found.revision_of(&Key::DropStale), committed.revision, "what it wrote itself");
    assert_eq!(committed.found.entries.len() as i64, 1 + VALUES_TOGETHER);
    fixture.put(&Key::Host(HostName::new("last").expect("a name")), "{}").await;
    let committed = fixture.session.commit(&applied, Deadline::within(LIMIT)).await.expect("answered");
    assert!(committed.applied && !committed.is_whole, "a host more than is read of a range");
}

/// What the transactions of a queue and of `trigger_update` read can be longer than an answer of etcd usually is.
#[tokio::test(start_paused = true)]
async fn a_transaction_reads_much_and_after_too_long_an_answer_it_may_be_applied() {
    let mut fixture = Fixture::new().await;
    let value = "x".repeat(1024 * 1024);
    let mut transaction = Transaction::once("test").when(Compare::absent(Key::DropStale));
    transaction.reads_after = vec![Read::Range(Prefix::Hosts)];
    transaction.put(Key::DropStale, "1", 0);
    for n in 0..5 {
        fixture.put(&Key::Host(HostName::new(format!("h{n}")).expect("a name")), &value).await;
    }
    let committed = fixture.session.commit(&transaction, Deadline::within(LIMIT)).await.expect("answered");
    assert!(committed.applied && committed.found.entries.len() == 5);
    for n in 5..65 {
        fixture.put(&Key::Host(HostName::new(format!("h{n}")).expect("a name")), &value).await;
    }
    transaction.compares.clear();
    transaction.operations.clear();
    transaction.put(Key::DropStale, "2", 0);
    let error = fixture.session.commit(&transaction, Deadline::within(LIMIT)).await.expect_err("too long");
    assert_eq!(error.class(), Class::Unknown, "{error}");
    let found = fixture.read(&[Key::DropStale]).await;
    assert_eq!(found.get(&Key::DropStale).map(|entry| entry.value.as_slice()), Some(&b"2"[..]));
}
