//! A request each minute while the data of the observer is fresh. Who gets it raises an alarm when it stays away.

use super::http_client::HttpClient;
use crate::incidents::STALE_AFTER;
use crate::observed::SharedFleet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};
use ureq::http::Request;

/// Time between two requests.
const INTERVAL: Duration = Duration::from_secs(60);
/// Time between two looks whether the data is fresh, until it is.
const LOOK: Duration = Duration::from_secs(1);

/// Sends requests until the process ends.
pub(super) async fn send(url: String, client: HttpClient, fleet: Arc<SharedFleet>) {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut has_failed = false;
    loop {
        ticks.tick().await;
        while fleet.moment().fresh_at.is_none_or(|at| at.elapsed() > STALE_AFTER) {
            tokio::time::sleep(LOOK).await;
        }
        let target = url.clone();
        let result = client.send(move || Ok(Request::get(target).body(String::new())?)).await;
        match &result {
            Err(why) if !has_failed => tracing::warn!("the heartbeat was not delivered: {why}"),
            Ok(()) if has_failed => tracing::info!("the heartbeat is delivered again"),
            _ => {}
        }
        has_failed = result.is_err();
    }
}
