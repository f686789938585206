//! `/orchestrate/rollout_policy` and `/orchestrate/rollouts/<id>/record`: how many hosts may update at
//! the same time.

use super::limit_claim::{is_usual_lost_after, lost_after};
use super::limit_size::LimitSize;
use super::stage::{ResolvedStage, StageRule};
use super::window::Window;
use crate::limit::{Limit, LimitBy};
use crate::names::{LimitValue, Version};
use crate::time::{EpochSeconds, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// `/orchestrate/rollout_policy`: the standing policy of operators. The key is never deleted: without
/// limits and windows it is an empty policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct RolloutPolicy {
    /// The limits, one for each `by`.
    #[serde(default)]
    pub limits: Vec<LimitRule>,
    /// Time without a running agent after which a host that is being updated is lost; without it,
    /// [`LOST_AFTER`](super::LOST_AFTER).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_after: Option<Span>,
    /// The stages, in order. The hosts that no stage selects come last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StageRule>,
    /// The times of the week in which hosts start; without any, they always do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<Window>,
    /// Time within which an attempt ends; without it, [`PROGRESS_DEADLINE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress_deadline: Option<Span>,
    /// Number of failed hosts that a rollout tolerates; one more halts it. Without it, nothing halts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_budget: Option<LimitSize>,
    /// Time after its proof in which a host that stops working counts as failed; without it,
    /// [`CHARGE_FOR`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charge_for: Option<Span>,
    /// What happens when too many hosts failed.
    #[serde(default, skip_serializing_if = "OnHalt::is_stop")]
    pub on_halt: OnHalt,
    /// Time after its proof for which a host keeps its claims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Span>,
    /// Revision since which every version is rolled out under a policy. Which version worked
    /// before is not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub since: i64,
}

impl RolloutPolicy {
    /// True if it holds no host back, so that rollouts need no record.
    pub fn is_empty(&self) -> bool {
        self.limits.is_empty() && self.windows.is_empty()
    }
}

/// What happens to a rollout in which too many hosts failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnHalt {
    /// No host starts.
    #[default]
    Stop,
    /// The hosts trigger the last version that worked.
    RollBack,
}

impl OnHalt {
    fn is_stop(&self) -> bool {
        *self == Self::Stop
    }
}

impl fmt::Display for OnHalt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stop => "stop",
            Self::RollBack => "roll_back",
        })
    }
}

/// Time after its proof in which a host that stops working counts as failed, where the policy does not say
/// another.
pub const CHARGE_FOR: Span = Span(Duration::from_secs(60 * 60));

fn charge_for() -> Span {
    CHARGE_FOR
}

fn is_usual_charge_for(span: &Span) -> bool {
    *span == CHARGE_FOR
}

/// Time after its start within which an attempt ends, where the policy does not say another.
pub const PROGRESS_DEADLINE: Span = Span(Duration::from_secs(30 * 60));

fn progress_deadline() -> Span {
    PROGRESS_DEADLINE
}

fn is_usual_deadline(span: &Span) -> bool {
    *span == PROGRESS_DEADLINE
}

/// How many hosts may update at the same time, of those that are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitRule {
    /// What the hosts have in common.
    pub by: LimitBy,
    /// How many of them.
    pub max: LimitSize,
    /// How many for single values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<LimitValue, LimitSize>,
    /// True if a host that gave up goes on holding its claim. Without it, that is so where one host may
    /// update at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_failed: Option<bool>,
}

/// `/orchestrate/rollouts/<id>/record`: what holds for one rollout. It is written once, from the policy
/// and the roster of that time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolloutRecord {
    /// The version that the rollout brings.
    pub version: Version,
    /// When the record was written.
    pub at: EpochSeconds,
    /// The limits, with numbers.
    #[serde(default)]
    pub limits: Vec<ResolvedLimit>,
    /// The stages, with the names of chosen hosts. The hosts that no stage selects come last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<ResolvedStage>,
    /// The times of the week in which hosts start; without any, they always do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<Window>,
    /// Why no host may start; `None` if hosts may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Time without a running agent after which a host that is being updated is lost.
    #[serde(default = "lost_after", skip_serializing_if = "is_usual_lost_after")]
    pub lost_after: Span,
    /// Time after its start within which an attempt ends. A host that needs longer gives up.
    #[serde(default = "progress_deadline", skip_serializing_if = "is_usual_deadline")]
    pub progress_deadline: Span,
    /// Number of failed hosts that the rollout tolerates; `None` without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<u32>,
    /// Only failures that were first written after this revision count. An operator who resumes a halted
    /// rollout sets it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub counted_from: i64,
    /// Time after its proof in which a host that stops working counts as failed.
    #[serde(default = "charge_for", skip_serializing_if = "is_usual_charge_for")]
    pub charge_for: Span,
    /// What happens when too many hosts failed.
    #[serde(default, skip_serializing_if = "OnHalt::is_stop")]
    pub on_halt: OnHalt,
    /// Time after its proof for which a host keeps its claims; `None` if it releases them at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Span>,
    /// The version to go back to: the last one whose rollout ended. `None` if no such version is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub good: Option<Version>,
    /// True if the rollout goes back to a version that worked. It is never rolled back itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rollback: bool,
    /// Who asked for the version; `None` if that was not written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

fn is_zero(revision: &i64) -> bool {
    *revision == 0
}

/// Largest record, in bytes.
pub const RECORD_BYTES_MAX: usize = 64 * 1024;

/// A limit of a rollout, with numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolvedLimit {
    /// What the hosts have in common that are counted together.
    pub by: LimitBy,
    /// How many hosts may be unavailable, for values that are not listed.
    pub max: u32,
    /// How many, for single values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<LimitValue, u32>,
    /// Whether hosts that gave up go on holding their claims; without it, where one host may update at a
    /// time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_failed: Option<bool>,
}

impl fmt::Display for ResolvedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { by, max, values, .. } = self;
        match by {
            LimitBy::Fleet => write!(f, "{max} of the fleet")?,
            _ => write!(f, "{max} of each {by}")?,
        }
        let values: Vec<String> = values.iter().map(|(value, max)| format!("{value} {max}")).collect();
        if values.is_empty() { Ok(()) } else { write!(f, " ({})", values.join(", ")) }
    }
}

impl ResolvedLimit {
    /// Returns how many hosts with this value may be unavailable.
    pub fn max_of(&self, value: &LimitValue) -> u32 {
        self.values.get(value).copied().unwrap_or(self.max)
    }

    /// True if a host that gave up goes on holding its claim of this value.
    pub fn keeps_failed(&self, value: &LimitValue) -> bool {
        self.keep_failed.unwrap_or(self.max_of(value) == 1)
    }
}

impl RolloutRecord {
    /// Returns the record of a rollout without limits.
    pub fn new(version: Version, at: EpochSeconds) -> Self {
        Self {
            version,
            at,
            limits: Vec::new(),
            stages: Vec::new(),
            windows: Vec::new(),
            refused: None,
            lost_after: super::LOST_AFTER,
            progress_deadline: PROGRESS_DEADLINE,
            budget: None,
            counted_from: 0,
            charge_for: CHARGE_FOR,
            on_halt: OnHalt::Stop,
            hold: None,
            good: None,
            rollback: false,
            by: None,
            reason: None,
        }
    }

    /// Returns how many hosts of a limit may be unavailable; `None` if the rollout does not limit them.
    pub fn max_of(&self, limit: &Limit) -> Option<u32> {
        let resolved = self.limits.iter().find(|resolved| resolved.by == limit.by)?;
        Some(resolved.max_of(&limit.value))
    }
}
