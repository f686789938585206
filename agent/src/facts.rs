//! Writes the external fact that Facter reads. The fact is a file, because Facter would run an
//! executable at each of its runs and wait for it.

use crate::files::replace_if_different;
use crate::reconcile::{Reconcile, Wake};
use crate::status::{Status, StatusTarget};
use serde_json::json;
use settings::Settings;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::time::Instant;

/// The task that keeps the file up to date. After a failed write, the file is written again when its
/// path or content next changes.
pub(crate) struct Facts {
    settings: watch::Receiver<Arc<Settings>>,
    status: watch::Receiver<Arc<Status>>,
    /// The path and the content that were written last.
    written: Option<(Option<PathBuf>, String)>,
}

impl Facts {
    pub(crate) fn new(
        settings: watch::Receiver<Arc<Settings>>,
        status: watch::Receiver<Arc<Status>>,
    ) -> Self {
        Self { settings, status, written: None }
    }
}

impl Reconcile for Facts {
    /// The status has changed.
    type Event = ();

    async fn next_event(&mut self) -> Option<()> {
        self.status.changed().await.ok()
    }

    fn reason((): &()) -> &'static str {
        "status"
    }

    async fn pass(&mut self, _: Wake<()>) -> Option<Instant> {
        let status = self.status.borrow_and_update().clone();
        let settings = self.settings.borrow().clone();
        let now = (settings.facts_file.clone(), text(&settings, &status));
        // Before the first read of the store, the file of the last run is better than this one.
        if status.is_ready() && self.written.as_ref() != Some(&now) {
            if let (Some(path), text) = &now
                && let Err(error) = replace_if_different(path, text)
            {
                tracing::warn!(%error, path = %path.display(), "the fact for Facter could not be written");
            }
            self.written = Some(now);
        }
        None
    }
}

fn text(settings: &Settings, status: &Status) -> String {
    let desired = match &status.target {
        StatusTarget::Known { version, .. } => Some(version),
        _ => None,
    };
    let fact = json!({
        "orchestrate": {
            "host": status.host,
            "role": settings.role,
            "group": settings.group,
            "datacenter": settings.dns.datacenter,
            "version": { "desired": desired, "local": status.installed },
            "verdict": status.decision.as_ref().map(|decision| decision.verdict.kind().as_str()),
        },
    });
    format!("{fact:#}\n")
}
