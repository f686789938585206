//! The status of the agent, which `/status`, `/ready` and `/metrics` show.

use etcd_session::{LeaseEnd, PresenceState, Snapshot};
use planning::host::{Decision, RunningStep, Target};
use schema::names::{HostName, Version};
use schema::records::Cause;
use schema::store_trust::StoreTrust;
use schema::time::EpochSeconds;
use serde::Serialize;
use serde_json::{Value, json};
use settings::ValidationDirectory;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The state of the reconcile loop at its last decision.
#[derive(Debug, Clone)]
pub(crate) struct Status {
    pub host: Option<HostName>,
    pub decision: Option<Decision>,
    /// The content of `/current_version`.
    pub target: StatusTarget,
    /// The version that was last proven.
    pub installed: Option<Version>,
    /// The version that the host may be listed under.
    pub listed: Option<Version>,
    /// The cause of the failure that ended the last attempt.
    pub cause: Option<Cause>,
    /// The step that is running.
    pub running: Option<RunningStep>,
    pub store_trust: StoreTrust,
    pub presence: PresenceState,
    /// When the lease of the claim ends; `None` before the first pass.
    pub lease_end: Option<LeaseEnd>,
    /// The snapshot of the mirror.
    pub snapshot: Arc<Snapshot>,
    /// The store's error at the host's last write.
    pub write_trouble: Option<String>,
    /// Number of steps started since this process started.
    pub steps_run: u64,
    /// Number of passes since this process started.
    pub passes: u64,
    /// The validation directory, if one is configured.
    pub validation: Option<ValidationDirectory>,
    /// The times at which the certificates of the connection to the store end, by file.
    pub certificates: BTreeMap<String, EpochSeconds>,
}

/// The target in the form that `/status` shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "target", rename_all = "snake_case")]
pub(crate) enum StatusTarget {
    /// The target has not been read yet.
    Unread,
    /// There is no instruction.
    NotSet,
    /// `/current_version` does not hold a valid version.
    Invalid {
        /// The rule that the value breaks.
        why: String,
    },
    /// There is an instruction.
    Known {
        version: Version,
        epoch: u64,
        /// The revision at which `/current_version` was written.
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
            cause: None,
            running: None,
            store_trust: StoreTrust::Unread,
            presence: PresenceState::NotYet,
            lease_end: None,
            snapshot: Arc::default(),
            write_trouble: None,
            steps_run: 0,
            passes: 0,
            validation: None,
            certificates: BTreeMap::new(),
        }
    }
}

impl Status {
    /// True if the store has been read at least once.
    pub(crate) fn is_ready(&self) -> bool {
        self.snapshot.followed.reads > 0
    }

    /// Returns the seconds since the store last answered; `None` if it never did.
    pub(crate) fn seconds_since_contact(&self) -> Option<f64> {
        self.snapshot.last_contact.map(|at| at.elapsed().as_secs_f64())
    }

    /// True if the agent held the name and its lease may have ended since, because the store did not answer.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        let has_ended = self.lease_end.as_ref().is_some_and(LeaseEnd::has_passed);
        has_ended && matches!(self.presence, PresenceState::Held { .. })
    }

    /// Returns the JSON of `/status`.
    pub(crate) fn json(&self) -> Value {
        let (claim, lease, holder) = match &self.presence {
            PresenceState::NotYet => ("not_yet", None, None),
            PresenceState::Held { lease, .. } if self.is_unconfirmed() => {
                ("unconfirmed", Some(format!("{lease:x}")), None)
            }
            PresenceState::Held { lease, .. } => ("held", Some(format!("{lease:x}")), None),
            PresenceState::Contested { holder } => ("contested", None, Some(holder.clone())),
        };
        json!({
            "host": self.host,
            "verdict": self.decision.as_ref().map(|d| d.verdict.kind().as_str()),
            "detail": self.decision.as_ref().map(|d| d.verdict.message()),
            "plan": self.decision.as_ref().map(|d| &d.plan),
            "target": self.target,
            "installed_version": self.installed,
            "listed_version": self.listed,
            "running_step": self.running,
            "validation_directory": self.validation.as_ref().map(|directory| json!({
                "runs": directory.steps().iter().map(|s| &s.command[0]).collect::<Vec<_>>(),
                "skipped": directory.skipped,
                "trouble": directory.problem,
            })),
            "claim": { "state": claim, "lease": lease, "holder": holder },
            "store": {
                "standing": self.store_trust,
                "connected": self.snapshot.connected,
                "revision": self.snapshot.followed.keys.revision,
                "raft_term": self.snapshot.followed.keys.raft_term,
                "seconds_since_contact": self.seconds_since_contact(),
                "trouble": self.snapshot.error.as_ref().map(ToString::to_string)
                    .or_else(|| self.write_trouble.clone()),
                "certificates_end": self.certificates,
            },
        })
    }
}
