//! The local HTTP, read-only, on loopback unless configured otherwise.
//!
//! | path | answer |
//! |---|---|
//! | `/status` | the plan and its reasons, the claim, the store, as JSON |
//! | `/ready` | 200 after the first complete list, 503 before |
//! | `/live` | 200 |
//! | `/metrics` | Prometheus text |

use crate::status::Status;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tokio::net::TcpListener;
use tokio::sync::watch;

type Shared = watch::Receiver<Arc<Status>>;

/// Serves until `stop` resolves.
///
/// # Errors
/// The listener broke.
pub async fn serve(
    listener: TcpListener,
    status: Shared,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let bound = listener.local_addr()?;
    let app = Router::new()
        .route("/status", get(show_status))
        .route("/ready", get(ready))
        .route("/live", get(|| async { "live\n" }))
        .route("/metrics", get(metrics))
        .layer(from_fn_with_state(bound, only_by_address))
        .with_state(status);
    axum::serve(listener, app).with_graceful_shutdown(stop).await
}

/// A page in a browser must not read this by a name that it made point here (DNS rebinding): the Host
/// header must be an address, or localhost.
async fn only_by_address(State(bound): State<SocketAddr>, request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|h| h.to_str().ok()).unwrap_or("");
    let name =
        host.rsplit_once(':').map_or(host, |(name, port)| if port.ends_with(']') { host } else { name });
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let address = name
        .parse::<IpAddr>()
        .is_ok_and(|a| a.is_loopback() || a == bound.ip() || bound.ip().is_unspecified());
    if address || name == "localhost" {
        next.run(request).await
    } else {
        (StatusCode::FORBIDDEN, "the Host header must be a local address\n").into_response()
    }
}

async fn show_status(State(status): State<Shared>) -> Json<serde_json::Value> {
    let status = status.borrow().clone();
    Json(status.json())
}

async fn ready(State(status): State<Shared>) -> (StatusCode, &'static str) {
    if status.borrow().is_ready() {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the store has not been listed yet\n")
    }
}

async fn metrics(State(status): State<Shared>) -> Response {
    let status = status.borrow().clone();
    let mut registry = Registry::with_prefix("orchestrate_agent");
    let mut gauge = |name: &str, help: &str, value: f64| {
        let metric = Gauge::<f64, AtomicU64>::default();
        metric.set(value);
        registry.register(name, help, metric);
    };
    let flag = |yes: bool| f64::from(u8::from(yes));
    gauge("store_connected", "1 while the watch on the store stands", flag(status.snapshot.connected));
    gauge("store_revision", "Revision of the picture of the store", status.snapshot.picture.revision as f64);
    gauge("store_reads", "Linearizable reads since start", status.snapshot.reads as f64);
    if let Some(seconds) = status.seconds_since_contact() {
        gauge("store_contact_age_seconds", "Time since the store last answered", seconds);
    }
    let held = matches!(status.presence, etcd_session::PresenceState::Held { .. });
    gauge("claim_held", "1 while this agent holds its host name", flag(held));
    if let Some(end) = status.certificates.values().min() {
        let help = "When the first certificate of the connection to the store ends, in seconds since 1970";
        gauge("certificate_end_timestamp_seconds", help, end.0 as f64);
    }
    gauge("steps", "Steps started since start", status.steps_run as f64);
    gauge("step_running", "1 while a step is in flight", flag(status.running.is_some()));
    for word in ["ok", "running", "waiting", "blocked", "failed", "suspect"] {
        let current = status.decision.as_ref().is_some_and(|d| d.verdict.word() == word);
        gauge(&format!("verdict_{word}"), "1 for the current verdict", flag(current));
    }
    let mut text = String::new();
    match encode(&mut text, &registry) {
        Ok(()) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
