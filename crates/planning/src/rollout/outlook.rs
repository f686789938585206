//! Whether a rollout goes on, and how long it still takes.

use super::forecast::{Durations, ForecastInput, forecast};
use super::opening::hosts_of;
use super::summary::{RolloutSummary, StageSummary};
use schema::freeze::FreezeScope;
use schema::frozen::FrozenBy;
use schema::keys::Key;
use schema::order::InstructionOrder;
use schema::records::{Halt, RolloutRecord};
use schema::snapshot::KeySnapshot;
use schema::time::{EpochSeconds, format_duration};
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

/// How a halt ends: first what mends it.
pub(super) const HALT_ENDS: &str = "it ends with `orchestrate rollout rollback`, or when a version that works is triggered; `orchestrate rollout resume` goes on with this version";

/// Whether a rollout as a whole goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RolloutState {
    /// The rollout has ended.
    Ended,
    /// Its order was refused: nothing ever starts. The text says why.
    Refused(String),
    /// Too many hosts failed. The text says so, and how to go on.
    Halted(String),
    /// A pause or a freeze of the fleet keeps all hosts from starting. The text says which.
    Frozen(String),
    /// The rollout goes on.
    GoesOn,
}

impl RolloutState {
    /// Returns the state of a rollout.
    pub fn of(order: InstructionOrder, record: &RolloutRecord, found: &KeySnapshot) -> Self {
        if found.get(&Key::Ended(order)).is_some() {
            return Self::Ended;
        }
        if let Some(why) = &record.refused {
            return Self::Refused(why.clone());
        }
        if let Some(halt) = found.get(&Key::Halt(order)) {
            let why = Halt::reason(&halt.value);
            return Self::Halted(format!("the rollout is halted: {why}; {HALT_ENDS}"));
        }
        let for_all = |frozen: &FrozenBy| matches!(frozen.scope, FreezeScope::Fleet | FreezeScope::Pause);
        match FrozenBy::all(found).find(for_all) {
            Some(frozen) => Self::Frozen(frozen.to_string()),
            None => Self::GoesOn,
        }
    }
}

/// How a rollout goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outlook {
    hosts: usize,
    proven: usize,
    running: usize,
    /// The time until its end; `None` if it is not known, or if the rollout does not end by itself.
    to_go: Option<Duration>,
    /// How long a host takes; `None` before one is proven.
    host_takes: Option<Duration>,
}

impl Outlook {
    /// Returns how a rollout goes on. `found` holds everything that
    /// [`forecast_reads`](super::forecast_reads) names.
    pub fn new(
        order: InstructionOrder,
        record: &RolloutRecord,
        found: &KeySnapshot,
        summary: &RolloutSummary,
        now: EpochSeconds,
    ) -> Self {
        let (roster, failing) = (hosts_of(found), BTreeSet::new());
        let durations = Durations::of_rollout(order, &roster, found);
        let host_takes = durations.median();
        let goes_on = RolloutState::of(order, record, found) == RolloutState::GoesOn && host_takes.is_some();
        let to_go = if goes_on {
            let input = ForecastInput { order, record, found, durations: &durations, failing: &failing, now };
            let forecast = forecast(&input);
            // Nobody knows when a host is through that takes longer than others.
            forecast.ends.filter(|ends| !forecast.is_late && *ends >= Duration::from_secs(1))
        } else {
            None
        };
        let sum = |count: fn(&StageSummary) -> usize| summary.stages.iter().map(count).sum();
        Self {
            hosts: sum(|stage| stage.host_count),
            proven: sum(|stage| stage.proven_count),
            running: sum(|stage| stage.running_count),
            to_go,
            host_takes,
        }
    }

    /// Returns the time until the end of the rollout in seconds, if it is known.
    pub fn to_go_seconds(&self) -> Option<u64> {
        self.to_go.map(|to_go| to_go.as_secs())
    }

    /// Returns how long a host takes in seconds; `None` before one is proven.
    pub fn host_takes_seconds(&self) -> Option<u64> {
        self.host_takes.map(|takes| takes.as_secs())
    }

    /// Returns how long the rollout still takes, for people.
    pub fn to_go(&self) -> Option<String> {
        let whole = |duration: Duration| format_duration(Duration::from_secs(duration.as_secs()));
        let (to_go, host_takes) = (whole(self.to_go?), whole(self.host_takes?));
        Some(format!("about {to_go} to go (a host takes {host_takes})"))
    }
}

impl fmt::Display for Outlook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hosts, proven, running, .. } = self;
        write!(f, "{proven} of {hosts} hosts proven, {running} being updated")?;
        self.to_go().map_or(Ok(()), |to_go| write!(f, ", {to_go}"))
    }
}
