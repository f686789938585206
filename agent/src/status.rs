//! What the agent shows of itself: the value behind `/status`, `/ready` and `/metrics`.

use etcd_session::{PresenceState, Snapshot};
use planning::host::{Decision, RunningStep, Target};
use planning::settings::{ValidationDirectory, ValidationRule};
use schema::names::{HostName, Version};
use schema::store_trust::StoreTrust;
use schema::time::EpochSeconds;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A snapshot of the loop, made at every decision.
#[derive(Debug, Clone)]
pub(crate) struct Status {
    /// The name in the fleet.
    pub host: Option<HostName>,
    /// The last decision.
    pub decision: Option<Decision>,
    /// What `/current_version` says.
    pub target: StatusTarget,
    /// The version last proven.
    pub installed: Option<Version>,
    /// The version that the host may be listed under.
    pub listed: Option<Version>,
    /// The step in flight.
    pub running: Option<RunningStep>,
    /// The store.
    pub store_trust: StoreTrust,
    /// The claim.
    pub presence: PresenceState,
    /// The snapshot of the store.
    pub snapshot: Arc<Snapshot>,
    /// Why the store refused the last write of the host.
    pub write_trouble: Option<String>,
    /// Steps started since this process began.
    pub steps_run: u64,
    /// Decisions since this process began.
    pub passes: u64,
    /// The validation directory, if one is configured.
    pub validation: Option<ValidationDirectory>,
    /// Which of its entries count.
    pub validation_rule: ValidationRule,
    /// When the certificates of the connection to the store end, by file.
    pub certificates: BTreeMap<String, EpochSeconds>,
}

/// The target as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "target", rename_all = "snake_case")]
pub(crate) enum StatusTarget {
    /// Not read yet.
    Unread,
    /// No instruction.
    NotSet,
    /// Not a version.
    Invalid {
        /// The rule that it breaks.
        why: String,
    },
    /// An instruction.
    Known {
        /// The version.
        version: Version,
        /// The epoch.
        epoch: u64,
        /// Its revision.
        revision: i64,
    },
}

impl From<Target> for StatusTarget {
    fn from(target: Target) -> Self {
        match target {
            Target::Unread => Self::Unread,
            Target::NotSet => Self::NotSet,
            Target::Invalid { why } => Self::Invalid { why },
            Target::Known(instruction) => Self::Known {
                version: instruction.version,
                epoch: instruction.order.epoch,
                revision: instruction.order.revision,
            },
        }
    }
}

impl Default for Status {
    fn default() -> Self {
        Self {
            host: None,
            decision: None,
            target: StatusTarget::Unread,
            installed: None,
            listed: None,
            running: None,
            store_trust: StoreTrust::Unread,
            presence: PresenceState::NotYet,
            snapshot: Arc::default(),
            write_trouble: None,
            steps_run: 0,
            passes: 0,
            validation: None,
            validation_rule: ValidationRule::default(),
            certificates: BTreeMap::new(),
        }
    }
}

impl Status {
    /// The first complete list is in.
    pub(crate) fn is_ready(&self) -> bool {
        self.snapshot.reads > 0
    }

    /// Seconds since the store last answered.
    pub(crate) fn seconds_since_contact(&self) -> Option<f64> {
        self.snapshot.last_contact.map(|at| at.elapsed().as_secs_f64())
    }

    /// As JSON.
    pub(crate) fn json(&self) -> Value {
        let (claim, lease, holder) = match &self.presence {
            PresenceState::NotYet => ("not_yet", None, None),
            PresenceState::Held { lease, .. } => ("held", Some(format!("{lease:x}")), None),
            PresenceState::Contested { holder } => ("contested", None, Some(holder.clone())),
        };
        json!({
            "host": self.host,
            "verdict": self.decision.as_ref().map(|d| d.verdict.as_str()),
            "detail": self.decision.as_ref().map(|d| d.verdict.message()),
            "plan": self.decision.as_ref().map(|d| &d.plan),
            "target": self.target,
            "installed_version": self.installed,
            "listed_version": self.listed,
            "running_step": self.running,
            "validation_directory": self.validation.as_ref().map(|directory| json!({
                "runs": directory.steps(self.validation_rule).iter().map(|s| &s.command[0]).collect::<Vec<_>>(),
                "skipped": directory.skipped,
                "trouble": directory.problem,
                "warning": directory.warning(self.validation_rule),
            })),
            "claim": { "state": claim, "lease": lease, "holder": holder },
            "store": {
                "standing": self.store_trust,
                "connected": self.snapshot.connected,
                "revision": self.snapshot.keys.revision,
                "raft_term": self.snapshot.keys.raft_term,
                "seconds_since_contact": self.seconds_since_contact(),
                "trouble": self.snapshot.error.as_ref().map(ToString::to_string)
                    .or_else(|| self.write_trouble.clone()),
                "certificates_end": self.certificates,
            },
        })
    }
}
