//! The claim of a host's name, as `etcd_session::Presence` makes and keeps it.

use crate::event::Sender;
use planning::host::Claim as SeenClaim;
use schema::records::LiveClaim;
use schema::snapshot::KeySnapshot;
use schema::store_marks::Marks;
use schema::transaction::Transaction;

/// Time to live of the lease of the claim, in seconds.
pub(crate) const LEASE_SECONDS: i64 = 30;

/// A claim that this process made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    pub(crate) lease: i64,
    pub(crate) live_revision: i64,
    pub(crate) history: u64,
}

/// What the task does.
#[derive(Debug, Default)]
pub(crate) enum Stage {
    /// The store may not be written.
    #[default]
    Closed,
    /// The claim is read.
    Reads {
        marks: Marks,
        history: u64,
    },
    /// The old lease is kept alive, to resume it.
    Resumes {
        lease: i64,
        found: KeySnapshot,
    },
    /// A lease is granted.
    Grants {
        found: KeySnapshot,
    },
    /// The claim is written.
    Writes {
        held: Held,
        resumed: bool,
        found: i64,
        transaction: Transaction,
        until: u64,
    },
    /// The lease of another instance is looked at.
    Looks {
        lease: i64,
        holder: String,
    },
    /// Something failed; it is tried again later.
    Pauses,
    Holds {
        held: Held,
        keeps: Keeping,
    },
}

/// What the holder of a claim does.
#[derive(Debug)]
pub(crate) enum Keeping {
    Waits,
    /// The claim is read on a new connection, before the lease is kept alive.
    Proves {
        marks: Marks,
    },
    RenewsLease,
    Checks,
}

/// The claim of an agent.
#[derive(Debug, Default)]
pub(crate) struct Claim {
    pub(crate) stage: Stage,
    pub(crate) sender: Option<Sender>,
    pub(crate) timer: u64,
    pub(crate) failures: u32,
    /// Lease that this process held last, and the history in which it held it.
    pub(crate) held_last: Option<(i64, u64)>,
    /// The connection on which the claim was last found unchanged.
    pub(crate) proven: u64,
    /// Lease of the other instance, and its seconds at the last look.
    pub(crate) contest: Option<(i64, i64)>,
    pub(crate) contested_by: Option<String>,
}

impl Claim {
    /// Returns lease and revision of the claim, if it is held.
    pub(crate) fn held(&self) -> Option<(i64, i64)> {
        match &self.stage {
            Stage::Holds { held, .. } => Some((held.lease, held.live_revision)),
            _ => None,
        }
    }

    /// Returns who holds the claim.
    pub(crate) fn seen(&self, ours: &LiveClaim) -> SeenClaim {
        match (&self.stage, &self.contested_by) {
            (Stage::Holds { .. }, _) => SeenClaim::Held,
            (_, Some(holder)) => SeenClaim::Contested { holder: holder.clone(), ours: ours.to_string() },
            _ => SeenClaim::NotYet,
        }
    }
}
