//! The external fact that Facter reads: a file, because Facter runs what is executable on every run, and waits for it.

use crate::files::replace_if_different;
use crate::status::{Status, StatusTarget};
use planning::settings::Settings;
use serde_json::json;
use std::sync::Arc;
use tokio::sync::watch;

/// Keeps the file until it is dropped. A file that cannot be written is tried again with the next difference.
pub(crate) async fn run(settings: watch::Receiver<Arc<Settings>>, mut status: watch::Receiver<Arc<Status>>) {
    let mut written = None;
    loop {
        let now =
            (settings.borrow().facts_file.clone(), text(&settings.borrow(), &status.borrow_and_update()));
        // Before the store has been read nothing is known that the file of the last run does not know better.
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
