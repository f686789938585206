//! Results of checks that are told from outside.

use super::Shared;
use crate::checks::UnknownCheck;
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

/// `…/pass|warn|fail/<check>?note=…`, Consul's own form.
pub(super) async fn told(
    State(shared): State<Shared>,
    Path((result, check)): Path<(String, String)>,
    Query(said): Query<Said>,
) -> Result<&'static str, (StatusCode, String)> {
    let result = match result.as_str() {
        "pass" => CheckStatus::Passing,
        "warn" => CheckStatus::Warning,
        "fail" => CheckStatus::Critical,
        other => {
            let text = format!("{}: pass, warn or fail\n", model::names::quoted(other));
            return Err((StatusCode::NOT_FOUND, text));
        }
    };
    let check = CheckId::new(check).map_err(|e| (StatusCode::BAD_REQUEST, format!("{e}\n")))?;
    shared.board.told(&check, result, &said.note).map_err(|error| {
        let code = match error {
            UnknownCheck::NoSuch(_) => StatusCode::NOT_FOUND,
            UnknownCheck::NotTtl(_) => StatusCode::CONFLICT,
        };
        (code, format!("{error}\n"))
    })?;
    Ok("")
}
