//! The connection to the store: the session, the mirror of the host's keys, and the claim of its name.

use crate::certificates::Certificates;
use crate::clock;
use crate::handles::Handles;
use crate::identity::Identity;
use crate::metrics::Metrics;
use crate::supervise::Tasks;
use anyhow::Result;
use etcd_session::{Deadline, Gate, Mirror, MirrorOptions, Presence, PresenceConfig, Session, SessionConfig};
use planning::host::store_view;
use schema::records::{LiveClaim, RosterEntry};
use schema::store_trust::StoreMemory;
use std::time::Duration;
use tokio::sync::watch;

/// Time limit of the request for the store's version, and the delay before a new request.
const STORE_VERSION_INTERVAL: Duration = Duration::from_secs(30);

/// What the reconcile loop uses of the store.
pub(crate) struct StoreHandles {
    /// The mirror of the keys in [`store_view::scope`].
    pub mirror: Mirror,
    pub presence: Presence,
    /// Tells presence whether the store may be written.
    pub gate: watch::Sender<Gate>,
    /// The claim of this host, for messages.
    pub claim: LiveClaim,
    /// The certificates of the connection.
    pub certificates: Certificates,
}

/// Opens the session. `memory` is what the host remembers of the store.
///
/// # Errors
/// Returns an error if the configuration of the session cannot be used.
pub(crate) fn open(
    config: SessionConfig,
    memory: Option<&StoreMemory>,
    metrics: &Metrics,
) -> Result<Session> {
    if config.user.is_none() && config.tls.cert.is_none() {
        tracing::info!(
            "the settings name no user of the store: if it has no users, every user who reaches it can have versions installed here"
        );
    }
    let session = Session::new(config)?;
    let observed = metrics.clone();
    session.observe_requests(Box::new(move |kind, error, took| observed.note_request(kind, error, took)));
    match memory {
        // The remembered marks do not apply to the present content of a store that went back.
        Some(memory) if memory.went_back.is_some() => session.begin_history(0, 0),
        Some(memory) => session.remember_marks(memory.revision, memory.raft_term),
        None => {}
    }
    Ok(session)
}

/// Starts the tasks that read the host's keys and hold its name.
pub(crate) fn start(
    handles: &Handles,
    identity: &Identity,
    claim: LiveClaim,
    certificates: Certificates,
    tasks: &mut Tasks,
) -> StoreHandles {
    let settings = handles.settings.settings.borrow().clone();
    let options = MirrorOptions { backstop: settings.store.backstop, ..MirrorOptions::default() };
    let (mirror, mirroring) =
        Mirror::new(handles.session.clone(), store_view::scope(&identity.host), options);
    let (gate, gate_receiver) = watch::channel(Gate::default());
    let config = PresenceConfig {
        host: identity.host.clone(),
        former: identity.former.clone(),
        claim: claim.clone(),
        roster: RosterEntry {
            role: settings.role.clone(),
            group: settings.group.clone(),
            labels: settings.labels.clone(),
            since: clock::now().wall,
            from_script: false,
            decommissioned: None,
        },
        resume: true,
        lease: settings.store.live_lease,
    };
    let (presence, claiming) = Presence::new(handles.session.clone(), config, gate_receiver);
    tasks.spawn("mirror", mirroring);
    tasks.spawn("presence", claiming);
    tasks.spawn("store-version", warn_of_old_store(handles.session.clone()));
    StoreHandles { mirror, presence, gate, claim, certificates }
}

/// Logs a warning once if the store runs a version of etcd that does not enforce all permissions.
async fn warn_of_old_store(session: Session) {
    loop {
        match session.server_version(Deadline::within(STORE_VERSION_INTERVAL)).await {
            Ok(version) => {
                schema::server_version::warning(&version).iter().for_each(|text| tracing::warn!("{text}"));
                return std::future::pending().await;
            }
            // Logged as debug only: the store may be unreachable, and a missing permission also
            // shows in other requests.
            Err(error) => tracing::debug!(%error, "the version of the store is not known yet"),
        }
        tokio::time::sleep(STORE_VERSION_INTERVAL).await;
    }
}
