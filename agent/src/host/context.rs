//! The values that the reconcile loop works on: the recorded state of the host, and what was
//! observed last.

use crate::clock;
use crate::files::Directory;
use crate::journal;
use crate::rollout::FoundRollout;
use etcd_session::{PresenceState, Snapshot, jitter, write_backoff};
use planning::host::{
    Addressable, BrakesMemory, HostProblems, HostState, Published, SiteConfig, Target, VersionFile,
};
use schema::keys::Key;
use schema::names::Version;
use schema::records::{MachineInfo, Wait};
use schema::steps::StepPhase;
use schema::store_trust::StoreTrust;
use schema::time::BootMillis;
use schema::writes::Fence;
use settings::ValidationDirectory;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Pause of local writes after a failed one.
const RECORD_RETRY_DELAY: Duration = Duration::from_secs(5);

/// Interval at which the same error of local writes is logged again.
const RECORD_FAILURE_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The values that the reconcile loop works on. Only `state` outlives a restart.
pub(crate) struct Context {
    /// The host's state, which the journal keeps.
    pub(super) state: HostState,
    /// True if the journal on disk is older than the state.
    pub(super) unsaved: bool,
    pub(super) policy: SiteConfig,
    /// The facts about the machine, for reports.
    pub(super) facts: MachineInfo,
    /// The validation directory as last read.
    pub(super) directory: Option<ValidationDirectory>,
    /// Why the validation directory could not be read last.
    pub(super) directory_unreadable: Option<String>,
    /// The last warning that was logged about the validation directory.
    pub(super) directory_logged: Option<String>,
    pub(super) version_file: VersionFile,
    pub(super) store_trust: StoreTrust,
    pub(super) target: Target,
    pub(super) target_since: BootMillis,
    /// The version in the file of the last known target.
    pub(super) remembered_target: Option<Version>,
    pub(super) snapshot: Arc<Snapshot>,
    /// The time without the store, while it does not answer.
    pub(super) store_away: Option<Away>,
    pub(super) presence: PresenceState,
    /// What the store holds for this host after its last write, and the revision of that write.
    pub(super) written: Option<(i64, Published)>,
    pub(super) store_failures: u32,
    /// The store's error at the last write.
    pub(super) write_error: Option<String>,
    pub(super) store_retry_at: BootMillis,
    pub(super) record_failure: Option<(String, BootMillis)>,
    /// The unmet needs of the host.
    pub(super) waits: Vec<Wait>,
    pub(super) services_seen: Option<u64>,
    /// The problems of the services of this host.
    pub(super) problems: HostProblems,
    /// The generation of the catalog snapshot that was read last, and what it makes addressable.
    pub(super) addressable: Option<(u64, Addressable)>,
    /// What is known of freezes and limits.
    pub(super) brakes: BrakesMemory,
    /// What the last transaction read that reads of the rollout too.
    pub(super) rollout_found: Option<Arc<FoundRollout>>,
    /// Number of passes since this process started.
    pub(super) passes: u64,
    /// The last error of a local write that was logged, and when.
    record_failure_logged: Option<(String, BootMillis)>,
}

/// A time without the store.
#[derive(Debug, Clone, Copy)]
pub(super) struct Away {
    pub(super) since: BootMillis,
    /// True if it was logged.
    pub(super) logged: bool,
}

impl Context {
    /// True for the validation of a host that has nothing else to do. It is repeated for ever.
    pub(super) fn is_routine(&self, phase: StepPhase) -> bool {
        phase == StepPhase::Validate && self.state.attempt.is_none() && !self.state.is_disturbed()
    }

    /// Returns the context of a host of which nothing was observed yet.
    pub(super) fn new(state: HostState, policy: SiteConfig, facts: MachineInfo) -> Self {
        Self {
            state,
            unsaved: true,
            policy,
            facts,
            directory: None,
            directory_unreadable: None,
            directory_logged: None,
            version_file: VersionFile::Content(None),
            store_trust: StoreTrust::Unread,
            target: Target::Unread,
            target_since: clock::boot_millis(),
            remembered_target: None,
            snapshot: Arc::default(),
            store_away: None,
            presence: PresenceState::NotYet,
            written: None,
            store_failures: 0,
            write_error: None,
            store_retry_at: BootMillis(0),
            record_failure: None,
            waits: Vec::new(),
            services_seen: None,
            problems: HostProblems::default(),
            addressable: None,
            brakes: BrakesMemory::default(),
            rollout_found: None,
            passes: 0,
            record_failure_logged: None,
        }
    }

    /// Returns the epoch of the store that the host remembers.
    pub(super) fn epoch(&self) -> u64 {
        self.state.store.as_ref().map_or(0, |store| store.epoch)
    }

    /// Returns what every write of this host compares; `None` without the claim of its name.
    pub(super) fn fence(&self) -> Option<Fence> {
        let PresenceState::Held { lease: live_lease, live_revision } = self.presence else { return None };
        let store_revision = self.snapshot.followed.keys.revision_of(&Key::Store);
        Some(Fence { live_revision, live_lease, store_revision })
    }

    /// Returns the lease of the claim of the host name; 0 without a claim.
    pub(super) fn live_lease(&self) -> i64 {
        if let PresenceState::Held { lease, .. } = self.presence { lease } else { 0 }
    }

    /// Saves the journal if it is out of date. It must be saved before anything outside of this
    /// process changes.
    pub(super) fn save(&mut self, directory: &Directory) -> io::Result<()> {
        if self.unsaved {
            journal::save(directory, &self.state)?;
            self.recorded();
        }
        Ok(())
    }

    /// Records that local state cannot be written. Logs a new error at once and the same error at
    /// intervals.
    pub(super) fn record_failed(&mut self, error: &io::Error) {
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
    fn recorded(&mut self) {
        self.unsaved = false;
        self.record_failure = None;
        if self.record_failure_logged.take().is_some() {
            tracing::info!("local state can be written again");
        }
    }

    /// Records that the store could not be written, and delays the next write.
    pub(super) fn store_failed(&mut self) {
        self.store_failures += 1;
        let delay = write_backoff().delay(self.store_failures, jitter());
        self.store_retry_at = clock::boot_millis().plus(delay);
    }

    /// Ends the delay of the next write, because the store says of the host what is not true: even a store that
    /// refuses reports may take that back. The live lease does not wait for a delay.
    pub(super) fn retry_store_now(&mut self) {
        self.store_retry_at = BootMillis(0);
    }

    /// Records that the store was written.
    pub(super) fn store_written(&mut self) {
        self.store_failures = 0;
        self.write_error = None;
    }
}
