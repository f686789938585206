//! What the store says of a host although the host knows better. The tasks that write it note it here, and the
//! task that keeps the live lease reads it: a host that cannot take a statement back does not keep it alive
//! either, whatever the reason why its write fails.

use std::sync::Arc;
use tokio::sync::watch;
use tokio::time::Instant;

/// A statement of a host that hangs on its live lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statement {
    /// The version that the host runs.
    Listing,
    /// The health of its services.
    Health,
}

/// A statement that is not true any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Untrue {
    /// The live lease on which the statement hangs.
    lease: i64,
    since: Instant,
}

/// The statements in the store that the host knows to be untrue. Clones share them.
#[derive(Debug, Clone)]
pub struct Contradictions(Arc<watch::Sender<[Option<Untrue>; 2]>>);

impl Default for Contradictions {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new([None; 2])))
    }
}

impl Contradictions {
    /// Notes whether the store, under this live lease, says of the host what the host knows to be untrue. Returns
    /// true if that is new.
    pub fn note(&self, statement: Statement, lease: i64, is_untrue: bool) -> bool {
        let changed = self.0.send_if_modified(|all| {
            let noted = &mut all[statement as usize];
            let since = noted.filter(|before| before.lease == lease);
            let now = is_untrue.then(|| since.unwrap_or(Untrue { lease, since: Instant::now() }));
            std::mem::replace(noted, now) != now
        });
        changed && is_untrue
    }

    /// Returns since when the store says, under this lease, what the host knows to be untrue.
    pub(crate) fn since(&self, lease: i64) -> Option<Instant> {
        self.0
            .borrow()
            .iter()
            .flatten()
            .filter(|untrue| untrue.lease == lease)
            .map(|untrue| untrue.since)
            .min()
    }

    /// Returns a receiver that can wait for the next change.
    pub(crate) fn changes(&self) -> watch::Receiver<[Option<Untrue>; 2]> {
        self.0.subscribe()
    }
}
