//! Notifications to the service manager. Without a service manager these functions do nothing.

use sd_notify::NotifyState;
use std::time::Duration;

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the service manager could not be notified");
    }
}

/// Reports that local state is loaded and sockets are bound. The store may still be unreachable.
pub(crate) fn ready() {
    notify(&[NotifyState::Ready]);
}

/// Reports that the agent stops.
pub(crate) fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Sets the line that `systemctl status` shows.
pub(crate) fn status(line: &str) {
    let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    notify(&[NotifyState::Status(&line)]);
}

/// Pings the watchdog: the reconcile loop makes progress.
pub(crate) fn ping() {
    notify(&[NotifyState::Watchdog]);
}

/// Returns the interval of pings: half of the watchdog's time limit; `None` without a watchdog.
pub(crate) fn watchdog_interval() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|limit| limit / 2)
}
