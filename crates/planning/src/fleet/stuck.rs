//! Which hosts do not reach the desired version without an operator.

use super::state::Fleet;
use super::verdict::{FailedBy, FleetVerdict};
use schema::names::HostName;
use schema::time::EpochSeconds;
use schema::verdict::HostFailure;

impl Fleet {
    /// True if the host does not reach the desired version until then, unless an operator helps: it is lost or
    /// blocked, or it is suspect and no attempt begins until then. Deadlocks count if they were looked for.
    pub fn is_stuck(&self, host: &HostName, until: EpochSeconds) -> bool {
        let next_attempt = || self.hosts().get(host)?.readable_report()?.next_attempt_at;
        match self.verdict(host) {
            Some(FleetVerdict::Lost { .. } | FleetVerdict::Blocked(_)) => true,
            Some(FleetVerdict::Failed(FailedBy::Report(HostFailure { suspect: true, .. }))) => {
                next_attempt().is_none_or(|at| at > until)
            }
            _ => false,
        }
    }
}
