//! What the observer knows: everything in the store at one revision, and the fleet that follows from it.

use catalog::{View, catalog_from_store};
use etcd_session::Assembly;
use fleet::incidents::OpenIncident;
use fleet::{Fleet, FleetTarget};
use schema::keys::{Key, Prefix};
use schema::names::Token;
use schema::records::StoreIdentity;
use schema::snapshot::KeySnapshot;
use schema::time::EpochSeconds;
use std::collections::BTreeSet;
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard};
use tokio::sync::watch;
use tokio::time::Instant;

/// Everything in the store at one revision, and the fleet.
pub(crate) struct Observed {
    pub(crate) assembly: Assembly,
    pub(crate) fleet: Fleet,
    /// The services; empty until somebody wants to see them as they are now.
    catalog: OnceLock<View>,
}

impl Observed {
    /// Returns what follows from the first complete snapshot.
    pub(crate) fn new(assembly: Assembly) -> Self {
        let found = assembly.snapshot();
        let entries = found.entries.iter().map(|(key, entry)| (key.as_str(), entry.value.as_slice()));
        let fleet = Fleet::new(FleetTarget::of(found), entries);
        Self { assembly, fleet, catalog: OnceLock::new() }
    }

    /// Returns everything in the store.
    pub(crate) fn found(&self) -> &KeySnapshot {
        self.assembly.snapshot()
    }

    fn lineage(&self) -> Option<Token> {
        let entry = self.found().get(&Key::Store)?;
        Some(StoreIdentity::read(&entry.value).ok()?.lineage)
    }

    /// Changes the fleet as these keys have changed.
    pub(crate) fn note_changed(&mut self, changed: &BTreeSet<String>) {
        let found = self.assembly.snapshot();
        let of_services = [Prefix::Services, Prefix::HealthAll].map(|range| range.to_string());
        if changed.iter().any(|key| of_services.iter().any(|range| key.starts_with(range))) {
            self.catalog = OnceLock::new();
        }
        for key in changed {
            self.fleet.change(key, found.entries.get(key).map(|entry| entry.value.as_slice()));
        }
        if [Key::CurrentVersion, Key::Store].iter().any(|key| changed.contains(&key.to_string())) {
            self.fleet.set_target(FleetTarget::of(found));
        }
    }

    /// Looks for deadlocks at a time.
    pub(crate) fn find_deadlocks(&mut self, now: EpochSeconds) {
        let catalog = self.catalog.take().unwrap_or_else(|| catalog_of(self.found()));
        self.fleet.find_deadlocks(&catalog, now);
        self.catalog = catalog.into();
    }

    pub(crate) fn catalog(&self) -> &View {
        self.catalog.get_or_init(|| catalog_of(self.found()))
    }
}

fn catalog_of(found: &KeySnapshot) -> View {
    let ranges = [Prefix::Services, Prefix::HealthAll];
    let entries = ranges.iter().flat_map(|range| found.in_range(range));
    catalog_from_store(entries.map(|(key, entry)| (key.as_str(), entry.value.as_slice(), entry.lease != 0))).0
}

/// Identifies what is shown. While it stays the same, an answer that was made stays right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Moment {
    /// The number of the history of the store since the start of the observer.
    pub(crate) history: u64,
    /// The revision; 0 before the first snapshot.
    pub(crate) revision: i64,
    /// What is shown holds everything that was written before this time.
    pub(crate) fresh_at: Option<Instant>,
}

/// The open incidents, and the state in which they were found.
#[derive(Debug, Clone)]
pub(crate) struct FoundIncidents {
    pub(crate) moment: Moment,
    pub(crate) open: Vec<OpenIncident>,
}

/// What is known about the alarms of the store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct SeenAlarms {
    /// What was read last; `None` if the user may not ask.
    last: Option<Vec<String>>,
    /// Why nothing could be read since.
    problem: Option<String>,
}

/// What the observer knows, for one task that changes it and many that show it.
#[derive(Default)]
pub(crate) struct SharedFleet {
    observed: RwLock<Option<Observed>>,
    moment: watch::Sender<Moment>,
    /// The lineage of the store, apart from the lock: every page shows it.
    lineage: watch::Sender<Option<Token>>,
    /// Why the store cannot be followed.
    problem: watch::Sender<Option<String>>,
    /// Why what the store says may not be the present.
    doubt: watch::Sender<Option<String>>,
    alarms: watch::Sender<SeenAlarms>,
    incidents: watch::Sender<Option<FoundIncidents>>,
}

impl SharedFleet {
    /// Shows what is known; `None` before the first snapshot.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Option<Observed>> {
        // A task that panics while it changes this ends the observer.
        self.observed.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is known.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Option<Observed>) -> T) -> T {
        change(&mut self.observed.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns what identifies the newest state that clients see.
    pub(crate) fn moment(&self) -> Moment {
        *self.moment.borrow()
    }

    /// Returns what identifies the newest state, now and whenever it changes.
    pub(crate) fn follow_moments(&self) -> watch::Receiver<Moment> {
        self.moment.subscribe()
    }

    /// Lets clients see the state of this moment.
    pub(crate) fn set_moment(&self, moment: Moment) {
        let lineage = self.read().as_ref().and_then(Observed::lineage);
        self.lineage.send_if_modified(|known| std::mem::replace(known, lineage.clone()) != lineage);
        self.moment.send_replace(moment);
    }

    /// Returns the lineage of the store; `None` if it is not known.
    pub(crate) fn lineage(&self) -> Option<Token> {
        self.lineage.borrow().clone()
    }

    /// Returns why what the store says may not be the present: it went back, and no operator has accepted it.
    pub(crate) fn doubt(&self) -> Option<String> {
        self.doubt.borrow().clone()
    }

    /// Notes why what the store says may not be the present, or that it is.
    pub(crate) fn set_doubt(&self, doubt: Option<String>) {
        self.doubt.send_replace(doubt);
    }

    /// Returns the alarms of the store, and why the state of the fleet cannot be told although it was read.
    pub(crate) fn alarms_and_doubt(&self) -> (Option<Vec<String>>, Option<String>) {
        let doubt = self.doubt();
        match &*self.alarms.borrow() {
            SeenAlarms { last, problem: None } => (last.clone(), doubt),
            SeenAlarms { problem: Some(problem), .. } => {
                let unknown = || format!("the store did not say whether it has an alarm: {problem}");
                (None, Some(doubt.unwrap_or_else(unknown)))
            }
        }
    }

    /// Returns the alarms that the store raised when it last said so.
    pub(crate) fn last_alarms(&self) -> Vec<String> {
        self.alarms.borrow().last.clone().unwrap_or_default()
    }

    /// Notes the alarms of the store; `None` if the user may not ask.
    pub(crate) fn note_alarms(&self, last: Option<Vec<String>>) {
        self.alarms.send_replace(SeenAlarms { last, problem: None });
    }

    /// Notes why the store did not say its alarms, though it answers other questions.
    pub(crate) fn note_unknown_alarms(&self, problem: &str) {
        self.alarms.send_modify(|alarms| alarms.problem = Some(problem.to_owned()));
    }

    /// Returns the open incidents; `None` before the fleet was looked at.
    pub(crate) fn incidents(&self) -> Option<FoundIncidents> {
        self.incidents.borrow().clone()
    }

    /// Replaces the open incidents.
    pub(crate) fn set_incidents(&self, incidents: FoundIncidents) {
        self.incidents.send_replace(Some(incidents));
    }

    /// Returns why the store cannot be followed.
    pub(crate) fn problem(&self) -> Option<String> {
        self.problem.borrow().clone()
    }

    /// Notes why the store cannot be followed, or that it can.
    pub(crate) fn set_problem(&self, problem: Option<String>) {
        match (&*self.problem.borrow(), &problem) {
            (None, Some(new)) => tracing::warn!("the store cannot be read: {new}"),
            // It may be another member each second.
            (Some(old), Some(new)) if old != new => tracing::debug!("the store cannot be read: {new}"),
            (Some(_), None) => tracing::info!("the store can be read again"),
            _ => {}
        }
        self.problem.send_replace(problem);
    }
}
