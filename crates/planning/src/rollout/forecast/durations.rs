//! How long hosts take from their start to their proof, and for what comes before and after.
use schema::keys::{self, Key};
use schema::names::{HostName, Role, StepName};
use schema::order::InstructionOrder;
use schema::records::{DURATIONS_IN_REPORT, HostProgress, RosterEntry};
use schema::snapshot::KeySnapshot;
use schema::steps::StepPhase;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long a host takes of which nothing is known, and of no other host either.
const ASSUMED: Duration = Duration::from_secs(60);

/// How long hosts take for something.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Known {
    by_host: BTreeMap<HostName, Duration>,
    by_role: BTreeMap<Option<Role>, Duration>,
    /// The median of all hosts; `None` if nothing is known.
    median: Option<Duration>,
}

impl Known {
    fn new(by_host: BTreeMap<HostName, Duration>, roster: &BTreeMap<HostName, RosterEntry>) -> Self {
        let mut of_role: BTreeMap<Option<Role>, Vec<Duration>> = BTreeMap::new();
        for (host, took) in &by_host {
            let role = roster.get(host).and_then(|roster| roster.role.clone());
            of_role.entry(role).or_default().push(*took);
        }
        let median_of_all = median(by_host.values().copied().collect());
        let by_role = of_role.into_iter().filter_map(|(role, took)| Some((role, median(took)?))).collect();
        Self { by_host, by_role, median: median_of_all }
    }

    /// Returns how long a host takes: as long as it told, else as others of its role, else as any host.
    fn of(&self, host: &HostName, role: Option<&Role>) -> Option<Duration> {
        let known = self.by_host.get(host).or_else(|| self.by_role.get(&role.cloned()));
        known.copied().or(self.median)
    }
}

/// How long hosts take.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Durations {
    /// From their start to their proof.
    updates: Known,
    validations: Known,
    prefetches: Known,
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
        let (mut updates, mut validations, mut prefetches) =
            (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for host in roster.keys() {
            let report = found.value_of(keys::Report(host.clone()));
            let known = report.map(|report| report.durations).unwrap_or_default();
            for known in known.iter().take(DURATIONS_IN_REPORT) {
                let took = replaced.get(&known.step).copied().unwrap_or(known.took.0);
                let of_phases = match known.phase {
                    StepPhase::OnSuspect => continue,
                    StepPhase::Prefetch => vec![&mut prefetches],
                    StepPhase::Validate => vec![&mut updates, &mut validations],
                    StepPhase::Apply | StepPhase::Converge => vec![&mut updates],
                };
                for of_phase in of_phases {
                    let sum: &mut Duration = of_phase.entry(host.clone()).or_default();
                    *sum = sum.saturating_add(took);
                }
                steps.insert(known.step.clone());
            }
        }
        let [updates, validations, prefetches] =
            [updates, validations, prefetches].map(|by_host| Known::new(by_host, roster));
        let mut durations = Self { updates, validations, prefetches, steps };
        if durations.steps.is_empty() && !replaced.is_empty() {
            // No host has told what its steps are, so the operator names all of them.
            durations.updates.median =
                Some(replaced.values().copied().fold(Duration::ZERO, Duration::saturating_add));
            durations.steps.extend(replaced.keys().cloned());
        }
        durations
    }

    /// Returns the durations of the hosts that are proven in a rollout.
    pub fn of_rollout(
        order: InstructionOrder,
        roster: &BTreeMap<HostName, RosterEntry>,
        found: &KeySnapshot,
    ) -> Self {
        let progress = |host: &HostName| {
            let progress = found.get(&Key::Progress(order, host.clone()))?;
            keys::Progress::read(&progress.value).ok()
        };
        let known = |took: fn(&HostProgress) -> Option<Duration>| {
            let by_host = roster.keys().filter_map(|host| Some((host.clone(), took(&progress(host)?)?)));
            Known::new(by_host.collect(), roster)
        };
        Self {
            updates: known(|progress| Some(progress.took?.0)),
            validations: known(|progress| Some(progress.validation?.0)),
            ..Self::default()
        }
    }

    /// Returns how long a host takes from its start to its proof.
    pub fn of(&self, host: &HostName, role: Option<&Role>) -> Duration {
        self.updates.of(host, role).unwrap_or(ASSUMED)
    }

    /// Returns how long a host validates.
    pub(super) fn validation_of(&self, host: &HostName, role: Option<&Role>) -> Duration {
        self.validations.of(host, role).unwrap_or_default()
    }

    /// Returns how long a host fetches what it needs, before it starts.
    pub(super) fn prefetch_of(&self, host: &HostName, role: Option<&Role>) -> Duration {
        self.prefetches.of(host, role).unwrap_or_default()
    }

    /// Returns the median; `None` if nothing is known, so that a host is assumed to take a minute.
    pub fn median(&self) -> Option<Duration> {
        self.updates.median
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
