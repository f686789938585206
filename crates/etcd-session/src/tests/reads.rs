//! Reads of keys and ranges at one revision.

use super::*;
use crate::read::VALUES_TOGETHER;
use crate::{Counted, StoreError};
use schema::keys::Prefix;
use schema::limit::{Limit, LimitBy, Place};
use schema::names::{LimitValue, Version};
use schema::order::InstructionOrder;
use schema::reads::Read;

fn numbered(number: usize) -> Key {
    Key::Report(HostName::new(format!("h{number:05}")).expect("a name"))
}

async fn read(fixture: &Fixture, reads: &[Read]) -> KeySnapshot {
    let deadline = Deadline::within(LIMIT);
    fixture.session.read_together(reads, None, deadline).await.expect("read")
}

#[tokio::test(start_paused = true)]
async fn a_large_range_is_read_whole_beside_keys_and_others() {
    let mut fixture = Fixture::new().await;
    let count = VALUES_TOGETHER as usize + 7;
    for number in 0..count {
        fixture.put(&numbered(number), "x").await;
    }
    let revision = fixture.put(&Key::CurrentVersion, "1").await;
    let reads = Read::all(&[Key::CurrentVersion, Key::Store], &[Prefix::Reports, Prefix::Freezes]);
    let found = read(&fixture, &reads).await;
    assert_eq!((found.entries.len(), found.revision), (count + 1, revision));
    assert_eq!(found.in_range(&Prefix::Reports).count(), count);
}

#[tokio::test(start_paused = true)]
async fn a_range_that_is_too_large_for_one_answer_is_read_in_parts() {
    let mut fixture = Fixture::new().await;
    let (count, value) = (70, "x".repeat(1024 * 1024));
    for number in 0..count {
        fixture.put(&numbered(number), &value).await;
    }
    let revision = fixture.put(&Key::CurrentVersion, "1").await;
    let found = read(&fixture, &Read::all(&[Key::CurrentVersion], &[Prefix::Reports])).await;
    assert_eq!((found.entries.len(), found.revision), (count + 1, revision));
}

#[tokio::test(start_paused = true)]
async fn a_list_of_keys_is_the_same_in_parts_and_as_a_whole_at_its_revision() {
    let mut fixture = Fixture::new().await;
    let version = Version::new("v1").expect("a version");
    let range = Prefix::RunningVersion(version.clone());
    let listing = |name: &str| Key::RunningVersion(version.clone(), HostName::new(name).expect("a name"));
    let names = ["a", "b", "b-1", "b.c", "c", "x", "z"];
    let mut at = 0;
    for name in names {
        at = fixture.put(&listing(name), "1").await;
    }
    fixture.put(&listing("later"), "1").await;
    for cuts in [["b", "c", "x"], ["0", "1", "2"], ["zz", "zzz", "zzzz"], ["b-0", "b.", "later"]] {
        let deadline = Deadline::within(LIMIT);
        let list = fixture.session.read_key_list_in_parts(&range, cuts, at, deadline).await.expect("read");
        assert_eq!((list.suffixes().collect::<Vec<_>>(), list.revision), (names.to_vec(), at), "{cuts:?}");
    }
    for (limit, whole) in [(7, false), (8, true), (9, true)] {
        let deadline = Deadline::within(LIMIT);
        let list = fixture.session.read_short_key_list(&range, limit, deadline).await.expect("read");
        assert_eq!(list.map(|list| list.len()), whole.then_some(8), "at most {limit}");
    }
}

#[tokio::test(start_paused = true)]
async fn keys_are_counted_in_a_range_and_around_a_part_of_it() {
    let mut fixture = Fixture::new().await;
    let version = |name: &str| Version::new(name).expect("a version");
    let mut at = 0;
    for (name, hosts) in [("v0", 2), ("v1", 3), ("v1-a", 1), ("v10", 4)] {
        for host in 0..hosts {
            let host = HostName::new(format!("h{host}")).expect("a name");
            at = fixture.put(&Key::RunningVersion(version(name), host), "1").await;
        }
    }
    fixture.put(&Key::RunningVersion(version("w"), host()), "1").await;
    fixture.put(&Key::CurrentVersion, "1").await;
    let all = Prefix::RunningVersions;
    let part = &Prefix::RunningVersion(version("v1"));
    let counted = [Counted::Range(&all), Counted::Outside { range: &all, part }, Counted::Range(part)];
    for (at, counts) in [(None, [11, 8, 3]), (Some(at), [10, 7, 3])] {
        let deadline = Deadline::within(LIMIT);
        let read = fixture.session.read_and_count(&[Key::CurrentVersion], &counted, at, deadline).await;
        let (found, numbers) = read.expect("read");
        assert_eq!(numbers, counts, "at {at:?}");
        assert_eq!(found.get(&Key::CurrentVersion).is_some(), at.is_none());
    }
}

/// The names around `v1` are those that sort before and after its slash.
#[tokio::test(start_paused = true)]
async fn the_first_names_of_a_range_are_found_however_many_keys_and_names_there_are() {
    let mut fixture = Fixture::new().await;
    let deadline = || Deadline::within(LIMIT);
    let range = Prefix::RunningVersions;
    let (none, _) = fixture.session.read_names(&range, None, deadline()).await.expect("read");
    assert!(none.is_empty(), "{none:?}");
    let versions = ["v1", "v1-a", "v1.0", "v10", "w"];
    for version in versions {
        for name in ["a", "b", "c"] {
            let host = HostName::new(name).expect("a name");
            fixture.put(&Key::RunningVersion(Version::new(version).expect("a version"), host), "1").await;
        }
    }
    // A neighbour of the range.
    let revision = fixture.put(&numbered(1), "x").await;
    let (names, at) = fixture.session.read_names(&range, None, deadline()).await.expect("read");
    assert_eq!((names.iter().map(String::as_str).collect(), at), (Vec::from(versions), revision));
    for number in 0..80 {
        let version = Version::new(format!("x{number:02}")).expect("a version");
        fixture.put(&Key::RunningVersion(version, host()), "1").await;
    }
    let (many, _) = fixture.session.read_names(&range, None, deadline()).await.expect("read");
    assert_eq!(many.len(), versions.len() + 80);
    let (before, at) = fixture.session.read_names(&range, Some(revision), deadline()).await.expect("read");
    assert_eq!((before, at), (names, revision), "as of an earlier revision");
}

#[tokio::test(start_paused = true)]
async fn the_next_keys_after_one_are_few_and_stay_within_their_range() {
    let mut fixture = Fixture::new().await;
    let order = InstructionOrder { epoch: 0, revision: 5 };
    let limit = |value: &str| Limit { by: LimitBy::Role, value: LimitValue::new(value).expect("a value") };
    let ticket = |value: &str, place| Key::Ticket(order, limit(value), Place(place), host());
    for place in 0..6 {
        fixture.put(&ticket("web", place), "").await;
    }
    fixture.put(&ticket("web1", 0), "").await;
    let after = |place, count| {
        [Read::NextAfter { range: Prefix::Queue(order, limit("web")), key: ticket("web", place), count }]
    };
    let keys = |found: KeySnapshot| found.entries.into_keys().collect::<Vec<_>>();
    let tickets = |places: &[u32]| places.iter().map(|at| ticket("web", *at).to_string()).collect::<Vec<_>>();
    // The keys after that of a host are those of the hosts that come before it.
    assert_eq!(keys(read(&fixture, &after(4, 2)).await), tickets(&[3, 2]));
    assert_eq!(keys(read(&fixture, &after(1, 9)).await), tickets(&[0]), "no other queue");
    assert_eq!(keys(read(&fixture, &after(0, 9)).await), tickets(&[]));
}

#[tokio::test(start_paused = true)]
async fn what_a_store_that_went_back_answers_is_refused_until_the_host_has_judged_it() {
    let mut fixture = Fixture::new().await;
    let revision = fixture.put(&Key::CurrentVersion, "1").await;
    let reads = Read::all(&[Key::CurrentVersion], &[]);
    let read = async |history| {
        let found = fixture.session.read_judged(history, &reads, None, Deadline::within(LIMIT)).await;
        found.map(|found| found.revision)
    };
    assert_eq!(read(0).await, Ok(revision));
    // The former store had come further.
    fixture.session.remember_marks(revision + 1, 0);
    let refused = Err(StoreError::WentBack { operation: "read" });
    assert_eq!(read(0).await, refused);
    fixture.session.begin_history(revision, 0);
    assert_eq!(read(0).await, refused, "the caller has not heard of it");
    assert_eq!(read(1).await, Ok(revision));
}
