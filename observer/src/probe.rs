//! Reads from the store at intervals. A watch may be silent because nothing changes, or because its member was cut off
//! from the others; only a linearizable read tells. So each read gives a revision that the snapshot has to reach to be as
//! new as the begin of the read.

use etcd_session::{Deadline, ReadOnlySession, StoreError, StorePosition};
use schema::reads::Keys;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Time between two reads.
const READ_INTERVAL: Duration = Duration::from_secs(1);
/// Longest time for one request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Reads between two looks at the alarms.
const READS_PER_ALARMS: u32 = 5;

/// What was read.
pub(crate) enum Reading {
    /// Where the store was, or was later, when the read began.
    Position(Instant, Result<StorePosition, StoreError>),
    /// The raised alarms; `None` if the user may not ask for them.
    Alarms(Result<Option<Vec<String>>, StoreError>),
}

/// Reads until nobody takes the readings any more.
pub(crate) struct Probe {
    pub(crate) session: ReadOnlySession,
    /// What is read.
    pub(crate) keys: watch::Receiver<Keys>,
    pub(crate) readings: mpsc::Sender<Reading>,
}

impl Probe {
    /// Reads.
    pub(crate) async fn run(self) {
        let mut ticks = interval(READ_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut reads, mut are_unknown) = (0u32, false);
        loop {
            ticks.tick().await;
            // They come first: nothing is shown as fresh before it is known whether hosts can write.
            let wants_alarms = are_unknown || reads.is_multiple_of(READS_PER_ALARMS);
            reads = reads.wrapping_add(1);
            if wants_alarms {
                let alarms = self.session.alarms(Deadline::within(TIMEOUT)).await;
                are_unknown = alarms.is_err();
                if self.readings.send(Reading::Alarms(alarms)).await.is_err() {
                    return;
                }
            }
            let (began, keys) = (Instant::now(), self.keys.borrow().clone());
            let position = self.session.position(&keys, Deadline::within(TIMEOUT)).await;
            if self.readings.send(Reading::Position(began, position)).await.is_err() {
                return;
            }
        }
    }
}
