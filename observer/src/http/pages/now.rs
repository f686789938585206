//! The first page: what needs somebody now.
//!
//! This file is long because its tests need its inside.

use super::groups::{Fill, Group, Grouping, groups, to_groups, versions, ways};
use super::hosts::cause_id;
use super::icons::{needs_somebody, place, shape};
use super::table::{Cell, ROWS_MAX, Table, to_host, with_parameters};
use crate::http::shared::ViewInput;
use askama::Template;
use fleet::incidents::OpenIncident;
use fleet::views::{
    Cause, EventsView, FailureGroup, FailuresView, HostVerdictView, HostsView, MaintenanceView, StatusParts,
    StatusView,
};
use fleet::{Fleet, FleetState};
use planning::calendar::rfc3339;
use schema::verdict::VerdictKind;
use std::collections::BTreeMap;

/// Number of past acts on the page.
const ACTS_SHOWN: usize = 5;
/// Number of problems of the rollout on the page.
const PROBLEMS_SHOWN: usize = 10;

#[derive(Template)]
#[template(path = "now.html")]
pub(super) struct NowPage {
    headline: String,
    counts: Vec<Count>,
    /// When a host last reported a change (RFC 3339).
    last_change: Option<String>,
    /// What holds for the whole fleet: alarms of the store, freezes.
    notes: Vec<String>,
    rollout: Option<RolloutLine>,
    tables: Vec<Table>,
    acts: Table,
    by: String,
    /// The other ways to group the hosts: where they lead, and by what.
    ways: Vec<(String, String)>,
    /// What the cells show: where that leads, and whether they do now.
    fills: Vec<(String, Fill, bool)>,
    fill: Fill,
    /// The versions to whose places the cells refer.
    versions: Vec<String>,
    groups: Vec<Group>,
    /// Number of groups that are not shown.
    more_groups: usize,
    unsettled: Table,
}

/// How many hosts have a verdict.
struct Count {
    verdict: VerdictKind,
    count: usize,
    /// Where they are listed; `None` for those that are ok, so that each other count is reached soon by keyboard.
    to: Option<String>,
}

/// The present rollout in one line.
struct RolloutLine {
    version: Option<String>,
    text: String,
    problems: Vec<String>,
}

impl NowPage {
    /// Returns the page. `alarms` are those of the store, and `doubt` says why it may not say the present.
    pub(super) fn new(
        seen: &ViewInput<'_>,
        alarms: Option<Vec<String>>,
        doubt: Option<String>,
        incidents: &[OpenIncident],
        Grouping { by, fill }: &Grouping,
    ) -> Self {
        let (fleet, revision) = (seen.fleet(), seen.revision());
        let parts = StatusParts { doubt, ..StatusParts::of(seen.found(), alarms, seen.now) };
        let status = StatusView::new(fleet, parts, revision);
        let hosts = HostsView::new(fleet, false, revision).hosts;
        let mut groups = groups(&hosts, by);
        let versions = versions(&groups);
        let more_groups = groups.split_off(groups.len().min(ROWS_MAX)).len();
        let mut events = EventsView::read(seen.found()).events;
        let last = events.split_off(events.len().saturating_sub(ACTS_SHOWN));
        let mut notes: Vec<String> =
            status.alarms.iter().flatten().map(|alarm| format!("store alarm: {alarm}")).collect();
        notes.extend(status.freezes.iter().map(ToString::to_string));
        let rollout = status.rollout.as_ref().map(|rollout| RolloutLine {
            version: status.desired.as_ref().map(|desired| desired.version.to_string()),
            text: match (&rollout.outlook, rollout.failures.has_ended) {
                (Some(outlook), _) => outlook.to_string(),
                (None, true) => "It has ended.".into(),
                (None, false) => "Its record cannot be read.".into(),
            },
            problems: problems(rollout.failures.lines()),
        });
        Self {
            headline: headline(&status, fleet),
            counts: counts(&status),
            last_change: hosts.iter().filter_map(|host| host.reported_at.clone()).max(),
            notes,
            rollout,
            tables: tables(&status, fleet, incidents, &FailuresView::of(fleet, revision)),
            acts: super::events::table("acts", "Last events", last.iter().rev(), seen.has_past)
                .or_say("The store has no events."),
            by: by.name().to_owned(),
            ways: ways(&hosts, *fill),
            fills: Fill::ALL.map(|other| (to_groups(&by.word(), other), other, other == *fill)).into(),
            fill: *fill,
            versions,
            groups,
            more_groups,
            unsettled: unsettled(status.not_ok),
        }
    }
}

/// Returns the first problems, and how many more there are.
fn problems(mut lines: Vec<String>) -> Vec<String> {
    let more = lines.split_off(lines.len().min(PROBLEMS_SHOWN));
    lines.extend((!more.is_empty()).then(|| format!("and {} more", more.len())));
    lines
}

/// Says in one sentence how the fleet is.
fn headline(status: &StatusView, fleet: &Fleet) -> String {
    let count = |test: fn(VerdictKind) -> bool| -> usize {
        let counts = status.verdict_counts.iter();
        counts.filter(|(verdict, _)| test(**verdict)).map(|(_, count)| count).sum()
    };
    let (hosts, need) = (status.host_count, count(needs_somebody));
    let ok = count(|verdict| verdict == VerdictKind::Ok);
    let desired = status.desired.as_ref().map(|desired| desired.version.to_string());
    let has = |ok: usize| match (&desired, ok) {
        (None, _) => match &status.invalid {
            Some(why) => format!("the desired version is not a version: {why}"),
            None => "no version is desired".to_owned(),
        },
        (Some(version), 1) => format!("1 of {hosts} hosts runs {version}"),
        (Some(version), ok) => format!("{ok} of {hosts} hosts run {version}"),
    };
    match status.fleet {
        _ if hosts == 0 => "No host has joined this fleet yet.".into(),
        FleetState::Unknown => format!("Unknown: {}.", status.unknown_reason(fleet).unwrap_or_default()),
        FleetState::Settled => match &desired {
            Some(version) if hosts == 1 => format!("The host runs {version}."),
            Some(version) => format!("All {hosts} hosts run {version}."),
            None => format!("{hosts} hosts; no version is desired."),
        },
        FleetState::Updating => format!("{}.", has(ok)),
        FleetState::Failing if need == 0 && fleet.hosts().keys().any(|host| fleet.is_held_by_halt(host)) => {
            format!("The rollout is halted and needs you; {}.", has(ok))
        }
        FleetState::Failing if need == 0 => format!("Services or names of hosts need you; {}.", has(ok)),
        FleetState::Failing if need == 1 => format!("1 host needs you; {}.", has(ok)),
        FleetState::Failing => format!("{need} hosts need you; {}.", has(ok)),
    }
}

/// Returns how many hosts have which verdict. Suspect hosts have failed, too.
fn counts(status: &StatusView) -> Vec<Count> {
    let mut counts: BTreeMap<usize, Count> = BTreeMap::new();
    for (verdict, count) in &status.verdict_counts {
        let (shown, kinds) = match verdict {
            VerdictKind::Failed | VerdictKind::Suspect => {
                (VerdictKind::Failed, &[VerdictKind::Failed, VerdictKind::Suspect][..])
            }
            other => (*other, std::slice::from_ref(other)),
        };
        let to = with_parameters("/hosts", kinds.iter().map(|kind| ("verdict", kind.as_str())));
        let to = if shown == VerdictKind::Ok { None } else { Some(to) };
        counts.entry(place(shown)).or_insert(Count { verdict: shown, count: 0, to }).count += count;
    }
    counts.into_values().collect()
}

/// Returns what keeps hosts until somebody acts, and what keeps the others, the most urgent first.
fn causes<'a>(status: &'a StatusView, fleet: &Fleet) -> (Vec<&'a Cause>, Vec<&'a Cause>) {
    let mut causes: Vec<&Cause> = status.causes.iter().collect();
    causes.sort_by_key(|cause| place(cause.verdict));
    causes.into_iter().partition(|cause| {
        needs_somebody(cause.verdict)
            || cause.verdict == VerdictKind::Frozen
            || cause.hosts.first().is_some_and(|host| fleet.is_held_by_halt(host))
    })
}

/// Returns the tables of what is wrong, without those that are empty.
fn tables(
    status: &StatusView,
    fleet: &Fleet,
    incidents: &[OpenIncident],
    failures: &FailuresView,
) -> Vec<Table> {
    let (held, on_their_way) = causes(status, fleet);
    let cause = |cause: &&Cause| {
        let to = to_hosts_of(cause);
        let why = cause.hosts.first().map(|host| Cell::Command(format!("orchestrate why {host}")));
        [
            Cell::Verdict(cause.verdict),
            Cell::Link { text: cause.hosts.len().to_string(), to: to.clone() },
            Cell::hosts(&cause.hosts, Some(to)),
            Cell::text(&cause.reason),
            Cell::time(cause.reported_at.as_deref()),
            why.unwrap_or_else(|| Cell::text("")),
        ]
    };
    const CAUSE: &[&str; 6] = &["Verdict", "Hosts", "Names", "Reason", "Reported", "Command"];
    let incident = |OpenIncident { since, flapping, incident }: &OpenIncident| {
        let severity = incident.severity.as_str();
        [
            Cell::text(if *flapping { format!("{severity}, flapping") } else { severity.to_owned() }),
            Cell::text(&incident.summary),
            Cell::hosts(&incident.hosts, None),
            Cell::time(rfc3339(*since).as_deref()),
            Cell::Command(incident.hint.clone()),
        ]
    };
    let group = |group: &FailureGroup| {
        [
            Cell::number(group.host_count),
            Cell::text(&group.check),
            Cell::hosts(&group.hosts, None),
            Cell::text(group.why()),
        ]
    };
    let tables = [
        Table::new("causes", "Failed, lost, blocked, frozen and held", CAUSE, held.iter().map(cause))
            .json("/v1/status")
            .or_say("No host is failed, lost, blocked, frozen or held by a halt."),
        Table::new(
            "incidents",
            "Open incidents",
            &["Severity", "Summary", "Hosts", "Since", "Command"],
            incidents.iter().map(incident),
        )
        .json("/v1/incidents"),
        Table::new(
            "failures",
            "Failures by cause",
            &["Hosts", "Check", "Names", "Cause"],
            failures.groups.iter().flat_map(|groups| groups.iter()).map(group),
        )
        .json("/v1/failures"),
        Table::new(
            "down",
            "Services that do not work",
            &["Check", "Host", "Output"],
            status
                .down
                .iter()
                .map(|down| [Cell::text(&down.check), Cell::host(&down.host), Cell::text(down.output())]),
        ),
        Table::new(
            "silent",
            "Services that went silent",
            &["Service", "Instances"],
            status.silent.iter().map(|found| {
                let of = format!("{} of {}", found.silent_count, found.instance_count);
                [Cell::service(&found.service), Cell::text(of)]
            }),
        ),
        Table::new(
            "unpublished",
            "Services that are not published",
            &["Service", "Host", "Reason"],
            status.unpublished.iter().map(|found| {
                let service = &found.service;
                [Cell::text(service.service.as_str()), Cell::host(&found.host), Cell::text(&service.reason)]
            }),
        ),
        Table::new(
            "problems",
            "Problems of hosts",
            &["Host", "Problem", "Reason"],
            status.problems.iter().map(|found| {
                let problem = &found.problem;
                [Cell::host(&found.host), Cell::text(problem.kind.to_string()), Cell::text(&problem.reason)]
            }),
        ),
        Table::new(
            "unaccounted",
            "Unaccounted hosts",
            &["Host", "How"],
            status
                .unaccounted
                .iter()
                .map(|found| [Cell::host(&found.host), Cell::text(found.how.to_string())]),
        )
        .json("/v1/unaccounted"),
        Table::new(
            "unconfirmed",
            "Listings that no host confirms",
            &["Host", "Version"],
            status
                .unconfirmed
                .iter()
                .map(|found| [Cell::host(&found.host), Cell::text(found.version.as_str())]),
        )
        .json("/v1/status"),
        Table::new("ways", "On their way", CAUSE, on_their_way.iter().map(cause)).json("/v1/status"),
        Table::new(
            "out-of-use",
            "Out of use",
            &["Host", "Service", "How", "Since", "Reason"],
            status.maintenance.iter().map(maintenance_row),
        ),
    ];
    tables.into_iter().filter(|table| !table.is_left_out()).collect()
}

/// Returns a row about a host or service that an operator took out of use.
pub(super) fn maintenance_row(found: &MaintenanceView) -> [Cell; 5] {
    [
        Cell::host(&found.host),
        Cell::text(found.service.as_ref().map_or("all", |service| service.as_str())),
        Cell::text(found.how.as_str()),
        Cell::time(found.since.as_deref()),
        Cell::text(found.reason.clone().unwrap_or_default()),
    ]
}

/// Returns where the hosts of a cause are listed.
fn to_hosts_of(cause: &Cause) -> String {
    match cause.hosts.as_slice() {
        [host] => to_host(host),
        _ => with_parameters(
            "/hosts",
            [("cause", cause_id(cause.verdict, cause.role.as_ref(), &cause.reason).as_str())],
        ),
    }
}

fn unsettled(mut hosts: Vec<HostVerdictView>) -> Table {
    hosts.sort_by_key(|host| place(host.verdict));
    let row = |host: &HostVerdictView| {
        [
            Cell::host(&host.host),
            Cell::Verdict(host.verdict),
            Cell::text(&host.reason),
            Cell::time(host.reported_at.as_deref()),
        ]
    };
    let header = &["Host", "Verdict", "Reason", "Reported"];
    Table::new("unsettled", "Hosts that are not ok", header, hosts.iter().map(row)).json("/v1/status")
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet::FleetTarget;
    use schema::codec;
    use schema::keys::Key;
    use schema::names::{HostName, StageName, Token, Version};
    use schema::order::InstructionOrder;
    use schema::records::{Halt, Report, ReportedTarget};
    use schema::snapshot::KeySnapshot;
    use schema::time::EpochSeconds;
    use schema::verdict::HostVerdict;
    use schema::why_not::WhyNot;

    /// Checks the page of a fleet with one host, which waits for its stage.
    fn check(is_halted: bool, expected: &str, held: usize) {
        let (host, version) = (HostName::new("h").unwrap(), Version::new("v2").unwrap());
        let order = InstructionOrder { epoch: 0, revision: 20 };
        let report = Report {
            verdict: HostVerdict::Held(WhyNot::Stage {
                stage: StageName::rest(),
                open: None,
                soak: None,
                hold: None,
            }),
            target: Some(ReportedTarget { version: version.clone(), revision: 20 }),
            ..Report::idle(EpochSeconds(1), Token::new("w").unwrap())
        };
        let halt = Halt { at: EpochSeconds(5), by: "h".into(), why: "failures".into(), rolled_back_to: None };
        let mut facts = vec![
            (Key::Live(host.clone()), r#"{"instance":"i","machine_id":"m","boot_id":"b"}"#.to_owned()),
            (Key::RunningVersion(Version::new("v1").unwrap(), host.clone()), "1".to_owned()),
            (Key::Report(host), codec::write(&report)),
        ];
        facts.extend(is_halted.then(|| (Key::Halt(order), codec::write(&halt))));
        let facts: Vec<(String, String)> = facts.into_iter().map(|(key, v)| (key.to_string(), v)).collect();
        let entries = facts.iter().map(|(key, value)| (key.as_str(), value.as_bytes()));
        let fleet = Fleet::new(FleetTarget::Known { version, order }, entries);
        let parts = StatusParts::of(&KeySnapshot::default(), None, EpochSeconds(10));
        let status = StatusView::new(&fleet, parts, 21);
        assert_eq!(headline(&status, &fleet), expected);
        let (held_causes, others) = causes(&status, &fleet);
        assert_eq!((held_causes.len(), others.len()), (held, 1 - held));
    }

    #[test]
    fn a_full_store_says_nothing_about_the_fleet() {
        let (host, version) = (HostName::new("h").unwrap(), Version::new("v1").unwrap());
        let facts = [
            (Key::Live(host.clone()).to_string(), r#"{"instance":"i","machine_id":"m","boot_id":"b"}"#),
            (Key::RunningVersion(version.clone(), host.clone()).to_string(), "1"),
            (Key::Announced(host).to_string(), "v1"),
        ];
        let entries = facts.iter().map(|(key, value)| (key.as_str(), value.as_bytes()));
        let order = InstructionOrder { epoch: 0, revision: 20 };
        let fleet = Fleet::new(FleetTarget::Known { version, order }, entries);
        let sentence = |alarms: &[&str]| {
            let alarms = Some(alarms.iter().map(|alarm| (*alarm).to_owned()).collect());
            let parts = StatusParts { alarms, ..StatusParts::default() };
            headline(&StatusView::new(&fleet, parts, 21), &fleet)
        };
        assert!(!sentence(&[]).starts_with("Unknown"), "{}", sentence(&[]));
        assert_eq!(
            sentence(&["NOSPACE"]),
            "Unknown: the store raised the alarm NOSPACE, so hosts cannot write what happens to them."
        );
    }

    #[test]
    fn a_halted_rollout_needs_somebody_though_no_host_has_failed() {
        check(false, "0 of 1 hosts run v2.", 0);
        check(true, "The rollout is halted and needs you; 0 of 1 hosts run v2.", 1);
    }
}
