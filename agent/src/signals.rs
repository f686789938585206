//! Signals, and the settings that are read again: SIGTERM and SIGINT stop the agent, SIGHUP reads the
//! settings again.

use crate::config;
use crate::config::Untrusted;
use crate::metrics::Metrics;
use crate::secrets::Secrets;
use anyhow::Result;
use planning::settings::Settings;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Interval at which the agent checks who can write the settings.
const SETTINGS_POLL_INTERVAL: std::time::Duration = std::time::Duration::from_secs(10);

pub(crate) fn log_untrusted(why: &str) {
    tracing::error!(why, "others can write the settings: no step, check or other command runs");
}

/// Handles signals: SIGTERM and SIGINT stop the agent, SIGHUP reads the settings again. The
/// settings are also read again when they become trusted again. `refused` is why they could not be read
/// again last, if they could not.
pub(crate) fn watch_signals(
    path: PathBuf,
    (settings, secrets): (watch::Sender<Arc<Settings>>, Secrets),
    (untrusted, refused): (watch::Sender<Option<String>>, watch::Sender<Option<String>>),
    stop: watch::Sender<bool>,
    metrics: Metrics,
) -> std::io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut poll = tokio::time::interval(SETTINGS_POLL_INTERVAL);
    Ok(async move {
        // Why the machine could not say who can write the settings, if it could not.
        let mut unknown = None;
        let mut check = |is_asked| {
            let (settings, problems) = ((&settings, &secrets), (&untrusted, &refused));
            let found = config::untrusted(&path);
            let is_known = note_unknown(&mut unknown, found.as_ref());
            let why = if is_known { found.map(|found| found.why) } else { untrusted.borrow().clone() };
            check_settings((&path, why), settings, problems, (&metrics, is_asked));
        };
        loop {
            tokio::select! {
                // Signal streams keep a signal that arrived while another arm ran.
                _ = terminate.recv() => drop(stop.send_replace(true)),
                _ = interrupt.recv() => drop(stop.send_replace(true)),
                _ = hangup.recv() => check(true),
                _ = poll.tick() => check(false),
            }
        }
    })
}

/// Notes whether it is known who can write the settings, and returns it. While the machine cannot say it, for example
/// because too many files are open, the last answer counts, and the next look asks again.
fn note_unknown(unknown: &mut Option<String>, found: Option<&Untrusted>) -> bool {
    let why = found.filter(|found| found.is_of_machine).map(|found| found.why.clone());
    match (&why, &unknown) {
        (Some(why), None) => {
            tracing::error!(why, "the machine cannot say who can write the settings; the last answer counts")
        }
        (None, Some(_)) => tracing::info!("the machine says again who can write the settings"),
        _ => {}
    }
    *unknown = why;
    unknown.is_none()
}

/// Takes who can write the settings (`why` says that others can), and reads them again if a signal asked for it (`is_asked`).
///
/// Settings that others can write are not read. Settings that others could write until now are read
/// again before any command in them runs.
fn check_settings(
    (path, mut why): (&std::path::Path, Option<String>),
    (settings, secrets): (&watch::Sender<Arc<Settings>>, &Secrets),
    (untrusted, refused): (&watch::Sender<Option<String>>, &watch::Sender<Option<String>>),
    (metrics, is_asked): (&Metrics, bool),
) {
    let old = untrusted.borrow().clone();
    if why.is_none() && (is_asked || old.is_some()) {
        let reloaded = reload(path, settings, secrets);
        metrics.note_settings_read(reloaded.is_ok());
        let error = reloaded.err().map(|error| format!("{error:#}"));
        if let Some(error) = &error {
            tracing::error!(error, "the settings could not be read again; the previous ones stay in effect");
            why = old.as_ref().map(|_| error.clone());
        }
        refused.send_replace(error);
    }
    if why != old {
        match &why {
            Some(why) => log_untrusted(why),
            None => tracing::info!("nobody else can write the settings any more"),
        }
        untrusted.send_replace(why);
    }
}

/// Reads the settings again. If a setting changed that is used only at start, a warning names it.
fn reload(path: &std::path::Path, settings: &watch::Sender<Arc<Settings>>, secrets: &Secrets) -> Result<()> {
    let new = config::load(path)?;
    let (effective, changed) = settings.borrow().reload(new);
    if !changed.is_empty() {
        tracing::warn!("these settings have changed and take effect after a restart: {}", changed.join(", "));
    }
    secrets.learn_settings_logged(&effective);
    tracing::info!("settings read again");
    settings.send_replace(Arc::new(effective));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn while_the_machine_cannot_say_who_can_write_the_settings_the_last_answer_counts() {
        let mut unknown = None;
        let found = |is_of_machine| Untrusted { why: "why".into(), is_of_machine };
        assert!(note_unknown(&mut unknown, None));
        assert!(!note_unknown(&mut unknown, Some(&found(true))));
        assert!(!note_unknown(&mut unknown, Some(&found(true))));
        assert!(note_unknown(&mut unknown, Some(&found(false))));
        assert!(note_unknown(&mut unknown, None));
    }
}
