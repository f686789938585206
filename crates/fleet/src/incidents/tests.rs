//! When incidents open and close, and what is said.

use super::*;
use crate::{Fleet, FleetTarget};
use proptest::prelude::*;
use schema::codec;
use schema::keys::Key;
use schema::names::{HostName, Token};
use schema::order::InstructionOrder;
use schema::records::Report;
use schema::snapshot::{Entry, KeySnapshot};
use schema::store_trust::WentBack;
use schema::time::EpochSeconds;
use schema::verdict::HostVerdict;
use schema::why_not::WhyNot;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const TIMES: IncidentTimes =
    IncidentTimes { hold_for: Duration::from_secs(120), clear_for: Duration::from_secs(600) };

fn failed(cause: &str) -> Incident {
    Incident::new("l", None, IncidentKind::Failed, cause, format!("{cause} failed"), [])
}

fn situation(causes: &[&str]) -> Option<Situation> {
    let incidents = causes.iter().map(|cause| failed(cause)).collect();
    Some(Situation { lineage: "l".into(), host_count: 100, incidents, ..Situation::default() })
}

fn lost(hosts: usize, host_count: usize) -> Option<Situation> {
    let lost = (0..hosts).map(|n| HostName::new(format!("h{n}")).unwrap()).collect();
    Some(Situation { lineage: "l".into(), host_count, lost, ..Situation::default() })
}

/// Returns what is said, each as its time, its word and its summary.
fn notices(steps: &[(i64, Option<Situation>)]) -> Vec<String> {
    let mut book = IncidentBook::default();
    let mut all = Vec::new();
    for (at, situation) in steps {
        // What is kept in a file goes on where it was.
        let kept = serde_json::to_string(&book).unwrap();
        book = serde_json::from_str(&kept).unwrap();
        for notice in book.advance(situation.clone(), EpochSeconds(*at), &TIMES) {
            all.push(format!("{at} {:?}: {}", notice.notice, notice.incident.summary));
        }
    }
    all
}

#[test]
fn an_incident_opens_after_a_while_and_closes_after_a_longer_one() {
    let a = || situation(&["a"]);
    let none = || situation(&[]);
    assert_eq!(notices(&[(0, a()), (119, a()), (119, none()), (300, a())]), [""; 0]);
    let steps =
        [(0, a()), (120, a()), (200, none()), (700, a()), (800, none()), (1399, none()), (1400, none())];
    assert_eq!(notices(&steps), ["120 Opened: a failed", "1400 Resolved: a failed"]);
}

#[test]
fn one_that_opens_again_and_again_is_said_once_an_hour_and_resolved_when_it_is_calm() {
    let mut steps = Vec::new();
    // It opens every 20 minutes for three hours, and then it is over.
    for round in 0..9 {
        let begin = round * 1200;
        steps.extend([(begin, situation(&["a"])), (begin + 120, situation(&["a"]))]);
        steps.extend([(begin + 130, situation(&[])), (begin + 730, situation(&[]))]);
    }
    steps.extend([(11_000, situation(&[])), (13_000, situation(&[])), (13_400, situation(&[]))]);
    let expected = [
        "120 Opened: a failed",
        "730 Resolved: a failed",
        "1320 Opened: a failed",
        "1930 Resolved: a failed",
        "2520 Flapping: a failed",
        "6120 Flapping: a failed",
        "9720 Flapping: a failed",
        "13400 Resolved: a failed",
    ];
    assert_eq!(notices(&steps), expected);
}

#[test]
fn while_the_store_is_away_only_that_is_said_and_nothing_is_resolved() {
    let (a, away) = (|| situation(&["a"]), || None);
    let steps = [
        (0, a()),
        (120, a()),
        (200, away()),
        (320, away()),
        (5000, away()),
        (5010, situation(&[])),
        (5609, situation(&[])),
        (5610, situation(&[])),
    ];
    let expected = [
        "120 Opened: a failed",
        "320 Opened: the store cannot be read, so that the state of the fleet is not known",
        "5610 Resolved: a failed",
        "5610 Resolved: the store cannot be read, so that the state of the fleet is not known",
    ];
    let mut found = notices(&steps);
    found.sort();
    let mut expected = expected.map(str::to_owned);
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn hosts_that_are_lost_together_are_one_incident_and_many_are_a_page() {
    let check = |steps: &[(i64, Option<Situation>)], expected: &[(IncidentKind, usize)]| {
        let mut book = IncidentBook::default();
        steps.iter().for_each(|(at, s)| _ = book.advance(s.clone(), EpochSeconds(*at), &TIMES));
        let open: Vec<(IncidentKind, usize)> =
            book.open().iter().map(|open| (open.incident.kind, open.incident.hosts.len())).collect();
        assert_eq!(open, expected);
    };
    let then = |hosts, host_count| {
        [(0, lost(0, host_count)), (1, lost(hosts, host_count)), (121, lost(hosts, host_count))]
    };
    check(&then(5, 100), &[(IncidentKind::Lost, 5)]);
    check(&then(6, 100), &[(IncidentKind::ManyLost, 6)]);
    check(&then(21, 10_000), &[(IncidentKind::ManyLost, 21)]);
    // One host of three is no crowd, two are.
    check(&then(1, 3), &[(IncidentKind::Lost, 1)]);
    check(&then(2, 3), &[(IncidentKind::ManyLost, 2)]);
    // Hosts that were lost before anybody looked, or while the store was away, were perhaps not lost together.
    check(&[(0, lost(50, 100)), (120, lost(50, 100))], &[(IncidentKind::Lost, 50)]);
    let cut = [(0, lost(0, 100)), (1, None), (10, lost(50, 100)), (130, lost(50, 100))];
    check(&cut, &[(IncidentKind::Lost, 50)]);
    // Those that were lost before stay an incident of their own.
    let both = [(0, lost(0, 100)), (1, lost(3, 100)), (200, lost(12, 100)), (320, lost(12, 100))];
    check(&both, &[(IncidentKind::ManyLost, 9), (IncidentKind::Lost, 3)]);
    // Hosts that were lost one after the other.
    let slowly: Vec<_> = (1..=30).map(|n| (n as i64 * 61, lost(n, 100))).collect();
    check(&slowly, &[(IncidentKind::Lost, 30)]);
}

#[test]
fn a_clock_that_was_ahead_delays_nothing_once_it_is_right() {
    let year = 31_536_000;
    let (a, none) = (|| situation(&["a"]), || situation(&[]));
    let opened = [(4 * year, a()), (100, a()), (220, a())];
    assert_eq!(notices(&opened), ["220 Opened: a failed"]);
    let gone = [(0, a()), (120, a()), (4 * year, none()), (200, none()), (800, none())];
    assert_eq!(notices(&gone), ["120 Opened: a failed", "800 Resolved: a failed"]);
    // What opened and flapped in the future is forgotten an hour later.
    let mut flapping: Vec<_> = (0..3)
        .flat_map(|n| {
            let at = 4 * year + n * 800;
            [(at, a()), (at + 120, a()), (at + 130, none()), (at + 730, none())]
        })
        .collect();
    flapping.extend([(100, none()), (3700, none()), (4000, a()), (4120, a())]);
    let all = notices(&flapping);
    assert_eq!(all.last().map(String::as_str), Some("4120 Opened: a failed"), "{all:?}");
}

#[test]
fn an_id_is_the_same_in_every_observer_and_for_ever() {
    let id =
        |lineage, rollout, cause| IncidentId::new(lineage, rollout, IncidentKind::Failed, cause).to_string();
    assert_eq!(id("l", Some("1-2"), "c"), "c95a8d6a2bfe2d12");
    let ids = [id("l", None, "c"), id("m", None, "c"), id("l", Some("1-2"), "c"), id("l", None, "d")];
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 4);
}

proptest! {
    /// What is known changes at random, and is sometimes old.
    #[test]
    fn notices_alternate_and_none_is_resolved_while_the_store_is_away(
        steps in prop::collection::vec((1..900i64, prop::option::weighted(0.8, prop::collection::btree_set("[ab]", 0..3))), 1..80)
    ) {
        let (mut book, mut now) = (IncidentBook::default(), 0);
        let mut open: BTreeMap<IncidentId, NoticeKind> = BTreeMap::new();
        let mut flapped: BTreeMap<IncidentId, i64> = BTreeMap::new();
        for (pause, causes) in steps {
            now += pause;
            let causes: Option<Vec<String>> = causes.map(|causes| causes.into_iter().collect());
            let words: Option<Vec<&str>> = causes.as_ref().map(|causes| causes.iter().map(String::as_str).collect());
            let is_away = words.is_none();
            for notice in book.advance(words.and_then(|words| situation(&words)), EpochSeconds(now), &TIMES) {
                let id = notice.incident.incident_id.clone();
                prop_assert!(!is_away || notice.incident.kind == IncidentKind::StoreAway);
                prop_assert!(!is_away || notice.notice != NoticeKind::Resolved);
                let before = open.get(&id).copied();
                match notice.notice {
                    NoticeKind::Opened => prop_assert!(before.is_none()),
                    NoticeKind::Resolved => prop_assert!(before.is_some()),
                    NoticeKind::Flapping => {
                        let last = flapped.insert(id.clone(), now);
                        prop_assert!(last.is_none_or(|last| now - last >= 3600));
                    }
                }
                match notice.notice {
                    NoticeKind::Resolved => _ = open.remove(&id),
                    kind => _ = open.insert(id, kind),
                }
            }
            // Whatever is open was said.
            for one in book.open() {
                prop_assert!(open.contains_key(&one.incident.incident_id));
            }
        }
    }
}

#[test]
fn an_alarm_of_the_store_is_an_incident_while_it_stands() {
    let (fleet, found) = (Fleet::new(FleetTarget::NotSet, []), KeySnapshot::default());
    let alarms = ["NOSPACE".to_owned()];
    let full = Situation::new(&fleet, &found, &alarms, EpochSeconds(9));
    let kinds: Vec<IncidentKind> = full.incidents.iter().map(|incident| incident.kind).collect();
    assert_eq!(kinds, [IncidentKind::StoreAlarm]);
    assert!(full.incidents[0].summary.contains("NOSPACE"), "{:?}", full.incidents);
    assert!(Situation::new(&fleet, &found, &[], EpochSeconds(9)).incidents.is_empty());
}

/// Checks the incidents that follow from these keys: the kind, the hosts, and a part of the summary.
fn check_situation(entries: &[(&str, String)], expected: &[(IncidentKind, &str, &str)]) {
    let entry = |value: &String| Entry {
        value: value.clone().into_bytes(),
        create_revision: 5,
        mod_revision: 5,
        lease: 0,
        version: 1,
    };
    let entries = entries.iter().map(|(key, value)| ((*key).to_owned(), entry(value)));
    let found = KeySnapshot { revision: 9, entries: entries.collect(), ..KeySnapshot::default() };
    let values = found.entries.iter().map(|(key, entry)| (key.as_str(), entry.value.as_slice()));
    let fleet = Fleet::new(FleetTarget::of(&found), values);
    let now = EpochSeconds(200_000);
    let mut book = IncidentBook::default();
    let times = IncidentTimes { hold_for: Duration::ZERO, clear_for: Duration::ZERO };
    book.advance(Some(Situation::new(&fleet, &found, &[], now)), now, &times);
    let open = book.open();
    let shown: Vec<(IncidentKind, String)> = open
        .iter()
        .map(|open| {
            let hosts = open.incident.hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            (open.incident.kind, hosts)
        })
        .collect();
    let wanted: Vec<_> = expected.iter().map(|(kind, hosts, _)| (*kind, (*hosts).to_owned())).collect();
    assert_eq!(shown, wanted, "{open:#?}");
    for (open, (_, _, part)) in open.iter().zip(expected) {
        assert!(open.incident.summary.contains(part), "{part}: {}", open.incident.summary);
    }
}

#[test]
fn what_is_wrong_with_a_fleet_is_found_by_its_causes() {
    use IncidentKind::*;
    let failed = |line: &str| {
        let cause = format!(r#"{{"fingerprint":"f1-0123456789ab","line":"{line}"}}"#);
        format!(r#"{{"at":1,"code":1,"reason":"http exited with 1","cause":{cause}}}"#)
    };
    let host = |name: &str| (format!("/orchestrate/hosts/{name}"), r#"{"format":1,"since":1}"#.to_owned());
    let listed = |name: &str| (format!("/running_version/1/{name}"), String::new());
    let with = |hosts: &[&str], more: &[(&str, String)]| {
        let hosts = hosts.iter().flat_map(|name| [host(name), listed(name)]);
        let more = more.iter().map(|(key, value)| ((*key).to_owned(), value.clone()));
        hosts.chain(more).chain([("/current_version".to_owned(), "1".to_owned())]).collect::<Vec<_>>()
    };
    let check = |hosts: &[&str], more: &[(&str, String)], expected: &[(IncidentKind, &str, &str)]| {
        let entries = with(hosts, more);
        let entries: Vec<(&str, String)> = entries.iter().map(|(k, v)| (k.as_str(), v.clone())).collect();
        check_situation(&entries, expected);
    };
    check(&["a", "b"], &[], &[]);
    // Two hosts fail in the same way, the third is out of use.
    let out = r#"{"host":{"how":"maintenance","reason":"disk","at":1}}"#;
    let of = |name: &str| format!("/status/validation/failed/{name}");
    let keys = ["a", "b", "c"].map(of);
    check(
        &["a", "b", "c"],
        &[
            (&keys[0], failed("connect ADDR refused")),
            (&keys[1], failed("connect ADDR refused")),
            (&keys[2], failed("connect ADDR refused")),
            ("/orchestrate/maintenance/c", out.into()),
        ],
        &[(Failed, "a b", "2 hosts failed, validation: http exited with 1: connect ADDR refused")],
    );
    // A host that is only drained is not out of use: its update may have failed in between.
    let drained = r#"{"host":{"how":"draining","reason":"update","at":1}}"#;
    check(
        &["a"],
        &[(&keys[0], failed("connect ADDR refused")), ("/orchestrate/maintenance/a", drained.into())],
        &[(Failed, "a", "1 host failed")],
    );
    // A host on the roster that is neither live nor listed.
    let (key, value) = host("gone");
    check(&["a", "b"], &[(&key, value)], &[(Lost, "gone", "1 host lost")]);
    check(
        &["a"],
        &[("/orchestrate/freezes/fleet/aaaa", r#"{"by":"ann","reason":"migration","at":1}"#.into())],
        &[(FrozenForLong, "", "by ann: migration")],
    );
    check(
        &["a"],
        &[("/orchestrate/freezes/fleet/aaaa", r#"{"by":"ann","reason":"migration","at":190000}"#.into())],
        &[],
    );
    let live = r#"{"format":1,"instance":"i","machine_id":"m","boot_id":"b","driver":"agent"}"#;
    let mut report = Report::idle(EpochSeconds(1), Token::new("w").unwrap());
    report.facts.certificates.insert("/c".into(), EpochSeconds(200_000 + 86_400));
    report.verdict = HostVerdict::Held(WhyNot::Decommissioned);
    check(
        &["a"],
        &[("/orchestrate/live/a", live.into()), ("/orchestrate/reports/a", codec::write(&report))],
        &[(Blocked, "a", "1 host blocked: "), (CertificateEnds, "a", "the certificates of 1 host end")],
    );
    check(
        &["a"],
        &[
            ("/orchestrate/live/a", live.into()),
            ("/orchestrate/reports/a", codec::write(&report)),
            ("/orchestrate/maintenance/a", out.into()),
        ],
        &[],
    );
    // After a restore each host remembers another revision.
    let back = |remembered| {
        let sign = WentBack::Revision { remembered, found: 9 };
        codec::write(&Report {
            verdict: HostVerdict::Held(WhyNot::StoreWentBack { sign }),
            ..Report::idle(EpochSeconds(1), Token::new("w").unwrap())
        })
    };
    check(
        &["a", "b"],
        &[
            ("/orchestrate/live/a", live.into()),
            ("/orchestrate/live/b", live.into()),
            ("/orchestrate/reports/a", back(731)),
            ("/orchestrate/reports/b", back(812)),
        ],
        &[(Blocked, "a b", "2 hosts blocked, the first: the store went back")],
    );
}

#[test]
fn a_failure_in_a_rollout_is_for_information_until_it_is_halted() {
    use IncidentKind::*;
    let order = InstructionOrder { epoch: 0, revision: 5 };
    let failed = r#"{"at":1,"kind":"attempt","reason":"apply exited with 1"}"#.to_owned();
    let record_key = Key::RolloutRecord(order).to_string();
    let failed_key = Key::Failed(order, HostName::new("a").unwrap()).to_string();
    let halt_key = Key::Halt(order).to_string();
    let mut entries = vec![
        ("/current_version", "1".to_owned()),
        ("/orchestrate/hosts/a", r#"{"format":1,"since":1}"#.to_owned()),
        ("/running_version/0/a", String::new()),
        ("/status/validation/failed/a", r#"{"at":1,"code":1,"reason":"r"}"#.to_owned()),
        (&record_key, r#"{"at":1,"version":"1"}"#.to_owned()),
        (&failed_key, failed),
    ];
    check_situation(
        &entries,
        &[(FailedInRollout, "a", "1 host failed, in the rollout: apply exited with 1")],
    );
    entries.push((&halt_key, r#"{"at":1,"by":"a","why":"3 hosts failed"}"#.to_owned()));
    check_situation(&entries, &[(Halted, "a", "3 hosts failed")]);
}
