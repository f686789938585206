//! Sends transactions. What they compare and change is decided in `schema::writes`.

use crate::error::StoreError;
use crate::observer::RequestKind;
use crate::read::key_values;
use crate::request::{Deadline, Repeat};
use crate::session::Session;
use etcd_client::{CompareOp, DeleteOptions, GetOptions, PutOptions, Txn, TxnOp};
use schema::keys::Key;
use schema::snapshot::KeySnapshot;
use schema::transaction::{Compare, Operation, Transaction};

/// The store's answer to a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// True if all comparisons held and the operations were applied.
    pub applied: bool,
    /// Revision of the store after the transaction.
    pub revision: i64,
    /// What the transaction read.
    pub found: KeySnapshot,
    /// False if a range holds more than the transaction read of it.
    pub is_whole: bool,
}

impl Session {
    /// Sends a transaction.
    ///
    /// # Errors
    /// Returns the store's error. It is of class [`Class::Unknown`](crate::Class::Unknown) if the
    /// answer was lost and the transaction is not idempotent, or if the answer was too long.
    pub async fn commit(
        &self,
        transaction: &Transaction,
        deadline: Deadline,
    ) -> Result<Committed, StoreError> {
        let operation = transaction.name;
        let refused = |error| StoreError::Refused { operation, detail: format!("{error}") };
        transaction.check().map_err(refused)?;
        let request = self.request_of(transaction);
        let repeat = if transaction.idempotent { Repeat::Freely } else { Repeat::IfNotApplied };
        let answer = self
            .call(RequestKind::Commit, operation, repeat, deadline, |client| {
                let request = request.clone();
                async move { key_values(&client).txn(request).await }
            })
            .await
            .map_err(|error| match error {
                // The answer was too long to be read, so there was one: the transaction may be applied.
                StoreError::TooLarge { operation, detail } => StoreError::Unknown { operation, detail },
                error => error,
            })?;
        let mut found = KeySnapshot::default();
        let applied = answer.succeeded();
        let mut is_whole = true;
        let reads_if_refused = !transaction.reads.is_empty() || !transaction.read_ranges.is_empty();
        let last = if applied { &transaction.reads_after } else { &transaction.reads_instead };
        if !applied && reads_if_refused || !last.is_empty() {
            is_whole = self.merge(&answer, last, &mut found)?;
        }
        let revision = answer.header().map_or(0, |header| header.revision());
        self.note_revision(revision);
        Ok(Committed { applied, revision, found, is_whole })
    }

    fn request_of(&self, transaction: &Transaction) -> Txn {
        let compares: Vec<etcd_client::Compare> =
            transaction.compares.iter().map(|compare| self.compare_of(compare)).collect();
        let read = |read| self.operation(read, 0);
        let mut operations: Vec<TxnOp> =
            transaction.operations.iter().map(|operation| self.operation_of(operation)).collect();
        operations.extend(transaction.reads_after.iter().map(read));
        let mut reads: Vec<TxnOp> =
            transaction.reads.iter().map(|key| TxnOp::get(self.full(key), None)).collect();
        let range = |prefix| TxnOp::get(self.full(prefix), Some(GetOptions::new().with_prefix()));
        reads.extend(transaction.read_ranges.iter().map(range));
        reads.extend(transaction.reads_instead.iter().map(read));
        Txn::new().when(compares).and_then(operations).or_else(reads)
    }

    fn compare_of(&self, compare: &Compare) -> etcd_client::Compare {
        use etcd_client::Compare as Etcd;
        match compare {
            Compare::Revision(key, revision) => {
                Etcd::mod_revision(self.full(key), CompareOp::Equal, *revision)
            }
            Compare::Value(key, value) => Etcd::value(self.full(key), CompareOp::Equal, value.as_slice()),
            Compare::Lease(key, lease) => Etcd::lease(self.full(key), CompareOp::Equal, *lease),
            // etcd compares every key of a range, and an empty range as a key that does not exist.
            Compare::NoneIn(prefix) => {
                Etcd::create_revision(self.full(prefix), CompareOp::Equal, 0).with_prefix()
            }
            Compare::NoneNewer(prefix, revision) => {
                Etcd::mod_revision(self.full(prefix), CompareOp::Less, *revision + 1).with_prefix()
            }
            Compare::NoClaims { limit, from, below } => {
                let key = |number| self.full(Key::Claim(limit.clone(), number));
                Etcd::create_revision(key(*from), CompareOp::Equal, 0).with_range(key(*below))
            }
        }
    }

    fn operation_of(&self, operation: &Operation) -> TxnOp {
        match operation {
            Operation::Put { key, value, lease } => {
                let options = (*lease != 0).then(|| PutOptions::new().with_lease(*lease));
                TxnOp::put(self.full(key), value.as_slice(), options)
            }
            Operation::PutIfAbsent { key, value } => {
                let absent = self.compare_of(&Compare::absent(key.clone()));
                let put = TxnOp::put(self.full(key), value.as_slice(), None);
                TxnOp::txn(Txn::new().when([absent]).and_then([put]))
            }
            Operation::Delete(key) => TxnOp::delete(self.full(key), None),
            Operation::DeleteAll(range) => {
                TxnOp::delete(self.full(range), Some(DeleteOptions::new().with_prefix()))
            }
        }
    }
}
