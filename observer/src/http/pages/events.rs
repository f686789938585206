//! The page of events: who did what.

use super::table::{Cell, Table, with_parameters};
use crate::http::fleet::events_view;
use crate::http::parameters::EventsParameters;
use crate::http::past_moments::HostChanges;
use crate::http::shared::ViewInput;
use askama::Template;
use fleet::views::PastEvent;
use schema::time::format_duration;

#[derive(Template)]
#[template(path = "events.html")]
pub(super) struct EventsPage {
    since: String,
    host: String,
    /// What is not recorded of the time that is shown.
    not_recorded: Vec<String>,
    table: Table,
}

impl EventsPage {
    /// Returns the page of these events, the newest first.
    pub(super) fn new(seen: &ViewInput<'_>, parameters: &EventsParameters, changes: HostChanges) -> Self {
        let view = events_view(seen, parameters, changes);
        let since = parameters.since.map(format_duration).unwrap_or_default();
        let host = parameters.host.as_ref().map(ToString::to_string).unwrap_or_default();
        let filter = [("since", since.as_str()), ("host", host.as_str())];
        let json =
            with_parameters("/v1/events", filter.iter().copied().filter(|(_, value)| !value.is_empty()));
        let table = table("events", "Events", view.events.iter().rev(), seen.has_past).json(json);
        Self { table: table.or_say("No event fits."), not_recorded: view.not_recorded, since, host }
    }
}

/// Returns a table of events. If moments of the past can be shown, each leads to the fleet just after it.
pub(super) fn table<'a>(
    id: &'static str,
    title: &str,
    events: impl Iterator<Item = &'a PastEvent>,
    has_past: bool,
) -> Table {
    let row = |event: &PastEvent| {
        let [_, by, verb, what, reason] = event.row();
        let mark = if event.verb.is_some() { '●' } else { '○' };
        [
            Cell::time(event.at.as_deref()),
            Cell::text(by),
            Cell::text(format!("{mark} {verb}")),
            Cell::text(what),
            Cell::text(reason),
        ]
    };
    if !has_past {
        return Table::new(id, title, &["At", "By", "Verb", "What", "Reason"], events.map(row));
    }
    let with_moment = |event: &PastEvent| {
        let [at, by, verb, what, reason] = row(event);
        let to = with_parameters("/", [("at", event.revision.to_string().as_str())]);
        [at, by, verb, what, reason, Cell::Link { text: "see then".into(), to }]
    };
    Table::new(id, title, &["At", "By", "Verb", "What", "Reason", "Fleet"], events.map(with_moment))
}
