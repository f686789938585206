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
mod handles;
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
mod secrets;
mod serving;
mod settings_watch;
mod signals;
mod socket;
mod status;
pub mod step;
mod store;
mod supervise;
mod systemd;
mod templates;

use anyhow::Result;
use handles::Handles;
use journal::Left;
use planning::host::HostState;
use rustix::fs::{FlockOperation, flock};
use settings::{Settings, read_version_file};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
pub use supervise::TaskEnded;
use supervise::Tasks;
use tokio::sync::{mpsc, watch};

/// The error if another agent uses the state directory.
#[derive(Debug, thiserror::Error)]
#[error("another agent uses the state directory {0}")]
pub struct StateDirectoryInUse(PathBuf);

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
    let _lock = lock_state_directory(&directory, &settings)?;
    let session_config = config::session(&settings)?;
    let secrets = config::secrets(&session_config, &settings);
    let identity = identity::Identity::read(&settings)?;
    let _name = hold_name(&identity)?;
    let metrics = metrics::Metrics::default();
    let runs = step::Runs::open(&settings.state_directory)?;
    let command_locks = Arc::new(command_locks::CommandLocks::open(&settings.state_directory)?);
    let (state, cloned) = load_state(&directory, &identity, &settings)?;
    let instance = identity::instance(&directory, cloned)?;
    let claim = identity.claim(instance.clone(), &settings);
    let listeners = serving::Listeners::bind(&settings, &identity.host).await?;
    let certificates = certificates::Certificates::new(session_config.tls.clone());
    let session = store::open(session_config, state.store.as_ref(), &metrics)?;
    let (settings_watch, settings) =
        settings_watch::SettingsWatch::new(config_path, settings, secrets.clone(), metrics.clone());
    let environment = environment::CommandEnvironment::new(&settings, session.clone(), identity.host.clone());
    let handles =
        Handles { host: identity.host.clone(), settings, session, environment, secrets, runs, metrics };

    let mut tasks = Tasks::new();
    let (status, shown_status) = watch::channel(Arc::new(status::Status::default()));
    let (stop, stopping) = watch::channel(false);
    let store = store::start(&handles, &identity, claim, certificates, &mut tasks);
    let names = listeners.dns.names();
    let catalog = catalog::start(&handles, &store.presence, names, &directory, &mut tasks)?;
    let (rendering, templates) = templates::Templates::new(&handles, catalog.reader.clone());
    tasks.spawn_loop("templates", rendering);
    let rollout = rollout::start(&handles, &mut tasks);
    let facts = facts::Facts::new(handles.settings.settings.clone(), shown_status.clone());
    tasks.spawn_loop("facts", facts);
    let (bundles, bundle) = bundles::Bundles::new(&handles, shown_status.clone())?;
    tasks.spawn_loop("bundles", bundles);
    let claims = local_claims::LocalClaims::new(
        &handles,
        instance,
        store.presence.states(),
        catalog.fencing.subscribe(),
        command_locks.clone(),
    );
    let inputs = serving::ServerInputs { status: shown_status, templates: templates.clone(), claims };
    serving::start(listeners, &handles, &catalog, inputs, &stopping, &mut tasks)?;
    tasks.spawn("signals", signals::handle(settings_watch, stop.clone())?);
    tracing::info!(host = %identity.host, version = env!("CARGO_PKG_VERSION"), "agent starts");
    systemd::ready();

    let (ends_sender, ends) = mpsc::channel(4);
    let executor = host::Executor::new(&handles, directory, catalog.files.clone(), ends_sender)?;
    let reconciler = host::Reconciler {
        settings: handles.settings,
        store,
        catalog,
        rollout,
        executor,
        status,
        ends,
        templates,
        command_locks,
        bundle,
        metrics: handles.metrics,
    };
    let passes = tasks.list_loop("host");
    let stopped = wait_for_stop(&mut tasks, stopping);
    let ended = reconciler.run(state, passes, stopped).await;
    if let Err(error) = &ended {
        tracing::error!(%error, "the agent ends because one of its tasks has ended; the service manager starts it again");
    }
    systemd::stopping();
    stop.send_replace(true);
    // A client that keeps its connection open delays the end of the agent only for this time.
    tasks.stop(&serving::DRAINED, HTTP_DRAIN).await;
    tracing::info!("agent stopped");
    Ok(ended?)
}

/// Locks the state directory until the returned file is dropped.
fn lock_state_directory(directory: &files::Directory, settings: &Settings) -> Result<File> {
    directory.check_private()?;
    let lock = directory.open_lock("lock")?;
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Err(StateDirectoryInUse(settings.state_directory.clone()).into());
    }
    Ok(lock)
}

/// Waits until the agent is told to stop.
///
/// # Errors
/// Returns the task that has ended before that.
async fn wait_for_stop(tasks: &mut Tasks, mut stopping: watch::Receiver<bool>) -> Result<(), TaskEnded> {
    let is_stopping = stopping.clone();
    tokio::select! {
        // The sender is dropped later, so this resolves only when a signal came.
        _ = stopping.wait_for(|stop| *stop) => Ok(()),
        // The servers end when the agent stops, and may be seen before the signal is.
        ended = tasks.first_end() => if *is_stopping.borrow() { Ok(()) } else { Err(ended) },
    }
}

/// Loads the host's state. The second value is true if the host needs another instance: the state directory came from
/// another host or machine, or an older agent was in the middle of an update.
fn load_state(
    directory: &files::Directory,
    identity: &identity::Identity,
    settings: &Settings,
) -> Result<(HostState, bool)> {
    let (host, machine) = (&identity.host, &identity.machine_id);
    let fresh = |is_disturbed: bool| {
        let file = host::read_version_file(settings).ok().flatten();
        let file = file.and_then(|text| read_version_file(&text));
        let installed = HostState::installed_by_file(file, is_disturbed);
        HostState::new(host.clone(), machine.clone(), identity.boot_id.clone(), installed)
    };
    match journal::load(directory, host, identity.former.as_ref(), machine)? {
        journal::LoadedJournal::State(mut state) => {
            if state.boot_id != identity.boot_id {
                tracing::info!("the machine was restarted since the journal was written");
                state.rebooted(identity.boot_id.clone());
            }
            Ok((*state, false))
        }
        journal::LoadedJournal::Nothing => Ok((fresh(false), false)),
        journal::LoadedJournal::SetAside { why, left } => {
            tracing::warn!(%why, "the journal was set aside; the installed version is validated first");
            match left {
                Left::Nothing => Ok((fresh(false), false)),
                Left::Foreign { is_disturbed } => Ok((fresh(is_disturbed), true)),
                Left::Older(older) => {
                    let may_hold_claims = older.may_hold_claims();
                    let state = older.into_state(host, &identity.boot_id, clock::now().wall);
                    Ok((state, may_hold_claims))
                }
            }
        }
    }
}
