//! What is around every page: the views, the search, and how fresh the page is.

use super::links::with_moment;
use crate::clock::now;
use crate::http::health::{HealthView, health_of};
use crate::http::shared::AppState;
use crate::observed::Moment;
use archive::recording::PastView;
use askama::Template;
use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use futures_util::stream::iter;
use http_server::ErrorResponse;
use planning::calendar::rfc3339;
use std::convert::Infallible;

/// What a page may load and run: the own files. Text becomes HTML only by the policy of the own script.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
    trusted-types page";
/// Number of characters of the lineage that tell fleets apart.
const LINEAGE_SHOWN: usize = 8;
const END: &str = "</main>\n</body>\n</html>\n";

/// What the frame of a page shows.
pub(super) struct View<'a> {
    /// The path of the view to which the page belongs.
    pub(super) path: &'static str,
    pub(super) title: &'a str,
    pub(super) query: &'a str,
}

impl<'a> View<'a> {
    pub(super) fn new(path: &'static str, title: &'a str) -> Self {
        Self { path, title, query: "" }
    }
}

/// The head of every page.
#[derive(Template)]
#[template(path = "frame.html")]
struct Frame<'a> {
    title: &'a str,
    /// The path of the view, as the list of the views has it.
    current: &'static str,
    skip_to: &'static str,
    fleet: Option<String>,
    query: &'a str,
    health: HealthView,
    /// The revision of the content.
    revision: Option<i64>,
    now: String,
    /// The moment of the past that is shown, and the address of the same view of the present.
    past: Option<(&'a PastView, &'a str)>,
}

impl Frame<'_> {
    fn views(&self) -> [(&'static str, &'static str); 4] {
        [("Now", "/"), ("Rollouts", "/rollouts"), ("Services", "/services"), ("Events", "/events")]
    }
}

#[derive(Template)]
#[template(path = "message.html")]
struct Message<'a> {
    title: &'a str,
    text: &'a str,
    /// Texts of links, and where they lead.
    choices: &'a [(String, String)],
}

/// Returns a page with this content, or with the reason why there is none.
pub(super) fn page(
    shared: &AppState,
    view: View<'_>,
    content: Result<(Bytes, Moment), ErrorResponse>,
) -> Response {
    match content {
        Ok((content, moment)) => framed(shared, view, StatusCode::OK, content, moment),
        Err(refusal) => message(shared, view, &refusal, &[]),
    }
}

/// Returns a page that says why there is no other one, with links to what may be meant.
pub(super) fn message(
    shared: &AppState,
    view: View<'_>,
    refusal: &ErrorResponse,
    choices: &[(String, String)],
) -> Response {
    let (code, title, text) = match refusal {
        ErrorResponse::Rejected(code, text) => (*code, title_of(*code), text.as_str()),
        ErrorResponse::Busy(text) => (StatusCode::SERVICE_UNAVAILABLE, "Busy", *text),
    };
    let message = Message { title, text, choices }.render().unwrap_or_default();
    framed(shared, view, code, Bytes::from(message), shared.fleet.moment())
}

fn framed(
    shared: &AppState,
    View { path: current, title, query }: View<'_>,
    code: StatusCode,
    content: Bytes,
    moment: Moment,
) -> Response {
    let has_counts = current == "/" && code == StatusCode::OK;
    let lineage = shared.fleet.lineage().map(|lineage| lineage.to_string());
    let frame = Frame {
        title,
        current,
        skip_to: if has_counts { "first-count" } else { "main" },
        fleet: lineage.map(|lineage| lineage.chars().take(LINEAGE_SHOWN).collect()),
        query,
        // The content may be older than the newest state, because it is made for many. It must not look newer.
        health: health_of(&shared.fleet, moment),
        revision: Some(moment.revision).filter(|revision| *revision > 0),
        now: rfc3339(now()).unwrap_or_default(),
        past: shared.past.as_ref().map(|wanted| (&wanted.past.view, &*wanted.present_address)),
    };
    let Ok(begin) = frame.render() else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
    let (begin, content) = match &shared.past {
        Some(wanted) => {
            let (parameter, moment) = (wanted.parameter(), wanted.past.view.moment.as_str());
            let content = String::from_utf8_lossy(&content);
            let moved = [&*begin, &*content].map(|html| with_moment(html, &parameter, moment));
            let [begin, content] = moved;
            (begin, Bytes::from(content))
        }
        None => (begin, content),
    };
    let parts = [Bytes::from(begin), content, Bytes::from_static(END.as_bytes())];
    let body = Body::from_stream(iter(parts.map(Ok::<_, Infallible>)));
    html(code, body)
}

/// Returns an answer that browsers show as a page.
pub(super) fn html(code: StatusCode, body: impl Into<Body>) -> Response {
    let policy = [(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY))];
    // With the policy of the API, browsers would send the form of the sign-in without its origin.
    let referrer = [(header::REFERRER_POLICY, "same-origin")];
    let opener = [(HeaderName::from_static("cross-origin-opener-policy"), "same-origin")];
    (code, policy, referrer, opener, Html(body.into())).into_response()
}

fn title_of(code: StatusCode) -> &'static str {
    match code {
        StatusCode::NOT_FOUND => "Not found",
        StatusCode::MULTIPLE_CHOICES => "Which one?",
        StatusCode::INTERNAL_SERVER_ERROR => "This cannot be read",
        StatusCode::BAD_REQUEST => "This cannot be shown",
        _ => "Not yet",
    }
}
