//! Trades the token for a cookie.

use super::access::{Access, Granted};
use super::pages;
use axum::Extension;
use axum::body::Bytes;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Answers with a cookie that stands for the token that the request has shown: in its header, or in a form, of which the
/// answer leads to the page that was wanted. Who may look without a token needs none, and a cookie leads to no new one.
pub(super) async fn open(
    Extension(access): Extension<Arc<Access>>,
    granted: Option<Extension<Granted>>,
    body: Bytes,
) -> Response {
    let fields: BTreeMap<Cow<'_, str>, Cow<'_, str>> = form_urlencoded::parse(&body).collect();
    let to = fields.get("to").map_or("/", |to| pages::own_address(to));
    match (fields.get("token"), granted) {
        (Some(shown), _) => match access.cookie_for(shown) {
            Some(cookie) => (header_of(cookie), Redirect::to(to)).into_response(),
            None => pages::sign_in(true, to),
        },
        (None, Some(Extension(granted))) => {
            let cookie = granted.shown_token().and_then(|token| access.cookie_of(&token)).map(header_of);
            (cookie, StatusCode::NO_CONTENT).into_response()
        }
        (None, None) => pages::sign_in(true, to),
    }
}

fn header_of(cookie: String) -> [(HeaderName, String); 1] {
    [(header::SET_COOKIE, cookie)]
}
