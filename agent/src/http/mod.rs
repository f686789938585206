//! The local HTTP server, on loopback unless configured otherwise. It only reads, except for the
//! results of TTL checks and for claims of limits: it takes these on the Unix socket from users that
//! may, and on TCP only if that is configured.
//!
//! | path | answer |
//! |---|---|
//! | `/status` | the plan and its reasons, the claim, the store, the catalog, as JSON |
//! | `/ready` | 200 after the first complete list, 503 before |
//! | `/live` | 200 |
//! | `/metrics` | metrics, as Prometheus' text or as OpenMetrics |
//! | `/v1/services` | every service, with the numbers of addressable and functional instances |
//! | `/v1/services/NAME` | the instances of a service; `level=addressable\|functional`, `tag=TAG` |
//! | `/v1/nodes` | every host that has a service, with its addresses |
//! | `/v1/nodes/HOST` | one host, even if it has no service |
//! | `/v1/checks` | the checks of this host; their output only on the Unix socket |
//! | `/v1/http_sd?service=NAME` | targets for Prometheus |
//! | `/v1/config/NAME` | only on the Unix socket: a value that operators keep, or null |
//! | `/v1/runs`, `/v1/runs/RUN?from=LINE&whole=true` | only on the Unix socket: the runs of steps that are kept; one with its output |
//! | `/v1/agent/check/pass\|warn\|fail/CHECK?note=TEXT` | takes a result, by GET or PUT |
//! | `/v1/agent/check/update/CHECK` | takes `{"Status": "passing", "Output": "TEXT"}`, by PUT |
//! | `/v1/pre-reboot`, `/v1/steady-state` | FleetLock, by POST; only if it is configured |
//! | `/v1/claims/commands/RUN` | only on the Unix socket, for root and the agent's user: takes claims for a command by PUT, gives them back by DELETE |
//!
//! With `index=N&wait=DURATION`, a list is answered when the catalog differs from the one with that
//! index, or when the time is over.
//!
//! Any program on this machine may send requests, so connections, the time of an answer and the
//! total size of all answers are bounded.

mod catalog;
mod claims;
mod metrics;
mod results;
mod runs;
mod shared;
mod state_metrics;

pub(crate) use shared::Shared;
pub(crate) use state_metrics::StateMetrics;

use crate::socket::Peer;
use crate::supervise::TaskStatus;
use crate::templates::TemplateStates;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Extension, Router};
use http_server::{ErrorResponse, Limits, OwnNames, json_body, require_own_name};
use rustix::fs::Gid;
use schema::names::HostName;
use shared::Connection;
use std::sync::Arc;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;

/// Longest body of a request, in bytes; only results of checks have a body.
const BODY_MAX_BYTES: usize = 64 * 1024;

/// How many connections each listener has. Clients wait for a change of the catalog.
const LIMITS: Limits = Limits { connections: 512, waiting: 64 };

/// The refusal of a request by a name that is not the server's.
const FOREIGN_NAME: &str =
    "the Host header must be a local address, the name of this host, or one of http.names\n";

fn read_routes() -> Router<Shared> {
    Router::new()
        .route("/status", get(show_status))
        .route("/ready", get(ready))
        .route("/live", get(|| async { "live\n" }))
        .route("/metrics", get(metrics::metrics))
        .route("/v1/services", get(catalog::services))
        .route("/v1/services/{name}", get(catalog::service))
        .route("/v1/nodes", get(catalog::nodes))
        .route("/v1/nodes/{host}", get(catalog::node))
        .route("/v1/http_sd", get(catalog::http_sd))
}

fn report_routes() -> Router<Shared> {
    Router::new()
        .route("/v1/agent/check/{result}/{check}", get(results::report_result).put(results::report_result))
        .route("/v1/agent/check/update/{check}", put(results::update_result))
}

fn fleet_lock_routes() -> Router<Shared> {
    Router::new()
        .route("/v1/pre-reboot", post(claims::pre_reboot))
        .route("/v1/steady-state", post(claims::steady_state))
}

/// Where the server listens on TCP, and what any program of this machine may do there besides reading.
#[derive(Debug, Clone)]
pub(crate) struct OnTcp {
    /// Names by which other machines ask the server.
    pub names: Vec<HostName>,
    /// Report results of checks.
    pub results: bool,
    /// Ask for claims before a reboot, as FleetLock's clients do.
    pub fleet_lock: bool,
}

/// Serves on TCP until `stop` is true.
///
/// # Errors
/// The address of the listener cannot be read.
pub(crate) fn serve(
    listener: TcpListener,
    shared: Shared,
    open: OnTcp,
    stop: watch::Receiver<bool>,
) -> std::io::Result<impl Future<Output = ()>> {
    let bound = listener.local_addr()?;
    let mut router = read_routes().route("/v1/checks", get(catalog::checks));
    if open.results {
        router = router.merge(report_routes());
    }
    if open.fleet_lock {
        router = router.merge(fleet_lock_routes());
    }
    let own = OwnNames {
        address: bound.ip(),
        names: open.names.iter().map(ToString::to_string).collect(),
        refusal: (StatusCode::FORBIDDEN, FOREIGN_NAME),
    };
    let router = router.layer(from_fn_with_state(Arc::new(own), require_own_name));
    let router = router.layer(from_fn_with_state((shared.metrics.clone(), "tcp"), metrics::count));
    let router = router.layer(DefaultBodyLimit::max(BODY_MAX_BYTES)).with_state(shared);
    Ok(http_server::serve(listener, LIMITS, |_| None::<Peer>, router, stop))
}

/// Serves on a Unix socket of a group until `stop` is true. Every user that may open the socket may
/// read.
pub(crate) async fn serve_socket(
    listener: UnixListener,
    group: Option<Gid>,
    shared: Shared,
    stop: watch::Receiver<bool>,
) {
    let private = Router::new()
        .route("/v1/config/{name}", get(catalog::config))
        .route("/v1/checks", get(catalog::checks_with_output))
        .route("/v1/runs", get(runs::list))
        .route("/v1/runs/{run}", get(runs::show));
    let telling = report_routes().layer(from_fn_with_state(group, require_user));
    // No group may keep the places of the fleet.
    let commands = Router::new()
        .route("/v1/claims/commands/{run}", put(claims::take_for_command).delete(claims::end_command))
        .layer(from_fn_with_state(None::<Gid>, require_user));
    let router = read_routes()
        .merge(telling)
        .merge(commands)
        .merge(private)
        .layer(from_fn_with_state((shared.metrics.clone(), "socket"), metrics::count))
        .layer(DefaultBodyLimit::max(BODY_MAX_BYTES));
    http_server::serve(listener, LIMITS, Peer::of, router.with_state(shared), stop).await;
}

/// Rejects requests of users other than root, the agent's user and members of the group. The mode of the socket is not enough,
/// because it may be open to others so that they can read.
async fn require_user(
    State(group): State<Option<Gid>>,
    Extension(client): Extension<Arc<Connection>>,
    request: Request,
    next: Next,
) -> Response {
    let own = rustix::process::geteuid().as_raw();
    match &client.peer {
        Some(peer) if peer.may_report(own, group) => next.run(request).await,
        peer => {
            let who =
                peer.as_ref().map_or_else(|| "this user".to_owned(), |peer| format!("user {}", peer.uid()));
            let members = if group.is_some() { " and members of the socket's group" } else { "" };
            let text = format!("{who} may not do this: only root, the agent's user{members} may");
            ErrorResponse::Rejected(StatusCode::FORBIDDEN, text).into_response()
        }
    }
}

async fn show_status(State(shared): State<Shared>) -> Result<Response, ErrorResponse> {
    let mut json = shared.status.borrow().clone().json();
    let (shown, loaded) = (shared.reader.snapshot(), shared.loaded.borrow().clone());
    json["catalog"] = serde_json::json!({
        "revision": shown.revision,
        "connected": shown.connected,
        "age_seconds": shared.reader.age().as_secs(),
        "services": shown.view.services().len(),
        "retained": shown.retained,
        "records_passed_over": shown.refused,
        "over_the_limit": shown.is_over,
    });
    json["services"] = serde_json::json!({
        "published": *shared.published.borrow().clone(),
        "defined": loaded.definitions.services.keys().collect::<Vec<_>>(),
        "errors": loaded.errors,
    });
    let mut templates = TemplateStates::clone(&shared.templates.borrow());
    for state in templates.values_mut() {
        // The problem may contain the output of a command.
        state.problem = state.problem.as_deref().map(|problem| shared.secrets.redact_check(problem));
    }
    json["templates"] = serde_json::json!(templates);
    json["tasks"] = shared.tasks.borrow().iter().map(TaskStatus::json).collect();
    Ok(json_body(shared.answers.body(&json).await?))
}

async fn ready(State(shared): State<Shared>) -> (StatusCode, &'static str) {
    if shared.status.borrow().is_ready() {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the store has not been listed yet\n")
    }
}
