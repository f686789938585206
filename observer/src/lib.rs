//! The observer: one process that follows everything that the store holds, and shows the fleet to people and programs.
//! It decides nothing and writes nothing; a fleet runs the same without it. Any number may run beside each other.

mod clock;
pub mod config;
mod follow;
mod freshness;
mod http;
mod incidents;
pub mod logging;
mod metrics;
mod notify;
mod observed;
mod probe;
mod recorded;
mod recorder;
mod secret_file;
mod token;

pub use http::api_description;

use anyhow::{Context, Result, anyhow};
use etcd_session::ReadOnlySession;
use http::{Certificate, CookieScope, CookieSigner, ShownData, TlsListener};
use incidents::IncidentStore;
use metrics::RecorderMetrics;
use notify::{Notifier, NotifyMetrics};
use observed::SharedFleet;
use recorded::Recorded;
use settings::{ObserverSettings, PublicUrl};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use token::TokenFile;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long the recorder may need to close its segment.
const RECORDER_END: Duration = Duration::from_secs(5);
/// How long open requests may delay the end.
const HTTP_DRAIN: Duration = Duration::from_secs(2);

/// Runs until `stopped` resolves. Calls back with its URL as soon as it listens.
///
/// # Errors
/// Returns an error if the settings cannot be used, if the address is in use, or if a part of the observer ends before.
pub async fn run(
    settings: ObserverSettings,
    started: impl FnOnce(&str),
    stopped: impl Future<Output = ()>,
) -> Result<()> {
    let session = ReadOnlySession::new(config::session(&settings)?)?;
    let notifier = Notifier::new(settings.notify)?;
    let state = &settings.state_directory;
    secret_file::create_directory(state).with_context(|| format!("state_directory {}", state.display()))?;
    let incidents = IncidentStore::open_file(&settings.state_directory, notifier.receivers());
    let incidents = Arc::new(incidents.with_context(|| settings.state_directory.display().to_string())?);
    let token = TokenFile::open(&settings.http_access)?;
    let certificate = settings.http_tls.map(Certificate::open).transpose()?;
    let public_url = settings.http_public_url;
    let scope = CookieScope {
        is_secure: certificate.is_some() || public_url.as_ref().is_some_and(PublicUrl::is_encrypted),
        path: public_url.as_ref().map_or_else(String::new, |url| url.path.clone()),
    };
    let signer = CookieSigner::open(&settings.state_directory.join("cookie.key"), scope)?;
    let listen = settings.http_listen;
    let scheme = if certificate.is_some() { "https" } else { "http" };
    let listener = TcpListener::bind(listen).await.with_context(|| format!("http.listen {listen}"))?;
    let address = listener.local_addr()?;
    let fleet = Arc::new(SharedFleet::default());
    let (stop_sender, stop) = watch::channel(false);
    let mut tasks = JoinSet::new();
    let tokens = token.as_ref().map(|token| (token.accepted(), signer));
    let names = settings.http_names.iter().map(ToString::to_string).collect();
    let notifications = NotifyMetrics::default();
    let mut shown_metrics =
        metrics::all(fleet.clone(), incidents.clone(), &notifications, certificate.clone());
    let recorded = settings.recorder.as_ref().map(Recorded::new);
    let (recorder, recording) = match settings.recorder {
        Some(recorder) => {
            let of_recorder = RecorderMetrics::default();
            of_recorder.register(&mut shown_metrics);
            recorder::start(recorder, &settings.state_directory, of_recorder)
                .map(|(feed, thread)| (Some(feed), Some(thread)))?
        }
        None => (None, None),
    };
    let shown = ShownData { fleet: fleet.clone(), metrics: shown_metrics, recording: recorded };
    let own = http::OwnPlace { address: address.ip(), names, public_url };
    match certificate {
        Some(certificate) => {
            tasks.spawn(certificate.clone().watch());
            let listener = TlsListener::new(listener, certificate)?;
            tasks.spawn(http::serve(listener, own, tokens, shown, stop));
        }
        None => _ = tasks.spawn(http::serve(listener, own, tokens, shown, stop)),
    }
    tasks.spawn(follow::follow(session, fleet.clone(), recorder));
    tasks.spawn(incidents::find(fleet.clone(), incidents.clone(), settings.incident_times));
    notifier.start(&mut tasks, fleet, &incidents, &notifications);
    if let Some(token) = token {
        tasks.spawn(token.watch());
    }
    started(&format!("{scheme}://{address}"));
    tracing::info!(%address, version = env!("CARGO_PKG_VERSION"), "observer starts");
    // Nobody waits for the answer of the service manager.
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    let ended = tokio::select! {
        () = stopped => Ok(()),
        // The tasks end only by a fault.
        _ = tasks.join_next() => Err(anyhow!("a part of the observer has ended; the service manager starts it again")),
    };
    stop_sender.send_replace(true);
    let _ = tokio::time::timeout(HTTP_DRAIN, tasks.join_next()).await;
    // The follower ends, and with it what it tells the recorder.
    tasks.shutdown().await;
    if let Some(recording) = recording {
        // A disk that hangs must not keep the process.
        let ended = tokio::task::spawn_blocking(|| recording.join());
        let _ = tokio::time::timeout(RECORDER_END, ended).await;
    }
    ended
}
