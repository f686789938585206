//! The rollout on this host. One task follows it while it keeps the host from starting; the other looks after it when the
//! host is through with its own update.
//!
//! `follower` and `driver` are the tasks. `watches` follows ranges of keys, `transactions` writes for the fleet, and
//! `prefetched_read` is what a refused start has read already.

mod driver;
mod follower;
mod prefetched_read;
mod transactions;
mod watches;

pub(crate) use driver::WantedDriver;
pub(crate) use follower::{HOLDERS_INTERVAL, WantedRollout};
pub(crate) use prefetched_read::FoundRollout;
pub(crate) use transactions::{JudgedStore, look_after};

use crate::handles::Handles;
use crate::supervise::Tasks;
use driver::RolloutDriverTask;
use follower::{KnownRollout, RolloutTask};
use schema::order::InstructionOrder;
use tokio::sync::watch;

/// What the reconcile loop tells the tasks, and what they find.
pub(crate) struct RolloutHandles {
    /// Says which rollout keeps this host from starting.
    pub wanted: watch::Sender<Option<WantedRollout>>,
    /// The rollout, while it is followed.
    pub known: watch::Receiver<KnownRollout>,
    /// Says which rollout this host is through with.
    pub end_wanted: watch::Sender<Option<WantedDriver>>,
    /// The last rollout that is known to have ended.
    pub ended: watch::Receiver<Option<InstructionOrder>>,
}

pub(crate) fn start(handles: &Handles, tasks: &mut Tasks) -> RolloutHandles {
    let Handles { session, host, .. } = handles;
    let (wanted, receiver) = watch::channel(None);
    let (follower, known) = RolloutTask::new(session.clone(), host.clone(), receiver);
    let (end_wanted, receiver) = watch::channel(None);
    let (driver, ended) = RolloutDriverTask::new(session.clone(), host.clone(), receiver);
    tasks.spawn_loop("rollout-end", driver);
    tasks.spawn_loop("rollout", follower);
    RolloutHandles { wanted, known, end_wanted, ended }
}
