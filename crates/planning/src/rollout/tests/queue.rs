//! The queue of a limit: who waits for whom, what a host reads of it, and what wakes it.

use super::*;
use crate::rollout::limits::PASSED_OVER_AFTER;
use schema::reads::Read;

fn own() -> Place {
    place(&host("web0"), &instruction().version)
}

/// Returns a fleet with a limit whose first number is held.
fn held(max: u32) -> Found {
    let mut found = of_web(max);
    found.claim(0, "web9");
    found
}

/// Executes reads as a store does.
fn execute(reads: &[Read], store: &KeySnapshot) -> KeySnapshot {
    let mut found = KeySnapshot { revision: store.revision, ..KeySnapshot::default() };
    let mut take = |(key, entry): (&String, &Entry)| drop(found.entries.insert(key.clone(), entry.clone()));
    for read in reads {
        match read {
            Read::Key(key) => store.entries.get_key_value(&key.to_string()).into_iter().for_each(&mut take),
            Read::Range(range) => store.in_range(range).for_each(&mut take),
            Read::NextAfter { range, key, count } => {
                let after = store.in_range(range).filter(|(other, _)| **other > key.to_string());
                after.take(*count as usize).for_each(&mut take);
            }
        }
    }
    found
}

#[test]
fn a_release_wakes_the_heads_of_a_queue_and_not_the_fleet() {
    // One host more than can start at once, and not more than three.
    for (max, heads) in [(1, 2), (2, 3), (3, 3), (8, 3)] {
        let mut found = of_web(max);
        (0..max).for_each(|number| drop(found.claim(number, &format!("web{}", 20 + number)).view("web0")));
        found.ticket("web0", own());
        for ahead in 0..=4 {
            if ahead > 0 {
                found.ticket(&format!("web{ahead}"), Place(own().0 - ahead));
            }
            let (view, is_head) = (found.view("web0"), ahead < heads);
            let what = format!("limit {max}, {ahead} before it");
            assert_eq!(view.ranges().contains(&Prefix::ClaimsOf(web())), is_head, "{what}");
            assert_eq!(view.is_far_back(), !is_head, "{what}");
            let watched = Prefix::TicketAt(ORDER, web(), Place(own().0 - heads));
            assert_eq!(view.ranges().contains(&watched), !is_head, "{what}: the ticket of the last head");
        }
    }
    // A fleet without a policy watches freezes alone.
    assert_eq!(Found::default().hosts("web", 1).view("web0").ranges(), [Prefix::Freezes]);
}

#[test]
fn a_host_far_back_knows_what_it_follows_when_its_turn_comes_near() {
    let mut near = held(2);
    near.ticket("web0", own()).ticket("web1", Place(own().0 - 1)).ticket("web2", Place(own().0 - 2));
    assert_eq!(near.view("web0").next_ranges(), [], "it is one of the first");
    let mut far = near.clone();
    far.ticket("web3", Place(own().0 - 3)).ticket("web4", Place(own().0 - 4));
    assert_ne!(far.view("web0").ranges(), near.view("web0").ranges());
    assert_eq!(far.view("web0").next_ranges(), near.view("web0").ranges());
}

#[test]
fn a_host_far_back_notices_that_those_before_it_pass_over_one_that_does_not_go() {
    let mut found = held(1);
    let ticket = |n: u32| (format!("web{n}"), Place(own().0 - n));
    found.ticket("web0", own());
    (1..=3).for_each(|n| drop(found.ticket(&ticket(n).0, ticket(n).1).view("web0")));
    let ranges = found.view("web0").ranges();
    let watched = [1, 2, 3].map(|n| ranges.contains(&Prefix::TicketAt(ORDER, web(), ticket(n).1)));
    // The one before them is passed over by both of these.
    assert_eq!(watched, [true, true, false]);
}

#[test]
fn a_queue_whose_first_hosts_do_not_go_is_passed_by_one_far_back() {
    let mut found = of_web(1);
    found.ticket("web0", own());
    for n in 1..=4 {
        found.ticket(&format!("web{n}"), Place(own().0 - n));
    }
    let several = "at least 3 hosts wait for the limit of role web before it".to_owned();
    let passed_after = PASSED_OVER_AFTER.as_secs() * 4;
    assert_eq!(found.number("web0", passed_after - 1), Err(several));
    assert_eq!(found.number("web0", passed_after), Ok(Some(0)));
    // A change of what it sees of the queue begins the time again.
    let earlier = found.view("web0");
    assert_eq!(
        found.view("web0").after(Some(&earlier)).limits[0].unchanged_since,
        earlier.limits[0].unchanged_since
    );
    found.ticket("web5", Place(own().0 - 1));
    let later = RolloutView::new(&host("web0"), &instruction(), &found.0, at(7));
    assert_eq!(later.after(Some(&earlier)).limits[0].unchanged_since, at(7).boot);
}

#[test]
fn a_host_without_a_ticket_takes_one_first_and_waits_until_it_has_it() {
    let waits =
        |found: &Found| found.view("web0").queues_first(ClaimNeed::Take).map(|obstacle| obstacle.detail());
    let first = Some("it takes its place among the hosts that wait for the limit of role web".to_owned());
    // Others may be about to take the numbers, though nobody holds one yet.
    assert_eq!(waits(&of_web(2)), first);
    let mut found = held(2);
    assert_eq!(waits(&found), first);
    assert_eq!(found.view("web0").queues_first(ClaimNeed::Retake), None, "it holds claims");
    // It reads who comes first when it writes the ticket.
    let (record, halt) = (Prefix::RecordOf(ORDER), Prefix::HaltOf(ORDER));
    assert_eq!(found.view("web0").ranges(), [Prefix::Freezes, record, halt]);
    found.ticket("web0", own());
    assert_eq!(waits(&found), None);
    assert_eq!(found.number("web0", 0), Ok(Some(1)));
}

#[test]
fn a_host_that_does_not_know_its_rollout_reads_the_limits_that_may_count_it() {
    let check = |limits: &[&str], labels: &[(&str, &str)], is_all: bool| {
        let labels = labels.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let entry =
            RosterEntry { role: schema::names::Role::new("web").ok(), labels, ..RosterEntry::default() };
        let policy: Vec<String> =
            limits.iter().map(|by| format!("[[limit]]\nby = \"{by}\"\nmax = 1\n")).collect();
        let mut found = Found::default();
        found
            .put(&Key::Host(host("web0")), &codec::write(&entry), 1)
            .policy(&policy.concat(), 10)
            .with_record();
        let of = instruction();
        let reads = possible_reads(&host("web0"), &of, &entry);
        let first = first_reads(&host("web0"), ORDER);
        let second = second_reads(&host("web0"), &of, &execute(&first, &found.0));
        assert_eq!(second.len(), 3 * limits.len(), "{limits:?}");
        assert!(first.iter().all(|read| reads.contains(read)), "{limits:?}");
        assert_eq!(second.iter().all(|read| reads.contains(read)), is_all, "{limits:?}: {reads:?}");
    };
    check(&["fleet"], &[], true);
    check(&["role", "labels.rack"], &[("rack", "r1"), ("az", "a/b")], true);
    // Of a host with very many labels, not all are read before it is known which of them count.
    let names: Vec<String> = (0..9).map(|n| format!("n{n}")).collect();
    let labels: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "x")).collect();
    check(&["labels.n0"], &labels, true);
    check(&["labels.n8"], &labels, false);
}

#[test]
fn hosts_do_not_wait_for_each_other_while_a_limit_has_room() {
    let mut found = held(10);
    for ahead in 1..=4 {
        found.ticket(&format!("web{ahead}"), Place(own().0 - ahead));
    }
    assert!(found.number("web0", 0).is_ok_and(|number| number.is_some()), "nine numbers are free");
    assert_eq!(found.view("web0").queues_first(ClaimNeed::Take), None);
    found.claim(1, "web8");
    let several = "at least 3 hosts wait for the limit of role web before it".to_owned();
    assert_eq!(found.number("web0", 0), Err(several.clone()));
    let passed_after = PASSED_OVER_AFTER.as_secs() * 4;
    let later = found.number("web0", passed_after - 1);
    assert_eq!(later, Err(several), "it does not know how many to pass over");
}

#[test]
fn a_turn_comes_when_a_number_is_left_for_the_host() {
    let mut found = held(2);
    found.claim(1, "web8").ticket("web0", own()).ticket("web1", Place(own().0 - 1));
    let watched = || WatchedQueue::of(&found.view("web0")).unwrap();
    let (claim, ticket) =
        (|number| Key::Claim(web(), number), Key::Ticket(ORDER, web(), Place(own().0 - 1), host("web1")));
    let check = |changes: &[(&Key, bool)], expected: &[bool]| {
        let mut queue = watched();
        let come: Vec<bool> = changes.iter().map(|(key, is)| queue.take(&key.to_string(), *is)).collect();
        assert_eq!(come, expected, "{changes:?}");
    };
    // The released number is for the host that comes first, which takes it.
    check(&[(&claim(0), false), (&claim(0), true), (&ticket, false)], &[false, false, false]);
    check(&[(&claim(0), false), (&ticket, false)], &[false, true]);
    check(&[(&claim(0), false), (&claim(1), false)], &[false, true]);
    // A number above the limit holds everybody.
    check(
        &[(&claim(5), true), (&claim(0), false), (&claim(1), false), (&claim(5), false)],
        &[false, false, false, true],
    );
    // Everything else is news.
    check(&[(&Key::Halt(ORDER), true)], &[true]);
    found.ticket("web2", Place(own().0 - 2)).ticket("web3", Place(own().0 - 3));
    assert_eq!(WatchedQueue::of(&found.view("web0")), None, "it watches one ticket");
}

proptest! {
    /// The few tickets that a host reads tell it the same as the whole queue.
    #[test]
    fn a_part_of_the_queue_says_as_much_as_all_of_it(
        max in 0u32..12,
        held in proptest::collection::btree_map(0u32..12, 0usize..12, 0..8),
        waiting in proptest::collection::vec((any::<i8>(), 0usize..12), 0..8),
    ) {
        let mut found = of_web(max);
        held.iter().for_each(|(number, by)| drop(found.claim(*number, &format!("web{by}")).view("web0")));
        for (offset, by) in waiting {
            // The host itself has one place.
            let place = if by == 0 { own() } else { Place(own().0.wrapping_add_signed(offset.into())) };
            found.ticket(&format!("web{by}"), place);
        }
        let of = instruction();
        let first = execute(&first_reads(&host("web0"), ORDER), &found.0);
        let second = second_reads(&host("web0"), &of, &first);
        let mut part = execute(&second, &found.0);
        part.entries.extend(first.entries);
        prop_assert_eq!(found.view("web0").reads(), [first_reads(&host("web0"), ORDER), second].concat());
        prop_assert!(part.in_range(&Prefix::Queue(ORDER, web())).count() <= 5);
        prop_assert_eq!(RolloutView::new(&host("web0"), &of, &part, at(0)), found.view("web0"));
    }

    /// Whatever changes, a host whose turn has come is told to read.
    #[test]
    fn no_change_that_lets_a_host_start_is_passed_over(
        max in 1u32..8,
        held in proptest::collection::btree_map(0u32..9, 1usize..12, 1..8),
        ahead in proptest::collection::btree_set(1u32..40, 0..3),
        changes in proptest::collection::vec((any::<bool>(), 0u32..9, any::<bool>()), 1..24),
    ) {
        let mut found = of_web(max);
        held.iter().for_each(|(number, by)| drop(found.claim(*number, &format!("web{by}")).view("web0")));
        found.ticket("web0", own());
        let ahead: Vec<u32> = ahead.into_iter().collect();
        ahead.iter().for_each(|n| drop(found.ticket(&format!("web{n}"), Place(own().0 - n)).view("web0")));
        let Some(mut queue) = WatchedQueue::of(&found.view("web0")) else { return Ok(()) };
        for (is_claim, number, exists) in changes {
            let key = match ahead.get(number as usize) {
                _ if is_claim => Key::Claim(web(), number),
                Some(n) => Key::Ticket(ORDER, web(), Place(own().0 - n), host(&format!("web{n}"))),
                None => continue,
            };
            // A ticket that is gone does not come back.
            let exists = exists && is_claim;
            if exists {
                found.claim(number, "web11");
            } else {
                found.0.entries.remove(&key.to_string());
            }
            let has_come = queue.take(&key.to_string(), exists);
            prop_assert!(has_come || found.number("web0", 0).is_err());
        }
    }
}
