//! The pages for who may not look yet.

use super::frame::html;
use askama::Template;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignIn {
    problem: &'static str,
}

#[derive(Template)]
#[template(path = "other_site.html")]
struct OtherSite<'a> {
    path: &'a str,
}

/// True if a browser asks for a page to show.
pub(in crate::http) fn wants_page(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
}

/// Returns the page on which people show the token.
pub(in crate::http) fn sign_in(is_wrong: bool) -> Response {
    let problem = if is_wrong { "This is not the token." } else { "" };
    shown(StatusCode::UNAUTHORIZED, &SignIn { problem })
}

/// Returns the page for who follows a link of another site. A link of this page is not one of another site.
pub(in crate::http) fn from_other_site(uri: &Uri) -> Response {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    // A path that begins with two slashes would be the name of another site.
    let path = if path.starts_with("//") { "/" } else { path };
    shown(StatusCode::FORBIDDEN, &OtherSite { path })
}

fn shown(code: StatusCode, page: &impl Template) -> Response {
    page.render().map_or_else(|_| code.into_response(), |page| html(code, page))
}
