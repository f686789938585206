//! The metrics of the fleet.

use super::shared::AppState;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_server::MetricsFormat;
use prometheus_client::encoding::text::encode;

/// Shows all metrics in the format that the client accepts.
pub(super) async fn metrics(shared: AppState, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let format = MetricsFormat::accepted(accept);
    let encoding = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        encode(&mut text, &shared.shown_metrics).map(|()| text)
    });
    match encoding.await {
        Ok(Ok(text)) => {
            ([(header::CONTENT_TYPE, format.content_type())], format.of_open_metrics(text)).into_response()
        }
        _ => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
