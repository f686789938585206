//! Writes the external fact that Facter reads. The fact is a file, because Facter would run an
//! executable at each of its runs and wait for it.

use crate::files::replace_if_different;
use crate::status::{Status, StatusTarget};
use planning::settings::Settings;
use serde_json::json;
use std::sync::Arc;
use tokio::sync::watch;

/// Keeps the file up to date until the task is dropped. After a failed write, the file is written
/// again when its path or content next changes.
pub(crate) async fn run(settings: watch::Receiver<Arc<Settings>>, mut status: watch::Receiver<Arc<Status>>) {
    let mut written = None;
    loop {
        let now =
            (settings.borrow().facts_file.clone(), text(&settings.borrow(), &status.borrow_and_update()));
        // Before the first read of the store, the file of the last run is better than this one.
        if status.borrow().is_ready() && written.as_ref() != Some(&now) {
            if let (Some(path), text) = &now
                && let Err(error) = replace_if_different(path, text)
            {
                tracing::warn!(%error, path = %path.display(), "the fact for Facter could not be written");
            }
            written = Some(now);
        }
        if status.changed().await.is_err() {
            return;
        }
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
            "verdict": status.decision.as_ref().map(|decision| decision.verdict.as_str()),
        },
    });
    format!("{fact:#}\n")
}
