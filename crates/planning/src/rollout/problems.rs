//! The failures of a rollout as commands show them.

use super::failures::failed_hosts;
use super::outlook::HALT_ENDS;
use crate::calendar::rfc3339;
use schema::keys::{self, Key};
use schema::names::{HostName, Version};
use schema::order::InstructionOrder;
use schema::records::{FailedHost, FailureKind, Halt, RolloutRecord};
use schema::snapshot::KeySnapshot;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

/// The failures of a rollout, and whether they halted it.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(with = "RolloutFailuresJson<'_>")]
pub struct RolloutFailures {
    /// The order of the instruction.
    pub order: InstructionOrder,
    /// The record; `None` if it cannot be read.
    pub record: Option<RolloutRecord>,
    /// Why the rollout is halted, if it is; the inner `None` if that cannot be read.
    pub halt: Option<Option<Halt>>,
    /// The hosts that failed, and how, if that can be read.
    pub failed: Vec<(HostName, Option<FailedHost>)>,
    /// True if the rollout has ended.
    pub has_ended: bool,
}

impl RolloutFailures {
    /// Reads the failures of a rollout; `None` if it has no record. `found` holds all keys of the rollout.
    pub fn read(order: InstructionOrder, found: &KeySnapshot) -> Option<Self> {
        let record = found.read(keys::RolloutRecord(order))?.ok();
        let halt = found.read(keys::Halt(order)).map(Result::ok);
        let counted_from = record.as_ref().map_or(0, |record| record.counted_from);
        let failed = failed_hosts(order, counted_from, found).collect();
        let has_ended = found.get(&Key::Ended(order)).is_some();
        Some(Self { order, record, halt, failed, has_ended })
    }

    fn budget(&self) -> Option<u32> {
        self.record.as_ref()?.budget
    }

    /// Returns lines for people: that the fleet goes back, that the rollout is halted, and which hosts failed.
    pub fn lines(&self) -> Vec<String> {
        let halted = self.halt.as_ref().map(|halt| match halt {
            Some(Halt { at, by, why, .. }) => {
                let since = rfc3339(*at).map(|at| format!(" at {at}")).unwrap_or_default();
                format!("the rollout is halted: {why}; host {by} halted it{since}; {HALT_ENDS}")
            }
            None => format!("the rollout is halted; {HALT_ENDS}"),
        });
        let rollback = self.record.as_ref().filter(|record| record.rollback).map(|record| {
            let by = record.by.as_deref().unwrap_or("an unknown user");
            let why = record.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            format!("rolled back to {} by {by}{why}", record.version)
        });
        let budget = if self.failed.is_empty() { None } else { self.budget() };
        let budget = budget.map(|budget| format!("failure budget: {} of {budget} used", self.failed.len()));
        let line = |(host, failed): &(HostName, Option<FailedHost>)| match failed {
            Some(failed) => format!("  {host}: {}", failed.reason),
            None => format!("  {host}: its failure cannot be read"),
        };
        let failed: Vec<String> =
            if budget.is_some() { self.failed.iter().map(line).collect() } else { Vec::new() };
        rollback.into_iter().chain(halted).chain(budget).chain(failed).collect()
    }
}

/// A host that failed in a rollout, and how, as far as its failure can be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FailedHostView<'a> {
    /// The name of the host.
    pub host: &'a HostName,
    /// What kind of failure it is.
    pub kind: Option<FailureKind>,
    /// What failed.
    pub reason: Option<&'a str>,
    /// When it failed (RFC 3339).
    pub at: Option<String>,
    /// True if the host is proven since. Then it does not count.
    pub healed: Option<bool>,
}

impl<'a> From<&'a (HostName, Option<FailedHost>)> for FailedHostView<'a> {
    fn from((host, failed): &'a (HostName, Option<FailedHost>)) -> Self {
        let failed = failed.as_ref();
        Self {
            host,
            kind: failed.map(|failed| failed.kind),
            reason: failed.map(|failed| failed.reason.as_str()),
            at: failed.and_then(|failed| rfc3339(failed.at)),
            healed: failed.map(|failed| failed.healed),
        }
    }
}

/// The names of [`RolloutFailures`] in JSON.
#[derive(Serialize, JsonSchema)]
struct RolloutFailuresJson<'a> {
    halted: bool,
    why: Option<&'a str>,
    failure_budget: Option<u32>,
    ended: bool,
    good_version: Option<&'a Version>,
    rollback: bool,
    by: Option<&'a str>,
    reason: Option<&'a str>,
    failed: Vec<FailedHostView<'a>>,
}

impl Serialize for RolloutFailures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let record = self.record.as_ref();
        let json = RolloutFailuresJson {
            halted: self.halt.is_some(),
            why: self.halt.as_ref().and_then(|halt| halt.as_ref().map(|halt| halt.why.as_str())),
            failure_budget: self.budget(),
            ended: self.has_ended,
            good_version: record.and_then(|record| record.good.as_ref()),
            rollback: record.is_some_and(|record| record.rollback),
            by: record.and_then(|record| record.by.as_deref()),
            reason: record.and_then(|record| record.reason.as_deref()),
            failed: self.failed.iter().map(FailedHostView::from).collect(),
        };
        json.serialize(serializer)
    }
}
