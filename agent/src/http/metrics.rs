//! `/metrics`, and the count of requests.

use super::shared::Shared;
use crate::metrics::Metrics;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_server::MetricsFormat;
use prometheus_client::encoding::text::encode;

/// Shows all metrics in the format that the client accepts.
pub(super) async fn metrics(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let format = MetricsFormat::accepted(accept);
    let mut text = String::new();
    match encode(&mut text, &shared.shown_metrics) {
        Ok(()) => {
            ([(header::CONTENT_TYPE, format.content_type())], format.of_open_metrics(text)).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Counts each request on a listener by the code of its answer.
pub(super) async fn count(
    State((metrics, listener)): State<(Metrics, &'static str)>,
    request: Request,
    next: Next,
) -> Response {
    let response = next.run(request).await;
    metrics.note_http(listener, response.status().as_u16());
    response
}
