//! What stands under keys of the store at one revision.

use etcd_client::KeyValue;
use schema::keys::Key;
use std::collections::BTreeMap;

/// One key and what stands under it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The value.
    pub value: Vec<u8>,
    /// Revision at which the key was made.
    pub create_revision: i64,
    /// Revision at which it was last written.
    pub mod_revision: i64,
    /// The lease that it hangs on; 0 for none.
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
    /// The revision.
    pub revision: i64,
    /// The raft term in which it was read.
    pub raft_term: u64,
    /// The entries, by key without the namespace.
    pub entries: BTreeMap<String, Entry>,
}

impl KeySnapshot {
    /// The entry of a key.
    pub fn get(&self, key: &Key) -> Option<&Entry> {
        self.entries.get(&key.to_string())
    }
}
