//! What a client gets that is not answered.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

/// What a client gets that is not answered.
#[derive(Debug)]
pub(super) enum Refusal {
    /// What is wrong.
    Rejected(StatusCode, String),
    /// There is no room for it now.
    Busy(&'static str),
}

/// Who is told to come later is told to wait so long.
const LATER_SECONDS: &str = "5";

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Self::Rejected(code, text) => (code, format!("{text}\n")).into_response(),
            Self::Busy(why) => {
                let headers = [(header::RETRY_AFTER, LATER_SECONDS)];
                let text = format!("{why}; ask again in {LATER_SECONDS} seconds\n");
                (StatusCode::SERVICE_UNAVAILABLE, headers, text).into_response()
            }
        }
    }
}
