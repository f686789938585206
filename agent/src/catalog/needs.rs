//! The needs of this host that are not met. They are computed whenever the catalog changes, and
//! passed to the reconciler only when the result differs.

use super::reader::{CatalogSnapshot, Reader};
use super::trust::Trust;
use crate::environment::CommandEnvironment;
use crate::reconcile::{Reconcile, Wake};
use crate::supervise;
use catalog::requires::{Count, Requirement, RosterContext, RosterCount, digest, unmet};
use etcd_session::{Collected, Collector, Feed, FeedEvent, FeedOptions, Session};
use planning::host::SiteConfig;
use schema::health::Level;
use schema::keys::{self, Key, Prefix};
use schema::names::{HostName, Role, ServiceName};
use schema::records::Wait;
use settings::Settings;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

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
    collector: Collector<HostName, Option<Role>>,
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
            let entry = keys::Host::read(value).ok()?;
            entry.decommissioned.is_none().then_some(entry.role)
        };
        let collected = self.collector.take(event, |key, entry| match Key::parse(key) {
            Ok(Key::Host(host)) => Some((host, entry.and_then(|entry| role(&entry.value)))),
            _ => None,
        });
        match collected {
            Some(Collected::Replaced(roles, _)) => {
                self.roles = roles;
                self.is_known = true;
            }
            Some(Collected::Changed(changes, _)) => {
                for (host, role) in changes {
                    match role {
                        Some(role) => self.roles.insert(host, role),
                        None => self.roles.remove(&host),
                    };
                }
            }
            Some(Collected::Connected(_)) | None => {}
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
    /// The probes that succeeded last.
    passed: BTreeSet<Probe>,
    /// The probes that run now, and their results.
    probing: BTreeSet<Probe>,
    probes: JoinSet<(Probe, commands::Outcome)>,
    /// When the probes run again.
    probe_at: Instant,
    /// True if the catalog changed while a probe ran: it runs again if it fails.
    probes_are_old: bool,
    catalog: watch::Receiver<Arc<CatalogSnapshot>>,
    trust: watch::Receiver<Trust>,
    environment: CommandEnvironment,
    /// The epoch of the store that the roster is read from; `None` if the store is not trusted.
    epoch: Option<u64>,
    /// The feed of the roster, with its number.
    feed: (u64, Option<Feed>),
    sink: mpsc::Sender<(u64, FeedEvent)>,
    events: mpsc::Receiver<(u64, FeedEvent)>,
}

/// The service, level and command of a probe. They identify it independently of its place in the
/// settings.
type Probe = (ServiceName, Level, Vec<String>);

/// What wakes the task.
#[derive(Debug)]
pub(crate) enum NeedsEvent {
    Catalog,
    Trust,
    Settings,
    Roster(u64, FeedEvent),
    Probed(Result<(Probe, commands::Outcome), JoinError>),
}

fn probe_of(requirement: &Requirement) -> Option<Probe> {
    let command = requirement.probe.clone()?;
    Some((requirement.service.clone(), requirement.level, command))
}

impl Reconcile for NeedsTask {
    type Event = NeedsEvent;

    async fn next_event(&mut self) -> Option<NeedsEvent> {
        tokio::select! {
            changed = self.catalog.changed() => changed.ok().map(|()| NeedsEvent::Catalog),
            changed = self.trust.changed() => changed.ok().map(|()| NeedsEvent::Trust),
            changed = self.settings.changed() => changed.ok().map(|()| NeedsEvent::Settings),
            Some((number, event)) = self.events.recv() => Some(NeedsEvent::Roster(number, event)),
            Some(probed) = self.probes.join_next() => Some(NeedsEvent::Probed(probed)),
        }
    }

    fn reason(event: &NeedsEvent) -> &'static str {
        match event {
            NeedsEvent::Catalog => "catalog",
            NeedsEvent::Trust => "trust",
            NeedsEvent::Settings => "settings",
            NeedsEvent::Roster(..) => "roster",
            NeedsEvent::Probed(_) => "probe",
        }
    }

    async fn pass(&mut self, wake: Wake<NeedsEvent>) -> Option<Instant> {
        self.settings.borrow_and_update();
        let has_changed = self.catalog.has_changed().unwrap_or_default();
        let is_of_catalog = has_changed || matches!(wake, Wake::Event(NeedsEvent::Catalog));
        self.catalog.borrow_and_update();
        let policy = self.policy();
        match wake {
            Wake::Event(NeedsEvent::Roster(number, event)) if number == self.feed.0 => {
                self.roster.take(event);
            }
            Wake::Event(NeedsEvent::Probed(Ok((probe, outcome)))) => self.end_probe(probe, &outcome),
            Wake::Event(NeedsEvent::Probed(Err(error))) => std::panic::resume_unwind(error.into_panic()),
            _ => {}
        }
        // A probe that began before the change says nothing about the catalog as it is now.
        self.probes_are_old |= is_of_catalog;
        if self.probes_are_old && self.probing.is_empty() {
            self.probes_are_old = false;
            if self.is_probe_due(&policy) {
                self.start_probes(&policy);
            }
        }
        if self.probe_at <= Instant::now() {
            self.probe_at = Instant::now() + PROBE_INTERVAL;
            assert!(!self.feed.1.as_ref().is_some_and(Feed::has_ended), "the feed of the roster has ended");
            self.start_probes(&policy);
        }
        self.follow_roster(&policy);
        self.publish();
        Some(self.probe_at)
    }
}

impl NeedsTask {
    /// Prepares the task and publishes the needs once, so that a need counts as unmet until it is
    /// known to be met.
    pub(crate) fn new(
        settings: watch::Receiver<Arc<Settings>>,
        reader: Reader,
        session: Session,
        trust: watch::Receiver<Trust>,
        environment: CommandEnvironment,
    ) -> (Self, watch::Receiver<Arc<Needs>>) {
        let (sender, receiver) = watch::channel(Arc::new(Needs::default()));
        let (sink, events) = mpsc::channel(8);
        let task = Self {
            catalog: reader.changes(),
            settings,
            reader,
            session,
            sender,
            roster: Roster::default(),
            passed: BTreeSet::new(),
            probing: BTreeSet::new(),
            probes: JoinSet::new(),
            probe_at: Instant::now(),
            probes_are_old: false,
            trust,
            environment,
            epoch: None,
            feed: (0, None),
            sink,
            events,
        };
        task.publish();
        (task, receiver)
    }

    /// Follows the roster if the host needs it and the store is trusted. Nothing in an untrusted
    /// store is believed; the last known roster stays.
    fn follow_roster(&mut self, policy: &SiteConfig) {
        let needs_roster = policy.requires.iter().any(|r| matches!(r.count, Count::All(_)));
        let trusted = self.trust.borrow_and_update().epoch;
        let (number, feed) = &mut self.feed;
        if trusted != self.epoch || (needs_roster && feed.is_none() && trusted.is_some()) {
            self.epoch = trusted;
            // A list that was cut off does not count.
            self.roster.collector.clear();
            *number += 1;
            *feed = if needs_roster && trusted.is_some() {
                let (options, sink) = (FeedOptions::default(), self.sink.clone());
                Some(Feed::start(self.session.clone(), Prefix::Hosts, options, *number, sink))
            } else {
                None
            };
        }
    }

    fn policy(&self) -> SiteConfig {
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
    fn is_probe_due(&self, policy: &SiteConfig) -> bool {
        policy.requires.iter().filter_map(probe_of).any(|probe| !self.passed.contains(&probe))
    }

    /// Starts every probe that does not run already.
    fn start_probes(&mut self, policy: &SiteConfig) {
        if self.environment.untrusted().is_some() {
            return;
        }
        for requirement in &policy.requires {
            let Some(probe) = probe_of(requirement) else { continue };
            if !self.probing.insert(probe.clone()) {
                continue;
            }
            let environment = self.environment.clone();
            let own = [
                ("ORCHESTRATE_PROBE_SERVICE", requirement.service.to_string()),
                ("ORCHESTRATE_PROBE_LEVEL", requirement.level.to_string()),
            ];
            self.probes.spawn(supervise::child("probe", async move {
                let environment = environment.with(own).await;
                let outcome =
                    commands::run(&probe.2, &environment, b"", PROBE_TIMEOUT, PROBE_OUTPUT_MAX_BYTES).await;
                (probe, outcome)
            }));
        }
    }

    fn end_probe(&mut self, probe: Probe, outcome: &commands::Outcome) {
        self.probing.remove(&probe);
        let service = probe.0.clone();
        if outcome.succeeded() {
            self.passed.insert(probe);
        } else if self.passed.remove(&probe) {
            tracing::info!(%service, probe = outcome.describe(), "a probe fails");
        }
    }
}
