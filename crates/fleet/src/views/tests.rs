//! What the views show.

use super::*;
use crate::Fleet;
use crate::FleetTarget;
use schema::codec;
use schema::limit::{Limit, LimitBy};
use schema::names::{Fingerprint, HostName, LimitValue, Role, StageName, StepName, Token, Version};
use schema::order::InstructionOrder;
use schema::plan::{Action, Effect, Plan, Planned, Reason};
use schema::records::{BundleLink, Report, ReportedTarget};
use schema::steps::{StepEnd, StepPhase};
use schema::time::EpochSeconds;
use schema::verdict::{Failure, HostFailure, HostVerdict, VerdictKind};
use schema::why_not::{LimitDetail, WhyNot};
use schema::writes::claims::FoundClaims;

fn fleet(facts: &[(&str, &str)]) -> Fleet {
    let target = FleetTarget::Known {
        version: Version::new("v2").unwrap(),
        order: InstructionOrder { epoch: 0, revision: 20 },
    };
    Fleet::new(target, facts.iter().map(|(k, v)| (*k, v.as_bytes())))
}

fn check_status(facts: &[(&str, &str)], expected: &str) {
    let view = StatusView::new(&fleet(facts), StatusParts::default(), 30);
    assert_eq!(view.to_string(), expected);
}

#[test]
fn the_status_names_what_is_not_ok() {
    check_status(
        &[("/running_version/v2/a", "1")],
        "fleet: settled\ndesired: v2 (revision 20)\nhosts: 1 (1 ok)\n\nVERSION  HOSTS\nv2       1\n",
    );
    check_status(
        &[
            ("/running_version/v2/a", "1"),
            ("/running_version/v1/b", "1"),
            ("/orchestrate/hosts/c", r#"{"since":1}"#),
        ],
        "fleet: failing\ndesired: v2 (revision 20)\nhosts: 3 (1 lost, 1 running, 1 ok)\n\
         \nVERSION  HOSTS\nv1       1\nv2       1\nnone     1\n\
         \nHOST  ROLE  VERDICT  SINCE  REASON\n\
         c     -     lost     -      on the roster, but never seen\n\
         b     -     running  -      listed under v1\n",
    );
}

#[test]
fn a_selection_names_what_no_host_has() {
    let fleet = fleet(&[
        (
            "/orchestrate/hosts/a",
            r#"{"since":1,"role":"web","group":"front","labels":{"rack":"r1","zone":"z"}}"#,
        ),
        ("/orchestrate/hosts/b", r#"{"since":1,"role":"db","labels":{"rack":"r2"}}"#),
        ("/orchestrate/hosts/gone", r#"{"since":1,"role":"old","decommissioned":2}"#),
    ]);
    let names =
        |names: &[&str]| -> Vec<Role> { names.iter().map(|name| Role::new(*name).unwrap()).collect() };
    for (roles, groups, label, expected) in [
        (&["web", "db", "old"][..], &["front"][..], "rack=r2", None),
        (&["web", "wbe"], &[], "rack=r2", Some(r#"the role "wbe" (there are db, old, web)"#)),
        (&[], &["web"], "rack=r2", Some(r#"the group "web" (there are front)"#)),
        (&[], &[], "rack=r9", Some(r#"the label "rack=r9" (there are rack=r1, rack=r2)"#)),
        (&[], &[], "row=1", Some(r#"the label "row=1""#)),
    ] {
        let labels = vec![HostFilter::parse_label(label).unwrap()];
        let filter = HostFilter { roles: names(roles), groups: names(groups), labels, verdicts: Vec::new() };
        let expected = expected.map(|what| format!("no host of the fleet has {what}"));
        assert_eq!(filter.unknown(&fleet), expected);
    }
}

/// A fleet of a thousand hosts with many causes is read on 24 lines of 80 columns.
#[test]
fn the_status_of_many_hosts_fits_a_terminal() {
    let mut facts = Vec::new();
    for number in 0..1_000 {
        let (host, role) = (format!("host-{number:04}"), ["web", "db", "lb"][number % 3]);
        facts.push((format!("/orchestrate/hosts/{host}"), format!(r#"{{"since":1,"role":"{role}"}}"#)));
        if number % 10 > 0 {
            facts.push((format!("/running_version/v2/{host}"), "1".to_owned()));
        }
        if number % 4 == 0 {
            let reason = format!("cause {}: {}", number % 7, "a long reason ".repeat(30));
            let record = format!(r#"{{"at":0,"code":6,"reason":"{reason}"}}"#);
            facts.push((format!("/status/puppet/failed/{host}"), record));
        }
    }
    let facts: Vec<(&str, &str)> = facts.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let view = StatusView::new(&fleet(&facts), StatusParts::default(), 30);
    let text = view.text(Some(80)).to_string();
    assert!(text.lines().count() <= 24, "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("\nhosts: 1000 (100 lost, 200 failed, 700 ok)\n"), "{text}");
    assert!(text.contains(" hosts  web   lost "), "{text}");
    let in_causes: usize = view.causes.iter().map(|cause| cause.hosts.len()).sum();
    assert_eq!(in_causes, view.not_ok.len(), "each host once");
    let whole = view.to_string();
    assert_eq!(whole.lines().filter(|line| line.contains(" hosts  ")).count(), view.causes.len(), "{whole}");
}

/// Returns a fleet in which pairs of hosts failed for one cause each. The first host of a pair uploaded a bundle.
fn failed_pairs(pairs: u32) -> Vec<(String, String)> {
    let of_pair = |number: u32| {
        let fingerprint = format!("f1-{number:012}");
        let record = serde_json::json!({
            "at": 0, "code": 1, "reason": format!("failure {number}"),
            "cause": { "fingerprint": fingerprint, "line": "a line" },
        });
        let link = BundleLink {
            url: format!("s3://bundles/prod/a{number}/{}.tar.zst", "x".repeat(60)),
            sha256: "ab".repeat(32),
            bytes: 1,
            rollout: InstructionOrder { epoch: 1, revision: 20 },
            fingerprint: Fingerprint::new(fingerprint.clone()).unwrap(),
        };
        let idle = Report::idle(EpochSeconds(0), Token::new("w").unwrap());
        let report = codec::write(&Report { bundle: Some(link), ..idle });
        let failed = |host: &str| (format!("/status/validation/failed/{host}{number}"), record.to_string());
        let listed = |host: &str| (format!("/running_version/v2/{host}{number}"), "1".to_owned());
        let report = (format!("/orchestrate/reports/a{number}"), report);
        vec![failed("a"), failed("b"), listed("a"), listed("b"), report]
    };
    (1..=pairs).flat_map(of_pair).collect()
}

#[test]
fn the_status_names_the_bundles_of_failures_where_they_fit() {
    let view = |pairs: u32| {
        let facts = failed_pairs(pairs);
        let facts: Vec<(&str, &str)> =
            facts.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        StatusView::new(&fleet(&facts), StatusParts::default(), 30)
    };
    let url = |number: u32| format!("s3://bundles/prod/a{number}/{}.tar.zst", "x".repeat(60));
    let whole = view(1).to_string();
    let row = "a1, b1  -     failed   1970-01-01T00:00:00Z  validation failed with code 1: failure 1\n";
    assert!(whole.contains(&format!("{row}  bundle: {} (a1)\n", url(1))), "{whole}");
    let value = serde_json::to_value(view(1)).unwrap();
    assert_eq!(
        value["causes"][0]["bundles"],
        serde_json::json!([{ "bundle": url(1), "bundle_host": "a1", "fingerprint": "f1-000000000001" }])
    );
    // Rows come before bundles if a terminal has no room for both.
    for (pairs, named, left_out) in [(1, 1, 0), (5, 5, 0), (6, 4, 2), (10, 0, 10), (12, 0, 12)] {
        let text = view(pairs).text(Some(80)).to_string();
        let is_named = |line: &&str| line.starts_with("  bundle of a") && line.ends_with("` names its URL");
        assert_eq!(text.lines().filter(is_named).count(), named, "{text}");
        let rest =
            format!("`orchestrate get_failures --group` names the bundles ({left_out} are not shown)\n");
        assert_eq!(text.contains(&rest), left_out > 0, "{text}");
        assert!(text.lines().count() <= 24, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let whole = view(pairs).to_string();
        assert_eq!(whole.matches("\n  bundle: s3://").count(), pairs as usize, "{whole}");
    }
}

#[test]
fn hosts_with_one_reason_and_different_causes_have_a_bundle_for_each() {
    let facts = failed_pairs(3).into_iter().map(|(key, value)| {
        // The third cause is about one host, and the others about two hosts each.
        let is_left_out = key.ends_with("/b3");
        (
            if is_left_out { "/elsewhere".to_owned() } else { key },
            value.replace(r#""failure 2""#, r#""failure 1""#).replace(r#""failure 3""#, r#""failure 1""#),
        )
    });
    let facts: Vec<(String, String)> = facts.collect();
    let facts: Vec<(&str, &str)> = facts.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let view = StatusView::new(&fleet(&facts), StatusParts::default(), 30);
    let [cause] = &view.causes[..] else { panic!("{:?}", view.causes) };
    let hosts: Vec<&str> = cause.bundles.iter().map(|bundle| bundle.host.as_str()).collect();
    assert_eq!(hosts, ["a1", "a2", "a3"]);
}

const HOSTS: &[(&str, &str)] = &[
    ("/running_version/v2/a", "1"),
    ("/orchestrate/hosts/a", r#"{"since":1,"role":"web","labels":{"rack":"r1","row":"1"}}"#),
    ("/running_version/v1/b", "1"),
    ("/orchestrate/hosts/b", r#"{"since":1,"role":"db","group":"front","labels":{"rack":"r1"}}"#),
    ("/orchestrate/hosts/c", r#"{"since":1,"role":"web"}"#),
];

#[test]
fn the_hosts_are_cut_to_the_width_unless_they_are_wide() {
    let view = HostsView::new(&fleet(HOSTS), false, 30);
    assert_eq!(
        view.text(false, Some(54)).as_str(),
        "HOST  ROLE  VERSION  VERDICT  SINCE  AGENT  REASON\n\
         a     web   v2       ok       -      -\n\
         b     db    v1       running  -      -      listed un…\n\
         c     web   -        lost     -      -      on the ro…\n"
    );
    assert_eq!(
        view.text(true, Some(20)).as_str(),
        "HOST  ROLE  GROUP  LABELS         VERSION  VERDICT  SINCE  AGENT  REASON\n\
         a     web   -      rack=r1,row=1  v2       ok       -      -\n\
         b     db    front  rack=r1        v1       running  -      -      listed under v1\n\
         c     web   -      -              -        lost     -      -      on the roster, but never seen\n"
    );
}

#[test]
fn hosts_are_chosen_and_sorted_by_their_columns() {
    let check = |filter: &HostFilter, order: HostOrder, expected: &[&str]| {
        let mut view = HostsView::new(&fleet(HOSTS), false, 30);
        view.keep(filter);
        view.sort(order);
        let names: Vec<&str> = view.hosts.iter().map(|host| host.host.as_str()).collect();
        assert_eq!(names, expected, "{filter:?} {order:?}");
    };
    let all = HostFilter::default();
    check(&all, HostOrder::Host, &["a", "b", "c"]);
    check(&all, HostOrder::Role, &["b", "a", "c"]);
    check(&all, HostOrder::Version, &["c", "b", "a"]);
    check(&all, HostOrder::Verdict, &["c", "b", "a"]);
    check(&all, HostOrder::Since, &["a", "b", "c"]);
    let role = |name: &str| vec![Role::new(name).unwrap()];
    let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let by = |filter: HostFilter, expected: &[&str]| check(&filter, HostOrder::Host, expected);
    by(HostFilter { roles: role("web"), ..all.clone() }, &["a", "c"]);
    by(HostFilter { roles: [role("web"), role("db")].concat(), ..all.clone() }, &["a", "b", "c"]);
    by(HostFilter { groups: role("front"), ..all.clone() }, &["b"]);
    by(HostFilter { labels: vec![label("rack", "r1")], ..all.clone() }, &["a", "b"]);
    by(HostFilter { labels: vec![label("rack", "r1"), label("row", "1")], ..all.clone() }, &["a"]);
    by(HostFilter { verdicts: vec![VerdictKind::Lost, VerdictKind::Ok], ..all.clone() }, &["a", "c"]);
    by(HostFilter { roles: role("web"), verdicts: vec![VerdictKind::Running], ..all }, &[]);
}

#[test]
fn a_host_that_was_never_seen_is_said_once() {
    let view = UnaccountedView::new(&fleet(HOSTS), &HostFilter::default(), 30);
    assert_eq!(
        view.text(Some(80)).as_str(),
        "HOST  HOW         REPORTED AT  REASON\n\
         b     late        never        listed under v1\n\
         c     never seen  never        -\n"
    );
}

#[test]
fn why_a_host_is_not_ok_is_said_once_with_what_comes_next() {
    let action = |action: Action| Planned { action, because: Reason::AttemptUnderWay };
    let step =
        |phase, name: &str| action(Action::Do(Effect::RunStep { phase, step: StepName::new(name).unwrap() }));
    let failure =
        Failure::of(StepPhase::Validate, StepName::new("http").unwrap(), StepEnd::Exited { code: 7 });
    let version = Version::new("v2").ok();
    let verdict = HostVerdict::Failed(HostFailure { version: version.clone(), failure, suspect: false });
    let report = Report {
        verdict,
        target: Some(ReportedTarget { version: version.clone().unwrap(), revision: 20 }),
        plan: Plan {
            actions: vec![step(StepPhase::Apply, "packages"), step(StepPhase::Validate, "http")],
            ..Report::idle(EpochSeconds(0), Token::new("w").unwrap()).plan
        },
        ..Report::idle(EpochSeconds(1_000), Token::new("w").unwrap())
    };
    let report = codec::write(&report);
    let facts = [
        ("/orchestrate/hosts/a", r#"{"since":1}"#),
        ("/orchestrate/reports/a", report.as_str()),
        ("/orchestrate/live/a", r#"{"instance":"i","machine_id":"m","boot_id":"b","agent_version":"0.1.0"}"#),
        ("/orchestrate/maintenance/a", r#"{"host":{"how":"draining","reason":"disk","at":1000}}"#),
        ("/status/puppet/success/a", r#"{"at":500,"version":"v1","code":0,"reason":""}"#),
    ];
    let fleet = fleet(&facts);
    let host = HostName::new("a").unwrap();
    let view = HostView::new(&host, &fleet, Vec::new(), HostRollout::default(), None, 30).expect("a member");
    let text = view.text(EpochSeconds(1_060));
    let text = text.as_str();
    let lines = |name: &str| -> Vec<&str> {
        text.lines().filter_map(|line| line.strip_prefix(name)).map(str::trim_start).collect()
    };
    assert_eq!(text.matches("exited with code 7").count(), 1, "{text}");
    assert_eq!(
        lines("next:"),
        ["run apply step packages, then run validate step http, because the attempt continues"],
        "{text}"
    );
    assert_eq!(lines("out of use:"), ["draining since 1970-01-01T00:16:40Z: disk"], "{text}");
    assert_eq!(lines("result:"), ["puppet success of v1 at 1970-01-01T00:08:20Z"], "{text}");
}

#[test]
fn lists_in_json_are_never_null() {
    let view = StatusView::new(&fleet(&[]), StatusParts::default(), 30);
    let value = serde_json::to_value(&view).unwrap();
    assert_eq!(value["fleet"], "unknown");
    for list in [
        "versions",
        "not_ok",
        "causes",
        "unaccounted",
        "unconfirmed",
        "freezes",
        "down",
        "unpublished",
        "silent",
        "out_of_use",
    ] {
        assert_eq!(value[list], serde_json::json!([]), "{list}");
    }
}

fn host_view(facts: &[(&str, &str)]) -> HostView {
    let host = HostName::new("h").unwrap();
    HostView::new(&host, &fleet(facts), Vec::new(), HostRollout::default(), None, 30).unwrap()
}

#[test]
fn a_host_without_an_agent_is_explained_by_listing_and_results() {
    let facts = [("/running_version/v1/h", "1"), ("/status/puppet/failed/h", r#"{"at":0,"code":6}"#)];
    assert_eq!(
        host_view(&facts).text(EpochSeconds(60)).as_str(),
        "host:         h\n\
         verdict:      failed\n\
         reason:       puppet failed with code 6\n\
         hint:         ends when a later result of the same type succeeds\n\
         desired:      v2 (revision 20)\n\
         listed under: v1\n\
         agent:        none\n\
         result:       puppet failed at 1970-01-01T00:00:00Z\n"
    );
}

#[test]
fn the_explanation_of_a_host_ends_with_the_last_lines_of_its_log() {
    let report = serde_json::json!({
        "at": 0, "write_id": "w", "phase": "idle", "verdict": { "verdict": "ok" },
        "plan": { "phase": "idle", "actions": [], "because": { "reason": "settled" } },
        "log": ["one", "two", "three\u{1b}[31m", "four"],
    });
    let view = host_view(&[("/orchestrate/reports/h", &report.to_string())]);
    assert_eq!(view.log.len(), 4);
    let text = view.text(EpochSeconds(60)).as_str().to_owned();
    let end = "log:          two\nlog:          three\u{fffd}[31m\nlog:          four\n";
    assert!(text.ends_with(end), "{text}");
}

#[test]
fn a_service_is_silent_when_most_of_its_instances_do_not_report() {
    let records = ["web/a", "web/b", "web/c", "db/a", "db/b"];
    let check = |healths: &[&str], expected: &[(&str, usize, usize)]| {
        let found = SilentService::all(records.iter().copied(), healths.iter().copied());
        let found: Vec<_> =
            found.iter().map(|s| (s.service.as_str(), s.silent_count, s.instance_count)).collect();
        assert_eq!(found, expected, "{healths:?}");
    };
    check(&records, &[]);
    check(&["web/a", "db/a", "db/b"], &[]);
    check(&["db/a", "db/b"], &[("web", 3, 3)]);
}

/// A host on version 1 that reports why it does not start version 2.
fn rollout_of(reason: WhyNot) -> Option<(HostRollout, Option<FullLimit>)> {
    let host = HostName::new("h").unwrap();
    let report = Report {
        verdict: HostVerdict::Held(reason),
        target: Some(ReportedTarget { version: Version::new("v2").unwrap(), revision: 20 }),
        ..Report::idle(EpochSeconds(1), Token::new("w").unwrap())
    };
    let live = r#"{"instance":"i","machine_id":"m","boot_id":"b","agent_version":"1","driver":"agent"}"#;
    let fleet = fleet(&[
        ("/orchestrate/live/h", live),
        ("/orchestrate/reports/h", codec::write(&report).as_str()),
        ("/running_version/v1/h", "1"),
    ]);
    HostRollout::of_verdict(fleet.verdict(&host), &FoundClaims::default())
}

#[test]
fn the_report_of_a_host_alone_says_who_holds_its_limit() {
    let limit = Limit { by: LimitBy::Role, value: LimitValue::new("web").unwrap() };
    let of_limit = |detail| WhyNot::Limit { limit: limit.clone(), detail };
    let holders = vec![HostName::new("a").unwrap()];
    let full = of_limit(LimitDetail::Full { max: 1, used: 1, holders: holders.clone() });
    let (rollout, found) = rollout_of(full).expect("the report says it");
    assert_eq!(rollout.held_back_by.as_deref(), Some("1 of at most 1 hosts of role web are unavailable: a"));
    assert_eq!(found, Some(FullLimit { limit: limit.clone(), holders }));
    let window = WhyNot::Window { opens: "Mon 10:00 UTC".into(), starts: Some(EpochSeconds(7)) };
    let (rollout, found) = rollout_of(window).expect("the report says it");
    assert_eq!((rollout.held_until, found), (Some(EpochSeconds(7)), None));
    // An earlier agent did not say it, and the others change while the host waits.
    assert_eq!(rollout_of(of_limit(LimitDetail::Unknown { is_zero: false })), None);
    assert_eq!(rollout_of(of_limit(LimitDetail::Queue { ahead: 1 })), None);
    assert_eq!(
        rollout_of(WhyNot::Stage { stage: StageName::rest(), open: None, soak: None, hold: None }),
        None
    );
}
