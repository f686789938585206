//! The needs of this host that are not met. They are computed whenever the catalog changes, and
//! passed to the reconciler only when the result differs.

use super::reader::Reader;
use super::trust::Trust;
use crate::command;
use catalog::requires::{Count, Requirement, RosterContext, RosterCount, digest, unmet};
use etcd_session::{Feed, FeedEvent, FeedOptions, Session};
use planning::policy::Policy;
use planning::settings::Settings;
use schema::codec;
use schema::health::Level;
use schema::keys::{Key, Prefix};
use schema::names::{HostName, Role, ServiceName};
use schema::records::{RosterEntry, Wait};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// The needs as the reconciler sees them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Needs {
    /// The needs that are not met.
    pub waits: Vec<Wait>,
    /// A digest of what the host sees of the services that it needs; `None` while that is not
    /// known, or if nothing is needed.
    pub seen: Option<u64>,
}

/// Time between two runs of a probe. A probe that succeeded runs again as well, because it may fail
/// later.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);
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
        // A decommissioned host is not needed any more, so it does not count.
        let role = |value: &[u8]| -> Option<Option<Role>> {
            let entry: RosterEntry = codec::read(value).ok()?;
            entry.decommissioned.is_none().then_some(entry.role)
        };
        match event {
            FeedEvent::InitApply(part) => {
                for (key, entry) in part {
                    if let (Ok(Key::Host(host)), Some(role)) = (Key::parse(&key), role(&entry.value)) {
                        self.listing.insert(host, role);
                    }
                }
            }
            FeedEvent::InitDone(_) => {
                self.roles = std::mem::take(&mut self.listing);
                self.is_known = true;
            }
            FeedEvent::Apply(_, changes) => {
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

/// The task that computes the needs.
pub(crate) struct NeedsTask {
    settings: watch::Receiver<Arc<Settings>>,
    reader: Reader,
    session: Session,
    sender: watch::Sender<Arc<Needs>>,
    roster: Roster,
    /// The service, level and command of each probe that succeeded last.
    passed: BTreeSet<(ServiceName, Level, Vec<String>)>,
    trust: watch::Receiver<Trust>,
    /// Why the settings are not trusted, if somebody else can write them.
    untrusted: watch::Receiver<Option<String>>,
}

/// Returns what identifies a probe independently of its place in the settings.
fn probe_of(requirement: &Requirement) -> Option<(ServiceName, Level, Vec<String>)> {
    let command = requirement.probe.clone()?;
    Some((requirement.service.clone(), requirement.level, command))
}

impl NeedsTask {
    /// Prepares the task and publishes the needs once, so that a need counts as unmet until it is
    /// known to be met.
    pub(crate) fn new(
        settings: watch::Receiver<Arc<Settings>>,
        reader: Reader,
        session: Session,
        trust: watch::Receiver<Trust>,
        untrusted: watch::Receiver<Option<String>>,
    ) -> (Self, watch::Receiver<Arc<Needs>>) {
        let (sender, receiver) = watch::channel(Arc::new(Needs::default()));
        let (roster, passed) = (Roster::default(), BTreeSet::new());
        let task = Self { settings, reader, session, sender, roster, passed, trust, untrusted };
        task.publish();
        (task, receiver)
    }

    /// Runs until the task is dropped.
    pub(crate) async fn run(mut self) {
        let mut shown = self.reader.changes();
        let (sink, mut events) = mpsc::channel(8);
        let mut feed: Option<Feed> = None;
        let mut epoch = None;
        let mut number = 0;
        let mut probe = tokio::time::interval(PROBE_INTERVAL);
        loop {
            let policy = self.policy();
            let needs_roster = policy.requires.iter().any(|r| matches!(r.count, Count::All(_)));
            let trusted = self.trust.borrow_and_update().epoch;
            if trusted != epoch || (needs_roster && feed.is_none() && trusted.is_some()) {
                // Nothing in an untrusted store is believed; the last known roster stays.
                epoch = trusted;
                number += 1;
                feed = (needs_roster && epoch.is_some()).then(|| {
                    let options = FeedOptions::default();
                    Feed::start(self.session.clone(), Prefix::Hosts, options, number, sink.clone())
                });
            }
            self.publish();
            tokio::select! {
                // Channels and timers lose nothing when another branch completes first.
                changed = shown.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    if self.is_probe_due(&policy) {
                        self.probe(&policy).await;
                    }
                }
                Some((from, event)) = events.recv() => if from == number { self.roster.take(event) },
                changed = self.trust.changed() => if changed.is_err() { return },
                changed = self.settings.changed() => if changed.is_err() { return },
                _ = probe.tick() => self.probe(&policy).await,
            }
        }
    }

    fn policy(&self) -> Policy {
        self.settings.borrow().policy.clone()
    }

    fn publish(&self) {
        let policy = self.policy();
        // Interest is registered each time: the settings may have changed, and interest that is not
        // renewed ends.
        policy.requires.iter().for_each(|requirement| self.reader.follow(&requirement.service));
        let shown = self.reader.snapshot();
        let roster = self.roster.is_known.then_some(&self.roster as &dyn RosterCount);
        let open = |(place, requirement): (usize, &Requirement)| {
            let probe = probe_of(requirement)?;
            (!self.passed.contains(&probe)).then_some(place)
        };
        let failed_probes = policy.requires.iter().enumerate().filter_map(open).collect();
        let context = RosterContext { roster, failed_probes };
        let needs = Needs {
            waits: unmet(&policy.requires, &shown.view, &context),
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

    /// True if a requirement waits for a probe to succeed.
    fn is_probe_due(&self, policy: &Policy) -> bool {
        policy.requires.iter().filter_map(probe_of).any(|probe| !self.passed.contains(&probe))
    }

    async fn probe(&mut self, policy: &Policy) {
        if self.untrusted.borrow().is_some() {
            return;
        }
        for requirement in &policy.requires {
            let Some(probe) = probe_of(requirement) else { continue };
            let environment = BTreeMap::from([
                ("ORCHESTRATE_PROBE_SERVICE".to_owned(), requirement.service.to_string()),
                ("ORCHESTRATE_PROBE_LEVEL".into(), requirement.level.to_string()),
            ]);
            let outcome = command::run(&probe.2, &environment, PROBE_TIMEOUT, PROBE_OUTPUT_MAX_BYTES).await;
            if outcome.succeeded() {
                self.passed.insert(probe);
            } else if self.passed.remove(&probe) {
                tracing::info!(service = %requirement.service, probe = outcome.describe(), "a probe fails");
            }
        }
    }
}
