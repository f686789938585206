//! Keys of the store and their entries at one revision.

pub use crate::entry::Entry;
use crate::keys::{Key, Prefix, TypedKey};
use std::collections::BTreeMap;

/// The change of a key at a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyChange {
    pub key: String,
    /// Its entry before; `None` if it did not exist.
    pub before: Option<Entry>,
    /// Its entry after; `None` if it was deleted.
    pub after: Option<Entry>,
}

/// Keys and their entries at one revision.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeySnapshot {
    /// Revision of the store at which the entries were read.
    pub revision: i64,
    /// Raft term of the member that answered.
    pub raft_term: u64,
    /// Entries by key, without the namespace.
    pub entries: BTreeMap<String, Entry>,
}

impl KeySnapshot {
    /// Returns the entry of a key, or `None` if the key does not exist.
    pub fn get(&self, key: &Key) -> Option<&Entry> {
        self.entries.get(&key.to_string())
    }

    /// Reads the value of a key. Returns `None` if the key does not exist, and an error if the value cannot be read.
    pub fn read<K: TypedKey>(&self, key: K) -> Option<Result<K::Value, K::Error>> {
        self.entries.get(&key.path()).map(|entry| K::read(&entry.value))
    }

    /// Returns the value of a key; `None` if the key does not exist or the value cannot be read.
    pub fn value_of<K: TypedKey>(&self, key: K) -> Option<K::Value> {
        self.read(key)?.ok()
    }

    /// Returns the keys of a range, in order.
    pub fn in_range(&self, range: &Prefix) -> impl Iterator<Item = (&String, &Entry)> + use<'_> {
        let prefix = range.to_string();
        self.entries.range(prefix.clone()..).take_while(move |(key, _)| key.starts_with(&prefix))
    }

    /// Returns the revision at which a key was last written; 0 if it does not exist.
    pub fn revision_of(&self, key: &Key) -> i64 {
        self.get(key).map_or(0, |entry| entry.mod_revision)
    }
}
