//! What is read from the store in one transaction.

use crate::keys::{Key, Prefix};

/// One read of the store, with values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    /// A single key.
    Key(Key),
    /// All keys of a range.
    Range(Prefix),
    /// The next keys of a range after a key of it. The store sorts nothing for it.
    NextAfter {
        /// The range.
        range: Prefix,
        /// The key, which is not read itself.
        key: Key,
        /// How many keys are read at most.
        count: u32,
    },
}

impl Read {
    /// Returns the reads of these keys and ranges.
    pub fn all(keys: &[Key], ranges: &[Prefix]) -> Vec<Self> {
        let keys = keys.iter().cloned().map(Self::Key);
        keys.chain(ranges.iter().cloned().map(Self::Range)).collect()
    }
}
