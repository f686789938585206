mod end;
mod failures;
mod forecast;
mod numbers;
mod options;
mod purpose;
mod queue;
mod stages;
mod windows;

use super::*;
use proptest::prelude::*;
use schema::codec;
use schema::instruction::Instruction;
use schema::keys::{Key, Prefix};
use schema::limit::{Limit, LimitBy, Place};
use schema::names::{HostName, LimitValue, Token, Version};
use schema::order::InstructionOrder;
use schema::records::{
    Freeze, HeldClaim, HostClaims, LimitClaim, LostMark, Purpose, RolloutRecord, RosterEntry,
};
use schema::snapshot::{Entry, KeySnapshot};
use schema::time::{BootMillis, EpochSeconds, Now};
use schema::writes::claims::FoundClaims;
use std::time::Duration;

const ORDER: InstructionOrder = InstructionOrder { epoch: 0, revision: 50 };

/// What stands in the store.
#[derive(Default, Clone)]
struct Found(KeySnapshot);

impl Found {
    fn put(&mut self, key: &Key, value: &str, at: i64) -> &mut Self {
        let create_revision = self.0.get(key).map_or(at, |entry| entry.create_revision);
        let entry = Entry { value: value.into(), create_revision, mod_revision: at, lease: 0, version: 1 };
        self.0.entries.insert(key.to_string(), entry);
        self.0.revision = self.0.revision.max(at);
        self
    }

    fn policy(&mut self, text: &str, at: i64) -> &mut Self {
        let policy = read_policy("policy.toml", text).unwrap_or_else(|e| panic!("{e}"));
        self.put(&Key::RolloutPolicy, &codec::write(&policy), at)
    }

    fn hosts(&mut self, role: &str, count: usize) -> &mut Self {
        for number in 0..count {
            let entry = RosterEntry { role: schema::names::Role::new(role).ok(), ..RosterEntry::default() };
            self.put(&Key::Host(host(&format!("{role}{number}"))), &codec::write(&entry), 1);
        }
        self
    }

    fn record(&self) -> RolloutRecord {
        resolve(&instruction(), &self.0, EpochSeconds(1))
    }

    fn with_record(&mut self) -> &mut Self {
        let record = codec::write(&self.record());
        self.put(&Key::RolloutRecord(ORDER), &record, 60)
    }

    fn claim(&mut self, number: u32, by: &str) -> &mut Self {
        let claim = LimitClaim {
            host: host(by),
            instance: Token::new("i").unwrap(),
            rollout: ORDER,
            since: EpochSeconds(1),
            purposes: Purpose::only_update(),
        };
        self.put(&Key::Claim(web(), number), &codec::write(&claim), 70)
    }

    fn ticket(&mut self, by: &str, place: Place) -> &mut Self {
        self.put(&Key::Ticket(ORDER, web(), place, host(by)), "", 80)
    }

    fn view(&self, name: &str) -> RolloutView {
        RolloutView::new(&host(name), &instruction(), &self.0, at(0))
    }

    /// The number that a host takes, or what holds it, after so many seconds without a change.
    fn number(&self, name: &str, seconds: u64) -> Result<Option<u32>, String> {
        let now = at(seconds * 1_000);
        let permit = self.view(name).permit(&FoundClaims::default(), ClaimNeed::Take, now);
        permit
            .map(|permit| permit.claims.map(|claims| claims[0].number))
            .map_err(|obstacle| obstacle.detail())
    }
}

/// A time after boot. Windows have tests of their own.
fn at(boot: u64) -> Now {
    Now { boot: BootMillis(boot), wall: EpochSeconds(1) }
}

fn host(name: &str) -> HostName {
    HostName::new(name).unwrap()
}

fn instruction() -> Instruction {
    Instruction { version: Version::new("v2").unwrap(), order: ORDER }
}

fn web() -> Limit {
    Limit { by: LimitBy::Role, value: LimitValue::new("web").unwrap() }
}

fn of_web(max: u32) -> Found {
    let mut found = Found::default();
    found.hosts("web", 12).policy(&format!("[[limit]]\nby = \"role\"\nmax = {max}\n"), 10).with_record();
    found
}

#[test]
fn percentages_become_numbers_of_the_hosts_that_there_are() {
    let check = |limit: &str, expected: &[(&str, u32)]| {
        let mut found = Found::default();
        found.hosts("web", 9).hosts("db", 2).policy(&format!("[[limit]]\nby = \"role\"\n{limit}\n"), 10);
        let record = found.record();
        for (value, max) in expected {
            let limit = Limit { by: LimitBy::Role, value: LimitValue::new(value).unwrap() };
            assert_eq!(record.max_of(&limit), Some(*max), "{limit} of {record:?}");
        }
        assert_eq!(record.max_of(&Limit { by: LimitBy::Fleet, ..web() }), None);
    };
    // Rounded down, at least 1; 0 really holds; a value that nobody has yet gets 1 of a percentage.
    check("max = \"50%\"", &[("web", 4), ("db", 1), ("new", 1)]);
    check("max = \"10%\"", &[("web", 1), ("db", 1)]);
    check("max = \"100%\"", &[("web", 9), ("db", 2), ("new", 1)]);
    check("max = \"0%\"", &[("web", 0), ("new", 0)]);
    check("max = 3\nvalues = { db = 0, new = 7 }", &[("web", 3), ("db", 0), ("new", 7), ("other", 3)]);
}

#[test]
fn a_record_of_a_policy_that_cannot_be_used_lets_nobody_start() {
    let mut found = Found::default();
    found.hosts("web", 1).put(&Key::RolloutPolicy, "garbage", 10).with_record();
    let obstacle = found.number("web0", 0).unwrap_err();
    assert!(obstacle.starts_with("the rollout policy cannot be read: "), "{obstacle}");
    // A record that cannot be read lets nobody start either.
    found.put(&Key::RolloutRecord(ORDER), "garbage", 61);
    let obstacle = found.number("web0", 0).unwrap_err();
    assert!(obstacle.starts_with("the record of the rollout cannot be read: "), "{obstacle}");
}

#[test]
fn a_policy_governs_what_is_triggered_after_it_was_created() {
    let check = |created: i64, written: i64, limits: bool, expected: Result<Option<u32>, &str>| {
        let mut found = Found::default();
        found.hosts("web", 3).policy("", created);
        if limits {
            found.policy("[[limit]]\nby = \"role\"\nmax = 1\n", written);
        }
        assert_eq!(found.number("web0", 0), expected.map_err(str::to_owned), "{created} {written}");
    };
    let lacks = Err("the record of the rollout is not written yet");
    check(10, 10, true, lacks);
    check(10, 55, true, lacks);
    check(51, 55, true, Ok(None));
    check(10, 10, false, Ok(None));
}

#[test]
fn a_host_takes_a_free_number_or_says_who_holds_the_limit() {
    let full = "2 of at most 2 hosts of role web are unavailable: ";
    assert!(of_web(2).number("web0", 0).is_ok());
    assert_eq!(of_web(2).claim(0, "web5").number("web0", 0), Ok(Some(1)));
    assert_eq!(of_web(2).claim(1, "web5").number("web0", 0), Ok(Some(0)));
    let both = of_web(2).claim(0, "web5").claim(1, "web6").number("web0", 0);
    assert_eq!(both, Err(format!("{full}web5, web6")));
    // A number that the limit does not have any more lets nobody in.
    let above = of_web(2).claim(7, "web5").number("web0", 0);
    assert_eq!(above, Err("1 of at most 2 hosts of role web are unavailable: web5".into()));
    let bad = of_web(1).put(&Key::Claim(web(), 0), "garbage", 70).number("web0", 0);
    let cannot = "1 of at most 1 hosts of role web are unavailable: 1 whose claims cannot be read";
    assert_eq!(bad, Err(cannot.into()));
    assert_eq!(of_web(0).number("web0", 0), Err("the limit of role web is 0".into()));
    let four = ["web1", "web2", "web3", "web4", "web5"].iter().zip(0..);
    let mut found = of_web(5);
    four.for_each(|(name, number)| drop(found.claim(number, name).number("web0", 0)));
    let five = "5 of at most 5 hosts of role web are unavailable: web1, web2, web3 and 2 more";
    assert_eq!(found.number("web0", 0), Err(five.into()));
    // Another role has a limit of its own, and a host without a role has none.
    assert_eq!(found.hosts("db", 1).number("db0", 0).map(|number| number.is_some()), Ok(true));
    assert_eq!(found.number("other", 0), Ok(None));
}

#[test]
fn hosts_that_wait_go_by_place_and_one_that_does_not_use_its_turn_is_passed_over() {
    let mut found = of_web(2);
    let own = place(&host("web0"), &instruction().version);
    found.claim(0, "web9").ticket("web1", Place(own.0 - 2)).ticket("web2", Place(own.0 + 1));
    assert_eq!(found.number("web0", 0), Err("1 host waits for the limit of role web before it".into()));
    assert!(found.number("web0", 59).is_err());
    assert_eq!(found.number("web0", 61), Ok(Some(1)));
    found.ticket("web3", Place(own.0 - 1));
    assert_eq!(found.number("web0", 61), Err("1 host waits for the limit of role web before it".into()));
    assert_eq!(found.number("web0", 121), Ok(Some(1)));
    // Time counts only while nothing changes.
    let before = found.view("web0");
    let later = |found: &Found| {
        let of = instruction();
        RolloutView::new(&host("web0"), &of, &found.0, at(90_000)).after(Some(&before))
    };
    let permit = |view: &RolloutView| view.permit(&FoundClaims::default(), ClaimNeed::Take, at(125_000));
    assert!(permit(&later(&found)).is_ok());
    found.claim(0, "web8");
    assert!(permit(&later(&found)).is_err());
}

/// What the first host of a queue does: `held` are numbers and hosts, `live` the hosts whose agents run.
fn tasks(found: &mut Found, held: &[(u32, &str)], live: &[&str]) -> Vec<String> {
    for (number, name) in held {
        let claim = HeldClaim { limit: web(), number: *number, keep_failed: false };
        let none = HostClaims::none(Token::new("i").unwrap(), ORDER, EpochSeconds(1));
        let claims = codec::write(&HostClaims { claims: vec![claim], ..none });
        found.claim(*number, name).put(&Key::Claimed(host(name)), &claims, 70);
    }
    live.iter().for_each(|name| drop(found.put(&Key::Live(host(name)), "{}", 5).view(name)));
    let Some(holders) = found.view("web0").holders() else { return vec!["nothing".into()] };
    assert!(holders.first_reads().0.contains(&Key::Store));
    let tasks = holders.tasks(&found.0, &Author { by: "web0".into(), at: EpochSeconds(9) }).into_iter();
    let text = |task| match task {
        HolderTask::Time(host, after) => format!("time {host} for {after}"),
        HolderTask::Commit(transaction) => {
            let keys = transaction.operations.iter().filter_map(|operation| operation.key());
            let keys = keys.map(ToString::to_string);
            format!("{}: {}", transaction.name, keys.collect::<Vec<_>>().join(" "))
        }
    };
    tasks.map(text).collect()
}

#[test]
fn the_first_that_waits_marks_holders_that_vanished_and_ends_their_claims() {
    let both = [(0, "web5"), (1, "web6")];
    let marks = "mark a host that vanished: /orchestrate/lost/mark/web6";
    assert_eq!(tasks(&mut of_web(2), &both, &["web5", "web6"]), [""; 0]);
    assert_eq!(tasks(&mut of_web(2), &both, &["web5"]), [marks]);
    // Only the first that waits looks.
    let own = place(&host("web0"), &instruction().version);
    assert_eq!(tasks(of_web(2).ticket("web1", Place(own.0 - 1)), &both, &["web5"]), ["nothing"]);
    // Nobody looks while there is a free number.
    assert_eq!(tasks(&mut of_web(3), &both, &[]), ["nothing"]);
    let mark = |since, timed| {
        let (by, at) = ("web1".into(), EpochSeconds(5));
        let claimed_since = EpochSeconds(since);
        let mark = codec::write(&LostMark { by, at, claimed_since, rollout: ORDER, timed });
        let mut found = of_web(2);
        found.put(&Key::LostMark(host("web6")), &mark, 75);
        found
    };
    assert_eq!(tasks(&mut mark(1, false), &both, &["web5"]), ["time web6 for 10m"]);
    let marked = |since| mark(since, true);
    let timer = Key::LostTimer(host("web6"));
    assert_eq!(tasks(marked(1).put(&timer, "", 75), &both, &["web5"]), [""; 0], "the timer runs");
    let ends = "end the claims of a lost host: /orchestrate/rollouts/0000000000-0000000000000000050/failed/web6 /orchestrate/claims/role/web/00001 /orchestrate/claimed/web6 /orchestrate/lost/mark/web6";
    assert_eq!(tasks(&mut marked(1), &both, &["web5"]), [ends]);
    // A mark about earlier claims, or of a store before it was accepted, does not count.
    assert_eq!(tasks(&mut marked(0), &both, &["web5"]), [marks]);
    assert_eq!(tasks(marked(1).put(&Key::Store, "{}", 90), &both, &["web5"]), [marks]);
}

#[test]
fn a_claim_above_the_limit_moves_down_when_there_is_a_free_number() {
    let held = [(0, "web5"), (60_000, "web6")];
    let moves = "move a claim to a lower number: /orchestrate/claims/role/web/60000 /orchestrate/claims/role/web/00001 /orchestrate/claimed/web6";
    assert_eq!(tasks(&mut of_web(2), &held, &["web5", "web6"]), [moves]);
    // It is moved before it is marked, also if its agent does not run.
    assert_eq!(tasks(&mut of_web(2), &held, &["web5"]), [moves]);
    assert_eq!(tasks(&mut of_web(1), &held, &["web5", "web6"]), [""; 0], "no number is free");
    // A host that keeps its claim for some time after its proof moves it itself before its next start.
    let own = moves.replace("web6", "web0").replace("00001", "00000");
    for max in [1, 25] {
        assert_eq!(tasks(&mut of_web(max), &[(60_000, "web0")], &[]), [own.as_str()], "a limit of {max}");
    }
}

/// A host keeps its numbers. It waits for the limit in which it has one too high, whoever else waits for the other.
#[test]
fn a_host_waits_for_the_limit_that_does_not_have_its_number() {
    let text = "[[limit]]\nby = \"role\"\nmax = 1\n[[limit]]\nby = \"fleet\"\nmax = 3\n";
    let mut found = Found::default();
    found.hosts("web", 12).policy(text, 10).with_record().claim(0, "web0");
    let own = place(&host("web0"), &instruction().version);
    found.ticket("web1", Place(own.0 - 1));
    let of_role = found.0.get(&Key::Claim(web(), 0)).unwrap().value.clone();
    let fleet = Limit { by: LimitBy::Fleet, value: LimitValue::new("all").unwrap() };
    let claim = String::from_utf8(of_role).unwrap();
    found.put(&Key::Claim(fleet.clone(), 60_000), &claim, 70);
    let view = found.view("web0");
    assert_eq!(view.waits_for().map(|view| &view.limit), Some(&fleet));
}

/// Two hosts that took their claims again, or are held by a lowered limit, must not wait for each other.
#[test]
fn a_host_that_holds_its_claims_tries_again_whoever_else_does() {
    let mut found = of_web(1);
    let claim = HeldClaim { limit: web(), number: 64_677, keep_failed: true };
    let none = HostClaims::none(Token::new("i").unwrap(), ORDER, EpochSeconds(1));
    let held = HostClaims { claims: vec![claim.clone()], ..none };
    let held = FoundClaims { claims: Some(held), revision: 70 };
    found.claim(0, "web5").claim(64_677, "web0");
    let permit = found.view("web0").permit(&held, ClaimNeed::Retake, at(0)).expect("a permit");
    assert_eq!((permit.claims, permit.guard.limits), (Some(vec![claim]), Vec::new()));
    assert!(
        found.view("web0").permit(&held, ClaimNeed::Take, at(0)).is_err(),
        "it is available, and above the limit"
    );
    assert!(found.number("web0", 0).is_err(), "without its claim it would wait");
    // Its own claim is the highest, and does not keep another one from being moved.
    let above = [(80_000, "web6"), (90_000, "web0")];
    let moves = tasks(&mut of_web(2), &above, &["web6"]);
    assert!(moves[0].contains("/orchestrate/claims/role/web/80000"), "{moves:?}");
}

#[test]
fn times_of_a_policy_are_bounded() {
    let check = |text: &str, expected: &str| {
        let error = read_policy("policy.toml", text).err().map(|error| error.to_string());
        assert_eq!(error.unwrap_or_default(), expected, "{text}");
    };
    check("lost_after = \"5s\"\nprogress_deadline = \"2h\"\n", "");
    check("lost_after = \"4s\"\n", "policy.toml: lost_after is 4s; it must be from 5s to 30d");
    check(
        "progress_deadline = \"31d\"\n",
        "policy.toml: progress_deadline is 31d; it must be from 5s to 30d",
    );
    check("hold = \"1h\"\n", "");
    check("hold = \"2h\"\n", "policy.toml: hold is 2h; it must not be longer than charge_for, 1h");
    let back = "on_halt = \"roll_back\"\n";
    let needs =
        "policy.toml: on_halt = \"roll_back\" needs a failure_budget: without one nothing halts a rollout";
    check(back, needs);
}

#[test]
fn what_cannot_be_read_about_a_host_keeps_it_from_starting() {
    let mut found = of_web(3);
    found.put(&Key::Host(host("web0")), "garbage", 90);
    assert!(found.number("web0", 0).unwrap_err().starts_with("its roster entry cannot be read: "));
    let mut found = Found::default();
    let entry = RosterEntry { labels: [("rack".into(), "a/b".into())].into(), ..RosterEntry::default() };
    found.put(&Key::Host(host("h")), &codec::write(&entry), 1);
    found.policy("[[limit]]\nby = \"labels.rack\"\nmax = 1\n", 10).with_record();
    assert!(found.number("h", 0).unwrap_err().starts_with("no limit can count it: labels.rack: "));
    let unreadable = FoundClaims { claims: None, revision: 5 };
    let permit = of_web(3).view("web1").permit(&unreadable, ClaimNeed::Take, at(0));
    assert!(permit.unwrap_err().to_string().contains("orchestrate claims release web1"));
}

#[test]
fn a_freeze_holds_a_host_that_needs_no_claims_too() {
    let mut found = of_web(3);
    let freeze = Freeze { by: "ann".into(), reason: "x".into(), at: EpochSeconds(1), until: None };
    let key = Key::Freeze(schema::freeze::FreezeScope::Fleet, Token::new("t").unwrap());
    found.put(&key, &codec::write(&freeze), 90);
    let permit = found.view("web0").permit(&FoundClaims::default(), ClaimNeed::Nothing, at(0));
    assert_eq!(permit.unwrap_err().to_string(), "the fleet is frozen by ann: x");
}

proptest! {
    /// Whatever stands in the store, a host takes a number below the limit that nobody else holds, and none
    /// while somebody holds a number from the limit up.
    #[test]
    fn a_number_that_is_taken_is_free(
        max in 0u32..6,
        held in proptest::collection::btree_map(0u32..8, 0usize..12, 0..6),
        waiting in proptest::collection::btree_map(any::<u32>(), 1usize..12, 0..6),
        seconds in 0u64..400,
    ) {
        let mut found = of_web(max);
        held.iter().for_each(|(number, by)| drop(found.claim(*number, &format!("web{by}")).view("web0")));
        waiting.iter().for_each(|(place, by)| drop(found.ticket(&format!("web{by}"), Place(*place)).view("web0")));
        if let Ok(Some(number)) = found.number("web0", seconds) {
            prop_assert!(number < max);
            prop_assert!(held.get(&number).is_none_or(|by| *by == 0));
            prop_assert!(held.range(max..).all(|(_, by)| *by == 0));
        }
    }
}
