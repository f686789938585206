//! Keys of the store and their entries at one revision.

use etcd_client::KeyValue;
use schema::keys::Key;
use std::collections::BTreeMap;

/// Value and metadata of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Value of the key, as stored.
    pub value: Vec<u8>,
    /// Revision at which the key was created.
    pub create_revision: i64,
    /// Revision at which the key was last written.
    pub mod_revision: i64,
    /// Lease that the key is attached to; 0 for none.
    pub lease: i64,
}

impl From<&KeyValue> for Entry {
    fn from(kv: &KeyValue) -> Self {
        Self {
            value: kv.value().to_vec(),
            create_revision: kv.create_revision(),
            mod_revision: kv.mod_revision(),
            lease: kv.lease(),
        }
    }
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
}
