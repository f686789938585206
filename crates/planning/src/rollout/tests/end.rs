//! The end of a rollout, the version to go back to, and rollbacks by hosts. This file is long because all of these tests
//! make the same two hosts.

use super::stages::with_canary;
use super::*;
use crate::host::{BrakesMemory, HostState};
use schema::records::{
    Closing, Ended, FailedHost, FailureKind, HostProgress, LiveClaim, Maintenance, MaintenanceEntry,
    MaintenanceMode, OnHalt, ProgressState, RolloutOptions, RolloutPolicy, Trigger,
};
use schema::why_not::WhyNot;

const AT: EpochSeconds = EpochSeconds(1);

/// Two hosts of a rollout that was recorded at revision 60: `web0` is proven and runs.
fn two_hosts() -> Found {
    let mut found = Found::default();
    found.hosts("web", 2).policy("failure_budget = 1\n[[limit]]\nby = \"fleet\"\nmax = 1\n", 10);
    found.put(&Key::Store, r#"{"lineage":"l","epoch":0}"#, 1).put(&Key::CurrentVersion, "v2", 50);
    found.with_record().live("web0").put(&Key::Announced(host("web0")), "v2", 65);
    found
}

impl Found {
    pub(super) fn live(&mut self, name: &str) -> &mut Self {
        let claim = LiveClaim {
            instance: Token::new("i").unwrap(),
            machine_id: "m".into(),
            boot_id: "b".into(),
            addresses: Vec::new(),
            agent_version: String::new(),
            driver: schema::records::Driver::Agent,
            store_format: 2,
        };
        self.put(&Key::Live(host(name)), &codec::write(&claim), 62)
    }

    pub(super) fn progress(&mut self, name: &str, state: ProgressState) -> &mut Self {
        self.put(&Key::Progress(ORDER, host(name)), &codec::write(&HostProgress::of_agent(state, AT)), 66)
    }

    pub(super) fn maintenance(&mut self, name: &str, how: MaintenanceMode) -> &mut Self {
        let mark = MaintenanceEntry { how, reason: String::new(), at: AT };
        let marks = Maintenance { host: Some(mark), ..Maintenance::default() };
        self.put(&Key::Maintenance(host(name)), &codec::write(&marks), 66)
    }

    pub(super) fn fails(&mut self, name: &str, kind: FailureKind, at: i64) -> &mut Self {
        let failed =
            FailedHost { at: AT, kind, reason: "it broke".into(), cause: None, healed: false, again: None };
        self.put(&Key::Failed(ORDER, host(name)), &codec::write(&failed), at)
    }

    pub(super) fn claimed(&mut self, name: &str, lost: bool) -> &mut Self {
        let claim = HeldClaim { limit: web(), number: 0, keep_failed: true };
        let none = HostClaims::none(Token::new("i").unwrap(), ORDER, AT);
        let claims = HostClaims { claims: vec![claim], lost, ..none };
        self.put(&Key::Claimed(host(name)), &codec::write(&claims), 67)
    }

    /// A rollout of an earlier version, and whether it ended.
    fn earlier(&mut self, at: i64, record: RolloutRecord, has_ended: bool) -> &mut Self {
        let order = InstructionOrder { epoch: 0, revision: at };
        self.put(&Key::RolloutRecord(order), &codec::write(&record), at + 1);
        if has_ended {
            let ended = Ended { at: AT, by: "web0".into() };
            self.put(&Key::Ended(order), &codec::write(&ended), at + 2);
        }
        self
    }

    pub(super) fn end_task(&self) -> EndTask {
        end_task(ORDER, &self.0, &Ended { at: AT, by: "web0".into() })
    }
}

#[test]
fn a_host_is_through_with_a_rollout_when_it_is_proven_or_goes_no_further_by_itself() {
    use ProgressState::{GaveUp, Proven, Started};
    let check = |name: &str, change: &dyn Fn(&mut Found), expected: HostResult| {
        let mut found = two_hosts();
        change(&mut found);
        let results = results(ORDER, &found.record(), &found.0);
        assert_eq!(results[&host("web0")], HostResult::Proven, "{name}");
        assert_eq!(results[&host("web1")], expected, "{name}");
    };
    let is = |change: fn(&mut Found) -> &mut Found| move |found: &mut Found| drop(change(found).record());
    check("it has not started", &is(|f| f.live("web1")), HostResult::Pending);
    check("it does not run", &is(|f| f), HostResult::Absent);
    check(
        "it runs an older version and its script has not asked yet",
        &is(|f| f.put(&Key::Announced(host("web1")), "v1", 66)),
        HostResult::Pending,
    );
    check(
        "it is proven and keeps its claims",
        &is(|f| f.live("web1").put(&Key::Announced(host("web1")), "v2", 66).claimed("web1", false)),
        HostResult::Pending,
    );
    check("it waits for an earlier update", &is(|f| f.claimed("web1", false)), HostResult::Pending);
    check("it is being updated", &is(|f| f.live("web1").progress("web1", Started)), HostResult::Pending);
    check(
        "it vanished in its update and is not lost yet",
        &is(|f| f.progress("web1", Started).claimed("web1", false)),
        HostResult::Pending,
    );
    check(
        "it was lost",
        &is(|f| f.progress("web1", Started).claimed("web1", true).fails("web1", FailureKind::Lost, 68)),
        HostResult::Failed,
    );
    check(
        "it was lost, and runs again",
        &is(|f| f.progress("web1", Started).fails("web1", FailureKind::Lost, 68).live("web1")),
        HostResult::Pending,
    );
    check("it vanished and held no claim", &is(|f| f.progress("web1", Started)), HostResult::Failed);
    check(
        "it failed and tries again",
        &is(|f| f.live("web1").progress("web1", Started).fails("web1", FailureKind::Attempt, 68)),
        HostResult::Pending,
    );
    check("it gave up", &is(|f| f.live("web1").progress("web1", GaveUp)), HostResult::Failed);
    check("it was proven and vanished", &is(|f| f.progress("web1", Proven)), HostResult::Vanished);
    check(
        "it was proven and vanished with its claims",
        &is(|f| f.progress("web1", Proven).claimed("web1", false)),
        HostResult::Pending,
    );
    check(
        "it was proven and vanished, and others counted it",
        &is(|f| f.progress("web1", Proven).fails("web1", FailureKind::Lost, 68)),
        HostResult::Failed,
    );
    check(
        "it was proven and vanished, and an operator excused it",
        &is(|f| f.progress("web1", Proven).put(&Key::Excused(ORDER, host("web1")), "{}", 68)),
        HostResult::Excused,
    );
    check(
        "it was proven and is in maintenance",
        &is(|f| f.progress("web1", Proven).maintenance("web1", MaintenanceMode::Maintenance)),
        HostResult::Proven,
    );
    check(
        "it was proven, was drained and vanished",
        &is(|f| f.progress("web1", Proven).maintenance("web1", MaintenanceMode::Draining)),
        HostResult::Vanished,
    );
    let of_script = codec::write(&HostProgress::new(Proven, AT));
    check(
        "it has no agent, was proven and does not report any more",
        &|f| drop(f.put(&Key::Progress(ORDER, host("web1")), &of_script, 66).record()),
        HostResult::Proven,
    );
    check(
        "it is proven and validates after a restart",
        &is(|f| f.live("web1").progress("web1", Proven)),
        HostResult::Pending,
    );
    check(
        "it stopped working",
        &is(|f| f.live("web1").progress("web1", Proven).fails("web1", FailureKind::Withdrawal, 68)),
        HostResult::Failed,
    );
}

#[test]
fn claims_and_versions_are_watched_while_few_hosts_are_waited_for() {
    let check = |task: &EndTask, expected: bool| {
        let ranges = task.follows(ORDER);
        for range in [Prefix::Claimed, Prefix::Announced] {
            assert_eq!(ranges.contains(&range), expected, "{task:?} {range:?}");
        }
        for range in [Prefix::Lives, Prefix::Rollout(ORDER), Prefix::ProgressOf(ORDER)] {
            assert!(ranges.contains(&range), "{task:?} {range:?}");
        }
    };
    check(&EndTask::Wait(0), true);
    check(&EndTask::Wait(20), true);
    check(&EndTask::Wait(21), false);
    check(&EndTask::Tell(1000), true);
    let mut found = Found::default();
    found.hosts("web", 30).put(&Key::Store, r#"{"lineage":"l","epoch":0}"#, 1);
    found.put(&Key::CurrentVersion, "v2", 50).with_record();
    for number in 0..30 {
        found.live(&format!("web{number}"));
    }
    assert_eq!(found.end_task(), EndTask::Wait(30));
}

#[test]
fn a_rollout_ends_when_every_host_is_through_and_few_failed() {
    let check = |name: &str, change: &dyn Fn(&mut Found), expected: &str| {
        let mut found = two_hosts();
        change(&mut found);
        let task = match found.end_task() {
            EndTask::Stop => "stop",
            EndTask::Wait(_) => "wait",
            EndTask::Tell(_) => "tell",
            EndTask::LookAfter(_) => "look after",
            EndTask::Halt(_) => "halt",
            EndTask::End(_) => "end",
            EndTask::Stage(_) | EndTask::Soak(..) => "stage",
        };
        assert_eq!(task, expected, "{name}");
    };
    let gave_up = |f: &mut Found, name: &str| {
        f.live(name).progress(name, ProgressState::GaveUp).fails(name, FailureKind::Attempt, 68);
    };
    check("the other does not run", &|_| {}, "end");
    check("the other gave up", &|f| gave_up(f, "web1"), "end");
    check("the other goes on", &|f| drop(f.live("web1").record()), "wait");
    let proven = |f: &mut Found| drop(f.live("web1").progress("web1", ProgressState::Proven).record());
    check("the other is proven and not listed yet", &proven, "wait");
    check("another version is desired", &|f| drop(f.put(&Key::CurrentVersion, "v3", 90).record()), "stop");
    check("the other vanished", &|f| drop(f.claimed("web1", false).record()), "look after");
    let vanished = |f: &mut Found| drop(f.progress("web1", ProgressState::Proven).record());
    check("the other vanished after its proof", &vanished, "look after");
    let none = |f: &mut Found| drop(f.put(&Key::Announced(host("web0")), "v1", 69).record());
    check("none is proven", &none, "wait");
    check(
        "it is halted",
        &|f| drop(f.put(&Key::Halt(ORDER), r#"{"at":1,"by":"x","why":"y"}"#, 70).record()),
        "wait",
    );
    let two = |f: &mut Found| {
        gave_up(f, "web1");
        f.fails("web0", FailureKind::Withdrawal, 69);
    };
    check("more failed than tolerated, and none waits", &two, "halt");
    let vanished = |f: &mut Found| {
        two(f);
        f.claimed("web2", false);
    };
    check("and another one vanished", &vanished, "halt");
    // A host that joined later is no part of it.
    let joins = |f: &mut Found| {
        let entry = codec::write(&RosterEntry::default());
        f.put(&Key::Host(host("new")), &entry, 61).live("new");
    };
    check("a host joined", &joins, "end");
    check(
        "a host left",
        &|f| {
            let entry = RosterEntry { decommissioned: Some(AT), ..RosterEntry::default() };
            f.live("web1").put(&Key::Host(host("web1")), &codec::write(&entry), 61);
        },
        "end",
    );
}

#[test]
fn a_host_that_stops_working_after_the_end_does_not_count() {
    let check = |kind, at, expected| {
        let mut found = two_hosts();
        let ended = codec::write(&Ended { at: AT, by: "web0".into() });
        found.put(&Key::Ended(ORDER), &ended, 80).fails("web1", kind, at);
        assert_eq!(failed_hosts(ORDER, 0, &found.0).count(), expected, "{kind:?} {at}");
    };
    check(FailureKind::Withdrawal, 79, 1);
    check(FailureKind::Withdrawal, 81, 0);
    // A host that comes late fails in its first attempt.
    check(FailureKind::Attempt, 81, 1);
    check(FailureKind::Lost, 81, 1);
}

impl Found {
    /// The mark of the host that looks for the end.
    fn marked(&mut self, (by, hosts): (&str, u32), lease: i64) -> &mut Self {
        let mark = Closing { at: AT, by: by.into(), hosts };
        self.put(&Key::Closing(ORDER), &codec::write(&mark), 70);
        self.0.entries.get_mut(&Key::Closing(ORDER).to_string()).unwrap().lease = lease;
        self
    }
}

#[test]
fn one_host_looks_for_the_end() {
    let check = |change: &dyn Fn(&mut Found), lease: Option<i64>, expected: ClosingTask| {
        let mut found = two_hosts();
        change(&mut found);
        assert_eq!(closing_task(ORDER, &host("web0"), lease, &found.0), expected);
    };
    check(&|_| {}, None, ClosingTask::Begin(0, 0));
    check(&|f| drop(f.marked(("web0", 2), 7).record()), Some(7), ClosingTask::Look);
    check(&|f| drop(f.marked(("web1", 2), 8).record()), Some(7), ClosingTask::Wait(2));
    // It was restarted, or the answer to its own write was lost: nobody else looks.
    check(&|f| drop(f.marked(("web0", 2), 8).record()), None, ClosingTask::Begin(70, 2));
    check(&|f| drop(f.marked(("web0", 2), 8).record()), Some(7), ClosingTask::Begin(70, 2));
    // An older agent writes nothing but its name.
    check(&|f| drop(f.put(&Key::Closing(ORDER), "web1", 70).record()), None, ClosingTask::Wait(0));
    check(&|f| drop(f.put(&Key::Closing(ORDER), "web0", 70).record()), None, ClosingTask::Begin(70, 0));
    let unwritten = |f: &mut Found| drop(f.0.entries.remove(&Key::RolloutRecord(ORDER).to_string()));
    check(&unwritten, None, ClosingTask::WriteRecord);
    let others_write = |f: &mut Found| {
        unwritten(f);
        f.put(&Key::Resolving(ORDER), "web1", 60);
    };
    check(&others_write, None, ClosingTask::Wait(0));
    // It was restarted after it had marked that it writes the record, or the answer was lost.
    let writes_itself = |f: &mut Found| {
        unwritten(f);
        f.put(&Key::Resolving(ORDER), "web0", 60);
    };
    check(&writes_itself, None, ClosingTask::WriteRecord);
    let ungoverned = |f: &mut Found| {
        f.0.entries.remove(&Key::RolloutRecord(ORDER).to_string());
        f.0.entries.remove(&Key::RolloutPolicy.to_string());
    };
    check(&ungoverned, None, ClosingTask::Stop);
    check(&|f| drop(f.put(&Key::Ended(ORDER), "{}", 80).record()), None, ClosingTask::Stop);
}

#[test]
fn the_mark_says_how_many_agents_run() {
    let check = |says: u32, live: usize, expected: Option<u32>| {
        let mut found = two_hosts();
        found.hosts("web", live);
        for number in 0..live {
            found.live(&format!("web{number}"));
        }
        let hosts = match found.marked(("web0", says), 7).end_task() {
            EndTask::Tell(hosts) => Some(hosts),
            _ => None,
        };
        assert_eq!(hosts, expected, "{says} {live}");
    };
    check(0, 1, Some(1));
    check(10, 10, None);
    check(10, 14, None);
    check(10, 16, Some(16));
    check(10, 4, Some(4));
}

#[test]
fn the_fleet_asks_equally_often_whether_somebody_looks_however_large_it_is() {
    let seconds = |hosts, random| ask_delay(hosts, random).as_secs();
    assert_eq!((seconds(2, 0.0), seconds(2, 1.0)), (5, 15));
    // All of them together ask every five seconds.
    assert_eq!((seconds(12, 0.5), seconds(120, 0.5)), (60, 600));
    assert_eq!(seconds(100_000, 0.5), 3_600);
    // Nobody has counted them yet.
    assert_eq!(seconds(0, 0.5), 60);
    // A host that waits for its stage reads soon in a small fleet.
    let most = |hosts| stage_delay(hosts, 1.0).as_millis();
    assert_eq!([most(0), most(8), most(1_000), most(10_000)], [5_000, 40, 5_000, 5_000]);
}

#[test]
fn a_host_that_waits_for_its_stage_sees_whether_another_one_looks() {
    let check = |found: &Found, name: &str, expected: Option<DriverSeen>| {
        let state = HostState::new(host(name), "machine".into(), "boot".into(), None);
        let mut brakes = BrakesMemory::default();
        brakes.refuse(&state, WhyNot::NotRead, 1, BootMillis(0));
        assert!(brakes.take(found.view(name)));
        let search = brakes.drives_rollout(&state, &instruction());
        assert_eq!(search.map(|search| search.driver_seen), expected);
    };
    let (mut staged, _, other) = with_canary();
    check(&staged, &other, Some(DriverSeen::Missing));
    staged.marked(("another", 12), 7);
    check(&staged, &other, Some(DriverSeen::Other(12)));
    // It looked itself, before it was restarted: it goes on at once.
    staged.marked((&other, 12), 7);
    check(&staged, &other, Some(DriverSeen::Own));
    assert_eq!(DriverSeen::Own.first_ask_delay(1.0), Duration::ZERO);
    check(&of_web(1), "web0", None);
}

#[test]
fn a_rollout_that_stands_still_names_the_host_that_has_to_go_on() {
    let check = |mark: Option<&str>, now: i64, expected: Option<&str>| {
        let mut found = two_hosts();
        found.progress("web0", ProgressState::Proven);
        if let Some(by) = mark {
            found.marked((by, 2), 7);
        }
        let present = PresentRollout::find(&found.0).unwrap();
        let status = RolloutStatus::new(&present, &found.0, EpochSeconds(now));
        assert_eq!((status.state, status.why.as_deref()), (RolloutWord::GoesOn, expected));
    };
    // The host was proven after a second.
    check(Some("web0"), 10, None);
    let named = "it waits for no host; web0 has to open the next stage or to end the rollout, since 1970-01-01T00:00:01Z";
    check(Some("web0"), 20, Some(named));
    check(None, 20, Some("it waits for no host, and no host looks after it; one does within a minute"));
    let mut found = two_hosts();
    found.live("web1").progress("web0", ProgressState::Proven);
    let present = PresentRollout::find(&found.0).unwrap();
    assert_eq!(RolloutStatus::new(&present, &found.0, EpochSeconds(1_000)).why, None, "it waits for web1");
}

#[test]
fn the_good_version_is_that_of_the_last_rollout_that_ended() {
    let version = |text: &str| Version::new(text).unwrap();
    let record = |text: &str, good: Option<&str>| RolloutRecord {
        good: good.map(version),
        ..RolloutRecord::new(version(text), AT)
    };
    let back = |text: &str| RolloutRecord { rollback: true, ..record(text, Some(text)) };
    let check = |earlier: &[(i64, RolloutRecord, bool)], since: i64, expected: Option<&str>| {
        let mut found = Found::default();
        let policy = RolloutPolicy { since, ..RolloutPolicy::default() };
        found.put(&Key::RolloutPolicy, &codec::write(&policy), 5);
        for (at, record, has_ended) in earlier {
            found.earlier(*at, record.clone(), *has_ended);
        }
        let good = good_version(&instruction(), &found.0);
        assert_eq!(good.as_ref().map(Version::as_str), expected, "{earlier:?}");
    };
    check(&[], 0, None);
    check(&[(10, record("v1", None), false)], 0, None);
    check(&[(10, record("v1", None), true)], 0, Some("v1"));
    // One that never ended goes back to what its own record says.
    check(&[(10, record("v1", None), true), (20, record("v3", Some("v1")), false)], 0, Some("v1"));
    // A version that was left by a rollback is not good, though its rollout had ended.
    check(&[(10, record("v3", Some("v1")), true), (20, back("v1"), false)], 0, Some("v1"));
    check(&[(10, record("v3", Some("v1")), true), (20, back("v1"), true)], 0, Some("v1"));
    // The version is written again, after its rollout has ended or before: the way back stays.
    let again = instruction().version;
    let again = again.as_str();
    check(&[(10, record("v1", None), true), (20, record(again, Some("v1")), true)], 0, Some("v1"));
    check(&[(10, record("v1", None), true), (20, record(again, Some("v1")), false)], 0, Some("v1"));
    // Nobody knows what was rolled out while there was no policy.
    check(&[(10, record("v1", None), true)], 10, None);
    check(&[(10, record("v1", None), true)], 9, Some("v1"));
    // The rollout itself, and later ones, do not matter.
    check(&[(10, record("v1", None), true), (50, record("v9", None), true)], 0, Some("v1"));
}

#[test]
fn the_record_names_who_asked_and_where_to_go_back_to() {
    let check = |rollback: bool, trigger_at: i64, good: Option<&str>, by: Option<&str>| {
        let mut found = Found::default();
        found.policy("failure_budget = 1\non_halt = \"roll_back\"\n[[limit]]\nby = \"fleet\"\nmax = 1\n", 5);
        let v1 = RolloutRecord::new(Version::new("v1").unwrap(), AT);
        found.earlier(10, v1, true).put(&Key::CurrentVersion, "v2", 50);
        let options = RolloutOptions::default();
        let trigger = Trigger { at: AT, by: "ann".into(), reason: None, from: None, options, rollback };
        found.put(&Key::Trigger, &codec::write(&trigger), trigger_at);
        let record = found.record();
        assert_eq!(record.good.as_ref().map(Version::as_str), good);
        assert_eq!(record.by.as_deref(), by);
        let is_its = trigger_at == 50;
        assert_eq!(record.rollback, rollback && is_its);
        // A rollback is not rolled back.
        assert_eq!(record.on_halt == OnHalt::RollBack, !record.rollback);
    };
    check(false, 50, Some("v1"), Some("ann"));
    // Nobody knows whether the version worked to which an operator goes back.
    check(true, 50, Some("v1"), Some("ann"));
    // The trigger is about an earlier version: this one was written by another program.
    check(true, 40, Some("v1"), None);
}

#[test]
fn hosts_roll_back_when_they_blame_the_version() {
    // How many transactions there are, and whether the first one rolls back.
    let check = |policy: &str, kinds: &[FailureKind], has_ended: bool, expected: (usize, bool)| {
        let mut found = Found::default();
        let limit = "[[limit]]\nby = \"fleet\"\nmax = 1\n";
        found.hosts("web", 4).policy(&format!("failure_budget = 1\n{policy}\n{limit}"), 5);
        let v1 = RolloutRecord::new(Version::new("v1").unwrap(), AT);
        found.earlier(10, v1, true).put(&Key::CurrentVersion, "v2", 50).with_record();
        if has_ended {
            found.put(&Key::Ended(ORDER), &codec::write(&Ended { at: AT, by: "web0".into() }), 61);
        }
        for (number, kind) in kinds.iter().enumerate() {
            found.fails(&format!("web{number}"), *kind, 70);
        }
        let halts = found.view("web3").halts(&instruction().version, Author { by: "web3".into(), at: AT });
        let writes_target = |transaction: &schema::transaction::Transaction| {
            transaction.operations.iter().any(|operation| operation.key() == Some(&Key::CurrentVersion))
        };
        assert_eq!((halts.len(), halts.first().is_some_and(writes_target)), expected, "{policy} {kinds:?}");
        assert!(!halts.last().is_some_and(writes_target), "every host may halt");
    };
    use FailureKind::{Attempt, Lost, Withdrawal};
    let back = "on_halt = \"roll_back\"";
    check(back, &[Attempt], false, (0, false));
    check(back, &[Attempt, Withdrawal], false, (2, true));
    check("", &[Attempt, Withdrawal], false, (1, false));
    // Hosts that lost their power do not blame the version.
    check(back, &[Attempt, Lost], false, (1, false));
    check(back, &[Attempt, Lost, Attempt], false, (2, true));
    check(back, &[Attempt, Attempt], true, (1, false));
}

#[test]
fn a_limit_that_no_host_leaves_by_itself_is_named_with_what_helps() {
    let check = |found: &Found, expected: Option<&str>| {
        let summary = summary(ORDER, &found.stored(), &found.0);
        let why = summary.why.unwrap_or_default();
        assert!(expected.map_or(why.is_empty(), |expected| why.contains(expected)), "{why}");
    };
    let with_policy = |max: u32| {
        let mut found = Found::default();
        found.hosts("web", 2).policy(&format!("[[limit]]\nby = \"role\"\nmax = {max}\n"), 10);
        found.put(&Key::Store, r#"{"lineage":"l","epoch":0}"#, 1).put(&Key::CurrentVersion, "v2", 50);
        found.with_record().live("web0").live("web1");
        found
    };
    check(&with_policy(0), Some("its limit is 0; `orchestrate rollout set --max role/web=N` raises it"));
    check(&with_policy(1), None);
    let mut held = with_policy(1);
    held.claimed("web0", false).progress("web0", ProgressState::Started);
    check(&held, None);
    held.progress("web0", ProgressState::GaveUp);
    check(&held, Some("`orchestrate claims release web0` and `orchestrate rollout excuse web0`"));
    let mut lost = with_policy(1);
    lost.claimed("web0", true).progress("web0", ProgressState::Started);
    check(&lost, Some("held by hosts that do not go on: web0"));
}

/// Returns what is done about `web1`, which was proven and vanished.
fn task_of_vanished(found: &Found) -> Vec<HolderTask> {
    let EndTask::LookAfter(holders) = found.end_task() else { return Vec::new() };
    holders.tasks(&found.0, &Author { by: "web0".into(), at: AT })
}

#[test]
fn a_host_that_vanishes_after_its_proof_is_marked_timed_and_counted_as_failed() {
    let mut found = two_hosts();
    found.progress("web1", ProgressState::Proven);
    let tasks = task_of_vanished(&found);
    let [HolderTask::Commit(mark)] = tasks.as_slice() else { panic!("{tasks:?}") };
    assert_eq!(mark.name, "mark a host that vanished");
    let by = LostMark { by: "web0".into(), at: AT, claimed_since: AT, rollout: ORDER, timed: false };
    found.put(&Key::LostMark(host("web1")), &codec::write(&by), 70);
    let lost_after = found.record().lost_after;
    assert_eq!(task_of_vanished(&found), [HolderTask::Time(host("web1"), lost_after)]);
    found.put(&Key::LostMark(host("web1")), &codec::write(&LostMark { timed: true, ..by.clone() }), 71);
    found.put(&Key::LostTimer(host("web1")), "", 71);
    assert_eq!(task_of_vanished(&found), [], "its time is not over");
    found.0.entries.remove(&Key::LostTimer(host("web1")).to_string());
    let tasks = task_of_vanished(&found);
    let [HolderTask::Commit(charge)] = tasks.as_slice() else { panic!("{tasks:?}") };
    assert_eq!(charge.name, "count a host that vanished after its proof");
    found.fails("web1", FailureKind::Lost, 72);
    assert!(matches!(found.end_task(), EndTask::End(_)), "one failed host is tolerated");
    // A mark about another absence says nothing.
    let mut other = two_hosts();
    let of_before = LostMark { claimed_since: EpochSeconds(0), timed: true, ..by };
    other.progress("web1", ProgressState::Proven);
    other.put(&Key::LostMark(host("web1")), &codec::write(&of_before), 71);
    let tasks = task_of_vanished(&other);
    assert!(
        matches!(tasks.as_slice(), [HolderTask::Commit(mark)] if mark.name == "mark a host that vanished")
    );
}

#[test]
fn nobody_is_counted_while_most_hosts_that_the_version_has_not_reached_are_gone_too() {
    let check = |live: &[&str], counts: bool| {
        let mut found = two_hosts();
        found.hosts("db", 5).progress("web1", ProgressState::Proven);
        live.iter().for_each(|name| drop(found.live(name).record()));
        assert_eq!(!task_of_vanished(&found).is_empty(), counts, "{live:?}");
        assert!(!matches!(found.end_task(), EndTask::End(_)), "the rollout waits for it");
        let why = summary(ORDER, &found.stored(), &found.0).why.unwrap_or_default();
        let expected =
            if counts { "when its agent has not run for 10m" } else { "`orchestrate rollout excuse web1`" };
        assert!(why.starts_with("vanished after the proof: web1; ") && why.contains(expected), "{why}");
    };
    check(&["db0", "db1", "db2"], true);
    check(&["db0", "db1"], false);
    check(&[], false);
    // A few machines that are off show nothing: they may have been off before.
    let mut few = two_hosts();
    few.hosts("db", 2).progress("web1", ProgressState::Proven);
    assert!(!task_of_vanished(&few).is_empty());
}
