//! How far the store had come when it last answered. A store that was restored or wiped answers with less, and a
//! watch on it stays silent, so each read is held against the marks that stood when it began.

use crate::key_snapshot::KeySnapshot;
use schema::codec;
use schema::keys::Key;
use schema::names::HostName;
use schema::records::StoreIdentity;
use schema::store_trust::StoreSeen;
use std::sync::{Mutex, PoisonError};

/// The highest revision and raft term that were seen, and in which history of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Marks {
    /// Goes up when the marks begin anew: the store went back, or was accepted. What was judged by the marks of an
    /// earlier history says nothing of this one.
    pub history: u64,
    /// The revision.
    pub revision: i64,
    /// The raft term.
    pub raft_term: u64,
}

/// How an answer fell behind the marks, as (remembered, found).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Regress {
    /// The history of the marks.
    pub history: u64,
    /// The revision, if it fell behind.
    pub revision: Option<(i64, i64)>,
    /// The raft term, if it fell behind.
    pub raft_term: Option<(u64, u64)>,
}

impl Regress {
    /// True if nothing fell behind.
    pub fn is_none(&self) -> bool {
        self.revision.is_none() && self.raft_term.is_none()
    }
}

impl Marks {
    /// How an answer falls behind these marks.
    pub fn regress(&self, snapshot: &KeySnapshot) -> Regress {
        Regress {
            history: self.history,
            revision: (snapshot.revision < self.revision).then_some((self.revision, snapshot.revision)),
            raft_term: (snapshot.raft_term < self.raft_term).then_some((self.raft_term, snapshot.raft_term)),
        }
    }
}

/// The marks of a session.
#[derive(Debug, Default)]
pub(crate) struct SharedMarks(Mutex<Marks>);

impl SharedMarks {
    pub(crate) fn get(&self) -> Marks {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut Marks)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// The keys that a store is judged by, as far as one host is concerned.
pub fn trust_keys(host: &HostName) -> [Key; 4] {
    [Key::Store, Key::CurrentVersion, Key::Report(host.clone()), Key::Host(host.clone())]
}

/// What a snapshot of [`judged_keys`] shows of the store.
pub fn store_seen(snapshot: &KeySnapshot, host: &HostName, regress: Regress) -> StoreSeen {
    let identity = snapshot.get(&Key::Store).map(|e| codec::read::<StoreIdentity>(&e.value));
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
