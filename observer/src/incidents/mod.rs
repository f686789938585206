//! Finds incidents at intervals, and keeps which are open and which messages wait in a file.

mod message;
mod store;

pub(crate) use message::Message;
pub(crate) use store::{IncidentStore, OpenAndWaiting, Receiver};

use crate::clock::now;
use crate::observed::{FoundIncidents, Moment, SharedFleet};
use fleet::incidents::{IncidentTimes, Notice, Situation};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

/// Time between two looks at the fleet.
const INTERVAL: Duration = Duration::from_secs(5);
/// Age at which what is known counts as old.
pub(crate) const STALE_AFTER: Duration = Duration::from_secs(30);

/// Looks at the fleet until the process ends.
pub(crate) async fn find(fleet: Arc<SharedFleet>, kept: Arc<IncidentStore>, times: IncidentTimes) {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut moments, began) = (fleet.follow_moments(), Instant::now());
    loop {
        ticks.tick().await;
        let moment = fleet.moment();
        let is_known = moment.fresh_at.is_some() || fleet.problem().is_some();
        if !is_known && began.elapsed() < STALE_AFTER {
            // Nothing is known yet, not even that the store is away. As soon as other views answer, this one does.
            let _ = timeout(INTERVAL, moments.changed()).await;
            ticks.reset_immediately();
            continue;
        }
        let (fleet, kept) = (fleet.clone(), kept.clone());
        // Looking at a large fleet takes a while, and so does a file that has to be on disk.
        let looking = tokio::task::spawn_blocking(move || {
            kept.advance(situation(moment, &fleet), now(), &times).iter().for_each(log);
            fleet.set_incidents(FoundIncidents { moment, open: kept.open() });
        });
        if looking.await.is_err() {
            return;
        }
    }
}

/// Returns what is wrong with the fleet; `None` while what is known is old.
fn situation(moment: Moment, fleet: &SharedFleet) -> Option<Situation> {
    let age = moment.fresh_at?.elapsed();
    let observed = fleet.read();
    if age > STALE_AFTER {
        return None;
    }
    let observed = observed.as_ref()?;
    Some(Situation::new(&observed.fleet, observed.found(), &fleet.last_alarms(), now()))
}

fn log(notice: &Notice) {
    let Notice { notice, incident, .. } = notice;
    let (id, kind) = (incident.incident_id.to_string(), incident.kind.as_str());
    let (severity, hosts) = (incident.severity.as_str(), incident.hosts.len());
    tracing::info!(id, kind, severity, hosts, summary = incident.summary, "incident {}", notice.as_str());
}
