//! The owner of the settings in use. It reads them again when a signal asks for it, and follows who can write them.

use crate::config;
use crate::config::Untrusted;
use crate::metrics::Metrics;
use crate::secrets::Secrets;
use anyhow::Result;
use settings::Settings;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::watch;

/// What the other parts of the agent see of the settings.
#[derive(Clone)]
pub(crate) struct SettingsView {
    /// The settings in use, replaced as a whole.
    pub settings: watch::Receiver<Arc<Settings>>,
    /// Why the settings are not trusted; `None` if only root and the agent's user can write them.
    pub untrusted: watch::Receiver<Option<String>>,
    /// Why the settings could not be read again last; `None` if they could, or were not.
    pub refused: watch::Receiver<Option<String>>,
}

/// The settings in use, and whether they are trusted.
pub(crate) struct SettingsWatch {
    path: PathBuf,
    settings: watch::Sender<Arc<Settings>>,
    untrusted: watch::Sender<Option<String>>,
    refused: watch::Sender<Option<String>>,
    secrets: Secrets,
    metrics: Metrics,
    /// Why the machine cannot say who can write the settings; `None` if it can.
    unknown: Option<String>,
}

impl SettingsWatch {
    /// Checks who can write the settings. `settings` were read from `path`.
    pub(crate) fn new(
        path: PathBuf,
        settings: Settings,
        secrets: Secrets,
        metrics: Metrics,
    ) -> (Self, SettingsView) {
        let (settings, settings_view) = watch::channel(Arc::new(settings));
        let why = config::untrusted(&path).map(|found| found.why);
        if let Some(why) = &why {
            log_untrusted(why);
        }
        let (untrusted, untrusted_view) = watch::channel(why);
        let (refused, refused_view) = watch::channel(None);
        let view = SettingsView { settings: settings_view, untrusted: untrusted_view, refused: refused_view };
        (Self { path, settings, untrusted, refused, secrets, metrics, unknown: None }, view)
    }

    /// Checks who can write the settings. Reads them again if a signal asked for it (`is_asked`).
    ///
    /// Settings that others can write are not read. Settings that others could write until now are read
    /// again before any command in them runs.
    pub(crate) fn check(&mut self, is_asked: bool) {
        let found = config::untrusted(&self.path);
        let old = self.untrusted.borrow().clone();
        let mut why = if note_unknown(&mut self.unknown, found.as_ref()) {
            found.map(|found| found.why)
        } else {
            old.clone()
        };
        if why.is_none() && (is_asked || old.is_some()) {
            let reloaded = self.reload();
            self.metrics.note_settings_read(reloaded.is_ok());
            let error = reloaded.err().map(|error| format!("{error:#}"));
            if let Some(error) = &error {
                tracing::error!(
                    error,
                    "the settings could not be read again; the previous ones stay in effect"
                );
                why = old.as_ref().map(|_| error.clone());
            }
            self.refused.send_replace(error);
        }
        if why != old {
            match &why {
                Some(why) => log_untrusted(why),
                None => tracing::info!("nobody else can write the settings any more"),
            }
            self.untrusted.send_replace(why);
        }
    }

    /// Reads the settings again. If a setting changed that is used only at start, a warning names it.
    fn reload(&self) -> Result<()> {
        let new = config::load(&self.path)?;
        let (effective, changed) = self.settings.borrow().reload(new);
        if !changed.is_empty() {
            let changed = changed.join(", ");
            tracing::warn!("these settings have changed and take effect after a restart: {changed}");
        }
        self.secrets.learn_settings_logged(&effective);
        tracing::info!("settings read again");
        self.settings.send_replace(Arc::new(effective));
        Ok(())
    }
}

fn log_untrusted(why: &str) {
    tracing::error!(why, "others can write the settings: no step, check or other command runs");
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
