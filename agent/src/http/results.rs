//! Results of checks that are told from outside.

use super::Shared;
use crate::checks::UnknownCheck;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use model::checks::CheckStatus;
use model::names::CheckId;
use serde::Deserialize;

/// What goes with a result.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Said {
    note: String,
}

/// A result as the body of a request, with Consul's names.
#[derive(Debug, Deserialize)]
struct Update {
    #[serde(rename = "Status", alias = "status")]
    status: CheckStatus,
    #[serde(rename = "Output", alias = "output", default)]
    output: String,
}

/// What is said to whoever cannot be understood.
type Refusal = (StatusCode, String);

/// `…/pass|warn|fail/<check>?note=…`, Consul's own form.
pub(super) async fn told(
    State(shared): State<Shared>,
    Path((result, check)): Path<(String, String)>,
    Query(said): Query<Said>,
) -> Result<&'static str, Refusal> {
    let result = match result.as_str() {
        "pass" => CheckStatus::Passing,
        "warn" => CheckStatus::Warning,
        "fail" => CheckStatus::Critical,
        other => {
            let text = format!("{}: pass, warn, fail or update\n", model::names::quoted(other));
            return Err((StatusCode::NOT_FOUND, text));
        }
    };
    record(&shared, &check, result, &said.note)
}

/// `…/update/<check>`, as Consul's clients tell it. They do not all name the type of their JSON.
pub(super) async fn updated(
    State(shared): State<Shared>,
    Path(check): Path<String>,
    body: Bytes,
) -> Result<&'static str, Refusal> {
    let update: Update = serde_json::from_slice(&body).map_err(|error| {
        let right = r#"{"Status": "passing", "Output": "fine"}, or warning, or critical"#;
        (StatusCode::BAD_REQUEST, format!("the body is no result ({error}): it must be like {right}\n"))
    })?;
    record(&shared, &check, update.status, &update.output)
}

fn record(shared: &Shared, check: &str, result: CheckStatus, output: &str) -> Result<&'static str, Refusal> {
    let check = CheckId::new(check).map_err(|e| (StatusCode::BAD_REQUEST, format!("{e}\n")))?;
    shared.board.told(&check, result, output).map_err(|error| {
        let code = match error {
            UnknownCheck::NoSuch(_) => StatusCode::NOT_FOUND,
            UnknownCheck::NotTtl(_) => StatusCode::CONFLICT,
        };
        (code, format!("{error}\n"))
    })?;
    Ok("")
}
