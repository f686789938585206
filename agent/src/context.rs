//! The values that the reconcile loop keeps between passes and does not need after a restart.

use crate::clock;
use etcd_session::{PresenceState, Snapshot, jitter};
use planning::host::{Addressable, Published, ServiceProblems, Target};
use planning::policy::Policy;
use planning::settings::ValidationDirectory;
use schema::names::Version;
use schema::records::Wait;
use schema::store_trust::StoreTrust;
use schema::time::{Backoff, BootMillis};
use std::sync::Arc;
use std::time::Duration;

/// The values that the reconcile loop keeps between passes and does not need after a restart.
pub(crate) struct Context {
    /// True if the journal on disk is older than the state.
    pub(crate) unsaved: bool,
    pub(crate) policy: Policy,
    /// The validation directory as last read.
    pub(crate) directory: Option<ValidationDirectory>,
    /// The last warning that was logged about the validation directory.
    pub(crate) directory_logged: Option<String>,
    pub(crate) store_trust: StoreTrust,
    pub(crate) target: Target,
    pub(crate) target_since: BootMillis,
    /// The version in the file of the last known target.
    pub(crate) remembered_target: Option<Version>,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) presence: PresenceState,
    /// What the store holds for this host after its last write, and the revision of that write.
    pub(crate) written: Option<(i64, Published)>,
    pub(crate) store_failures: u32,
    /// The store's error at the last write.
    pub(crate) write_error: Option<String>,
    pub(crate) store_retry_at: BootMillis,
    pub(crate) record_failure: Option<(String, BootMillis)>,
    /// The unmet needs of the host.
    pub(crate) waits: Vec<Wait>,
    pub(crate) services_seen: Option<u64>,
    /// The problems of the services of this host.
    pub(crate) problems: ServiceProblems,
    /// The generation of the catalog snapshot that was read last, and what it makes addressable.
    pub(crate) addressable: Option<(u64, Addressable)>,
    /// Number of passes since this process started.
    pub(crate) passes: u64,
    /// The last error of a local write that was logged, and when.
    pub(crate) record_failure_logged: Option<(String, BootMillis)>,
}

impl Context {
    /// Records that local state cannot be written. Logs a new error at once and the same error at
    /// intervals.
    pub(crate) fn record_failed(&mut self, error: &std::io::Error) {
        let (why, now) = (error.to_string(), clock::boot_millis());
        let is_old = |(logged, at): &(String, BootMillis)| {
            *logged == why && now.since(*at) < RECORD_FAILURE_LOG_INTERVAL
        };
        if !self.record_failure_logged.as_ref().is_some_and(is_old) {
            tracing::error!(%error, "local state cannot be written: nothing disruptive starts");
            self.record_failure_logged = Some((why.clone(), now));
        }
        self.record_failure = Some((why, now.plus(RECORD_RETRY_DELAY)));
    }

    /// Records that local state was written.
    pub(crate) fn recorded(&mut self) {
        self.unsaved = false;
        self.record_failure = None;
        if self.record_failure_logged.take().is_some() {
            tracing::info!("local state can be written again");
        }
    }

    pub(crate) fn store_failed(&mut self) {
        self.store_failures += 1;
        let backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
        self.store_retry_at = clock::boot_millis().plus(backoff.delay(self.store_failures, jitter()));
    }
}

/// Pause of local writes after a failed one.
const RECORD_RETRY_DELAY: Duration = Duration::from_secs(5);

/// Interval at which the same error of local writes is logged again.
const RECORD_FAILURE_LOG_INTERVAL: Duration = Duration::from_secs(60);
