//! The page of a host: how it is, why, and what it did.

use super::icons::shape;
use super::offered::Offered;
use super::table::{Cell, Table, to_host};
use crate::http::fleet;
use crate::http::parameters::EventsParameters;
use crate::http::past_moments::HostChanges;
use crate::http::shared::ViewInput;
use ::fleet::views::HostView;
use askama::Template;
use planning::calendar::rfc3339;
use schema::names::{HostName, ServiceName};
use schema::verdict::VerdictKind;

#[derive(Template)]
#[template(path = "host.html")]
pub(super) struct HostPage {
    view: HostView,
    /// What is known, in the order in which people want to know it.
    facts: Vec<(&'static str, Cell)>,
    commands: Vec<Offered>,
    tables: Vec<Table>,
}

impl HostPage {
    /// Returns the page of a host.
    ///
    /// # Errors
    /// Returns why there is nothing to show.
    pub(super) fn new(seen: &ViewInput<'_>, host: &HostName) -> Result<Self, String> {
        let view = fleet::host_view(seen, host)?;
        Ok(Self { facts: facts(&view, seen), commands: commands(&view), tables: tables(&view, seen), view })
    }
}

fn facts(view: &HostView, seen: &ViewInput<'_>) -> Vec<(&'static str, Cell)> {
    let time = |at: Option<schema::time::EpochSeconds>| Some(Cell::Time(rfc3339(at?)?));
    let text = |text: Option<String>| text.filter(|text| !text.is_empty()).map(Cell::text);
    let listed: Vec<&str> = view.listed_under.iter().map(|version| version.as_str()).collect();
    let claims = view.rollout.claims.iter();
    let claims: Vec<String> =
        claims.map(|claim| format!("{} number {}", claim.limit, claim.number)).collect();
    let found = [
        ("Held back by", text(view.rollout.held_back_by.clone())),
        ("Held until", time(view.rollout.held_until)),
        ("Claims", text(Some(claims.join(", ")))),
        ("Activity", text(view.activity.clone())),
        ("Running step", text(view.running_step.as_ref().map(|step| step.text(seen.now)))),
        ("Next attempt", time(view.next_attempt_at)),
        ("Desired version", text(view.desired.as_ref().map(|desired| desired.version.to_string()))),
        ("Installed", text(view.installed.as_ref().map(ToString::to_string))),
        ("Listed under", text(Some(if listed.is_empty() { "nothing".into() } else { listed.join(", ") }))),
        ("Phase", text(view.phase.map(|phase| phase.to_string()))),
        ("Agent", text(Some(view.agent_text()))),
        ("Addresses", text(Some(view.addresses.join(", ")))),
        ("Role", text(view.role.as_ref().map(ToString::to_string))),
        ("Group", text(view.group.as_ref().map(ToString::to_string))),
        ("Labels", text(Some(view.labels_text()))),
        ("Reported", time(view.reported_at)),
        ("Bundle", text(view.bundle.clone())),
        ("Machine", text(view.machine.as_ref().map(ToString::to_string))),
    ];
    found.into_iter().filter_map(|(name, cell)| Some((name, cell?))).collect()
}

/// Returns the commands that say more, or change something.
fn commands(view: &HostView) -> Vec<Offered> {
    let host = &view.host;
    let of_host = |command: &str, what| Offered::new(format!("orchestrate {command} {host}"), what);
    let act = match view.verdict {
        VerdictKind::Failed | VerdictKind::Suspect => {
            Some(of_host("retry", "has it try again now, when its fault is mended"))
        }
        VerdictKind::Lost => Some(of_host("hosts decommission", "gives it up, if it does not come back")),
        VerdictKind::Frozen => Some(Offered::new("orchestrate freezes", "shows who froze what, and why")),
        _ => None,
    };
    let bundle = view.bundle.as_ref().map(|_| {
        Offered::new(format!("orchestrate bundle {host} --from URL"), "unpacks the files of its failure")
    });
    let why = of_host("why", "says what keeps it, and what it does next");
    let logs = of_host("logs", "shows the output of the step that failed or was deferred");
    [Some(why), Some(logs), bundle, act].into_iter().flatten().collect()
}

fn tables(view: &HostView, seen: &ViewInput<'_>) -> Vec<Table> {
    let host = &view.host;
    let instances = seen.catalog().services().iter();
    let instances: Vec<(&ServiceName, &str)> = instances
        .filter_map(|(name, service)| Some((name, service.instances().get(host)?.health_str())))
        .collect();
    let events = EventsParameters { since: None, host: Some(host.clone()) };
    let events = fleet::events_view(seen, &events, HostChanges::default()).events;
    let tables = [
        Table::new(
            "next",
            "What it does next",
            &["Action", "Reason"],
            view.next.iter().map(|planned| [Cell::text(&planned.action), Cell::text(&planned.reason)]),
        ),
        Table::new(
            "held-by",
            "Hosts that keep it waiting",
            &["Host", "Limit"],
            view.rollout.held_by.iter().map(|held| {
                let [_, _, host, ..] = held.row();
                [Cell::text(host), Cell::text(held.limit.to_string())]
            }),
        ),
        Table::new(
            "results",
            "Results",
            &["Type", "State", "Version", "At", "Reason"],
            view.results.iter().map(|result| {
                [
                    Cell::text(result.kind.to_string()),
                    Cell::text(result.state),
                    Cell::text(result.version.as_ref().map(ToString::to_string).unwrap_or_default()),
                    Cell::time(result.at.as_deref()),
                    Cell::text(result.reason.clone().unwrap_or_default()),
                ]
            }),
        ),
        Table::new(
            "services",
            "Services",
            &["Service", "Health"],
            instances.into_iter().map(|(name, health)| [Cell::service(name), Cell::text(health)]),
        ),
        Table::new(
            "unpublished",
            "Services that are not published",
            &["Service", "Reason"],
            view.unpublished
                .iter()
                .map(|found| [Cell::text(found.service.as_str()), Cell::text(&found.reason)]),
        ),
        Table::new(
            "problems",
            "Problems",
            &["Problem", "Reason"],
            view.problems.iter().map(|found| [Cell::text(found.kind.to_string()), Cell::text(&found.reason)]),
        ),
        Table::new(
            "out-of-use",
            "Out of use",
            &["Host", "Service", "How", "Since", "Reason"],
            view.maintenance.iter().map(super::now::maintenance_row),
        ),
        super::events::table("events", "Events", events.iter().rev(), seen.has_past)
            .json(super::table::with_parameters("/v1/events", [("host", host.as_str())])),
    ];
    tables.into_iter().filter(|table| !table.is_left_out()).collect()
}
