//! Trades the token for a cookie.

use super::access::Granted;
use super::cookie;
use crate::clock::now;
use axum::Extension;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

/// Answers with a cookie that stands for the token that the request has shown. Who may look without a token needs none.
pub(super) async fn open(Extension(granted): Extension<Granted>) -> Response {
    match granted.token() {
        Some(token) => {
            let cookie = [(header::SET_COOKIE, cookie::set_cookie(&token, now()))];
            (StatusCode::NO_CONTENT, cookie).into_response()
        }
        None => StatusCode::NO_CONTENT.into_response(),
    }
}
