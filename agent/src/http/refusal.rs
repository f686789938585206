//! What a client gets that is not answered.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

/// What a client gets that is not answered.
#[derive(Debug)]
pub(super) enum Refusal {
    /// What is wrong.
    Said(StatusCode, String),
    /// There is no room for it now.
    Later(&'static str),
}

/// Who is told to come later is told to wait so long.
const LATER_SECONDS: &str = "5";

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Self::Said(code, text) => (code, format!("{text}\n")).into_response(),
            Self::Later(why) => {
                let headers = [(header::RETRY_AFTER, LATER_SECONDS)];
                let text = format!("{why}; ask again in {LATER_SECONDS} seconds\n");
                (StatusCode::SERVICE_UNAVAILABLE, headers, text).into_response()
            }
        }
    }
}
