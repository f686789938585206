//! A transaction of the store as a value. Pure code builds it, `etcd-session` sends it, and tests
//! and simulations apply it to a store of their own.

use crate::keys::{Key, Prefix};
use crate::limit::Limit;
use crate::reads::Read;
use std::collections::BTreeSet;

/// Largest number of comparisons, of operations, and of reads in one transaction; etcd's default limit
/// (`--max-txn-ops`).
pub const OPERATIONS_MAX: usize = 128;

/// A comparison. The transaction is applied only if all its comparisons hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compare {
    /// The key was last written at this revision. Revision 0 means that the key does not exist.
    Revision(Key, i64),
    /// The key has this value.
    Value(Key, Vec<u8>),
    /// The key is attached to this lease.
    Lease(Key, i64),
    /// No key is in this range.
    NoneIn(Prefix),
    /// No key in this range was written after this revision. Deletions do not matter.
    NoneNewer(Prefix, i64),
    /// Nobody holds a claim of this limit with a number from `from` up to but not including `below`.
    NoClaims {
        limit: Limit,
        from: u32,
        /// One more than the highest number; at most
        /// [`CLAIM_NUMBERS`](crate::limit::CLAIM_NUMBERS).
        below: u32,
    },
}

impl Compare {
    /// Returns the comparison that holds if the key does not exist.
    pub fn absent(key: Key) -> Self {
        Self::Revision(key, 0)
    }
}

/// A change of one key, or the deletion of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    Put {
        key: Key,
        value: Vec<u8>,
        /// Lease that the key is attached to; 0 for none.
        lease: i64,
    },
    /// Writes the key without a lease, unless it exists.
    PutIfAbsent { key: Key, value: Vec<u8> },
    /// Deletes the key, if it exists.
    Delete(Key),
    /// Deletes all keys in a range.
    DeleteAll(Prefix),
}

impl Operation {
    /// Returns the key that the operation changes; `None` if it changes a range.
    pub fn key(&self) -> Option<&Key> {
        match self {
            Self::Put { key, .. } | Self::PutIfAbsent { key, .. } | Self::Delete(key) => Some(key),
            Self::DeleteAll(_) => None,
        }
    }
}

/// A transaction: if all comparisons hold, all operations are applied at one revision; otherwise
/// nothing is changed and the keys in `reads` are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// What the transaction does, for messages.
    pub name: &'static str,
    /// Comparisons that must hold.
    pub compares: Vec<Compare>,
    pub operations: Vec<Operation>,
    /// Keys to read if a comparison does not hold.
    pub reads: Vec<Key>,
    /// Ranges to read if a comparison does not hold.
    pub read_ranges: Vec<Prefix>,
    /// What the writer wants to know next if the operations are applied, read after them. Of a large range only the
    /// first entries are read.
    pub reads_after: Vec<Read>,
    /// What the writer wants to know if a comparison does not hold.
    pub reads_instead: Vec<Read>,
    /// True if applying the transaction twice has the same effect as applying it once, so that it
    /// may be sent again after a lost answer.
    pub idempotent: bool,
}

/// A transaction that etcd refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransactionError {
    /// Two operations change the same key.
    #[error("two operations change {0}")]
    SameKey(Key),
    /// The transaction is too large.
    #[error("the transaction has {0} operations, comparisons or reads; the limit is {OPERATIONS_MAX}")]
    TooLarge(usize),
}

impl Transaction {
    /// Returns an empty transaction that may be sent again after a lost answer.
    pub fn idempotent(name: &'static str) -> Self {
        Self {
            name,
            compares: Vec::new(),
            operations: Vec::new(),
            reads: Vec::new(),
            read_ranges: Vec::new(),
            reads_after: Vec::new(),
            reads_instead: Vec::new(),
            idempotent: true,
        }
    }

    /// Returns an empty transaction that is sent again only if it was certainly not applied.
    pub fn once(name: &'static str) -> Self {
        Self { idempotent: false, ..Self::idempotent(name) }
    }

    /// Adds a comparison.
    #[must_use]
    pub fn when(mut self, compare: Compare) -> Self {
        self.compares.push(compare);
        self
    }

    /// Adds a write of a key. `lease` is 0 for a durable key.
    pub fn put(&mut self, key: Key, value: impl Into<Vec<u8>>, lease: i64) {
        self.operations.push(Operation::Put { key, value: value.into(), lease });
    }

    /// Adds a deletion of a key.
    pub fn delete(&mut self, key: Key) {
        self.operations.push(Operation::Delete(key));
    }

    /// Adds the deletion of all keys in a range. No other operation may change one of them.
    pub fn delete_all(&mut self, range: Prefix) {
        self.operations.push(Operation::DeleteAll(range));
    }

    /// Checks the rules of etcd that a value can break: it refuses two changes of one key, and more
    /// than [`OPERATIONS_MAX`] operations, comparisons or reads.
    ///
    /// # Errors
    /// Returns the rule that is broken.
    pub fn check(&self) -> Result<(), TransactionError> {
        let applied = self.operations.len() + self.reads_after.len();
        let refused = self.reads.len() + self.read_ranges.len() + self.reads_instead.len();
        let largest = self.compares.len().max(applied).max(refused);
        if largest > OPERATIONS_MAX {
            return Err(TransactionError::TooLarge(largest));
        }
        let mut changed = BTreeSet::new();
        for key in self.operations.iter().filter_map(Operation::key) {
            if !changed.insert(key) {
                return Err(TransactionError::SameKey(key.clone()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::HostName;

    fn key(n: usize) -> Key {
        Key::Report(HostName::new(format!("h{n}")).unwrap())
    }

    #[test]
    fn what_etcd_refuses_is_found_before_it_is_sent() {
        let mut transaction = Transaction::idempotent("test");
        (0..OPERATIONS_MAX).for_each(|n| transaction.put(key(n), "1", 0));
        assert_eq!(transaction.check(), Ok(()));
        transaction.delete(key(1000));
        assert_eq!(transaction.check(), Err(TransactionError::TooLarge(OPERATIONS_MAX + 1)));
        let mut transaction = Transaction::idempotent("test");
        transaction.put(key(1), "1", 0);
        let reads: Vec<Read> = (0..OPERATIONS_MAX).map(key).map(Read::Key).collect();
        transaction.reads_instead = reads.clone();
        assert_eq!(transaction.check(), Ok(()));
        transaction.reads_after = reads;
        assert_eq!(transaction.check(), Err(TransactionError::TooLarge(OPERATIONS_MAX + 1)));
        transaction.reads_after.clear();
        transaction.delete(key(1));
        assert_eq!(transaction.check(), Err(TransactionError::SameKey(key(1))));
    }
}
