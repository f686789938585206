//! What the host's loop remembers from one pass to the next and does not need after a restart.

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

/// What the loop remembers from one pass to the next and does not need after a restart.
pub(crate) struct Context {
    /// The journal on disk is older than the state.
    pub(crate) unsaved: bool,
    pub(crate) policy: Policy,
    /// The validation directory as it was read last.
    pub(crate) directory: Option<ValidationDirectory>,
    /// What was said of it last.
    pub(crate) directory_logged: Option<String>,
    pub(crate) store_trust: StoreTrust,
    pub(crate) target: Target,
    pub(crate) target_since: BootMillis,
    /// The version that stands in the file of the last target.
    pub(crate) remembered_target: Option<Version>,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) presence: PresenceState,
    /// What the last own write left in the store, and at which revision.
    pub(crate) written: Option<(i64, Published)>,
    pub(crate) store_failures: u32,
    /// Why the store refused the last write.
    pub(crate) write_error: Option<String>,
    pub(crate) store_retry_at: BootMillis,
    pub(crate) record_failure: Option<(String, BootMillis)>,
    /// The needs of the host that are not met.
    pub(crate) waits: Vec<Wait>,
    pub(crate) services_seen: Option<u64>,
    /// What is wrong with the services of this host.
    pub(crate) problems: ServiceProblems,
    /// What the catalog made addressable when it was looked at last, and the generation of it.
    pub(crate) addressable: Option<(u64, Addressable)>,
    /// Decisions since this process began.
    pub(crate) passes: u64,
    /// What was said of local writes that fail.
    pub(crate) record_failure_logged: Option<(String, BootMillis)>,
}

impl Context {
    /// Takes note that local state cannot be written; says so when it is news, and now and then.
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

    /// Takes note that local state was written.
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

/// How long local writes rest after one failed.
const RECORD_RETRY_DELAY: Duration = Duration::from_secs(5);

/// That they fail is said again this often.
const RECORD_FAILURE_LOG_INTERVAL: Duration = Duration::from_secs(60);
