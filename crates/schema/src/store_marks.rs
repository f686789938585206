//! Marks: the highest revision and raft term that the store has answered with. A restored or wiped
//! store answers with lower values, and a watch on it stays silent. So each read is compared with
//! the marks taken before it began.

use crate::keys::{self, Key};
use crate::names::HostName;
use crate::snapshot::KeySnapshot;
use crate::store_trust::StoreSeen;

/// Highest revision and raft term seen, and the history of the store in which they were seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Marks {
    /// Number of the history. It increases when the marks are set again, because the store went back
    /// or was accepted. A judgement by the marks of an earlier history is not valid in this one.
    pub history: u64,
    /// Highest revision seen.
    pub revision: i64,
    /// Highest raft term seen.
    pub raft_term: u64,
}

/// By how much an answer is behind the marks, as (remembered, found).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Regress {
    /// History of the marks that the answer was compared with.
    pub history: u64,
    /// Remembered and found revision, if the found one is lower.
    pub revision: Option<(i64, i64)>,
    /// Remembered and found raft term, if the found one is lower.
    pub raft_term: Option<(u64, u64)>,
}

impl Regress {
    /// True if the answer is not behind the marks.
    pub fn is_none(&self) -> bool {
        self.revision.is_none() && self.raft_term.is_none()
    }
}

impl Marks {
    /// Returns by how much an answer is behind these marks.
    pub fn regress(&self, snapshot: &KeySnapshot) -> Regress {
        self.regress_of(snapshot.revision, snapshot.raft_term)
    }

    /// Returns by how much an answer with this revision and raft term is behind these marks.
    pub fn regress_of(&self, revision: i64, raft_term: u64) -> Regress {
        Regress {
            history: self.history,
            revision: (revision < self.revision).then_some((self.revision, revision)),
            raft_term: (raft_term < self.raft_term).then_some((self.raft_term, raft_term)),
        }
    }

    /// Raises the marks to these values, if they are higher.
    pub fn raise(&mut self, revision: i64, raft_term: u64) {
        self.revision = self.revision.max(revision);
        self.raft_term = self.raft_term.max(raft_term);
    }

    /// Begins a new history with these marks, because the earlier marks belong to a store that does
    /// not exist any more.
    pub fn begin_history(&mut self, revision: i64, raft_term: u64) {
        *self = Self { history: self.history + 1, revision, raft_term };
    }
}

/// Returns the keys from which one host judges the store.
pub fn trust_keys(host: &HostName) -> [Key; 4] {
    [Key::Store, Key::CurrentVersion, Key::Report(host.clone()), Key::Host(host.clone())]
}

/// Extracts from a snapshot of [`trust_keys`] what the host needs to judge the store.
pub fn store_seen(snapshot: &KeySnapshot, host: &HostName, regress: Regress) -> StoreSeen {
    let identity = snapshot.read(keys::Store);
    let revision = |key: Key| snapshot.get(&key).map(|e| e.mod_revision);
    StoreSeen {
        identity: identity.as_ref().and_then(|read| read.as_ref().ok().cloned()),
        identity_unreadable: identity.and_then(|read| read.err()).map(|e| e.to_string()),
        revision: snapshot.revision,
        raft_term: snapshot.raft_term,
        regressed_revision: regress.revision,
        regressed_term: regress.raft_term,
        target_revision: revision(Key::CurrentVersion),
        report_revision: revision(Key::Report(host.clone())),
        roster_revision: revision(Key::Host(host.clone())),
    }
}
