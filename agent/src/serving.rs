//! The servers of the agent: DNS, HTTP on TCP, and HTTP on the Unix socket.

use crate::catalog::CatalogHandles;
use crate::dns::Dns;
use crate::handles::Handles;
use crate::http::{self, OnTcp, Shared, StateMetrics};
use crate::local_claims::LocalClaims;
use crate::socket;
use crate::status::Status;
use crate::supervise::Tasks;
use crate::templates::TemplateStates;
use anyhow::{Context, Result};
use rustix::fs::Gid;
use schema::names::HostName;
use settings::Settings;
use std::sync::Arc;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;

/// Tasks that have time to finish open requests when the agent stops.
pub(crate) const DRAINED: [&str; 2] = ["http", "socket"];

/// What the servers listen on. It is opened before anything else starts, so a wrong address ends the agent at once.
pub(crate) struct Listeners {
    pub dns: Dns,
    http: TcpListener,
    socket: Option<(UnixListener, Option<Gid>)>,
}

impl Listeners {
    /// Opens the addresses of the settings.
    ///
    /// # Errors
    /// Returns an error that names the address which cannot be opened.
    pub(crate) async fn bind(settings: &Settings, host: &HostName) -> Result<Self> {
        let http = TcpListener::bind(settings.http_listen)
            .await
            .with_context(|| format!("listening on {}", settings.http_listen))?;
        let dns = Dns::bind(&settings.dns, host.clone()).await?;
        let socket = match &settings.socket {
            Some((path, group)) => Some(socket::bind(path, group.as_deref())?),
            None => None,
        };
        Ok(Self { dns, http, socket })
    }
}

/// What the servers show besides the catalog.
pub(crate) struct ServerInputs {
    pub status: watch::Receiver<Arc<Status>>,
    pub templates: watch::Receiver<Arc<TemplateStates>>,
    pub claims: LocalClaims,
}

/// Starts the servers. They end when `stop` becomes true.
///
/// # Errors
/// Returns the system's error if a socket cannot be prepared or a thread cannot be started.
pub(crate) fn start(
    listeners: Listeners,
    handles: &Handles,
    catalog: &CatalogHandles,
    inputs: ServerInputs,
    stop: &watch::Receiver<bool>,
    tasks: &mut Tasks,
) -> Result<()> {
    let settings = handles.settings.settings.borrow().clone();
    tracing::info!(addresses = ?listeners.dns.addresses(), "the DNS server listens");
    tasks.spawn("dns", listeners.dns.serve(catalog.reader.clone(), &handles.metrics)?.run());
    let state_metrics = StateMetrics {
        status: inputs.status.clone(),
        reader: catalog.reader.clone(),
        registry: catalog.registry.clone(),
        loaded: catalog.loaded.clone(),
        templates: inputs.templates.clone(),
        fencing: catalog.fencing.subscribe(),
    };
    let shared = Shared {
        status: inputs.status,
        reader: catalog.reader.clone(),
        registry: catalog.registry.clone(),
        loaded: catalog.loaded.clone(),
        published: catalog.published.clone(),
        templates: inputs.templates,
        tasks: tasks.list(),
        secrets: handles.secrets.clone(),
        answers: http_server::AnswerCache::default(),
        metrics: handles.metrics.clone(),
        shown_metrics: Arc::new(handles.metrics.registry(state_metrics)),
        runs: handles.runs.clone(),
        claims: inputs.claims,
    };
    if let Some((socket, group)) = listeners.socket {
        tasks.spawn("socket", http::serve_socket(socket, group, shared.clone(), stop.clone()));
    }
    let open = OnTcp {
        names: std::iter::once(&handles.host).chain(&settings.http_names).cloned().collect(),
        results: settings.http_takes_results,
        fleet_lock: settings.http_fleet_lock,
    };
    tasks.spawn("http", http::serve(listeners.http, shared, open, stop.clone())?);
    Ok(())
}
