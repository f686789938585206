//! `ping`.

use super::context::Store;
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use crate::settings::Settings;
use etcd_session::Deadline;
use serde_json::json;
use std::time::Duration;

/// Service managers ask every ten seconds: the answer comes well before the next question.
const PING_MAX: Duration = Duration::from_secs(5);

/// Most time for the whole verb.
pub(super) fn limit(settings: &Settings) -> Duration {
    settings.timeout.min(PING_MAX)
}

/// Says whether the store answers.
pub(super) async fn ping(store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
    let deadline = Deadline::within(limit(store.settings));
    let members = store.session.members(deadline).await.unwrap_or_else(|error| {
        output::note(&format!("error: {error}"));
        Vec::new()
    });
    let connected = !members.is_empty();
    output.answer(&json!({ "connected": connected, "members": members }), |o| {
        // The spelling of the original tool, which scripts look for.
        o.line(if connected { "Connection succesful" } else { "Connection failed" });
    });
    Ok(Exit::of(connected))
}
