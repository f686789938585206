//! How long hosts take from their start to their proof.

use schema::codec;
use schema::keys::Key;
use schema::names::{HostName, Role, StepName};
use schema::order::InstructionOrder;
use schema::records::{DURATIONS_IN_REPORT, HostProgress, Report, RosterEntry};
use schema::snapshot::KeySnapshot;
use schema::steps::StepPhase;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long a host takes of which nothing is known, and of no other host either.
const ASSUMED: Duration = Duration::from_secs(60);

/// How long hosts take from their start to their proof.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Durations {
    by_host: BTreeMap<HostName, Duration>,
    by_role: BTreeMap<Option<Role>, Duration>,
    /// The median of all hosts; `None` if nothing is known.
    median: Option<Duration>,
    /// The steps whose durations are known.
    steps: BTreeSet<StepName>,
}

impl Durations {
    /// Returns the durations that reports tell. `replaced` are those that an operator knows better.
    pub fn of_reports(
        roster: &BTreeMap<HostName, RosterEntry>,
        replaced: &BTreeMap<StepName, Duration>,
        found: &KeySnapshot,
    ) -> Self {
        let mut steps = BTreeSet::new();
        let mut by_host = BTreeMap::new();
        for host in roster.keys() {
            let report = found.get(&Key::Report(host.clone()));
            let report = report.and_then(|entry| codec::read::<Report>(&entry.value).ok());
            let known = report.map(|report| report.durations).unwrap_or_default();
            let disturbs = known
                .iter()
                .take(DURATIONS_IN_REPORT)
                .filter(|d| !matches!(d.phase, StepPhase::Prefetch | StepPhase::OnSuspect));
            let took =
                disturbs.clone().map(|known| replaced.get(&known.step).copied().unwrap_or(known.took.0));
            if disturbs.clone().next().is_some() {
                by_host.insert(host.clone(), took.fold(Duration::ZERO, Duration::saturating_add));
            }
            steps.extend(disturbs.map(|known| known.step.clone()));
        }
        let mut durations = Self::new(by_host, roster);
        if steps.is_empty() && !replaced.is_empty() {
            // No host has told what its steps are, so the operator names all of them.
            durations.median =
                Some(replaced.values().copied().fold(Duration::ZERO, Duration::saturating_add));
            steps.extend(replaced.keys().cloned());
        }
        Self { steps, ..durations }
    }

    /// Returns the durations of the hosts that are proven in a rollout.
    pub fn of_rollout(
        order: InstructionOrder,
        roster: &BTreeMap<HostName, RosterEntry>,
        found: &KeySnapshot,
    ) -> Self {
        let took = |host: &HostName| {
            let progress = found.get(&Key::Progress(order, host.clone()))?;
            Some(codec::read::<HostProgress>(&progress.value).ok()?.took?.0)
        };
        let by_host = roster.keys().filter_map(|host| Some((host.clone(), took(host)?)));
        Self::new(by_host.collect(), roster)
    }

    fn new(by_host: BTreeMap<HostName, Duration>, roster: &BTreeMap<HostName, RosterEntry>) -> Self {
        let mut of_role: BTreeMap<Option<Role>, Vec<Duration>> = BTreeMap::new();
        for (host, took) in &by_host {
            let role = roster.get(host).and_then(|roster| roster.role.clone());
            of_role.entry(role).or_default().push(*took);
        }
        let median_of_all = median(by_host.values().copied().collect());
        let by_role = of_role.into_iter().filter_map(|(role, took)| Some((role, median(took)?))).collect();
        Self { by_host, by_role, median: median_of_all, steps: BTreeSet::new() }
    }

    /// Returns how long a host takes: as long as it told, else as others of its role, else as any host.
    pub fn of(&self, host: &HostName, role: Option<&Role>) -> Duration {
        let known = self.by_host.get(host).or_else(|| self.by_role.get(&role.cloned()));
        known.copied().or(self.median).unwrap_or(ASSUMED)
    }

    /// Returns the median; `None` if nothing is known, so that a host is assumed to take a minute.
    pub fn median(&self) -> Option<Duration> {
        self.median
    }

    /// Returns the names of the steps whose durations are known.
    pub fn steps(&self) -> &BTreeSet<StepName> {
        &self.steps
    }
}

fn median(mut durations: Vec<Duration>) -> Option<Duration> {
    durations.sort_unstable();
    durations.get(durations.len() / 2).copied()
}
