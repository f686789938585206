//! Commits the transactions of a host, and finds out what became of one whose answer was lost.

use crate::commit::Committed;
use crate::error::{Class, StoreError};
use crate::request::Deadline;
use crate::session::Session;
use schema::frozen::FrozenBy;
use schema::snapshot::KeySnapshot;
use schema::transaction::Transaction;
use schema::writes::WriteRefusal;
use schema::writes::claim::create_identity;
use schema::writes::host::{ExpectedKeys, HostWrite, Outcome};
use schema::writes::services::ServiceWrite;

/// Outcome of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// The transaction was committed at this revision.
    Done(i64),
    /// A comparison failed, so nothing was written.
    Refused(WriteRefusal),
}

/// Outcome of a transaction of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostWritten {
    /// The transaction was committed at this revision.
    Done(i64),
    /// A comparison failed, so nothing was written.
    Refused(WriteRefusal),
    /// A freeze stood at this revision, so the host did not start.
    Frozen(FrozenBy, i64),
    /// At this revision the rollout was not as the host knew it, or somebody else held a claim that the
    /// host wanted.
    HeldBack(i64),
}

impl Session {
    /// Creates the store's identity, unless it already exists.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn claim_store(&self, deadline: Deadline) -> Result<(), StoreError> {
        let identity = schema::records::StoreIdentity::new(crate::random::random_token(), 0);
        self.commit(&create_identity(&identity), deadline).await.map(drop)
    }

    /// Commits a transaction of a host. After a lost answer it reads back and recognises its own
    /// write; if the write was not applied, it is repeated. If the keys are not the expected ones, the
    /// transaction is repeated with those found. Also returns what the transaction read, if it read
    /// all that it was to read and its answer was not lost.
    ///
    /// # Errors
    /// Returns the store's error; it is of class [`Class::Unknown`] if the deadline passed before
    /// an answer arrived.
    pub async fn write_host(
        &self,
        write: &HostWrite<'_>,
        mut expected: ExpectedKeys,
        deadline: Deadline,
    ) -> Result<(HostWritten, Option<KeySnapshot>), StoreError> {
        loop {
            let outcome;
            let mut is_read = false;
            let found = match self.commit(&write.transaction(&expected), deadline).await {
                Ok(Committed { applied: true, revision, found, is_whole }) => {
                    let found = if is_whole { Some(found) } else { None };
                    return Ok((HostWritten::Done(revision), found));
                }
                Ok(refused) => {
                    outcome = write.refused(&expected, &refused.found);
                    is_read = refused.is_whole;
                    refused.found
                }
                Err(error) if error.class() == Class::Unknown && !deadline.left().is_zero() => {
                    tracing::debug!(%error, "the answer was lost, reading the keys back");
                    let found = self.read_keys(&write.keys_to_judge(&expected), deadline).await?;
                    outcome = write.outcome(&expected, &found);
                    found
                }
                Err(error) => {
                    if matches!(error, StoreError::NoSpace { .. }) {
                        self.take_back(write.retraction(&expected), deadline).await;
                    }
                    return Err(error);
                }
            };
            let written = match outcome {
                Outcome::Applied(revision) => {
                    self.note_revision(revision);
                    HostWritten::Done(revision)
                }
                Outcome::Refused(refusal) => HostWritten::Refused(refusal),
                Outcome::Frozen(by) => HostWritten::Frozen(by, found.revision),
                Outcome::HeldBack => HostWritten::HeldBack(found.revision),
                Outcome::Repeat(found) => {
                    expected = found;
                    continue;
                }
            };
            return Ok((written, if is_read { Some(found) } else { None }));
        }
    }

    /// Commits a transaction that changes services of a host.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn write_services(
        &self,
        write: &ServiceWrite<'_>,
        deadline: Deadline,
    ) -> Result<Written, StoreError> {
        let committed = self.commit(&write.transaction(), deadline).await?;
        Ok(if committed.applied {
            Written::Done(committed.revision)
        } else {
            Written::Refused(write.refusal(&committed.found))
        })
    }

    /// Deletes the health of the services that the write makes worse, for a store that is full. Returns true if
    /// the store does not say any more that they work.
    pub async fn take_back_health(&self, write: &ServiceWrite<'_>, deadline: Deadline) -> bool {
        self.take_back(write.retraction(), deadline).await
    }

    /// Takes back what is not true any more in a store that accepts no puts, but deletes keys. Returns true if that
    /// was done. What it does not take back ends with the live lease, so an error is only logged.
    async fn take_back(&self, retraction: Option<Transaction>, deadline: Deadline) -> bool {
        let Some(retraction) = retraction else { return true };
        match self.commit(&retraction, deadline).await {
            Ok(committed) => {
                tracing::debug!(committed.applied, what = retraction.name, "taken back");
                committed.applied
            }
            Err(error) => {
                tracing::debug!(%error, "what is not true any more could not be taken back");
                false
            }
        }
    }
}
