//! The agent: the daemon on every host. It reads the target from the store, decides by itself what
//! to do, applies and validates the version, and reports the result. [`run`] creates all parts of
//! the agent and is the place to start reading.

mod bundles;
mod catalog;
mod certificates;
pub mod check_config;
mod checks;
mod clock;
mod command_locks;
pub mod config;
pub mod dev;
pub mod dns;
mod environment;
mod facts;
mod failpoint;
mod files;
mod host;
mod http;
mod identity;
mod journal;
mod journald;
mod local_claims;
pub mod logging;
mod metrics;
mod reconcile;
mod rollout;
mod rollout_end;
mod rollout_followed;
mod rollout_found;
mod rollout_writes;
mod secrets;
mod signals;
mod socket;
mod status;
pub mod step;
mod supervise;
mod systemd;
mod templates;

use anyhow::{Context, Result};
use etcd_session::{Deadline, Gate, Mirror, MirrorOptions, Presence, PresenceConfig, Session};
use planning::host::HostState;
use planning::settings::{Settings, read_version_file};
use rustix::fs::{FlockOperation, flock};
use schema::records::RosterEntry;
use std::path::PathBuf;
use std::sync::Arc;
pub use supervise::TaskEnded;
use supervise::Tasks;
use tokio::sync::{mpsc, watch};

/// The error if another agent uses the state directory.
#[derive(Debug, thiserror::Error)]
#[error("another agent uses the state directory {0}")]
pub struct StateDirectoryInUse(PathBuf);

/// Time limit of the request for the store's version, and the delay before a new request.
const STORE_VERSION_INTERVAL: std::time::Duration = std::time::Duration::from_secs(30);
/// Time that open requests to the local HTTP server have to finish when the agent stops.
const HTTP_DRAIN: std::time::Duration = std::time::Duration::from_secs(1);

/// The error if another agent on this machine runs under the same host name.
#[derive(Debug, thiserror::Error)]
#[error("another agent on this machine runs as host {0}")]
pub struct NameInUse(schema::names::HostName);

/// Holds the host name on this machine by binding an abstract Unix socket.
///
/// A copied state directory would give two agents the same instance, and the store could not tell
/// them apart. The kernel can: an abstract socket has one owner and disappears with it. Any user
/// can bind such an address, so the agent refuses to start only if root or its own user holds it.
fn hold_name(identity: &identity::Identity) -> Result<Option<std::os::unix::net::UnixListener>> {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{UnixListener, UnixStream};
    let name = format!("orchestrate-agent/{}/{}", identity.machine_id, identity.host);
    let name = &name.as_bytes()[..name.len().min(100)];
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
    let error = match UnixListener::bind_addr(&address) {
        Ok(listener) => return Ok(Some(listener)),
        Err(error) => error,
    };
    let owner =
        UnixStream::connect_addr(&address).ok().and_then(|s| rustix::net::sockopt::socket_peercred(&s).ok());
    match owner {
        Some(owner) if owner.uid.is_root() || owner.uid == rustix::process::geteuid() => {
            Err(NameInUse(identity.host.clone()).into())
        }
        _ => {
            tracing::warn!(%error, "the host name is not protected: another user holds its socket address");
            Ok(None)
        }
    }
}

/// Runs the agent until it is told to stop.
///
/// # Errors
/// Returns an error if the agent cannot start (because of the settings, the state directory, the
/// host name or a listening address), or if a task that it depends on has ended.
pub async fn run(config_path: PathBuf, settings: Settings) -> Result<()> {
    let directory = files::Directory::open_or_create(&settings.state_directory)?;
    directory.check_private()?;
    let lock = directory.open_lock("lock")?;
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Err(StateDirectoryInUse(settings.state_directory.clone()).into());
    }
    let session_config = config::session(&settings)?;
    let secrets = config::secrets(&session_config, &settings);
    if session_config.user.is_none() && session_config.tls.cert.is_none() {
        tracing::info!(
            "the settings name no user of the store: if it has no users, every user who reaches it can have versions installed here"
        );
    }
    let identity = identity::Identity::read(&settings)?;
    let _name = hold_name(&identity)?;
    let (settings_sender, settings_receiver) = watch::channel(Arc::new(settings.clone()));
    let (untrusted_sender, untrusted) =
        watch::channel(config::untrusted(&config_path).map(|found| found.why));
    untrusted.borrow().iter().for_each(|why| signals::log_untrusted(why));
    let (refused_sender, settings_refused) = watch::channel(None);
    let (ends_sender, ends) = mpsc::channel(4);
    let program = std::env::current_exe().context("the path of this program")?;
    let runs = step::Runs::open(&settings.state_directory)?;
    let command_locks = Arc::new(command_locks::CommandLocks::open(&settings.state_directory)?);
    let (state, cloned) = load_state(&directory, &identity, &settings)?;
    let instance = identity::instance(&directory, cloned)?;
    let claim = identity.claim(instance, &settings);

    let listener = tokio::net::TcpListener::bind(settings.http_listen)
        .await
        .with_context(|| format!("listening on {}", settings.http_listen))?;
    let dns = dns::Dns::bind(&settings.dns, identity.host.clone()).await?;
    let socket =
        settings.socket.as_ref().map(|(path, group)| socket::bind(path, group.as_deref())).transpose()?;
    let (status_sender, status) = watch::channel(Arc::new(status::Status::default()));
    let (stop_sender, stop) = watch::channel(false);

    let certificates = certificates::Certificates::new(session_config.tls.clone());
    let session = Session::new(session_config)?;
    let metrics = metrics::Metrics::default();
    let observed = metrics.clone();
    session.observe_requests(Box::new(move |kind, error, took| observed.note_request(kind, error, took)));
    match &state.store {
        // The remembered marks do not apply to the present content of a store that went back.
        Some(memory) if memory.went_back.is_some() => session.begin_history(0, 0),
        Some(memory) => session.remember_marks(memory.revision, memory.raft_term),
        None => {}
    }
    let environment = environment::CommandEnvironment::new(
        settings_receiver.clone(),
        session.clone(),
        identity.host.clone(),
    );
    let options = MirrorOptions { backstop: settings.store.backstop, ..MirrorOptions::default() };
    let mut tasks = Tasks::new();
    let (mirror, mirroring) =
        Mirror::new(session.clone(), planning::host::store_view::scope(&identity.host), options);
    let (gate, gate_receiver) = watch::channel(Gate::default());
    let presence_config = PresenceConfig {
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
    let (presence, claiming) = Presence::new(session.clone(), presence_config, gate_receiver);
    let (trust_sender, trust) = watch::channel(catalog::Trust::default());
    let (fencing_sender, fencing) = watch::channel(catalog::Fencing::default());
    let (loader, loaded) = catalog::Loader::new(settings_receiver.clone());
    let registry = Arc::new(checks::CheckRegistry::new(metrics.clone()));
    let scheduler = checks::Scheduler::new(
        registry.clone(),
        loaded.clone(),
        settings.services.checks_at_once,
        (untrusted.clone(), environment.clone()),
    );
    let (publisher, published) = catalog::Publisher::new(
        identity.host.clone(),
        session.clone(),
        directory.try_clone()?,
        catalog::PublisherInputs {
            settings: settings_receiver.clone(),
            loaded: loaded.clone(),
            registry: registry.clone(),
            presence: presence.states(),
            contradictions: presence.contradictions(),
            fencing: fencing.clone(),
        },
    );
    let on_disk = catalog::read_cache(&directory);
    let (follower, reader) =
        catalog::Follower::new(session.clone(), settings.catalog.clone(), trust.clone(), on_disk);
    let (needs_task, needs) = catalog::NeedsTask::new(
        settings_receiver.clone(),
        reader.clone(),
        session.clone(),
        trust.clone(),
        (untrusted.clone(), environment.clone()),
    );
    let names = dns.names();
    let (files, files_handle) =
        catalog::Files::new(directory.try_clone()?, settings_receiver.clone(), &reader, names);
    let (rendering, templates) = templates::Templates::new(
        settings_receiver.clone(),
        reader.clone(),
        untrusted.clone(),
        environment.clone(),
        metrics.clone(),
    );
    let (rollout_wanted, wanted) = watch::channel(None);
    let (rollout_task, rollout) = rollout::RolloutTask::new(session.clone(), identity.host.clone(), wanted);
    let (end_wanted, wanted) = watch::channel(None);
    let (end_task, rollout_ended) =
        rollout_end::RolloutEndTask::new(session.clone(), identity.host.clone(), wanted);
    tasks.spawn("mirror", mirroring);
    tasks.spawn("rollout-end", reconcile::run(end_task));
    tasks.spawn("rollout", reconcile::run(rollout_task));
    tasks.spawn("presence", claiming);
    tasks.spawn("definitions", reconcile::run(loader));
    tasks.spawn("checks", reconcile::run(scheduler));
    tasks.spawn("publisher", reconcile::run(publisher));
    tasks.spawn("catalog", reconcile::run(follower));
    tasks.spawn("needs", reconcile::run(needs_task));
    tasks.spawn("files", reconcile::run(files));
    tasks.spawn("templates", reconcile::run(rendering));
    tracing::info!(addresses = ?dns.addresses(), "the DNS server listens");
    tasks.spawn("dns", dns.serve(reader.clone(), &metrics)?.run());
    tasks.spawn("store-version", warn_of_old_store(session.clone()));
    tasks.spawn("facts", reconcile::run(facts::Facts::new(settings_receiver.clone(), status.clone())));
    let kept = (settings.state_directory.as_path(), runs.clone(), secrets.clone());
    let (bundles, bundle) = bundles::Bundles::new(settings_receiver.clone(), status.clone(), kept)?;
    tasks.spawn("bundles", reconcile::run(bundles));
    let state_metrics = http::StateMetrics {
        status: status.clone(),
        reader: reader.clone(),
        registry: registry.clone(),
        loaded: loaded.clone(),
        templates: templates.clone(),
        fencing: fencing.clone(),
    };
    let shared = http::Shared {
        status,
        reader: reader.clone(),
        registry: registry.clone(),
        loaded: loaded.clone(),
        published: published.clone(),
        templates: templates.clone(),
        secrets: secrets.clone(),
        answers: http_server::AnswerCache::default(),
        metrics: metrics.clone(),
        shown_metrics: Arc::new(metrics.registry(state_metrics)),
        runs: runs.clone(),
        claims: local_claims::LocalClaims::new(
            session.clone(),
            (identity.host.clone(), claim.instance.clone()),
            presence.states(),
            fencing.clone(),
            command_locks.clone(),
        ),
    };
    if let Some((socket, group)) = socket {
        tasks.spawn("socket", http::serve_socket(socket, group, shared.clone(), stop.clone()));
    }
    let names = std::iter::once(&identity.host).chain(&settings.http_names).cloned().collect();
    let (results, fleet_lock) = (settings.http_takes_results, settings.http_fleet_lock);
    let open = http::OnTcp { names, results, fleet_lock };
    tasks.spawn("http", http::serve(listener, shared, open, stop.clone())?);
    let watching = signals::watch_signals(
        config_path,
        (settings_sender, secrets.clone()),
        (untrusted_sender, refused_sender),
        stop_sender.clone(),
        metrics.clone(),
    )?;
    tasks.spawn("signals", watching);
    tracing::info!(host = %identity.host, version = env!("CARGO_PKG_VERSION"), "agent starts");
    systemd::ready();

    let executor = host::Executor {
        session,
        directory,
        settings: settings_receiver.clone(),
        program,
        runs,
        environment,
        secrets: secrets.clone(),
        ends: ends_sender,
        files: files_handle,
        steps_run: 0,
    };
    let reconciler = host::Reconciler {
        settings: settings_receiver,
        mirror,
        presence,
        gate,
        claim,
        certificates,
        executor,
        status: status_sender,
        ends,
        registry,
        reader,
        needs,
        services: published,
        untrusted,
        settings_refused,
        service_files: loaded,
        templates,
        trust: trust_sender,
        fencing: fencing_sender,
        command_locks,
        rollout_wanted,
        rollout,
        end_wanted,
        rollout_ended,
        bundle,
        metrics,
        watchdog: systemd::watchdog_interval(),
    };
    let mut stop = stop;
    let is_stopping = stop.clone();
    let stopped = async {
        tokio::select! {
            // `stop_sender` is dropped later, so this resolves only when a signal came.
            _ = stop.wait_for(|stop| *stop) => Ok(()),
            // The servers end when the agent stops, and may be seen before the signal is.
            ended = tasks.first_end() => if *is_stopping.borrow() { Ok(()) } else { Err(ended) },
        }
    };
    let ended = reconciler.run(state, identity::machine_info(), stopped).await;
    if let Err(error) = &ended {
        tracing::error!(%error, "the agent ends because one of its tasks has ended; the service manager starts it again");
    }
    systemd::stopping();
    stop_sender.send_replace(true);
    // A client that keeps its connection open delays the end of the agent only for this time.
    tasks.stop(&["http", "socket"], HTTP_DRAIN).await;
    tracing::info!("agent stopped");
    Ok(ended?)
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

/// Loads the host's state. The second value is true if the state directory came from another host
/// or machine.
fn load_state(
    directory: &files::Directory,
    identity: &identity::Identity,
    settings: &Settings,
) -> Result<(HostState, bool)> {
    let (host, machine) = (&identity.host, &identity.machine_id);
    let fresh = |foreign: Option<&HostState>| {
        let file = host::read_version_file(settings).ok().flatten();
        let file = file.and_then(|text| read_version_file(&text));
        let installed = HostState::installed_by_file(file, foreign);
        HostState::new(host.clone(), machine.clone(), identity.boot_id.clone(), installed)
    };
    match journal::load(directory, (host, identity.former.as_ref()), machine)? {
        journal::LoadedJournal::State(mut state) => {
            if state.boot_id != identity.boot_id {
                tracing::info!("the machine was restarted since the journal was written");
                state.rebooted(identity.boot_id.clone());
            }
            Ok((*state, false))
        }
        journal::LoadedJournal::Nothing => Ok((fresh(None), false)),
        journal::LoadedJournal::SetAside { why, foreign } => {
            tracing::warn!(%why, "the journal was set aside; what the version file says is validated first");
            Ok((fresh(foreign.as_deref()), foreign.is_some()))
        }
    }
}
