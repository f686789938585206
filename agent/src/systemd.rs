//! Talking to the service manager; outside of one these do nothing.

use sd_notify::NotifyState;
use std::time::Duration;

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the service manager could not be told");
    }
}

/// Local state is loaded and sockets are bound. The store may be away.
pub(crate) fn ready() {
    notify(&[NotifyState::Ready]);
}

/// The agent stops.
pub(crate) fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// The line that `systemctl status` shows.
pub(crate) fn status(line: &str) {
    let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    notify(&[NotifyState::Status(&line)]);
}

/// The loop makes progress.
pub(crate) fn ping() {
    notify(&[NotifyState::Watchdog]);
}

/// How often to ping: half of the configured time; `None` without a watchdog.
pub(crate) fn watchdog_interval() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|limit| limit / 2)
}
