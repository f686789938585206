//! Finds incidents at intervals, and keeps which are open in a file, so that a restart neither opens nor forgets one.

use crate::clock::now;
use crate::observed::{FoundIncidents, Moment, SharedFleet};
use planning::incidents::{IncidentBook, IncidentTimes, Notice, Situation};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// Time between two looks at the fleet.
const INTERVAL: Duration = Duration::from_secs(5);
/// Age from which on what is known counts as old.
pub(crate) const STALE_AFTER: Duration = Duration::from_secs(30);

/// What is kept, and where.
pub(crate) struct IncidentFile {
    path: PathBuf,
    book: IncidentBook,
}

impl IncidentFile {
    /// Opens the file. One that cannot be read is written over, because losing it only means that open incidents are
    /// told again.
    pub(crate) fn open(directory: &Path) -> std::io::Result<Self> {
        let path = directory.join("incidents.json");
        let book = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                tracing::warn!(%error, file = %path.display(), "the open incidents cannot be read; they begin anew");
                IncidentBook::default()
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => IncidentBook::default(),
            Err(error) => return Err(error),
        };
        Ok(Self { path, book })
    }

    /// Writes what is kept, so that it is on disk when this returns.
    fn save(&self) -> std::io::Result<()> {
        let new = self.path.with_extension("new");
        let mut file = std::fs::File::create(&new)?;
        file.write_all(&serde_json::to_vec(&self.book)?)?;
        file.sync_all()?;
        std::fs::rename(&new, &self.path)?;
        self.path.parent().map_or(Ok(()), |directory| std::fs::File::open(directory)?.sync_all())
    }

    /// Looks at the fleet until the process ends.
    pub(crate) async fn follow(mut self, fleet: Arc<SharedFleet>, times: IncidentTimes) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let moment = fleet.moment();
            if moment.revision == 0 && fleet.problem().is_none() {
                // Nothing is known yet, not even that the store is away.
                continue;
            }
            let looked = fleet.clone();
            let looking = tokio::task::spawn_blocking(move || situation(moment, &looked));
            let Ok(situation) = looking.await else { return };
            let before = self.book.clone();
            let notices = self.book.advance(situation, now(), &times);
            if self.book != before
                && let Err(error) = self.save()
            {
                tracing::error!(%error, file = %self.path.display(), "the open incidents cannot be written");
            }
            fleet.set_incidents(FoundIncidents { moment, open: self.book.open() });
            notices.iter().for_each(log);
        }
    }
}

/// Returns what is wrong with the fleet; `None` while what is known is old.
fn situation(moment: Moment, fleet: &SharedFleet) -> Option<Situation> {
    let age = moment.fresh_at?.elapsed();
    let observed = fleet.read();
    let observed = observed.as_ref().filter(|_| age <= STALE_AFTER)?;
    Some(Situation::new(&observed.fleet, observed.found(), now()))
}

fn log(notice: &Notice) {
    let Notice { notice, incident, .. } = notice;
    let (id, kind) = (incident.incident_id.to_string(), incident.kind.as_str());
    let (severity, hosts) = (incident.severity.as_str(), incident.hosts.len());
    tracing::info!(id, kind, severity, hosts, summary = incident.summary, "incident {}", notice.as_str());
}
