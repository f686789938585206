//! Whether what the observer shows is fresh.

use super::parameters::{Parameters, read_none};
use super::shared::Shared;
use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use http_server::ErrorResponse;
use serde::Serialize;
use std::time::Duration;

/// Age from which on what is shown is stale.
pub(crate) const STALE_AFTER: Duration = Duration::from_secs(30);

/// Whether what is shown can be trusted to be the present.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Freshness {
    /// Nothing was read yet.
    Starting,
    /// It is the present.
    Fresh,
    /// It is old.
    Stale,
}

#[derive(Debug, Serialize)]
struct HealthView {
    state: Freshness,
    /// The time in seconds for which changes of the store may lack.
    age_seconds: Option<f64>,
    /// The revision of the store that is shown.
    revision: Option<i64>,
    /// Why the store cannot be read.
    problem: Option<String>,
    /// The version of the observer.
    observer_version: &'static str,
}

/// Answers with 200 if what is shown is fresh, else with 503.
pub(super) async fn health(
    State(shared): State<Shared>,
    Query(parameters): Query<Parameters>,
) -> Result<Response, ErrorResponse> {
    read_none(&parameters)?;
    let moment = shared.fleet.moment();
    let age = moment.fresh_at.map(|at| at.elapsed());
    let state = match age {
        Some(age) if age <= STALE_AFTER => Freshness::Fresh,
        Some(_) => Freshness::Stale,
        None => Freshness::Starting,
    };
    let view = HealthView {
        state,
        // Milliseconds are exact enough, and a reader sees them at once.
        age_seconds: age.map(|age| age.as_secs_f64()).map(|seconds| (seconds * 1000.0).round() / 1000.0),
        revision: Some(moment.revision).filter(|revision| *revision > 0),
        problem: shared.fleet.problem(),
        observer_version: env!("CARGO_PKG_VERSION"),
    };
    let code = if state == Freshness::Fresh { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok((code, Json(view)).into_response())
}
