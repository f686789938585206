//! The stages of a rollout: which hosts update first, and how long they are observed before the next ones start.

use super::RosterEntry;
use crate::limit::LimitBy;
use crate::names::{HostName, LimitValue, StageName};
use crate::time::{EpochSeconds, Span};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Largest number of stages in a policy.
pub const STAGES_MAX: usize = 16;

/// A stage of a rollout. A host belongs to the first stage that selects it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageRule {
    /// The name of the stage, unique in its policy.
    pub name: StageName,
    /// Which hosts it selects: those that have one of the values in each of these. All hosts if it is empty.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub select: BTreeMap<LimitBy, BTreeSet<LimitValue>>,
    /// How many of the selected hosts of each role belong to the stage. They are chosen when the record of the
    /// rollout is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// Which part of the selected hosts belongs to the stage, in percent. Other hosts for each version.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "percent")]
    pub share: Option<u32>,
    /// How long all hosts up to this stage must have been proven before the next stage opens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soak: Option<Span>,
}

impl StageRule {
    /// True if the stage selects a host with this roster entry. A count or a share takes a part of these.
    pub fn selects(&self, roster: &RosterEntry) -> bool {
        self.select.iter().all(|(by, values)| {
            let value = by.of_host(roster).ok().flatten();
            value.is_some_and(|limit| values.contains(&limit.value))
        })
    }
}

/// Reads and writes `"10%"`.
mod percent {
    use super::super::limit_size::LimitSize;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(share: &Option<u32>, serializer: S) -> Result<S::Ok, S::Error> {
        share.map(LimitSize::Percent).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
        match LimitSize::deserialize(deserializer)? {
            LimitSize::Percent(percent) => Ok(Some(percent)),
            LimitSize::Hosts(_) => {
                Err(serde::de::Error::custom("a share is a percentage such as \"10%\"; count is a number"))
            }
        }
    }
}

/// A stage of one rollout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolvedStage {
    /// What the policy says.
    #[serde(flatten)]
    pub rule: StageRule,
    /// The hosts that were chosen, if the rule has a `count`. Each of them must be proven before the next stage
    /// opens.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub hosts: BTreeSet<HostName>,
}

/// `/orchestrate/rollouts/<id>/opened/<stage>`: a stage was opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageOpening {
    pub at: EpochSeconds,
    /// The host that wrote it.
    pub by: String,
    /// How many agents ran: the more, the longer is the time over which those that waited for it spread; 0 if that is
    /// not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub hosts: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// `/orchestrate/rollouts/<id>/soak/<stage>`: all hosts up to a stage are through, and are observed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Soak {
    pub at: EpochSeconds,
    /// The host that wrote it.
    pub by: String,
    /// True if the timer was started. It is started afterwards: a lease begins when it is granted, and the write that
    /// uses it can arrive much later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed: bool,
}

/// `/orchestrate/rollouts/<id>/excused/<host>`: the rollout does not wait for a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Excuse {
    pub at: EpochSeconds,
    /// Who excused it.
    pub by: String,
    pub reason: String,
}
