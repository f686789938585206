//! `/orchestrate/trigger`: who asked for the desired version, and why.

use super::rollout_options::RolloutOptions;
use crate::names::Version;
use crate::time::EpochSeconds;
use serde::{Deserialize, Serialize};

/// `/orchestrate/trigger`: who asked for the version in `/current_version`. Both are written in one transaction.
/// A program that writes `/current_version` alone leaves a trigger behind that is about an older version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trigger {
    /// When.
    pub at: EpochSeconds,
    /// The person, the job or the host.
    pub by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The version that was desired before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Version>,
    /// What the rollout does not take from the policy.
    #[serde(default, skip_serializing_if = "RolloutOptions::is_empty")]
    pub options: RolloutOptions,
    /// True if the fleet goes back to a version that worked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rollback: bool,
}
