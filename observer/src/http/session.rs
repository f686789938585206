//! Trades the token for a cookie.

use super::access::{Access, Granted};
use super::{cookie, pages};
use crate::clock::now;
use crate::token::TokenDigest;
use axum::Extension;
use axum::body::Bytes;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use std::sync::Arc;

/// The field of the form that has the token.
const FIELD: &str = "token";

/// Answers with a cookie that stands for the token that the request has shown: in its header, or in a form, of which the
/// answer leads to the first page. Who may look without a token needs none.
pub(super) async fn open(
    Extension(access): Extension<Arc<Access>>,
    granted: Option<Extension<Granted>>,
    body: Bytes,
) -> Response {
    let mut fields = form_urlencoded::parse(&body);
    let shown = fields.find(|(name, _)| name == FIELD).map(|(_, token)| token);
    match (shown, granted) {
        (Some(shown), _) => match access.token(&shown) {
            Some(token) => (cookie_of(&token), Redirect::to("/")).into_response(),
            None => pages::sign_in(true),
        },
        (None, Some(Extension(granted))) => {
            let cookie = granted.token().map(|token| cookie_of(&token));
            (cookie, StatusCode::NO_CONTENT).into_response()
        }
        (None, None) => pages::sign_in(true),
    }
}

fn cookie_of(token: &TokenDigest) -> [(HeaderName, String); 1] {
    [(header::SET_COOKIE, cookie::set_cookie(token, now()))]
}
