//! Every reason: its texts, its form in the store, and what earlier programs write and read.
//! This file is long because each reason has a row.

use super::*;
use crate::freeze::FreezeScope;
use crate::frozen::FrozenBy;
use crate::health::Level;
use crate::limit::Limit;
use crate::limit::LimitBy;
use crate::names::{HostName, ServiceName, StageName, StatusType, StepName, Token};
use crate::names::{LabelName, LimitValue};
use crate::plan::Reason;
use crate::records::Wait;
use crate::steps::StepPhase;
use crate::store_trust::WentBack;
use crate::time::EpochSeconds;
use crate::time::Span;
use crate::verdict::{HostVerdict, VerdictKind};
use std::collections::BTreeSet;
use std::time::Duration;

fn host(name: &str) -> HostName {
    HostName::new(name).unwrap()
}

fn stage(name: &str) -> StageName {
    StageName::new(name).unwrap()
}

fn of_role(detail: LimitDetail) -> WhyNot {
    let limit = Limit { by: LimitBy::Role, value: LimitValue::new("web").unwrap() };
    WhyNot::Limit { limit, detail }
}

fn full(max: u32, used: usize, holders: &[&str]) -> WhyNot {
    let holders = holders.iter().map(|name| host(name)).collect();
    of_role(LimitDetail::Full { max, used, holders })
}

fn closed(open: Option<&str>, soak: Option<StageSoak>) -> WhyNot {
    WhyNot::Stage { stage: stage("rest"), open: open.map(stage), soak, hold: None }
}

/// A reason, and what everybody sees of it.
struct Row {
    reason: WhyNot,
    kind: VerdictKind,
    text: &'static str,
    /// The text with what is known of who holds the host; empty if it is the same.
    detail: &'static str,
}

impl Row {
    fn new(kind: VerdictKind, reason: WhyNot, text: &'static str) -> Self {
        Self { reason, kind, text, detail: "" }
    }

    fn detail(self, detail: &'static str) -> Self {
        Self { detail, ..self }
    }
}

/// At least one row for every reason; see [`number`].
fn rows() -> Vec<Row> {
    let token = |text: &str| Token::new(text).unwrap();
    let blocked = |reason, text| Row::new(VerdictKind::Blocked, reason, text);
    let waiting = |reason, text| Row::new(VerdictKind::Waiting, reason, text);
    let wait = Wait {
        service: ServiceName::new("db").unwrap(),
        level: Level::Functional,
        need: 2,
        have: 1,
        phase: StepPhase::Apply,
        step: None,
        unreachable: false,
    };
    let hold = |others| {
        let hold = StageHold {
            host: host("a"),
            others,
            length: Span(Duration::from_secs(300)),
            ends: EpochSeconds(7),
        };
        let (stage, open) = (stage("rest"), Some(stage("canary")));
        WhyNot::Stage { stage, open, soak: None, hold: Some(Box::new(hold)) }
    };
    let waits = |name: &str, service: &str| WaitingHost {
        host: host(name),
        service: ServiceName::new(service).unwrap(),
    };
    let frozen = FrozenBy { scope: FreezeScope::Fleet, token: Some(token("t")), freeze: None };
    const REACHED: &str = "waits for its turn: the limit of role web is reached";
    const ZERO: &str = "waits for a larger limit: the limit of role web is 0";
    const REST: &str = "waits for its turn: stage rest is not open";
    vec![
        blocked(
            WhyNot::StoreWentBack { sign: WentBack::IdentityMissing },
            "the store went back: its identity /orchestrate/store is missing; `orchestrate store accept --version V` ends this",
        ),
        blocked(
            WhyNot::StoreUnreadable { why: "bad".into() },
            "the store's identity /orchestrate/store cannot be read: bad",
        ),
        blocked(
            WhyNot::OtherLineage { ours: token("a"), theirs: token("b") },
            "this is another fleet's store: its lineage is b, this host belongs to a",
        ),
        blocked(
            WhyNot::NameHeld { holder: "x".into(), ours: "y".into() },
            "another agent lives under this host name: x; this one is y",
        ),
        blocked(
            WhyNot::Decommissioned,
            "the host was decommissioned; `orchestrate hosts add` takes it in again",
        ),
        blocked(
            WhyNot::InvalidInstruction { why: "empty".into() },
            "/current_version is not a version: empty",
        ),
        blocked(
            WhyNot::Settings { why: "/etc: others".into() },
            "the settings are not trusted, nothing runs: /etc: others",
        ),
        blocked(WhyNot::Rollout { why: "two limits by role".into() }, "two limits by role"),
        blocked(
            WhyNot::CannotRecord { why: "disk full".into() },
            "the state directory cannot be written: disk full",
        ),
        blocked(
            WhyNot::NewerInstruction { decided: 9, found: 7 },
            "it decided on the instruction of revision 9, the store has one of revision 7: the store went back",
        ),
        blocked(
            WhyNot::Deadlock(vec![waits("a", "x"), waits("b", "y")]),
            "a deadlock: a waits for x on b, b waits for y on a",
        ),
        Row::new(VerdictKind::Frozen, WhyNot::Frozen(frozen), "the fleet is frozen; why cannot be read"),
        waiting(
            WhyNot::Step { phase: StepPhase::Apply, step: StepName::new("packages").unwrap() },
            "waits for apply step packages, which said \"not yet\"",
        ),
        waiting(WhyNot::Service(wait.clone()), "waits for db: 1 of 2 functional"),
        waiting(
            WhyNot::Service(Wait { unreachable: true, ..wait }),
            "waits for db: 1 of 2 functional, and the probe from here fails",
        ),
        waiting(WhyNot::Status(StatusType::validation()), "validation said \"not yet\""),
        waiting(WhyNot::Spread, "waits for its turn: the start of hosts is spread"),
        waiting(full(1, 1, &["a"]), REACHED).detail("1 of at most 1 hosts of role web are unavailable: a"),
        waiting(full(4, 5, &["a", "b", "c", "d"]), REACHED)
            .detail("5 of at most 4 hosts of role web are unavailable: a, b, c and 2 more"),
        waiting(full(1, 1, &[]), REACHED)
            .detail("1 of at most 1 hosts of role web are unavailable: 1 whose claims cannot be read"),
        waiting(full(0, 0, &[]), ZERO).detail("the limit of role web is 0"),
        waiting(of_role(LimitDetail::Queue { ahead: 0 }), REACHED)
            .detail("it takes its place among the hosts that wait for the limit of role web"),
        waiting(of_role(LimitDetail::Queue { ahead: 1 }), REACHED)
            .detail("1 host waits for the limit of role web before it"),
        waiting(of_role(LimitDetail::Queue { ahead: 2 }), REACHED)
            .detail("2 hosts wait for the limit of role web before it"),
        waiting(of_role(LimitDetail::Queue { ahead: 3 }), REACHED)
            .detail("at least 3 hosts wait for the limit of role web before it"),
        waiting(of_role(LimitDetail::Unknown { is_zero: false }), REACHED)
            .detail("the limit of role web is reached"),
        waiting(of_role(LimitDetail::Unknown { is_zero: true }), ZERO).detail("the limit of role web is 0"),
        waiting(closed(Some("canary"), None), REST)
            .detail("stage rest is not open: not all hosts of stage canary are proven"),
        waiting(closed(Some("canary"), Some(StageSoak { ends: Some(EpochSeconds(5)) })), REST)
            .detail("stage rest is not open: the hosts of stage canary are observed first"),
        waiting(closed(None, None), REST).detail("stage rest is not open"),
        waiting(hold(0), REST).detail("stage rest is not open: a is proven and holds its claims for 5m"),
        waiting(hold(2), REST)
            .detail("stage rest is not open: a and 2 more are proven and hold their claims for 5m"),
        waiting(
            WhyNot::Window { opens: "Mon 10:00 UTC".into(), starts: Some(EpochSeconds(5)) },
            "waits for the next update window, which opens Mon 10:00 UTC",
        )
        .detail("no update window is open; the next one opens Mon 10:00 UTC"),
        waiting(
            WhyNot::Halted { why: "3 failed".into() },
            "waits for an operator: the rollout is halted: 3 failed",
        )
        .detail("the rollout is halted: 3 failed"),
        waiting(
            WhyNot::OverBudget { failed: 1, budget: 0 },
            "waits for an operator: the rollout is halted: 1 host failed, 0 tolerated",
        )
        .detail("the rollout is halted: 1 host failed, 0 tolerated"),
        waiting(WhyNot::Store, "waits for the store, which cannot be read"),
        waiting(WhyNot::ExternalDriver, "waits for the script that applies versions here"),
        waiting(WhyNot::Instruction, "waits for a first version to be triggered"),
        Row::new(VerdictKind::Running, WhyNot::NotRead, "the limits of the rollout are being read"),
        Row::new(VerdictKind::Running, WhyNot::NoRecord, "the record of the rollout is not written yet"),
        Row::new(
            VerdictKind::Frozen,
            WhyNot::InWords { kind: VerdictKind::Frozen, words: "the fleet is frozen".into() },
            "the fleet is frozen",
        ),
    ]
}

/// A new reason needs a row: this function does not compile without it.
fn number(reason: &WhyNot) -> usize {
    match reason {
        WhyNot::StoreWentBack { .. } => 0,
        WhyNot::StoreUnreadable { .. } => 1,
        WhyNot::OtherLineage { .. } => 2,
        WhyNot::NameHeld { .. } => 3,
        WhyNot::Decommissioned => 4,
        WhyNot::InvalidInstruction { .. } => 5,
        WhyNot::Settings { .. } => 6,
        WhyNot::Rollout { .. } => 7,
        WhyNot::CannotRecord { .. } => 8,
        WhyNot::NewerInstruction { .. } => 9,
        WhyNot::Deadlock(_) => 10,
        WhyNot::Frozen(_) => 11,
        WhyNot::Step { .. } => 12,
        WhyNot::Service(_) => 13,
        WhyNot::Status(_) => 14,
        WhyNot::Spread => 15,
        WhyNot::Limit { .. } => 16,
        WhyNot::Stage { .. } => 17,
        WhyNot::Window { .. } => 18,
        WhyNot::Halted { .. } => 19,
        WhyNot::OverBudget { .. } => 20,
        WhyNot::Store => 21,
        WhyNot::ExternalDriver => 22,
        WhyNot::Instruction => 23,
        WhyNot::NotRead => 24,
        WhyNot::NoRecord => 25,
        WhyNot::InWords { .. } => 26,
    }
}

#[test]
fn every_reason_has_a_verdict_a_text_and_a_hint() {
    let rows = rows();
    let numbers: BTreeSet<usize> = rows.iter().map(|row| number(&row.reason)).collect();
    assert_eq!(numbers, (0..27).collect(), "every reason has a row");
    for Row { reason, kind, text, detail } in rows {
        assert_eq!(reason.kind(), kind, "{reason:?}");
        assert_eq!(reason.to_string(), text, "{reason:?}");
        assert_eq!(reason.detail(), if detail.is_empty() { text } else { detail }, "{reason:?}");
        assert!(reason.hint().starts_with("ends when"), "{reason:?}");
    }
}

#[test]
fn who_holds_a_host_is_no_news_but_what_holds_it_is() {
    let check = |one: &WhyNot, other: &WhyNot, same: bool| {
        assert_eq!(one.is_same_as(other), same, "{one:?}, {other:?}");
        assert_eq!(other.is_same_as(one), same, "{other:?}, {one:?}");
    };
    let unknown = |is_zero| of_role(LimitDetail::Unknown { is_zero });
    let fleet = Limit { by: LimitBy::Fleet, value: LimitValue::new("all").unwrap() };
    check(&full(1, 1, &["a"]), &full(2, 2, &["b", "c"]), true);
    check(&full(1, 1, &["a"]), &of_role(LimitDetail::Queue { ahead: 1 }), true);
    check(&full(1, 1, &["a"]), &unknown(false), true);
    check(&full(1, 1, &["a"]), &full(0, 1, &["a"]), false);
    check(&full(0, 0, &[]), &unknown(true), true);
    check(&unknown(false), &WhyNot::Limit { limit: fleet, detail: LimitDetail::Queue { ahead: 1 } }, false);
    check(&closed(Some("canary"), None), &closed(Some("half"), Some(StageSoak { ends: None })), true);
    check(&closed(Some("canary"), None), &unknown(false), false);
    let halted = |why: &str| WhyNot::Halted { why: why.into() };
    check(&halted("1 host failed, 0 tolerated"), &WhyNot::OverBudget { failed: 1, budget: 0 }, true);
    check(&halted("enough"), &WhyNot::OverBudget { failed: 1, budget: 0 }, false);
    check(&halted("enough"), &halted("too much"), false);
    let window = |opens: &str, at| WhyNot::Window { opens: opens.into(), starts: Some(EpochSeconds(at)) };
    check(&window("Mon", 1), &window("Mon", 2), true);
    check(&window("Mon", 1), &window("Tue", 1), false);
}

/// Returns the verdict of a host as it is in the store.
fn written(reason: &WhyNot) -> String {
    serde_json::to_string(&HostVerdict::Held(reason.clone())).unwrap()
}

fn read(text: &str) -> WhyNot {
    match serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}")) {
        HostVerdict::Held(reason) => reason,
        other => panic!("{text}: {other:?}"),
    }
}

/// The forms of the reasons that a host says about itself.
#[test]
fn every_reason_of_a_host_is_read_as_it_was_written() {
    let blocked = |by: &str| format!(r#"{{"verdict":"blocked",{by}}}"#);
    let waiting = |on: &str| format!(r#"{{"verdict":"waiting",{on}}}"#);
    let forms = |reason: &WhyNot| match reason {
        WhyNot::StoreWentBack { .. } => {
            blocked(r#""by":"store_went_back","sign":{"sign":"identity_missing"}"#)
        }
        WhyNot::StoreUnreadable { .. } => blocked(r#""by":"store_unreadable","why":"bad""#),
        WhyNot::OtherLineage { .. } => blocked(r#""by":"other_lineage","ours":"a","theirs":"b""#),
        WhyNot::NameHeld { .. } => blocked(r#""by":"name_held","holder":"x","ours":"y""#),
        WhyNot::Decommissioned => blocked(r#""by":"decommissioned""#),
        WhyNot::InvalidInstruction { .. } => blocked(r#""by":"invalid_instruction","why":"empty""#),
        WhyNot::Settings { .. } => blocked(r#""by":"settings","why":"/etc: others""#),
        WhyNot::Rollout { .. } => blocked(r#""by":"rollout","why":"two limits by role""#),
        WhyNot::CannotRecord { .. } => blocked(r#""by":"cannot_record","why":"disk full""#),
        WhyNot::Step { .. } => waiting(r#""on":"step","phase":"apply","step":"packages""#),
        WhyNot::Service(wait) => {
            let wait = serde_json::to_string(wait).unwrap();
            waiting(&format!(r#""on":"service",{}"#, &wait[1..wait.len() - 1]))
        }
        WhyNot::Spread => waiting(r#""on":"spread""#),
        WhyNot::Limit { detail, .. } => {
            const OF: &str = r#","of":{"by":"role","value":"web"}"#;
            let more = match detail {
                LimitDetail::Full { max, used, holders } => {
                    let holders = match holders.is_empty() {
                        true => String::new(),
                        false => format!(r#","holders":{}"#, serde_json::to_string(holders).unwrap()),
                    };
                    format!(r#"{OF},"max":{max},"used":{used}{holders}"#)
                }
                LimitDetail::Queue { ahead } => format!(r#"{OF},"ahead":{ahead}"#),
                LimitDetail::Unknown { .. } => String::new(),
            };
            let is_zero = if detail.is_zero() { r#","is_zero":true"# } else { "" };
            waiting(&format!(r#""on":"limit","limit":"role web"{is_zero}{more}"#))
        }
        WhyNot::Stage { open, soak, .. } => {
            let open = open.as_ref().map(|open| format!(r#","open":"{open}""#)).unwrap_or_default();
            let soak = if soak.is_some() { r#","soak":{"ends":5}"# } else { "" };
            waiting(&format!(r#""on":"stage","stage":"rest"{open}{soak}"#))
        }
        WhyNot::Window { .. } => waiting(r#""on":"window","opens":"Mon 10:00 UTC","starts":5"#),
        WhyNot::Halted { .. } => waiting(r#""on":"operator","why":"the rollout is halted: 3 failed""#),
        WhyNot::OverBudget { .. } => waiting(
            r#""on":"operator","why":"the rollout is halted: 1 host failed, 0 tolerated","failed":1,"budget":0"#,
        ),
        WhyNot::Store => waiting(r#""on":"store""#),
        WhyNot::ExternalDriver => waiting(r#""on":"external_driver""#),
        WhyNot::Instruction => waiting(r#""on":"instruction""#),
        // No host says these about itself.
        WhyNot::NewerInstruction { .. }
        | WhyNot::Deadlock(_)
        | WhyNot::Frozen(_)
        | WhyNot::Status(_)
        | WhyNot::NotRead
        | WhyNot::NoRecord
        | WhyNot::InWords { .. } => String::new(),
    };
    for Row { reason, .. } in rows() {
        let form = forms(&reason);
        if form.is_empty() {
            continue;
        }
        assert_eq!(written(&reason), form, "{reason:?}");
        let expected = match reason {
            WhyNot::Stage { stage, open, soak, .. } => WhyNot::Stage { stage, open, soak, hold: None },
            reason => reason,
        };
        assert_eq!(read(&form), expected);
    }
}

#[test]
fn what_an_earlier_agent_wrote_is_read() {
    let check = |on: &str, expected: WhyNot| {
        let reason = read(&format!(r#"{{"verdict":"waiting",{on}}}"#));
        assert_eq!(reason, expected);
        assert_eq!(written(&reason), format!(r#"{{"verdict":"waiting",{on}}}"#));
    };
    let unknown = |is_zero| LimitDetail::Unknown { is_zero };
    check(r#""on":"limit","limit":"role web""#, of_role(unknown(false)));
    check(r#""on":"limit","limit":"role web","is_zero":true"#, of_role(unknown(true)));
    for (words, by, value) in [
        ("the fleet", LimitBy::Fleet, "all"),
        ("group g", LimitBy::Group, "g"),
        ("rack b2", LimitBy::Label(LabelName::new("rack").unwrap()), "b2"),
    ] {
        let limit = Limit { by, value: LimitValue::new(value).unwrap() };
        assert_eq!(limit.to_string(), words);
        check(&format!(r#""on":"limit","limit":"{words}""#), WhyNot::Limit { limit, detail: unknown(false) });
    }
    check(r#""on":"stage","stage":"rest""#, closed(None, None));
    let opens = "Mon 10:00 UTC".to_owned();
    check(r#""on":"window","opens":"Mon 10:00 UTC""#, WhyNot::Window { opens, starts: None });
    let why = "1 host failed, 0 tolerated".to_owned();
    check(
        r#""on":"operator","why":"the rollout is halted: 1 host failed, 0 tolerated""#,
        WhyNot::Halted { why },
    );
}

/// What an earlier command reads of a verdict: it ignores the fields that say more.
#[derive(Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(tag = "on", rename_all = "snake_case")]
enum EarlierReason {
    Limit {
        limit: String,
        #[serde(default)]
        is_zero: bool,
    },
    Stage {
        stage: String,
    },
    Window {
        opens: String,
    },
    Operator {
        why: String,
    },
    #[serde(other)]
    Another,
}

#[derive(Debug, serde::Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
enum EarlierVerdict {
    Waiting {
        #[serde(flatten)]
        on: EarlierReason,
    },
    Blocked {},
}

#[test]
fn an_earlier_command_reads_what_a_host_waits_for() {
    let read = |reason: &WhyNot| match serde_json::from_str(&written(reason)).unwrap() {
        EarlierVerdict::Waiting { on } => on,
        EarlierVerdict::Blocked {} => panic!("{reason:?}"),
    };
    let limit = || "role web".to_owned();
    let soak = Some(StageSoak { ends: None });
    let (opens, starts) = ("Mon".to_owned(), Some(EpochSeconds(5)));
    assert_eq!(read(&full(1, 1, &["a"])), EarlierReason::Limit { limit: limit(), is_zero: false });
    assert_eq!(read(&full(0, 1, &["a"])), EarlierReason::Limit { limit: limit(), is_zero: true });
    assert_eq!(read(&closed(Some("canary"), soak)), EarlierReason::Stage { stage: "rest".into() });
    assert_eq!(read(&WhyNot::Window { opens, starts }), EarlierReason::Window { opens: "Mon".into() });
    let why = "the rollout is halted: 2 hosts failed, 1 tolerated".into();
    assert_eq!(read(&WhyNot::OverBudget { failed: 2, budget: 1 }), EarlierReason::Operator { why });
    assert_eq!(read(&WhyNot::Spread), EarlierReason::Another);
}

#[test]
fn a_report_names_few_of_many_holders() {
    let names: Vec<String> = (0..50).map(|number| format!("h{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let WhyNot::Limit { detail: LimitDetail::Full { used, holders, .. }, .. } =
        read(&written(&full(50, 50, &names)))
    else {
        panic!("a full limit")
    };
    assert_eq!((used, holders.len()), (50, 10));
}

#[test]
fn a_plan_says_in_words_what_holds_a_start() {
    let check = |reason: WhyNot, form: &str| {
        let words = reason.detail();
        let because = Reason::HeldBack(reason);
        assert_eq!(because.to_string(), words);
        let text = serde_json::to_string(&because).unwrap();
        assert_eq!(text, form.replace("WORDS", &words));
        let again: Reason = serde_json::from_str(&text).unwrap();
        assert_eq!(again.to_string(), words);
        assert_eq!(serde_json::to_string(&again).unwrap(), text);
    };
    for Row { reason, .. } in rows() {
        match &reason {
            WhyNot::Frozen(_) => check(reason, r#"{"reason":"frozen","by":"WORDS"}"#),
            WhyNot::Limit { .. } | WhyNot::Stage { .. } | WhyNot::Window { .. } => {
                check(reason, r#"{"reason":"limited","why":"WORDS"}"#);
            }
            WhyNot::Rollout { .. }
            | WhyNot::Halted { .. }
            | WhyNot::OverBudget { .. }
            | WhyNot::NotRead
            | WhyNot::NoRecord => check(reason, r#"{"reason":"rollout","why":"WORDS"}"#),
            // They do not hold a start.
            _ => {}
        }
    }
    let settled: Reason = serde_json::from_str(r#"{"reason":"settled"}"#).unwrap();
    assert_eq!(settled, Reason::Settled);
    let running: Reason = serde_json::from_str(r#"{"reason":"step_running","run_id":"r"}"#).unwrap();
    assert_eq!(running, Reason::StepRunning { run_id: Token::new("r").unwrap() });
}

#[test]
fn a_limit_by_a_label_with_the_name_of_another_limit_stays_what_it_is() {
    let (by, value) = (LimitBy::Label(LabelName::new("role").unwrap()), LimitValue::new("web").unwrap());
    let reason = WhyNot::Limit { limit: Limit { by, value }, detail: LimitDetail::Queue { ahead: 1 } };
    assert_eq!(read(&written(&reason)), reason);
}
