//! The pages for who may not look yet.

use super::frame::html;
use askama::Template;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};

/// Longest address to which a sign-in leads back, so that the form stays small.
const ADDRESS_MAX_BYTES: usize = 512;

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignIn<'a> {
    problem: &'static str,
    to: &'a str,
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

/// Returns the page on which people show the token. It leads to this address afterwards.
pub(in crate::http) fn sign_in(is_wrong: bool, to: &str) -> Response {
    let problem = if is_wrong { "This is not the token." } else { "" };
    shown(StatusCode::UNAUTHORIZED, &SignIn { problem, to: own_address(to) })
}

/// Returns the page for who follows a link of another site. A link of this page is not one of another site.
pub(in crate::http) fn from_other_site(uri: &Uri) -> Response {
    shown(StatusCode::FORBIDDEN, &OtherSite { path: own_address(address_of(uri)) })
}

/// Returns what a request asks for: its path with its parameters.
pub(in crate::http) fn address_of(uri: &Uri) -> &str {
    uri.path_and_query().map_or("/", |path| path.as_str())
}

/// Returns an address of this observer, or that of the first page if this is none.
pub(in crate::http) fn own_address(address: &str) -> &str {
    let is_path = address.starts_with('/') && address.bytes().all(|byte| byte.is_ascii_graphic());
    // Two slashes begin the name of another site, and browsers take a backslash for a slash.
    let is_own = is_path && !address.starts_with("//") && !address.contains('\\');
    if is_own && address.len() <= ADDRESS_MAX_BYTES { address } else { "/" }
}

fn shown(code: StatusCode, page: &impl Template) -> Response {
    page.render().map_or_else(|_| code.into_response(), |page| html(code, page))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_this_observer_are_led_to() {
        for own in ["/", "/hosts/web-1", "/hosts?role=web&verdict=failed"] {
            assert_eq!(own_address(own), own);
        }
        let long = format!("/{}", "x".repeat(ADDRESS_MAX_BYTES));
        for other in
            ["", "//evil.example", "/\\evil.example", "https://evil.example", "/a\r\nb", "/a b", &long]
        {
            assert_eq!(own_address(other), "/", "{other:?}");
        }
    }
}
