//! The views of the fleet, as the command prints them with `-o json`.

use super::parameters::{
    EventsParameters, HostsParameters, Parameters, read_checks, read_filter, read_none, refused,
};
use super::past_moments::HostChanges;
use super::shared::{AppState, ViewInput};
use axum::extract::{Path, Query};
use axum::response::Response;
use fleet::WaitGraph;
use fleet::views::{
    EventsView, FailuresView, HostRollout, HostView, HostWaits, HostsView, RootsView, ServiceView,
    ServicesView, StatusParts, StatusView, UnaccountedView,
};
use http_server::ErrorResponse;
use planning::rollout::{PresentRollout, RolloutStatus};
use schema::keys::{self, Key};
use schema::names::{HostName, ServiceName};

type Answer = Result<Response, ErrorResponse>;

/// The state of the fleet.
pub(super) async fn status(shared: AppState, Query(parameters): Query<Parameters>) -> Answer {
    read_none(&parameters)?;
    let (alarms, doubt) = shared.fleet.alarms_and_doubt();
    let question = format!("status {alarms:?} {doubt:?}");
    let view = move |seen: ViewInput<'_>| {
        let parts = StatusParts { doubt, ..StatusParts::of(seen.found(), alarms, seen.now) };
        Ok(StatusView::new(seen.fleet(), parts, seen.revision()))
    };
    shared.answer(question, view).await
}

/// What failed, by host and by cause.
pub(super) async fn failures(shared: AppState, Query(parameters): Query<Parameters>) -> Answer {
    read_none(&parameters)?;
    let view = |seen: ViewInput<'_>| Ok(FailuresView::of(seen.fleet(), seen.revision()));
    shared.answer("failures".into(), view).await
}

pub(super) async fn hosts(shared: AppState, Query(parameters): Query<Parameters>) -> Answer {
    let HostsParameters { filter, order, all } = HostsParameters::read(&parameters)?;
    let view = move |seen: ViewInput<'_>| {
        let mut view = HostsView::new(seen.fleet(), all, seen.revision());
        view.keep(&filter);
        view.sort(order);
        Ok(view)
    };
    shared.answer(format!("hosts {parameters:?}"), view).await
}

/// Why a host is as it is.
pub(super) async fn host(
    shared: AppState,
    Path(host): Path<String>,
    Query(parameters): Query<Parameters>,
) -> Answer {
    read_none(&parameters)?;
    let host = HostName::folded(&host).map_err(refused)?;
    shared.answer(format!("host {host}"), move |seen: ViewInput<'_>| host_view(&seen, &host)).await
}

/// Returns what is known about a host, or why nothing is.
pub(super) fn host_view(seen: &ViewInput<'_>, host: &HostName) -> Result<HostView, String> {
    let (found, fleet) = (seen.found(), seen.fleet());
    let waits = match fleet.verdict(host) {
        Some(verdict) if verdict.waits_for_services() => {
            HostWaits::all(host, &WaitGraph::of(fleet, seen.catalog(), seen.now))
        }
        _ => Vec::new(),
    };
    let rollout = HostRollout::of(host, found, seen.now);
    let retry = found.get(&Key::Retry(host.clone())).map(|entry| entry.mod_revision);
    let view = HostView::new(host, fleet, waits, rollout, retry, seen.revision());
    view.ok_or_else(|| {
        if fleet.others().contains_key(host) {
            format!("host {host} was decommissioned")
        } else {
            format!("host {host} is not known: it is not on the roster and has never reported")
        }
    })
}

/// The keys of hosts that do not fit together.
pub(super) async fn unaccounted(shared: AppState, Query(parameters): Query<Parameters>) -> Answer {
    let filter = read_filter(&parameters)?;
    let view = move |seen: ViewInput<'_>| Ok(UnaccountedView::new(seen.fleet(), &filter, seen.revision()));
    shared.answer(format!("unaccounted {parameters:?}"), view).await
}

/// What keeps hosts waiting for services.
pub(super) async fn waits(shared: AppState, Query(parameters): Query<Parameters>) -> Answer {
    read_none(&parameters)?;
    let view = |seen: ViewInput<'_>| {
        Ok(RootsView::new(&WaitGraph::of(seen.fleet(), seen.catalog(), seen.now), seen.revision()))
    };
    shared.answer("waits".into(), view).await
}

pub(super) async fn services(shared: AppState, Query(parameters): Query<Parameters>) -> Answer {
    read_none(&parameters)?;
    let view = |seen: ViewInput<'_>| Ok(ServicesView::new(seen.catalog(), seen.revision()));
    shared.answer("services".into(), view).await
}

/// The hosts of a service.
pub(super) async fn service(
    shared: AppState,
    Path(service): Path<String>,
    Query(parameters): Query<Parameters>,
) -> Answer {
    let with_checks = read_checks(&parameters)?;
    let service = ServiceName::new(service.as_str()).map_err(refused)?;
    let question = format!("service {service} {with_checks}");
    shared.answer(question, move |seen: ViewInput<'_>| service_view(&seen, &service, with_checks)).await
}

/// Returns the instances of a service, if wanted with the checks that do not pass, or why there is none.
pub(super) fn service_view(
    seen: &ViewInput<'_>,
    service: &ServiceName,
    with_checks: bool,
) -> Result<ServiceView, String> {
    let (found, catalog) = (seen.found(), seen.catalog());
    let mark = |host: &HostName| {
        let entry = found.get(&Key::Maintenance(host.clone()))?;
        keys::Maintenance::read(&entry.value).ok()?.of(service).cloned()
    };
    let view = ServiceView::new(service, catalog, mark, seen.revision());
    let mut view = view.ok_or_else(|| format!("no host has {service}"))?;
    if with_checks {
        // Hosts without a report have no checks to show.
        let _ = view.add_checks(found);
    }
    Ok(view)
}

/// How far the rollout of the desired version is.
pub(super) async fn rollout(shared: AppState, Query(parameters): Query<Parameters>) -> Answer {
    read_none(&parameters)?;
    let view = |seen: ViewInput<'_>| {
        let present = PresentRollout::find(seen.found()).map_err(|why| why.to_string())?;
        Ok(RolloutStatus::new(&present, seen.found(), seen.now))
    };
    shared.answer("rollout".into(), view).await
}

/// Who did what.
pub(super) async fn events(shared: AppState, Query(parameters): Query<Parameters>) -> Answer {
    let wanted = EventsParameters::read(&parameters)?;
    let changes = host_changes(&shared, &wanted).await?;
    let view = move |seen: ViewInput<'_>| Ok(events_view(&seen, &wanted, changes));
    shared.answer(format!("events {parameters:?}"), view).await
}

/// Returns what changed about hosts by itself, if a time before a moment of the past is wanted.
pub(super) async fn host_changes(
    shared: &AppState,
    wanted: &EventsParameters,
) -> Result<HostChanges, ErrorResponse> {
    match (&shared.past, wanted.since) {
        (Some(past), Some(within)) => past.host_changes(within).await,
        _ => Ok(HostChanges::default()),
    }
}

/// Returns the events that are wanted.
pub(super) fn events_view(
    seen: &ViewInput<'_>,
    EventsParameters { since, host }: &EventsParameters,
    HostChanges { events, not_recorded }: HostChanges,
) -> EventsView {
    let mut view = EventsView::read(seen.found());
    if let Some(since) = since {
        view.keep_since(seen.now.before(*since));
        view.add_changes(events, not_recorded);
    }
    host.iter().for_each(|host| view.keep_host(host));
    view
}
