//! Results of TTL checks, reported over HTTP.

use super::shared::Shared;
use crate::checks::UnknownCheck;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use http_server::ErrorResponse;
use schema::health::CheckStatus;
use schema::names::CheckId;
use serde::Deserialize;

/// The query parameters of a result.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ResultQuery {
    note: String,
}

/// A result as the body of a request, with Consul's field names.
#[derive(Debug, Deserialize)]
struct Update {
    #[serde(rename = "Status", alias = "status")]
    status: CheckStatus,
    #[serde(rename = "Output", alias = "output", default)]
    output: String,
}

/// Handles `…/pass|warn|fail/<check>?note=…`, Consul's own form.
pub(super) async fn report_result(
    State(shared): State<Shared>,
    Path((result, check)): Path<(String, String)>,
    Query(query): Query<ResultQuery>,
) -> Result<&'static str, ErrorResponse> {
    let result = match result.as_str() {
        "pass" => CheckStatus::Passing,
        "warn" => CheckStatus::Warning,
        "fail" => CheckStatus::Critical,
        other => {
            let text = format!("{}: pass, warn, fail or update", schema::names::quoted(other));
            return Err(ErrorResponse::Rejected(StatusCode::NOT_FOUND, text));
        }
    };
    record(&shared, &check, result, &query.note)
}

/// Handles `…/update/<check>`, as Consul's clients send it. Not all of them send a content type, so
/// it is not checked.
pub(super) async fn update_result(
    State(shared): State<Shared>,
    Path(check): Path<String>,
    body: Bytes,
) -> Result<&'static str, ErrorResponse> {
    let update: Update = serde_json::from_slice(&body).map_err(|error| {
        let right = r#"{"Status": "passing", "Output": "fine"}, or warning, or critical"#;
        let text = format!("the body is no result ({error}): it must be like {right}");
        ErrorResponse::Rejected(StatusCode::BAD_REQUEST, text)
    })?;
    record(&shared, &check, update.status, &update.output)
}

fn record(
    shared: &Shared,
    check: &str,
    result: CheckStatus,
    output: &str,
) -> Result<&'static str, ErrorResponse> {
    let check =
        CheckId::new(check).map_err(|e| ErrorResponse::Rejected(StatusCode::BAD_REQUEST, e.to_string()))?;
    shared.registry.report_result(&check, result, output).map_err(|error| {
        let code = match error {
            UnknownCheck::NoSuch(_) => StatusCode::NOT_FOUND,
            UnknownCheck::NotTtl(_) => StatusCode::CONFLICT,
        };
        ErrorResponse::Rejected(code, error.to_string())
    })?;
    Ok("")
}
