//! Errors as answers to clients.

use crate::server::TooManyWait;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

/// An error as the answer to a request.
#[derive(Debug)]
pub enum ErrorResponse {
    /// The request is refused with a status code and the reason.
    Rejected(StatusCode, String),
    /// There is no room for the request now.
    Busy(&'static str),
}

/// How long a client must wait before the next attempt, in seconds.
const LATER_SECONDS: &str = "5";

impl From<TooManyWait> for ErrorResponse {
    fn from(_: TooManyWait) -> Self {
        Self::Busy("too many questions wait already")
    }
}

impl IntoResponse for ErrorResponse {
    fn into_response(self) -> Response {
        match self {
            Self::Rejected(code, text) => (code, format!("{text}\n")).into_response(),
            Self::Busy(why) => {
                let headers = [(header::RETRY_AFTER, LATER_SECONDS)];
                let text = format!("{why}; try again in {LATER_SECONDS} seconds\n");
                (StatusCode::SERVICE_UNAVAILABLE, headers, text).into_response()
            }
        }
    }
}
