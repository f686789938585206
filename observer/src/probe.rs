//! Reads from the store at intervals. A watch may be silent because nothing changes, or because its member was cut off
//! from the others; only a linearizable read tells. So each read gives a revision that the snapshot has to reach to be as
//! new as the begin of the read.

use etcd_session::{Deadline, ReadOnlySession, StoreError};
use schema::reads::Keys;
use schema::server_version::progress_is_in_order;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Time between two reads.
const READ_INTERVAL: Duration = Duration::from_secs(1);
/// Longest time for one request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Reads between two looks at the alarms.
const READS_PER_ALARMS: u32 = 30;

/// What was read.
pub(crate) enum Reading {
    /// The store had this revision, or a later one, when the read began.
    Revision(Instant, Result<i64, StoreError>),
    /// Whether the progress of the member's watches can be trusted.
    ProgressInOrder(bool),
    /// The raised alarms; `None` if they are not known.
    Alarms(Option<Vec<String>>),
}

/// Reads until nobody takes the readings any more.
pub(crate) struct Probe {
    pub(crate) session: ReadOnlySession,
    /// What is read.
    pub(crate) keys: watch::Receiver<Keys>,
    /// Somebody wants to know the version of the member.
    pub(crate) version_wanted: Arc<Notify>,
    pub(crate) readings: mpsc::Sender<Reading>,
}

impl Probe {
    /// Reads.
    pub(crate) async fn run(self) {
        let mut ticks = interval(READ_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut reads = 0u32;
        loop {
            let wants_version = tokio::select! {
                _ = ticks.tick() => false,
                () = self.version_wanted.notified() => true,
            };
            let deadline = Deadline::within(TIMEOUT);
            let reading = if wants_version {
                // A member whose version is not known counts as old.
                let version = self.session.server_version(deadline).await.unwrap_or_default();
                Reading::ProgressInOrder(progress_is_in_order(&version))
            } else {
                let (began, keys) = (Instant::now(), self.keys.borrow().clone());
                Reading::Revision(began, self.session.revision(&keys, deadline).await)
            };
            if self.readings.send(reading).await.is_err() {
                return;
            }
            if !wants_version && reads.is_multiple_of(READS_PER_ALARMS) {
                let alarms = self.session.alarms(Deadline::within(TIMEOUT)).await.ok();
                if self.readings.send(Reading::Alarms(alarms)).await.is_err() {
                    return;
                }
            }
            reads = reads.wrapping_add(u32::from(!wants_version));
        }
    }
}
