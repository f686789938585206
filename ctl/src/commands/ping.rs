//! `ping`: checks whether the store answers.

use super::context::Store;
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use crate::settings::Settings;
use etcd_session::Deadline;
use serde_json::json;
use std::time::Duration;

/// Longest time that `ping` takes. Service managers ask every ten seconds, and the answer must come
/// well before the next request.
const PING_MAX: Duration = Duration::from_secs(5);

/// Returns the time limit of the whole verb.
pub(super) fn limit(settings: &Settings) -> Duration {
    settings.timeout.min(PING_MAX)
}

/// Prints whether the store answers.
pub(super) async fn ping(store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
    let deadline = Deadline::within(limit(store.settings));
    let members = store.session.members(deadline).await.unwrap_or_else(|error| {
        output::note(&format!("error: {error}"));
        Vec::new()
    });
    let connected = !members.is_empty();
    output.answer(&json!({ "connected": connected, "members": members }), |o| {
        // The misspelling is that of the original tool; scripts look for it.
        o.line(if connected { "Connection succesful" } else { "Connection failed" });
    });
    Ok(Exit::of(connected))
}
