//! Signals: SIGTERM and SIGINT stop the agent, SIGHUP reads the settings again.

use crate::settings_watch::SettingsWatch;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Interval at which the agent checks who can write the settings.
const SETTINGS_POLL_INTERVAL: std::time::Duration = std::time::Duration::from_secs(10);

/// Handles signals. The settings are also read again when they become trusted again.
///
/// # Errors
/// Returns the system's error if signals cannot be received.
pub(crate) fn handle(
    mut settings: SettingsWatch,
    stop: watch::Sender<bool>,
) -> std::io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut poll = tokio::time::interval(SETTINGS_POLL_INTERVAL);
    Ok(async move {
        loop {
            tokio::select! {
                // Signal streams keep a signal that arrived while another arm ran.
                _ = terminate.recv() => drop(stop.send_replace(true)),
                _ = interrupt.recv() => drop(stop.send_replace(true)),
                _ = hangup.recv() => settings.check(true),
                _ = poll.tick() => settings.check(false),
            }
        }
    })
}
