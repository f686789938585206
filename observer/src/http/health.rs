//! Whether what the observer shows is fresh, and what people have to look at. These never wait for another answer.

use super::parameters::{Parameters, read_none};
use super::shared::{AppState, with_age};
use crate::incidents::STALE_AFTER;
use crate::observed::{FoundIncidents, Moment, SharedFleet};
use axum::Json;
use axum::extract::Query;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use fleet::incidents::{Incident, OpenIncident};
use fleet::text::rough;
use http_server::ErrorResponse;
use planning::calendar::rfc3339;
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Duration;

/// Whether what is shown can be trusted to be the present.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Freshness {
    /// Nothing was read yet.
    Starting,
    /// The snapshot is the present.
    Fresh,
    /// The snapshot is old.
    Stale,
}

/// How fresh what is shown is.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct HealthView {
    pub(super) state: Freshness,
    /// The time in seconds for which changes of the store may be missing.
    #[schemars(range(min = 0))]
    pub(super) age_seconds: Option<f64>,
    /// The revision of the store that is shown.
    pub(super) revision: Option<i64>,
    /// Why the store cannot be read, or why what it says may not be the present.
    pub(super) problem: Option<String>,
    /// True if the store answers, but went back.
    #[serde(skip)]
    went_back: bool,
    /// The version of the observer.
    observer_version: &'static str,
}

impl HealthView {
    /// True if what is shown is old.
    pub(super) fn is_stale(&self) -> bool {
        self.state == Freshness::Stale
    }

    /// Says how fresh what is shown is.
    pub(super) fn sentence(&self) -> String {
        let problem = self.problem.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        match (self.state, self.age_seconds) {
            _ if self.went_back => format!("STALE{problem}"),
            (Freshness::Stale, Some(age)) => {
                format!("STALE {}: the store is away{problem}", rough(Duration::from_secs_f64(age).as_secs()))
            }
            (Freshness::Fresh, Some(age)) => format!("live, {age:.1} s"),
            _ => format!("not read yet{problem}"),
        }
    }
}

/// Answers with 200 if what is shown is fresh, else with 503.
pub(super) async fn health(
    shared: AppState,
    Query(parameters): Query<Parameters>,
) -> Result<Response, ErrorResponse> {
    read_none(&parameters)?;
    let view = health_of(&shared.fleet, shared.fleet.moment());
    let code = if view.state == Freshness::Fresh { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok((code, Json(view)).into_response())
}

/// Returns how fresh what is shown at a moment is.
pub(super) fn health_of(fleet: &SharedFleet, moment: Moment) -> HealthView {
    let age = moment.fresh_at.map(|at| at.elapsed());
    let doubt = fleet.doubt();
    let state = match age {
        _ if doubt.is_some() => Freshness::Stale,
        Some(age) if age <= STALE_AFTER => Freshness::Fresh,
        Some(_) => Freshness::Stale,
        None => Freshness::Starting,
    };
    HealthView {
        state,
        // Milliseconds are exact enough, and a reader sees them at once.
        age_seconds: age.map(|age| age.as_secs_f64()).map(|seconds| (seconds * 1000.0).round() / 1000.0),
        revision: Some(moment.revision).filter(|revision| *revision > 0),
        went_back: doubt.is_some(),
        problem: doubt.or_else(|| fleet.problem()),
        observer_version: env!("CARGO_PKG_VERSION"),
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct IncidentsView {
    /// The most urgent first.
    incidents: Vec<IncidentView>,
    /// The revision of the store at which they were found.
    revision: i64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct IncidentView {
    /// Since when its condition holds (RFC 3339).
    since: Option<String>,
    /// Whether it opens and closes again and again.
    flapping: bool,
    #[serde(flatten)]
    incident: Incident,
}

impl From<OpenIncident> for IncidentView {
    fn from(OpenIncident { since, flapping, incident }: OpenIncident) -> Self {
        Self { since: rfc3339(since), flapping, incident }
    }
}

/// The open incidents.
pub(super) async fn incidents(
    shared: AppState,
    Query(parameters): Query<Parameters>,
) -> Result<Response, ErrorResponse> {
    read_none(&parameters)?;
    let found = shared.fleet.incidents().filter(|found| found.moment.revision > 0);
    let FoundIncidents { moment, open } = found.ok_or_else(|| shared.not_read_yet())?;
    let incidents = open.into_iter().map(IncidentView::from).collect();
    let view = IncidentsView { incidents, revision: moment.revision };
    Ok(with_age(moment, Json(view)))
}
