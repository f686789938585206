//! Every transaction of hosts and operators, as a function from values to a
//! [`Transaction`]. Only the export of solo-etcd writes keys in another way; the store deletes keys
//! whose lease expires.

pub mod act;
pub mod claim;
pub mod claims;
pub mod host;
pub mod host_config;
pub mod lost;
pub mod one_shot;
pub mod operator;
pub mod purpose;
pub mod respell;
pub mod rollout;
pub mod services;
pub mod stage;

use crate::codec;
use crate::keys::{Key, StatusState};
use crate::names::{HostName, StatusType};
use crate::records::StatusRecord;
use crate::snapshot::{Entry, KeySnapshot};
use crate::transaction::{Compare, Transaction};
use std::fmt;

/// What every transaction of a host compares.
///
/// A restored store uses its revisions again, so a revision alone does not say that the claim is the
/// same: the claim of another agent can have got it. The id of a lease is random.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fence {
    /// Revision of the host's claim `/orchestrate/live/<host>`.
    pub live_revision: i64,
    /// Lease that the claim is attached to, as are the keys that must end with the agent.
    pub live_lease: i64,
    /// Revision of `/orchestrate/store`; 0 if the key does not exist.
    pub store_revision: i64,
}

impl Fence {
    /// Adds the comparisons to a transaction of this host.
    pub fn add_to(self, transaction: &mut Transaction, host: &HostName) {
        let live = Key::Live(host.clone());
        transaction.compares.push(Compare::Revision(live.clone(), self.live_revision));
        transaction.compares.push(Compare::Lease(live, self.live_lease));
        transaction.compares.push(Compare::Revision(Key::Store, self.store_revision));
    }

    /// Returns the comparison that does not hold in what was found.
    fn broken(self, host: &HostName, found: &KeySnapshot) -> Option<WriteRefusal> {
        let live = found.get(&Key::Live(host.clone()));
        let is_held = |live: &Entry| (live.mod_revision, live.lease) == (self.live_revision, self.live_lease);
        if !live.is_some_and(is_held) {
            return Some(WriteRefusal::Claim);
        }
        (found.revision_of(&Key::Store) != self.store_revision).then_some(WriteRefusal::Store)
    }
}

/// The comparison by which a transaction of a host failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteRefusal {
    /// The claim no longer belongs to this agent.
    Claim,
    /// The store's identity changed.
    Store,
    /// `/current_version` changed.
    Target,
    /// The roster entry of the host changed.
    Roster,
    /// The claims of the host changed, from which its transaction follows.
    Limits,
}

impl fmt::Display for WriteRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Claim => "claim of the host name",
            Self::Store => "identity of the store",
            Self::Target => "desired version",
            Self::Roster => "roster entry",
            Self::Limits => "claims of limits",
        })
    }
}

/// One result that a host reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostStatus {
    pub kind: StatusType,
    pub state: StatusState,
    /// When, and with which version.
    pub record: StatusRecord,
}

/// Adds the write of one result. It deletes the other states of its type, by exact key.
fn add_status(transaction: &mut Transaction, host: &HostName, status: &HostStatus, lease: i64) {
    let HostStatus { kind, state, record } = status;
    for other in StatusState::ALL {
        let key = Key::Status(kind.clone(), other, host.clone());
        if other == *state {
            transaction.put(key, codec::write(record), lease);
        } else {
            transaction.delete(key);
        }
    }
}

#[cfg(test)]
mod tests;
