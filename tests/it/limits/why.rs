//! Whatever keeps a host from starting, `why` names it.

use planning::calendar::rfc3339;
use schema::codec;
use schema::freeze::FreezeScope;
use schema::frozen::FrozenBy;
use schema::keys::Key;
use schema::limit::{Limit, LimitBy, Place};
use schema::names::{HostName, LabelName, LimitValue, Role, StageName, Token, Version};
use schema::order::InstructionOrder;
use schema::plan::Phase;
use schema::records::{
    Driver, FailedHost, FailureKind, Freeze, Halt, LimitClaim, LimitRule, LimitSize, LiveClaim, Purpose,
    Report, ReportedTarget, ResolvedLimit, ResolvedStage, RolloutPolicy, RolloutRecord, RosterEntry, Soak,
    StageRule, StoreIdentity, Window,
};
use schema::time::{EpochSeconds, Span};
use schema::verdict::HostVerdict;
use schema::why_not::{LimitDetail, StageSoak, WhyNot};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tests::host::Host;
use tests::solo::Solo;
use tests::store::Store;

const AT: EpochSeconds = EpochSeconds(1_700_000_000);

/// A minute after [`AT`].
const SOAK_ENDS: EpochSeconds = EpochSeconds(1_700_000_060);

fn host(name: &str) -> HostName {
    HostName::new(name).expect("a name")
}

fn version() -> Version {
    Version::new("2").expect("a version")
}

fn role() -> Role {
    Role::new("web").expect("a role")
}

fn token(text: &str) -> Token {
    Token::new(text).expect("a token")
}

fn of_role() -> Limit {
    Limit { by: LimitBy::Role, value: LimitValue::new("web").expect("a value") }
}

fn rack() -> LimitBy {
    LimitBy::Label(LabelName::new("rack").expect("a label"))
}

/// A store in which host `h` is about to start version 2 under a policy. Each row has its own.
struct Row<'a> {
    store: &'a Store,
    namespace: String,
    order: InstructionOrder,
}

impl<'a> Row<'a> {
    fn new(number: usize, store: &'a Store) -> Self {
        let namespace = format!("/row{number}");
        let mut row = Self { store, namespace, order: InstructionOrder { epoch: 0, revision: 0 } };
        let identity = StoreIdentity { has_brakes: true, ..StoreIdentity::new(token("lineage"), 0) };
        row.put(&Key::Store, &identity.write());
        let limit = LimitRule {
            by: LimitBy::Role,
            max: LimitSize::Hosts(1),
            values: BTreeMap::new(),
            keep_failed: None,
        };
        let policy = RolloutPolicy { limits: vec![limit], ..RolloutPolicy::default() };
        row.put(&Key::RolloutPolicy, &codec::write(&policy));
        let labels = BTreeMap::from([("rack".to_owned(), "a/b".to_owned())]);
        let roster = RosterEntry {
            role: Some(role()),
            group: Some(Role::new("g1").expect("a group")),
            labels,
            ..RosterEntry::default()
        };
        row.put(&Key::Host(host("h")), &codec::write(&roster));
        let live = LiveClaim {
            instance: token("i"),
            machine_id: "m".into(),
            boot_id: "b".into(),
            addresses: Vec::new(),
            agent_version: "1".into(),
            driver: Driver::Agent,
            store_format: 2,
        };
        row.put(&Key::Live(host("h")), &codec::write(&live));
        let revision = row.put(&Key::CurrentVersion, "2");
        row.order.revision = revision;
        // An earlier agent says no more.
        row.report(WhyNot::Limit { limit: of_role(), detail: LimitDetail::Unknown { is_zero: false } });
        row
    }

    /// Writes the report of a host that waits for this.
    fn report(&self, reason: WhyNot) {
        let report = Report {
            phase: Phase::Start,
            verdict: HostVerdict::Held(reason),
            target: Some(ReportedTarget { version: version(), revision: self.order.revision }),
            ..Report::idle(AT, token("w"))
        };
        self.put(&Key::Report(host("h")), &codec::write(&report));
    }

    /// Lets another host hold the one number of the limit.
    fn held_by_other(&self) {
        let claim = LimitClaim {
            host: host("other"),
            instance: token("i"),
            rollout: self.order,
            since: AT,
            purposes: Purpose::only_update(),
        };
        self.put(&Key::Claim(of_role(), 0), &codec::write(&claim));
    }

    fn put(&self, key: &Key, value: &str) -> i64 {
        self.store.put(&format!("{}{key}", self.namespace), value)
    }

    fn record(&self, change: impl FnOnce(&mut RolloutRecord)) {
        let mut record = RolloutRecord::new(version(), AT);
        change(&mut record);
        self.put(&Key::RolloutRecord(self.order), &codec::write(&record));
    }

    fn limited(&self, max: u32) {
        let limit = ResolvedLimit { by: LimitBy::Role, max, values: BTreeMap::new(), keep_failed: None };
        self.record(|record| record.limits = vec![limit]);
    }

    fn staged(&self) {
        let rule = StageRule {
            name: StageName::new("canary").expect("a name"),
            select: BTreeMap::new(),
            count: Some(1),
            share: None,
            soak: Some(Span(Duration::from_secs(60))),
        };
        let stage = ResolvedStage { rule, hosts: BTreeSet::from([host("other")]) };
        self.record(|record| record.stages = vec![stage]);
    }
}

/// A day on which no window is open now, by the calendar.
fn another_day() -> &'static str {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock");
    let days = since.as_secs() / (24 * 60 * 60);
    // The first day of the epoch was a Thursday.
    ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"][(days as usize + 3) % 7]
}

/// Writes what a row needs.
type Prepare = fn(&Row<'_>);

/// The rows: what stands in the store, and what keeps the host from starting then.
fn rows() -> Vec<(Prepare, WhyNot)> {
    fn freeze(row: &Row<'_>, scope: FreezeScope) {
        let freeze = Freeze { by: "ann".into(), reason: "disk".into(), at: AT, until: None };
        row.put(&Key::Freeze(scope, token("t")), &codec::write(&freeze));
    }
    let frozen = |scope| {
        let freeze = Some(Freeze { by: "ann".into(), reason: "disk".into(), at: AT, until: None });
        WhyNot::Frozen(FrozenBy { scope, token: Some(token("t")), freeze })
    };
    let closed = |soaks: bool| {
        let open = Some(StageName::new("canary").expect("a name"));
        let soak = soaks.then_some(StageSoak { ends: Some(SOAK_ENDS) });
        WhyNot::Stage { stage: StageName::rest(), open, soak, hold: None }
    };
    let full = |max, holders: &[&str]| {
        let holders: Vec<HostName> = holders.iter().map(|name| host(name)).collect();
        WhyNot::Limit { limit: of_role(), detail: LimitDetail::Full { max, used: holders.len(), holders } }
    };
    let claims = "the claims of the host cannot be read; `orchestrate claims release h`";
    let label = "no limit can count it: labels.rack: ";
    vec![
        (|row| freeze(row, FreezeScope::Fleet), frozen(FreezeScope::Fleet)),
        (|row| freeze(row, FreezeScope::Pause), frozen(FreezeScope::Pause)),
        (|row| freeze(row, FreezeScope::Role(role())), frozen(FreezeScope::Role(role()))),
        (|row| freeze(row, FreezeScope::Host(host("h"))), frozen(FreezeScope::Host(host("h")))),
        (|_| {}, WhyNot::NoRecord),
        (
            |row| row.record(|record| record.refused = Some("two limits by role".into())),
            WhyNot::Rollout { why: "two limits by role".into() },
        ),
        (
            |row| {
                row.put(&Key::RolloutRecord(row.order), "garbage");
            },
            WhyNot::Rollout { why: "the record of the rollout cannot be read: ".into() },
        ),
        (
            |row| {
                row.put(&Key::Claimed(host("h")), "garbage");
            },
            WhyNot::Rollout { why: claims.into() },
        ),
        (
            |row| {
                let limit = ResolvedLimit { by: rack(), max: 1, values: BTreeMap::new(), keep_failed: None };
                row.record(|record| record.limits = vec![limit]);
            },
            WhyNot::Rollout { why: label.into() },
        ),
        (
            |row| {
                row.limited(1);
                let halt = Halt { at: AT, by: "x".into(), why: "3 failed".into(), rolled_back_to: None };
                row.put(&Key::Halt(row.order), &codec::write(&halt));
            },
            WhyNot::Halted { why: "3 failed".into() },
        ),
        (
            |row| {
                row.record(|record| record.budget = Some(0));
                let (kind, reason) = (FailureKind::Attempt, "it broke".into());
                let failed = FailedHost { at: AT, kind, reason, cause: None, healed: false, again: None };
                row.put(&Key::Failed(row.order, host("x")), &codec::write(&failed));
            },
            WhyNot::OverBudget { failed: 1, budget: 0 },
        ),
        (|row| row.staged(), closed(false)),
        (
            |row| {
                row.staged();
                let soak = Soak { at: AT, by: "x".into(), timed: true };
                row.put(&Key::Soak(row.order, 0), &codec::write(&soak));
            },
            closed(true),
        ),
        (
            |row| {
                let window = Window {
                    days: another_day().parse().expect("a day"),
                    from: "10:00".parse().expect("a time"),
                    to: "12:00".parse().expect("a time"),
                    zone: "UTC".into(),
                };
                row.record(|record| record.windows = vec![window]);
            },
            WhyNot::Window { opens: format!("{} ", another_day()), starts: Some(AT) },
        ),
        (|row| row.limited(0), full(0, &[])),
        (
            |row| {
                row.limited(1);
                row.held_by_other();
            },
            full(1, &["other"]),
        ),
        (
            |row| {
                row.limited(1);
                row.put(&Key::Ticket(row.order, of_role(), Place(0), host("other")), "");
            },
            WhyNot::Limit { limit: of_role(), detail: LimitDetail::Queue { ahead: 1 } },
        ),
    ]
}

/// A new reason that keeps a host from starting needs a row.
fn kind(obstacle: &WhyNot) -> usize {
    match obstacle {
        WhyNot::Frozen(_) => 0,
        WhyNot::NoRecord => 1,
        WhyNot::Rollout { .. } => 2,
        WhyNot::Halted { .. } => 3,
        WhyNot::OverBudget { .. } => 4,
        WhyNot::Stage { .. } => 5,
        WhyNot::Window { .. } => 6,
        WhyNot::Limit { detail: LimitDetail::Queue { .. }, .. } => 7,
        WhyNot::Limit { .. } => 8,
        other => unreachable!("a command does not read {other:?}"),
    }
}

#[test]
fn why_names_whatever_keeps_a_host_from_starting() {
    let solo = Solo::in_memory();
    let endpoints = [solo.endpoint()];
    let store = Store::connect(&endpoints);
    let ops = Host::new("ops", &endpoints);
    let rows = rows();
    let kinds: BTreeSet<usize> = rows.iter().map(|(_, obstacle)| kind(obstacle)).collect();
    assert_eq!(kinds, (0..9).collect(), "every obstacle has a row");
    for (number, (prepare, expected)) in rows.into_iter().enumerate() {
        let row = Row::new(number, &store);
        prepare(&row);
        let answer = ops.command(&["why", "h", "-o", "json", "--namespace", &row.namespace], "");
        let why: Value = serde_json::from_str(&answer.out).unwrap_or_default();
        let obstacle = why["held_back_by"].as_str().unwrap_or_default();
        assert!(obstacle.contains(&expected.detail()), "row {number}: {expected}: {answer:?}");
        if let WhyNot::Stage { .. } = &expected {
            let ends = why["held_until"].as_str().map(str::to_owned);
            assert_eq!(ends, expected.ends().and_then(rfc3339), "row {number}: {answer:?}");
        }
        let text = ops.command(&["why", "h", "--namespace", &row.namespace], "");
        assert!(text.out.contains(&expected.detail()), "row {number}: {expected}: {text:?}");
    }
}

/// The store has no record of the rollout: what `why` says of the limit comes from the report.
#[test]
fn why_says_who_holds_a_limit_from_the_report_as_long_as_they_hold_it() {
    let solo = Solo::in_memory();
    let endpoints = [solo.endpoint()];
    let store = Store::connect(&endpoints);
    let ops = Host::new("ops", &endpoints);
    let row = Row::new(0, &store);
    let detail = LimitDetail::Full { max: 1, used: 1, holders: vec![host("other")] };
    let full = WhyNot::Limit { limit: of_role(), detail };
    row.report(full.clone());
    let held_back_by = || {
        let answer = ops.command(&["why", "h", "-o", "json", "--namespace", &row.namespace], "");
        let why: Value = serde_json::from_str(&answer.out).unwrap_or_else(|e| panic!("{e}: {answer:?}"));
        (why["held_back_by"].clone(), why["held_by"][0]["host"].clone())
    };
    assert_eq!(held_back_by(), (WhyNot::NoRecord.detail().into(), Value::Null), "nobody holds it");
    row.held_by_other();
    assert_eq!(held_back_by(), (full.detail().into(), "other".into()));
}
