//! Stages: which hosts they choose, when they open, and what keeps them closed.
//!
//! This file is long because each way to open a stage, and each that must not open it, is a case of its own.

use super::*;
use schema::keys;
use schema::records::{Excuse, FailureKind, ProgressState, RolloutOptions, Soak, StageOpening, Trigger};
use schema::transaction::Operation;
use std::collections::BTreeSet;

const AT: EpochSeconds = EpochSeconds(1);

const CANARY: &str = "failure_budget = 1\n[[limit]]\nby = \"fleet\"\nmax = 2\n
[[stage]]\nname = \"canary\"\nselect = { role = [\"web\"] }\ncount = 1\nsoak = \"1m\"\n";

/// Three hosts that run, of a role that the policy selects.
fn three_hosts(policy: &str) -> Found {
    let mut found = Found::default();
    found.hosts("web", 3).policy(policy, 10);
    found.put(&Key::Store, r#"{"lineage":"l","epoch":0}"#, 1).put(&Key::CurrentVersion, "v2", 50);
    for name in ["web0", "web1", "web2"] {
        found.live(name);
    }
    found
}

impl Found {
    fn proven(&mut self, name: &str) -> &mut Self {
        self.progress(name, ProgressState::Proven).put(&Key::Announced(host(name)), "v2", 68)
    }

    fn opening(&mut self, key: &Key, at: i64) -> &mut Self {
        self.put(key, &codec::write(&StageOpening { at: AT, by: "web0".into(), hosts: 0 }), at)
    }

    fn soak(&mut self, timed: bool, at: i64) -> &mut Self {
        self.put(&Key::Soak(ORDER, 0), &codec::write(&Soak { at: AT, by: "web0".into(), timed }), at)
    }

    fn excused(&mut self, name: &str) -> &mut Self {
        let excuse = Excuse { at: AT, by: "ann".into(), reason: "its disk is broken".into() };
        self.put(&Key::Excused(ORDER, host(name)), &codec::write(&excuse), 70)
    }

    /// What is done about the stages: the keys that are written, and how long a soak takes.
    fn task(&self) -> String {
        match self.end_task() {
            EndTask::Stage(transaction) => {
                let prefix = Prefix::Rollout(ORDER).to_string();
                let keys = transaction.operations.iter().filter_map(|operation| operation.key());
                let keys: Vec<String> = keys.map(|key| key.to_string().replace(&prefix, "")).collect();
                keys.join(" ")
            }
            EndTask::Soak(stage, length) => format!("soak {stage} for {length}"),
            EndTask::Stop => "stop".into(),
            EndTask::Wait(_) => "wait".into(),
            EndTask::Tell(_) => "tell".into(),
            EndTask::LookAfter(_) => "look after".into(),
            EndTask::Halt(_) => "halt".into(),
            EndTask::End(_) => "end".into(),
        }
    }

    /// The record that stands in the store.
    pub(super) fn stored(&self) -> RolloutRecord {
        self.0.value_of(keys::RolloutRecord(ORDER)).expect("a record")
    }

    fn canary(&self) -> String {
        self.stored().stages[0].hosts.first().expect("a chosen host").to_string()
    }
}

/// The rollout with its record, and the names of the canary and of another host.
pub(super) fn with_canary() -> (Found, String, String) {
    with_canary_of(CANARY)
}

fn with_canary_of(policy: &str) -> (Found, String, String) {
    let mut found = three_hosts(policy);
    found.with_record();
    let canary = found.canary();
    let other = ["web0", "web1", "web2"].into_iter().find(|name| *name != canary).unwrap();
    (found, canary, other.to_owned())
}

impl Found {
    fn frozen(&mut self, name: &str) -> &mut Self {
        let scope = schema::freeze::FreezeScope::Host(host(name));
        let freeze = Freeze { by: "ann".into(), reason: "disk".into(), at: AT, until: None };
        self.put(&Key::Freeze(scope, Token::new(name).unwrap()), &codec::write(&freeze), 20)
    }
}

#[test]
fn a_frozen_host_is_no_canary_unless_all_are_frozen() {
    let (_, first, _) = with_canary();
    let mut found = three_hosts(CANARY);
    let second = found.frozen(&first).with_record().canary();
    assert_ne!(second, first);
    // Its replacement is not the frozen one either.
    let record = record_without(&host(&second), ORDER, &found.record(), &found.0);
    assert!(!record.stages[0].hosts.contains(&host(&first)), "{record:?}");
    let mut all = three_hosts(CANARY);
    for name in ["web0", "web1", "web2"] {
        all.frozen(name);
    }
    assert_eq!(all.with_record().canary(), first);
    let present = PresentRollout::find(&all.0).unwrap();
    let why = RolloutStatus::new(&present, &all.0, EpochSeconds(1)).why;
    assert_eq!(why, Some(format!("it waits for {first}: host {first} is frozen by ann: disk")));
}

#[test]
fn a_stage_chooses_hosts_that_run_by_place() {
    let (found, canary, _) = with_canary();
    let version = instruction().version;
    let first = ["web0", "web1", "web2"].into_iter().min_by_key(|name| place(&host(name), &version)).unwrap();
    assert_eq!(canary, first);
    assert_eq!(found.number(&canary, 0).map(|number| number.is_some()), Ok(true));
    // Another one is chosen if that does not run; one that does not run only if there is no other.
    let mut off = three_hosts(CANARY);
    off.0.entries.remove(&Key::Live(host(first)).to_string());
    assert_ne!(off.with_record().canary(), first);
    let mut none = three_hosts(CANARY);
    none.0.entries.retain(|key, _| !matches!(Key::parse(key), Ok(Key::Live(_))));
    assert_eq!(none.with_record().canary(), first);
}

#[test]
fn every_host_belongs_to_exactly_one_stage() {
    let check = |stages: &str, expected: [u32; 3]| {
        let policy = format!("failure_budget = 0\n[[limit]]\nby = \"fleet\"\nmax = 1\n{stages}");
        let mut found = three_hosts(&policy);
        found.hosts("db", 1);
        let record = found.record();
        let hosts = hosts_of(&found.0);
        let version = &record.version;
        let of = |name: &str| {
            let host = host(name);
            stage_of(&record.stages, &host, &hosts[&host], place(&host, version))
        };
        let webs = ["web0", "web1", "web2"].iter().filter(|name| of(name) == 0).count();
        let last =
            ["web0", "web1", "web2", "db0"].iter().filter(|name| of(name) == record.stages.len() as u32);
        assert_eq!([webs as u32, of("db0"), last.count() as u32], expected, "{stages}");
    };
    let stage = |name: &str, rest: &str| format!("[[stage]]\nname = \"{name}\"\n{rest}\n");
    check(&stage("a", "select = { role = [\"web\"] }"), [3, 1, 1]);
    check(&stage("a", ""), [3, 0, 0]);
    check(&stage("a", "count = 2"), [2, 1, 2]);
    check(&stage("a", "select = { role = [\"web\", \"db\"] }\ncount = 1"), [1, 1, 3]);
    check(&stage("a", "share = \"0%\""), [0, 1, 4]);
    check(&stage("a", "share = \"100%\""), [3, 0, 0]);
    let both = [stage("a", "count = 1"), stage("b", "select = { role = [\"web\"] }")].concat();
    check(&both, [1, 2, 1]);
    check(&stage("a", "select = { \"labels.rack\" = [\"r1\"] }"), [0, 1, 4]);
}

#[test]
fn a_stage_opens_when_the_hosts_before_it_are_proven_for_the_time_of_the_soak() {
    let (mut found, canary, other) = with_canary();
    let refused = Err("stage rest is not open: not all hosts of stage canary are proven".to_owned());
    assert_eq!(found.number(&other, 0), refused);
    assert_eq!(found.task(), "wait");
    let ends = |found: &Found| {
        let permit = found.view(&other).permit(&FoundClaims::default(), ClaimNeed::Take, at(0));
        permit.unwrap_err().ends()
    };
    found.proven(&canary);
    assert_eq!(found.task(), "soak/0");
    found.soak(false, 75);
    assert_eq!(found.task(), "soak 0 for 1m");
    assert_eq!(ends(&found), None, "its timer does not run yet");
    found.soak(true, 76).put(&Key::SoakTimer(ORDER, 0), "web0", 75);
    assert_eq!(found.task(), "wait");
    let observed = Err("stage rest is not open: the hosts of stage canary are observed first".to_owned());
    assert_eq!(found.number(&other, 0), observed);
    assert_eq!(ends(&found), Some(EpochSeconds(61)));
    found.0.entries.remove(&Key::SoakTimer(ORDER, 0).to_string());
    assert_eq!(found.task(), "opened/1");
    found.opening(&Key::StageOpened(ORDER, 1), 90);
    assert_eq!(found.number(&other, 0).map(|number| number.is_some()), Ok(true));
    let permit = found.view(&other).permit(&FoundClaims::default(), ClaimNeed::Take, at(0)).unwrap();
    assert_eq!(permit.guard.stage, Some((Key::StageOpened(ORDER, 1), 90)));
    assert_eq!(found.task(), "wait", "the others are not proven yet");
}

#[test]
fn a_stage_that_waits_only_for_hosts_that_keep_their_claims_says_so() {
    let closed = "stage rest is not open: ";
    let unproven = format!("{closed}not all hosts of stage canary are proven");
    let held = format!("{closed}web0 is proven and holds its claims for 5m");
    // The policy's time, whether the canary is proven, whether it holds its claim, and what is said until when.
    for (hold, is_proven, holds, expected, ends) in [
        ("hold = \"5m\"\n", true, true, &held, Some(AT.0 + 300)),
        ("hold = \"5m\"\n", false, true, &unproven, None),
        ("hold = \"5m\"\n", true, false, &unproven, None),
        ("", true, true, &unproven, None),
    ] {
        let (mut found, canary, other) = with_canary_of(&format!("{hold}{CANARY}"));
        if is_proven {
            found.proven(&canary);
        }
        if holds {
            found.claim(0, &canary).claimed(&canary, false);
        }
        let permit = found.view(&other).permit(&FoundClaims::default(), ClaimNeed::Take, at(0));
        let obstacle = permit.unwrap_err();
        let expected = expected.replace("web0", &canary);
        assert_eq!((obstacle.detail(), obstacle.ends()), (expected, ends.map(EpochSeconds)), "{hold}");
    }
}

#[test]
fn what_happens_before_a_stage_opens() {
    let check = |name: &str, change: &dyn Fn(&mut Found, &str, &str), expected: &str| {
        let (mut found, canary, other) = with_canary();
        change(&mut found, &canary, &other);
        assert_eq!(found.task(), expected, "{name}");
    };
    let soaks = |found: &mut Found, canary: &str| {
        found.proven(canary).soak(true, 75);
    };
    check("the canary gave up", &|f, c, _| drop(f.progress(c, ProgressState::GaveUp).record()), "wait");
    check(
        "the canary is excused, and nobody took its place",
        &|f, c, _| drop(f.excused(c).record()),
        "opened/1",
    );
    check(
        "a host failed during the soak",
        &|f, c, o| {
            soaks(f, c);
            f.fails(o, FailureKind::Attempt, 80);
        },
        "soak/0 soaking/0",
    );
    check(
        "a host failed before the soak",
        &|f, c, o| {
            f.fails(o, FailureKind::Attempt, 70);
            soaks(f, c);
        },
        "opened/1",
    );
    check(
        "the agent of the canary restarts when the soak is over",
        &|f, c, _| {
            soaks(f, c);
            f.0.entries.remove(&Key::Announced(host(c)).to_string());
        },
        "wait",
    );
    check(
        "it restarts during the soak",
        &|f, c, _| {
            soaks(f, c);
            f.put(&Key::SoakTimer(ORDER, 0), "web0", 76);
            f.0.entries.remove(&Key::Announced(host(c)).to_string());
        },
        "wait",
    );
    check(
        "the canary was not updated when the soak began",
        &|f, c, _| {
            f.soak(true, 60).put(&Key::SoakTimer(ORDER, 0), "web0", 61);
            f.proven(c).0.entries.remove(&Key::Announced(host(c)).to_string());
            f.0.entries.remove(&Key::SoakTimer(ORDER, 0).to_string());
        },
        "soak/0 soaking/0",
    );
    check(
        "the canary is observed, and the agents of all others are off",
        &|f, c, _| {
            soaks(f, c);
            f.put(&Key::SoakTimer(ORDER, 0), "web0", 76);
            f.0.entries.retain(|key, _| !matches!(Key::parse(key), Ok(Key::Live(name)) if name != host(c)));
        },
        "wait",
    );
    check(
        "the canary does not run and has not started",
        &|f, c, _| drop(f.0.entries.remove(&Key::Live(host(c)).to_string())),
        "record",
    );
    check(
        "no agent runs",
        &|f, _, _| f.0.entries.retain(|key, _| !matches!(Key::parse(key), Ok(Key::Live(_)))),
        "wait",
    );
    check(
        "the canary was decommissioned",
        &|f, c, _| {
            let entry = RosterEntry { decommissioned: Some(AT), ..RosterEntry::default() };
            f.put(&Key::Host(host(c)), &codec::write(&entry), 71);
        },
        "record",
    );
    check(
        "it is halted",
        &|f, c, _| drop(f.proven(c).put(&Key::Halt(ORDER), r#"{"at":1,"by":"x","why":"y"}"#, 70).record()),
        "wait",
    );
    check(
        "it is halted, and a host failed in the soak",
        &|f, c, o| {
            soaks(f, c);
            f.fails(o, FailureKind::Lost, 90).put(&Key::Halt(ORDER), r#"{"at":1,"by":"x","why":"y"}"#, 91);
        },
        "soak/0 soaking/0",
    );
    check(
        "more failed than tolerated",
        &|f, c, o| {
            drop(f.proven(c).fails(o, FailureKind::Lost, 70).fails("web9", FailureKind::Lost, 71).record())
        },
        "halt",
    );
}

#[test]
fn an_excused_host_is_replaced_by_one_that_runs() {
    let (found, canary, _) = with_canary();
    let record = record_without(&host(&canary), ORDER, &found.record(), &found.0);
    assert_eq!(record.stages[0].hosts.len(), 1);
    assert!(!record.stages[0].hosts.contains(&host(&canary)));
    // Nobody can take its place.
    let mut off = found;
    off.0.entries.retain(|key, _| !matches!(Key::parse(key), Ok(Key::Live(name)) if name.as_str() != canary));
    let record = record_without(&host(&canary), ORDER, &off.record(), &off.0);
    assert!(record.stages[0].hosts.is_empty());
}

#[test]
fn a_host_that_was_excused_or_failed_is_not_chosen_again() {
    let (mut found, first, _) = with_canary();
    let excuse = |found: &mut Found| {
        let canary = found.canary();
        let record = record_without(&host(&canary), ORDER, &found.stored(), &found.0);
        found.excused(&canary).put(&Key::RolloutRecord(ORDER), &codec::write(&record), 71);
    };
    excuse(&mut found);
    let second = found.canary();
    found.fails(&first, FailureKind::Attempt, 72).progress(&first, ProgressState::GaveUp);
    excuse(&mut found);
    let third = found.canary();
    assert_eq!(BTreeSet::from([first, second, third.clone()]).len(), 3);
    // Nobody is left.
    let record = record_without(&host(&third), ORDER, &found.stored(), &found.0);
    assert!(record.stages[0].hosts.is_empty());
}

#[test]
fn who_was_chosen_for_a_settled_stage_stays() {
    let (mut found, canary, _) = with_canary();
    found.opening(&Key::StageOpened(ORDER, 1), 70);
    let record = record_without(&host(&canary), ORDER, &found.stored(), &found.0);
    assert_eq!(record, found.stored());
}

#[test]
fn a_stage_that_loses_a_chosen_host_to_an_earlier_one_chooses_again() {
    let two = format!("{CANARY}[[stage]]\nname = \"second\"\ncount = 1\n");
    let mut found = three_hosts(&two);
    found.with_record();
    let (first, chosen) = (found.canary(), found.stored().stages[1].hosts.clone());
    // A host that no stage chose is preferred.
    let record = record_without(&host(&first), ORDER, &found.stored(), &found.0);
    assert_eq!(record.stages[1].hosts, chosen);
    assert!(record.stages[0].hosts.is_disjoint(&chosen));
    // If there is none, the later stage chooses another one, or has none.
    let spare = record.stages[0].hosts.first().unwrap().clone();
    found.0.entries.remove(&Key::Live(spare.clone()).to_string());
    let record = record_without(&host(&first), ORDER, &found.stored(), &found.0);
    assert_eq!(record.stages[0].hosts, chosen);
    found.excused(&first).put(&Key::RolloutRecord(ORDER), &codec::write(&record), 71);
    let EndTask::Stage(transaction) = found.end_task() else { panic!("{}", found.task()) };
    let Some(Operation::Put { value, .. }) = transaction.operations.first() else {
        panic!("{transaction:?}")
    };
    let record = keys::RolloutRecord::read(value).unwrap();
    assert_eq!(record.stages[1].hosts, BTreeSet::from([spare]));
}

#[test]
fn a_rollout_ends_only_when_all_stages_are_open() {
    let (mut found, canary, other) = with_canary();
    // The canary failed, within the budget. Another host has the version; the third one does not run.
    found.progress(&canary, ProgressState::GaveUp).fails(&canary, FailureKind::Attempt, 67);
    found.proven(&other);
    let is_third = |name: &HostName| *name != host(&canary) && *name != host(&other);
    found.0.entries.retain(|key, _| !matches!(Key::parse(key), Ok(Key::Live(name)) if is_third(&name)));
    assert_eq!(found.task(), "wait");
    found.opening(&Key::StageOpened(ORDER, 1), 70);
    assert_eq!(found.task(), "end");
}

#[test]
fn a_stage_that_does_not_open_says_why() {
    let policy = CANARY.replace("count = 1\n", "");
    let mut found = three_hosts(&policy);
    found.with_record();
    for name in ["web0", "web1", "web2"] {
        found.0.entries.remove(&Key::Live(host(name)).to_string());
    }
    let summary = summary(ORDER, &found.stored(), &found.0);
    assert_eq!(summary.waits_for, []);
    let why = summary.why.expect("a reason");
    assert!(why.starts_with("no host of stage canary is proven: 0 failed, 3 off"), "{why}");
}

#[test]
fn a_host_of_a_closed_stage_has_nothing_to_do_with_limits() {
    let (mut found, _, other) = with_canary();
    found.claim(0, "web9");
    let waiting = found.view(&other);
    assert!(waiting.waits_for_stage() && waiting.holders().is_none());
    assert_eq!(waiting.tries_at(at(0)), None);
    let followed = [Prefix::Freezes, Prefix::RecordOf(ORDER), Prefix::OpenedOf(ORDER)];
    assert_eq!(waiting.ranges(), followed);
    // One that tries again waits for no stage.
    found.progress(&other, ProgressState::GaveUp);
    assert!(!found.view(&other).waits_for_stage());
}

#[test]
fn a_host_that_is_not_available_waits_for_no_stage() {
    let (found, _, other) = with_canary();
    for need in [ClaimNeed::Retake, ClaimNeed::Nothing, ClaimNeed::FirstInstall] {
        let permit = found.view(&other).permit(&FoundClaims::default(), need, at(0));
        assert_eq!(permit.map(|permit| permit.guard.stage), Ok(None), "{need:?}");
    }
}

#[test]
fn stages_that_cannot_be_used_are_refused() {
    let check = |text: &str, expected: &str| {
        let limit = "[[limit]]\nby = \"fleet\"\nmax = 1\n";
        let text = format!("failure_budget = 0\n{limit}{text}");
        let error = read_policy("p.toml", &text).expect_err(&text).to_string();
        assert!(error.contains(expected), "{error}");
    };
    let stage = |rest: &str| format!("[[stage]]\nname = \"a\"\n{rest}\n");
    check("[[stage]]\nname = \"rest\"\n", "a stage cannot be named rest");
    check(&[stage(""), stage("")].concat(), "two stages named a");
    check(&stage("select = { fleet = [\"all\"] }"), "selects by fleet");
    check(&stage("select = { role = [] }"), "selects no value of role");
    check(&stage("count = 1\nshare = \"5%\""), "a count and a share");
    check(&stage("count = 0"), "must be from 1 to 100");
    check(&stage("share = 5"), "is a percentage such as \"10%\"");
    check(&stage("soak = \"1s\""), "it must be from 5s to");
    check(&stage("often = 1"), "often");
    let none = "[[limit]]\nby = \"fleet\"\nmax = 1\n[[stage]]\nname = \"a\"\n";
    let error = read_policy("p.toml", none).expect_err("no budget").to_string();
    assert!(error.contains("a stage needs a failure_budget"), "{error}");
}

#[test]
fn a_rollback_has_no_stages() {
    let mut found = three_hosts(CANARY);
    let trigger = Trigger {
        at: AT,
        by: "ann".into(),
        reason: None,
        from: None,
        options: RolloutOptions::default(),
        rollback: true,
    };
    found.put(&Key::Trigger, &codec::write(&trigger), 50);
    assert_eq!(found.record().stages, []);
}

#[test]
fn the_opening_of_a_stage_says_over_which_time_the_hosts_spread_that_waited_for_it() {
    let (mut found, canary, _) = with_canary();
    found.progress(&canary, ProgressState::Proven).put(&Key::Announced(host(&canary)), "v2", 68);
    let soak = Soak { at: AT, by: "web0".into(), timed: true };
    found.put(&Key::Soak(ORDER, 0), &codec::write(&soak), 76);
    let EndTask::Stage(opens) = found.end_task() else { panic!("it opens") };
    let delays = opens.operations.iter().filter_map(|operation| match operation {
        Operation::Put { key, value, .. } => opened_delay(&key.to_string(), value),
        _ => None,
    });
    assert_eq!(delays.collect::<Vec<_>>(), [Duration::from_millis(15)], "three agents run");
    // An older host does not say how many.
    let older = codec::write(&StageOpening { at: AT, by: "web0".into(), hosts: 0 });
    assert_eq!(opened_delay(&Key::StageOpened(ORDER, 1).to_string(), older.as_bytes()), None);
}
