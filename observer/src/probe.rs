//! Reads from the store at intervals. A watch may be silent because nothing changes, or because its member was cut off
//! from the others; only a linearizable read tells. So each read gives a revision that the snapshot has to reach to be as
//! new as the start of the read.

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

pub(crate) enum Reading {
    /// Where the store was, or was later, when the read began.
    Position(Instant, Result<StorePosition, StoreError>),
    /// The raised alarms; `None` if the user may not ask for them.
    Alarms(Result<Option<Vec<String>>, StoreError>),
}

/// Reads until nobody takes the readings any more.
pub(crate) struct Probe {
    pub(crate) session: ReadOnlySession,
    pub(crate) keys: watch::Receiver<Keys>,
    pub(crate) readings: mpsc::Sender<Reading>,
}

impl Probe {
    pub(crate) async fn run(self) {
        // At first nothing may be shown as fresh before it is known whether hosts can write. Later, a store that does not
        // say its alarms must not make everything else old.
        let (position, alarms) = tokio::join!(self.position(), self.alarms());
        let mut are_unknown = are_unknown(&alarms);
        if !(self.tell(alarms).await && self.tell(position).await) {
            return;
        }
        let mut ticks = interval(READ_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick comes at once.
        ticks.tick().await;
        let mut reads = 0u32;
        loop {
            ticks.tick().await;
            if !self.tell(self.position().await).await {
                return;
            }
            reads = reads.wrapping_add(1);
            if are_unknown || reads.is_multiple_of(READS_PER_ALARMS) {
                let alarms = self.alarms().await;
                are_unknown = self::are_unknown(&alarms);
                if !self.tell(alarms).await {
                    return;
                }
            }
        }
    }

    async fn position(&self) -> Reading {
        let (began, keys) = (Instant::now(), self.keys.borrow().clone());
        Reading::Position(began, self.session.position(&keys, Deadline::within(TIMEOUT)).await)
    }

    async fn alarms(&self) -> Reading {
        Reading::Alarms(self.session.alarms(Deadline::within(TIMEOUT)).await)
    }

    /// Returns false if nobody takes the readings any more.
    async fn tell(&self, reading: Reading) -> bool {
        self.readings.send(reading).await.is_ok()
    }
}

/// True if the store did not say its alarms.
fn are_unknown(reading: &Reading) -> bool {
    matches!(reading, Reading::Alarms(Err(_)))
}
