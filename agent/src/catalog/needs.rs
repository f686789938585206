//! What this host needs of others and does not have: computed whenever the catalog changes, and handed to the
//! reconciler only when it says something new.

use super::Reader;
use crate::command;
use etcd_session::{Feed, FeedEvent, FeedOptions, Session};
use model::keys::{Key, Prefix};
use model::names::{HostName, Role};
use model::policy::Policy;
use model::requires::{Around, Count, Requirement, RosterCount, Wait, digest, unmet};
use model::settings::Settings;
use model::values::{self, RosterEntry};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// What the reconciler is told.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Needs {
    /// The needs that are not met.
    pub waits: Vec<Wait>,
    /// What the host sees of the services that it needs.
    pub seen: Option<u64>,
}

/// A probe that failed is tried again this often, and one that succeeded as well: it may fail later.
const PROBE_EVERY: Duration = Duration::from_secs(10);
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
const PROBE_OUTPUT_MAX_BYTES: usize = 1024;

/// The roles of the hosts on the roster.
#[derive(Debug, Default)]
struct Roster {
    roles: BTreeMap<HostName, Option<Role>>,
    listing: BTreeMap<HostName, Option<Role>>,
    is_known: bool,
}

impl RosterCount for Roster {
    fn hosts_with_role(&self, role: &Role) -> u32 {
        let count = self.roles.values().filter(|found| found.as_ref() == Some(role)).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }
}

impl Roster {
    fn take(&mut self, event: FeedEvent) {
        // Of a host that was taken out nothing is needed.
        let role = |value: &[u8]| -> Option<Option<Role>> {
            let entry: RosterEntry = values::read(value).ok()?;
            entry.decommissioned.is_none().then_some(entry.role)
        };
        match event {
            FeedEvent::Part(part) => {
                for (key, entry) in part {
                    if let (Ok(Key::Host(host)), Some(role)) = (Key::parse(&key), role(&entry.value)) {
                        self.listing.insert(host, role);
                    }
                }
            }
            FeedEvent::Listed(_) => {
                self.roles = std::mem::take(&mut self.listing);
                self.is_known = true;
            }
            FeedEvent::Changed(_, changes) => {
                for (key, entry) in changes {
                    let Ok(Key::Host(host)) = Key::parse(&key) else { continue };
                    match entry.and_then(|entry| role(&entry.value)) {
                        Some(role) => self.roles.insert(host, role),
                        None => self.roles.remove(&host),
                    };
                }
            }
            FeedEvent::Connected(_) => self.listing.clear(),
        }
    }
}

/// The task.
pub struct NeedsTask {
    settings: watch::Receiver<Arc<Settings>>,
    reader: Reader,
    session: Session,
    sender: watch::Sender<Arc<Needs>>,
    roster: Roster,
    failed_probes: BTreeSet<usize>,
}

impl NeedsTask {
    /// Prepares the task; until it has looked nothing is met.
    pub fn new(
        settings: watch::Receiver<Arc<Settings>>,
        reader: Reader,
        session: Session,
    ) -> (Self, watch::Receiver<Arc<Needs>>) {
        let (sender, receiver) = watch::channel(Arc::new(Needs::default()));
        let failed_probes = BTreeSet::new();
        let task = Self { settings, reader, session, sender, roster: Roster::default(), failed_probes };
        task.tell();
        (task, receiver)
    }

    /// Runs until it is dropped.
    pub async fn run(mut self) {
        let mut shown = self.reader.changes();
        let (sink, mut events) = mpsc::channel(8);
        let mut feed: Option<Feed> = None;
        let mut probe = tokio::time::interval(PROBE_EVERY);
        loop {
            let policy = self.policy();
            let needs_roster = policy.requires.iter().any(|r| matches!(r.count, Count::All(_)));
            if needs_roster && feed.is_none() {
                let options = FeedOptions::default();
                feed = Some(Feed::start(self.session.clone(), Prefix::Hosts, options, 0, sink.clone()));
            }
            self.tell();
            tokio::select! {
                // Channels and timers lose nothing when another is ready first.
                changed = shown.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    if self.is_probe_due(&policy) {
                        self.probe(&policy).await;
                    }
                }
                Some((_, event)) = events.recv() => self.roster.take(event),
                changed = self.settings.changed() => if changed.is_err() { return },
                _ = probe.tick() => self.probe(&policy).await,
            }
        }
    }

    fn policy(&self) -> Policy {
        self.settings.borrow().policy.clone()
    }

    fn tell(&self) {
        let policy = self.policy();
        // Also after other settings were read; and what is asked for again and again is followed on.
        policy.requires.iter().for_each(|requirement| self.reader.ask(&requirement.service));
        let shown = self.reader.shown();
        let roster = self.roster.is_known.then_some(&self.roster as &dyn RosterCount);
        let around = Around { roster, failed_probes: self.failed_probes.clone() };
        let needs = Needs {
            waits: unmet(&policy.requires, &shown.view, &around),
            seen: digest(&policy.requires, &shown.view),
        };
        self.sender.send_if_modified(|old| {
            let differs = **old != needs;
            if differs {
                *old = Arc::new(needs);
            }
            differs
        });
    }

    /// A service came or went that somebody probes.
    fn is_probe_due(&self, policy: &Policy) -> bool {
        let failed = self.failed_probes.clone();
        let probed =
            |place: usize, requirement: &Requirement| requirement.probe.is_some() && failed.contains(&place);
        policy.requires.iter().enumerate().any(|(place, requirement)| probed(place, requirement))
    }

    async fn probe(&mut self, policy: &Policy) {
        for (place, requirement) in policy.requires.iter().enumerate() {
            let Some(command) = &requirement.probe else { continue };
            let environment = BTreeMap::from([
                ("ORCHESTRATE_PROBE_SERVICE".to_owned(), requirement.service.to_string()),
                ("ORCHESTRATE_PROBE_LEVEL".into(), requirement.level.to_string()),
            ]);
            let outcome = command::run(command, &environment, PROBE_TIMEOUT, PROBE_OUTPUT_MAX_BYTES).await;
            if outcome.succeeded() {
                self.failed_probes.remove(&place);
            } else if self.failed_probes.insert(place) {
                tracing::info!(service = %requirement.service, probe = outcome.in_words(), "a probe fails");
            }
        }
    }
}
