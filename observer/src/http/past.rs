//! The past: `at=MOMENT` in the query of a view. What was recorded of the moment becomes a fleet that does not change, and
//! the same handlers show it.

use super::pages;
use super::past_moments::{AskedPast, PastMoments};
use super::shared::AppState;
use axum::extract::{Request, State};
use axum::http::Uri;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use form_urlencoded::Serializer;
use std::sync::Arc;

/// The name of the parameter.
const AT: &str = "at";

/// Has a view show the past, if its query names a moment.
pub(super) async fn show_past(
    State((moments, shared)): State<(Arc<PastMoments>, AppState)>,
    mut request: Request,
    next: Next,
) -> Response {
    if !is_view(request.uri().path()) {
        return next.run(request).await;
    }
    let Some((at, uri)) = without_moment(request.uri()) else {
        return next.run(request).await;
    };
    match moments.open(&at).await {
        Ok(past) => {
            let present_address = uri.path_and_query().map_or("/", |address| address.as_str()).into();
            request.extensions_mut().insert(AskedPast { past, present_address, moments });
            *request.uri_mut() = uri;
            next.run(request).await
        }
        Err(refusal) if pages::wants_page(request.headers()) => {
            let to = |moment: &String| {
                let path = pages::own_address(uri.path());
                let query = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
                let query =
                    Serializer::new(String::new()).extend_pairs(query).append_pair(AT, moment).finish();
                format!("{path}?{query}")
            };
            let addresses: Vec<String> = refusal.choices.iter().map(to).collect();
            let choices = refusal.choices.into_iter().zip(addresses).collect();
            pages::refusal(shared, refusal.response, choices)
        }
        Err(refusal) => refusal.response.into_response(),
    }
}

/// Returns the moment of a query, and the address without it.
fn without_moment(uri: &Uri) -> Option<(String, Uri)> {
    let query = uri.query()?;
    let pairs: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let at = pairs.iter().rev().find(|(name, _)| name == AT).map(|(_, at)| at.clone())?;
    let rest = pairs.iter().filter(|(name, _)| name != AT);
    let rest = Serializer::new(String::new()).extend_pairs(rest).finish();
    let address = if rest.is_empty() { uri.path().to_owned() } else { format!("{}?{rest}", uri.path()) };
    Some((at, address.parse().ok()?))
}

/// True if a path shows the fleet. Others are about the observer itself, and refuse the parameter.
fn is_view(path: &str) -> bool {
    const OF_OBSERVER: [&str; 6] =
        ["/metrics", "/v1/health", "/v1/incidents", "/v1/openapi.json", "/v1/session", "/v1/stream"];
    !OF_OBSERVER.contains(&path) && !path.starts_with("/v1/schema/") && !pages::is_public(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_moment_is_taken_out_of_the_address() {
        let check = |address: &str, expected: Option<(&str, &str)>| {
            let found = without_moment(&address.parse().unwrap()).map(|(at, uri)| (at, uri.to_string()));
            let found = found.as_ref().map(|(at, uri)| (at.as_str(), uri.as_str()));
            assert_eq!(found, expected, "{address}");
        };
        check("/", None);
        check("/hosts?role=web", None);
        check("/?at=12", Some(("12", "/")));
        check("/hosts?role=a%2Bb&at=l%2F1%2F0%2F12&all=", Some(("l/1/0/12", "/hosts?role=a%2Bb&all=")));
        check("/?at=1&at=2", Some(("2", "/")));
        for (path, expected) in [
            ("/", true),
            ("/v1/hosts/h", true),
            ("/v1/stream", false),
            ("/page.css", false),
            ("/metrics", false),
        ] {
            assert_eq!(is_view(path), expected, "{path}");
        }
    }
}
