//! Stages: which hosts they choose, when they open, and what keeps them closed.

use super::*;
use schema::records::{Excuse, FailureKind, ProgressState, Soak, StageOpening};

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
        self.put(key, &codec::write(&StageOpening { at: AT, by: "web0".into() }), at)
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
            EndTask::Wait => "wait".into(),
            EndTask::LookAfter(_) => "look after".into(),
            EndTask::Halt(_) => "halt".into(),
            EndTask::End(_) => "end".into(),
        }
    }

    fn canary(&self) -> String {
        let record = self.0.get(&Key::RolloutRecord(ORDER)).expect("a record");
        let record: RolloutRecord = codec::read(&record.value).unwrap();
        record.stages[0].hosts.first().expect("a chosen host").to_string()
    }
}

/// The rollout with its record, and the names of the canary and of another host.
fn with_canary() -> (Found, String, String) {
    let mut found = three_hosts(CANARY);
    found.with_record();
    let canary = found.canary();
    let other = ["web0", "web1", "web2"].into_iter().find(|name| *name != canary).unwrap();
    (found, canary, other.to_owned())
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
    found.proven(&canary);
    assert_eq!(found.task(), "soak/0");
    found.soak(false, 75);
    assert_eq!(found.task(), "soak 0 for 1m");
    found.soak(true, 76).put(&Key::SoakTimer(ORDER, 0), "web0", 75);
    assert_eq!(found.task(), "wait");
    let observed = Err("stage rest is not open: the hosts of stage canary are observed first".to_owned());
    assert_eq!(found.number(&other, 0), observed);
    found.0.entries.remove(&Key::SoakTimer(ORDER, 0).to_string());
    assert_eq!(found.task(), "opened/1");
    found.opening(&Key::StageOpened(ORDER, 1), 90);
    assert_eq!(found.number(&other, 0).map(|number| number.is_some()), Ok(true));
    let permit = found.view(&other).permit(&FoundClaims::default(), Need::Claims, BootMillis(0)).unwrap();
    assert_eq!(permit.guard.stage, Some((Key::StageOpened(ORDER, 1), 90)));
    assert_eq!(found.task(), "wait", "the others are not proven yet");
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
        "the canary is not proven any more",
        &|f, c, _| {
            soaks(f, c);
            f.0.entries.remove(&Key::Announced(host(c)).to_string());
        },
        "soak/0 soaking/0",
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
    let record = record_without(&host(&canary), &found.record(), &hosts_of(&found.0), &found.0);
    assert_eq!(record.stages[0].hosts.len(), 1);
    assert!(!record.stages[0].hosts.contains(&host(&canary)));
    // Nobody can take its place.
    let mut off = found;
    off.0.entries.retain(|key, _| !matches!(Key::parse(key), Ok(Key::Live(name)) if name.as_str() != canary));
    let record = record_without(&host(&canary), &off.record(), &hosts_of(&off.0), &off.0);
    assert!(record.stages[0].hosts.is_empty());
}

#[test]
fn a_host_that_is_not_available_waits_for_no_stage() {
    let (found, _, other) = with_canary();
    for need in [Need::ClaimsAgain, Need::Nothing, Need::New] {
        let permit = found.view(&other).permit(&FoundClaims::default(), need, BootMillis(0));
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
    let trigger =
        schema::records::Trigger { at: AT, by: "ann".into(), reason: None, from: None, rollback: true };
    found.put(&Key::Trigger, &codec::write(&trigger), 50);
    assert_eq!(found.record().stages, []);
}
