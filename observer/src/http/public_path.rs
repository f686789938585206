//! The path below which a proxy shows the observer. The proxy may leave the path in front of a request or take it away.
//! Everything behind this layer knows paths without it.

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use std::sync::Arc;

/// How links, forms and files of pages begin. Text of others cannot contain it, because quotes are escaped.
const LINKS: [&str; 4] = ["href=\"/", "href='/", "src=\"/", "action=\"/"];

/// Returns a router that shows the same below a path. An empty one is the root.
pub(super) fn below(path: &str, router: Router) -> Router {
    if path.is_empty() {
        return router;
    }
    Router::new().fallback_service(router).layer(from_fn_with_state(Arc::<str>::from(path), move_below))
}

async fn move_below(State(path): State<Arc<str>>, mut request: Request, next: Next) -> Response {
    if let Some(inside) = without_path(request.uri(), &path) {
        *request.uri_mut() = inside;
    }
    let (mut parts, body) = next.run(request).await.into_parts();
    let location = parts.headers.get(header::LOCATION).and_then(|value| value.to_str().ok());
    if let Some(Ok(moved)) = location.filter(|to| to.starts_with('/')).map(|to| format!("{path}{to}").parse())
    {
        parts.headers.insert(header::LOCATION, moved);
    }
    let is_page = |kind: &HeaderValue| kind.as_bytes().starts_with(b"text/html");
    if !parts.headers.get(header::CONTENT_TYPE).is_some_and(is_page) {
        return Response::from_parts(parts, body);
    }
    // A page is in memory already.
    let Ok(page) = to_bytes(body, usize::MAX).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(Bytes::from(with_path(&String::from_utf8_lossy(&page), &path))))
}

/// Returns the address of a request without the path in front; `None` if it does not begin with it.
fn without_path(uri: &Uri, path: &str) -> Option<Uri> {
    let rest = uri.path_and_query()?.as_str().strip_prefix(path)?;
    match rest.as_bytes().first() {
        None => Some(Uri::from_static("/")),
        Some(b'/') => rest.parse().ok(),
        Some(b'?') => format!("/{rest}").parse().ok(),
        Some(_) => None,
    }
}

/// Returns HTML with the path in front of all links.
fn with_path(html: &str, path: &str) -> String {
    LINKS.iter().fold(html.to_owned(), |html, link| {
        let (name, slash) = link.split_at(link.len() - 1);
        html.replace(link, &format!("{name}{path}{slash}"))
    })
}

#[cfg(test)]
mod tests {
    use super::super::{pages, routes};
    use super::*;
    use settings::OWN_PARTS;
    use std::collections::BTreeSet;

    #[test]
    fn the_settings_know_the_paths_that_a_public_path_must_not_begin_with() {
        let paths = routes().into_iter().map(|route| route.path).chain(pages::routes().map(|(path, _)| path));
        let parts: BTreeSet<&str> =
            paths.filter_map(|path| path.split('/').nth(1)).filter(|part| !part.is_empty()).collect();
        assert_eq!(parts, OWN_PARTS.into());
    }

    #[test]
    fn a_request_is_the_same_with_the_path_and_without() {
        for (address, expected) in [
            ("/fleet", Some("/")),
            ("/fleet/", Some("/")),
            ("/fleet?x=1", Some("/?x=1")),
            ("/fleet/hosts/web-1?at=7", Some("/hosts/web-1?at=7")),
            ("/fleet//evil.example", Some("//evil.example")),
            ("/fleets", None),
            ("/hosts", None),
            ("/", None),
        ] {
            let uri: Uri = address.parse().unwrap();
            let inside = without_path(&uri, "/fleet").map(|uri| uri.to_string());
            assert_eq!(inside.as_deref(), expected, "{address}");
        }
    }

    #[test]
    fn all_links_of_a_page_have_the_path_and_its_text_has_not() {
        let html = r##"<a href="/">a</a><a href='/x'><script src="/page.js"></script><form action="/search"><a href="#main">/x href=&#34;/"##;
        let moved = r##"<a href="/fleet/">a</a><a href='/fleet/x'><script src="/fleet/page.js"></script><form action="/fleet/search"><a href="#main">/x href=&#34;/"##;
        assert_eq!(with_path(html, "/fleet"), moved);
    }
}
