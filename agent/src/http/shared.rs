//! The state that all handlers of requests share.

use crate::catalog::{Loaded, PublishedServices, Reader};
use crate::checks::CheckRegistry;
use crate::local_claims::LocalClaims;
use crate::metrics::Metrics;
use crate::secrets::Secrets;
use crate::socket::Peer;
use crate::status::Status;
use crate::step::Runs;
use crate::supervise::TaskStatus;
use crate::templates::TemplateStates;
use http_server::AnswerCache;
use prometheus_client::registry::Registry;
use std::sync::Arc;
use tokio::sync::watch;

/// An open connection, with the user at the other end if it is one of the Unix socket.
pub(super) type Connection = http_server::Connection<Option<Peer>>;

/// The version of the catalog that an answer was rendered from: generation, revision, and age in
/// seconds.
pub(super) type CatalogVersion = (u64, i64, u64);

/// The data that the handlers show, and the check registry, which takes results.
#[derive(Clone)]
pub(crate) struct Shared {
    /// The status of the reconciler.
    pub status: watch::Receiver<Arc<Status>>,
    /// The reader of the catalog.
    pub reader: Reader,
    pub registry: Arc<CheckRegistry>,
    pub loaded: watch::Receiver<Arc<Loaded>>,
    /// The services of this host as they exist in the store.
    pub published: watch::Receiver<Arc<PublishedServices>>,
    /// The states of the templates.
    pub templates: watch::Receiver<Arc<TemplateStates>>,
    /// The tasks of the agent.
    pub tasks: watch::Receiver<Vec<TaskStatus>>,
    /// The values that must not be shown.
    pub secrets: Secrets,
    pub answers: AnswerCache<CatalogVersion>,
    pub metrics: Metrics,
    /// All metrics, to be shown.
    pub shown_metrics: Arc<Registry>,
    /// The runs of steps.
    pub runs: Runs,
    /// Takes claims for programs of this machine.
    pub claims: LocalClaims,
}
