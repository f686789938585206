//! The plain HTTP paths that etcd serves on the same port: `/health`, `/version` and `/metrics`.

use super::answer::VERSION;
use crate::engine::Engine;
use crate::process::{self, Figure, FigureKind};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use serde_json::{Value, json};

/// Adds the HTTP paths to the router that answers gRPC.
pub(super) fn add(router: Router, engine: Engine) -> Router {
    let paths = Router::new()
        .route("/health", get(health))
        .route("/version", get(version))
        .route("/metrics", get(metrics))
        .with_state(engine);
    router.merge(paths)
}

/// Rejects everything except gRPC. A web page in a browser can send an HTTP/1.1 request, with one
/// of three content types of its choice, to any port of this machine. A gRPC request uses HTTP/2
/// and has its own content type.
pub(super) async fn only_grpc(request: Request, next: Next) -> Response {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let is_grpc = kind.is_some_and(|kind| kind.starts_with("application/grpc"));
    if request.version() == Version::HTTP_2 && is_grpc {
        next.run(request).await
    } else {
        StatusCode::NOT_FOUND.into_response()
    }
}

async fn health(State(engine): State<Engine>) -> (StatusCode, Json<Value>) {
    if engine.read().no_space() || engine.is_stopped() {
        (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "health": "false" })))
    } else {
        (StatusCode::OK, Json(json!({ "health": "true" })))
    }
}

async fn version() -> Json<Value> {
    Json(json!({
        "etcdserver": VERSION,
        "etcdcluster": "3.4.0",
        "solo_etcd": env!("CARGO_PKG_VERSION"),
    }))
}

/// Returns the metrics under etcd's names, as far as they have a meaning here.
async fn metrics(State(engine): State<Engine>) -> Response {
    let (revision, compacted, bytes) = {
        let store = engine.read();
        (store.revision(), store.compacted(), store.bytes())
    };
    let file = engine.file_bytes().max(bytes);
    let gauge = |name, help, value: f64| Figure { name, help, kind: FigureKind::Gauge, value };
    let mut figures = vec![
        gauge("etcd_server_has_leader", "1: the one member always leads", 1.0),
        gauge("etcd_server_quota_backend_bytes", "Largest size of the store", engine.quota_bytes() as f64),
        gauge("etcd_mvcc_db_total_size_in_bytes", "Size of the file", file as f64),
        gauge("etcd_mvcc_db_total_size_in_use_in_bytes", "Size of what is stored", bytes as f64),
        gauge("etcd_debugging_mvcc_current_revision", "Revision of the store", revision as f64),
        gauge(
            "etcd_debugging_mvcc_compact_revision",
            "Revision up to which the history is gone",
            compacted.max(0) as f64,
        ),
    ];
    figures.extend(process::figures());
    let text: String = figures.iter().map(shown).collect();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

/// Returns a figure in Prometheus' text format.
fn shown(Figure { name, help, kind, value }: &Figure) -> String {
    let kind = if *kind == FigureKind::Counter { "counter" } else { "gauge" };
    let value = if *value == f64::INFINITY { "+Inf".to_owned() } else { value.to_string() };
    format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n")
}
