//! The description of the API, and the schemas that it refers to.

use super::parameters::{Parameters, read_none};
use super::shared::AppState;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use http_server::{ErrorResponse, json_body};

/// The description, in OpenAPI 3.1.
pub(super) const DESCRIPTION: &str = include_str!("openapi.json");

/// The schemas by the names under which the description refers to them.
pub(super) const SCHEMAS: [(&str, &str); 11] = [
    ("events.json", include_str!("../../../docs/schema/events.json")),
    ("get_failures.json", include_str!("../../../docs/schema/get_failures.json")),
    ("hosts-list.json", include_str!("../../../docs/schema/hosts-list.json")),
    ("names.json", include_str!("../../../docs/schema/names.json")),
    ("past.json", include_str!("../../../docs/schema/past.json")),
    ("rollout-status.json", include_str!("../../../docs/schema/rollout-status.json")),
    ("services-list.json", include_str!("../../../docs/schema/services-list.json")),
    ("services-show.json", include_str!("../../../docs/schema/services-show.json")),
    ("status.json", include_str!("../../../docs/schema/status.json")),
    ("unaccounted.json", include_str!("../../../docs/schema/unaccounted.json")),
    ("why.json", include_str!("../../../docs/schema/why.json")),
];

/// The description of the API.
pub(super) async fn description(
    State(_): State<AppState>,
    Query(parameters): Query<Parameters>,
) -> Result<Response, ErrorResponse> {
    read_none(&parameters)?;
    Ok(json_body(Bytes::from_static(DESCRIPTION.as_bytes())))
}

/// A schema that the description refers to.
pub(super) async fn schema(
    State(_): State<AppState>,
    Path(wanted): Path<String>,
    Query(parameters): Query<Parameters>,
) -> Result<Response, ErrorResponse> {
    read_none(&parameters)?;
    let found = SCHEMAS.iter().find(|(name, _)| *name == wanted);
    let none = || ErrorResponse::Rejected(StatusCode::NOT_FOUND, "there is no such schema".into());
    let (_, text) = found.ok_or_else(none)?;
    Ok(json_body(Bytes::from_static(text.as_bytes())))
}
