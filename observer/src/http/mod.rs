//! The HTTP server. It only reads, and answers with the JSON that the command prints with `-o json`.
//!
//! Every request needs the token, unless the settings open the observer to all users of the machine, and must come by one
//! of the observer's own names. The time and size of requests and answers are bounded (`http-server`).

mod access;
mod cookie;
mod description;
mod fleet;
mod health;
mod metrics;
mod openapi;
mod pages;
mod parameters;
mod past;
mod past_moments;
mod public_path;
mod routes;
mod session;
mod shared;
mod stream;
mod tls;

pub(crate) use cookie::{CookieScope, CookieSigner};
pub use description::api_description;
pub(crate) use tls::{Certificate, TlsListener};

use crate::observed::SharedFleet;
use crate::recorded::Recorded;
use crate::token::Accepted;
use access::{Access, add_headers, require_access};
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::MethodRouter;
use etcd_session::random_token;
use http_server::{AnswerCache, Limits, OwnNames, Source, require_own_name};
use past::show_past;
use past_moments::PastMoments;
use prometheus_client::registry::Registry;
use routes::routes;
use settings::PublicUrl;
use shared::AppState;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::watch;

/// How many connections the server has. A browser needs one for its stream, and few to read pages.
const LIMITS: Limits = Limits { connections: 512, waiting: 256 };
/// How many times longer than its rendering and that of the others took an answer is given though the fleet changed. So
/// the answers to a few questions together need about a thirtieth of a core; ten thousand hosts are shown again about each
/// second.
const REST: u32 = 30;
/// The largest body of a request: the form with the token.
const BODY_MAX_BYTES: usize = 1024;
/// The refusal of a request by a name that is not the server's.
const FOREIGN_NAME: &str =
    "the Host header must be a local address, localhost, one of http.names, or that of http.public_url\n";

/// Where the server is.
pub(crate) struct OwnPlace {
    /// The address on which it listens.
    pub(crate) address: IpAddr,
    /// Names by which clients may ask.
    pub(crate) names: Vec<String>,
    /// Where people reach it through a proxy.
    pub(crate) public_url: Option<PublicUrl>,
}

/// What the server shows.
pub(crate) struct ShownData {
    pub(crate) fleet: Arc<SharedFleet>,
    pub(crate) metrics: Registry,
    /// The recording, if the observer records.
    pub(crate) recording: Option<Recorded>,
}

/// Serves until `stop` is true. `tokens` are those that are accepted, with what signs their cookies; `None` if everybody on
/// this machine may look.
pub(crate) async fn serve(
    source: impl Source,
    own: OwnPlace,
    tokens: Option<(Accepted, CookieSigner)>,
    shown: ShownData,
    stop: watch::Receiver<bool>,
) {
    let router = router(own, tokens, shown, stop.clone());
    http_server::serve(source, LIMITS, |_| (), router, stop).await;
}

fn router(
    OwnPlace { address, mut names, public_url }: OwnPlace,
    tokens: Option<(Accepted, CookieSigner)>,
    ShownData { fleet, metrics, recording }: ShownData,
    stop: watch::Receiver<bool>,
) -> Router {
    let (origin, path) = match public_url {
        Some(PublicUrl { origin, host, path }) => {
            names.push(host);
            (Some(origin), path)
        }
        None => (None, String::new()),
    };
    let own = OwnNames { address, names, refusal: (StatusCode::MISDIRECTED_REQUEST, FOREIGN_NAME) };
    let shown_metrics = Arc::new(metrics);
    let instance = random_token().to_string().into();
    let moments = Arc::new(PastMoments::new(recording));
    let shared = AppState {
        fleet,
        answers: AnswerCache::with_rest(REST),
        stop,
        instance,
        shown_metrics,
        has_past: moments.exist(),
        past: None,
    };
    let add = |router: Router<AppState>, (path, handler): (&str, MethodRouter<AppState>)| {
        router.route(path, handler)
    };
    let router = routes()
        .into_iter()
        .map(|route| (route.path, route.handler))
        .chain(pages::routes())
        .fold(Router::new(), add)
        .fallback(|| async {
            (StatusCode::NOT_FOUND, "there is no such path; /v1/openapi.json lists them\n")
        })
        .layer(from_fn_with_state((moments, shared.clone()), show_past))
        .layer(from_fn_with_state(Arc::new(Access::new(tokens, origin)), require_access))
        .layer(from_fn_with_state(Arc::new(own), require_own_name))
        .layer(from_fn(add_headers))
        .layer(DefaultBodyLimit::max(BODY_MAX_BYTES))
        .with_state(shared);
    public_path::below(&path, router)
}

#[cfg(test)]
mod tests;
