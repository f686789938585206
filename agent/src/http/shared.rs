//! What the handlers of requests share.

use super::answers::AnswerCache;
use crate::catalog::{Loaded, PublishedServices, Reader};
use crate::checks::CheckRegistry;
use crate::secrets::Secrets;
use crate::status::Status;
use crate::templates::TemplateStates;
use axum::body::Bytes;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use tokio::sync::watch;

/// What is shown, and the one thing that can be told.
#[derive(Clone)]
pub(crate) struct Shared {
    /// The reconciler.
    pub status: watch::Receiver<Arc<Status>>,
    /// The catalog.
    pub reader: Reader,
    /// The checks.
    pub registry: Arc<CheckRegistry>,
    /// Service files.
    pub loaded: watch::Receiver<Arc<Loaded>>,
    /// What stands in the store of this host.
    pub published: watch::Receiver<Arc<PublishedServices>>,
    /// Files that follow the catalog.
    pub templates: watch::Receiver<Arc<TemplateStates>>,
    /// What must not be shown.
    pub secrets: Secrets,
    /// What is being answered.
    pub answers: AnswerCache,
}

pub(super) fn json_body(body: Bytes) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}
