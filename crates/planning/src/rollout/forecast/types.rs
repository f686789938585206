//! What a forecast follows from, and what it says.

use super::durations::Durations;
use schema::limit::Limit;
use schema::names::HostName;
use schema::order::InstructionOrder;
use schema::records::RolloutRecord;
use schema::snapshot::KeySnapshot;
use schema::time::EpochSeconds;
use std::collections::BTreeSet;
use std::time::Duration;

/// What a forecast follows from.
#[derive(Debug, Clone, Copy)]
pub struct ForecastInput<'a> {
    /// The rollout, which may not have begun.
    pub order: InstructionOrder,
    pub record: &'a RolloutRecord,
    /// Everything that [`forecast_reads`](super::forecast_reads) names.
    pub found: &'a KeySnapshot,
    /// How long hosts take.
    pub durations: &'a Durations,
    /// The hosts that are assumed to fail.
    pub failing: &'a BTreeSet<HostName>,
    /// The time at which the forecast begins.
    pub now: EpochSeconds,
}

/// How a rollout is expected to go. All times count from the start of the forecast.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forecast {
    /// The stages, in order.
    pub stages: Vec<ForecastStage>,
    /// The hosts: first those that start, in that order, then the others by name.
    pub hosts: Vec<ForecastHost>,
    /// When the rollout halts, and why; `None` if it does not.
    pub halt: Option<(Duration, String)>,
    /// When every host is through; `None` if that does not happen.
    pub ends: Option<Duration>,
    /// Why the rollout does not end; `None` if it does.
    pub why: Option<String>,
    /// True if a host that is being updated takes longer than others, or failed and tries again: then nobody knows
    /// when it is through.
    pub is_late: bool,
}

/// A stage of a forecast.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForecastStage {
    /// The name of the stage.
    pub name: String,
    /// Number of its hosts.
    pub hosts: usize,
    /// When it opens; `None` if it does not.
    pub opens: Option<Duration>,
    /// When the last of its hosts is through; `None` if that does not happen.
    pub ends: Option<Duration>,
}

/// A host of a forecast.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForecastHost {
    pub host: HostName,
    /// Number of its stage.
    pub stage: u32,
    /// When it starts; `None` if it does not.
    pub starts: Option<Duration>,
    /// When it is through.
    pub ends: Option<Duration>,
    /// What becomes of it.
    pub outcome: Outcome,
}

/// What becomes of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The host has the version.
    Proven,
    /// The host fails.
    Failed,
    /// The host is being updated, and neither is proven nor gives up.
    Running,
    /// Its agent does not run.
    Off,
    /// The rollout does not wait for it.
    Excused,
    /// The host does not start: a freeze matches it, or no window opens, or its stage stays closed.
    Held(String),
    /// The host waits for this limit.
    Waits(Limit),
}
