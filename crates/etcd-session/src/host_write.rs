//! The transactions of a host: start, done, withdraw, report. Each is fenced: it compares the
//! revisions of the host's own claim and of the store's identity, so a host that lost either writes
//! nothing.

use crate::error::{Class, StoreError};
use crate::key_snapshot::KeySnapshot;
use crate::request::{Deadline, Repeat};
use crate::session::Session;
use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp};
use schema::keys::{Key, StatusState};
use schema::names::{HostName, StatusType, Token, Version};
use schema::records::{Report, StatusRecord};
use schema::time::EpochSeconds;
use schema::{codec, records};

/// Revisions that every transaction of a host compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fence {
    /// Revision of the host's claim `/orchestrate/live/<host>`.
    pub live_revision: i64,
    /// Revision of `/orchestrate/store`; 0 if the key does not exist.
    pub store_revision: i64,
}

/// What a transaction does with the listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listing {
    /// Leaves the listing unchanged.
    Keep,
    /// Removes the listing.
    Remove,
    /// Lists the host under this version, since this time, and under no other version.
    Set(Version, EpochSeconds),
}

/// One transaction of a host. It always includes the report, because the host recognises its own
/// write by the report's `write_id` after a lost answer.
#[derive(Debug, Clone)]
pub struct HostWrite<'a> {
    /// Name of the host that writes.
    pub host: &'a HostName,
    /// Live lease, for keys that must be deleted when the host's agent ends.
    pub lease: i64,
    /// Revisions that must be unchanged.
    pub fence: Fence,
    /// Revision that `/current_version` must still have, if given. The start transaction uses it.
    pub target_revision: Option<i64>,
    /// Version under which the host is believed to be listed now. The transaction compares it. If
    /// it is wrong, the transaction is repeated with the version found.
    pub listed: Option<&'a Version>,
    /// Change of the listing.
    pub listing: Listing,
    /// Results to write. Each written state removes the other states of its type.
    pub statuses: Vec<(StatusType, StatusState, StatusRecord)>,
    /// Report to write with the transaction.
    pub report: &'a Report,
}

/// The comparison by which a transaction failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteRefusal {
    /// The claim no longer belongs to this agent.
    Claim,
    /// The store's identity changed.
    Store,
    /// `/current_version` changed.
    Target,
}

/// Outcome of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// The transaction was committed at this revision.
    Done(i64),
    /// A comparison failed, so nothing was written.
    Refused(WriteRefusal),
}

impl Session {
    /// Creates the store's identity, unless it already exists.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn claim_store(&self, deadline: Deadline) -> Result<(), StoreError> {
        let key = self.full(Key::Store);
        let identity =
            codec::write(&records::StoreIdentity { lineage: crate::random::random_token(), epoch: 0 });
        // Only the first write creates the identity, so a repeated attempt does no harm.
        self.call("create the store's identity", Repeat::Freely, deadline, |mut client| {
            let absent = Compare::version(key.clone(), CompareOp::Equal, 0);
            let txn = Txn::new().when([absent]).and_then([TxnOp::put(key.clone(), identity.clone(), None)]);
            async move { client.txn(txn).await }
        })
        .await
        .map(|_| ())
    }

    /// Commits a transaction of a host. After a lost answer it reads back and recognises its own
    /// write; if the write was not applied, it is repeated.
    ///
    /// # Errors
    /// Returns the store's error; it is of class [`Class::Unknown`] if the deadline passed before
    /// an answer arrived.
    pub async fn write_host(&self, write: &HostWrite<'_>, deadline: Deadline) -> Result<Written, StoreError> {
        let host = write.host;
        let keys = [
            Key::Announced(host.clone()),
            Key::Live(host.clone()),
            Key::Store,
            Key::CurrentVersion,
            Key::Report(host.clone()),
        ];
        let reads: Vec<TxnOp> = keys.iter().map(|key| TxnOp::get(self.full(key), None)).collect();
        let mut listed = write.listed.map(|version| version.as_str().as_bytes().to_vec());
        loop {
            let (compares, operations) = self.host_transaction(write, listed.as_deref());
            let answer = self
                .call("write the host's state", Repeat::IfNotApplied, deadline, |mut client| {
                    let txn = Txn::new().when(compares.clone()).and_then(operations.clone());
                    let txn = txn.or_else(reads.clone());
                    async move { client.txn(txn).await }
                })
                .await;
            let mut snapshot = KeySnapshot::default();
            match answer {
                Ok(answer) if answer.succeeded() => {
                    let revision = answer.header().map_or(0, |h| h.revision());
                    self.note_revision(revision);
                    return Ok(Written::Done(revision));
                }
                Ok(refused) => self.merge(&refused, &mut snapshot)?,
                Err(error) if error.class() == Class::Unknown && !deadline.left().is_zero() => {
                    tracing::debug!(%error, "the answer was lost, reading the keys back");
                    snapshot = self.read_keys(&keys, deadline).await?;
                }
                Err(error) => return Err(error),
            }
            if let Some(revision) = own_write(&snapshot, &keys[4], &write.report.write_id) {
                self.note_revision(revision);
                return Ok(Written::Done(revision));
            }
            let revision_of = |key: &Key| snapshot.get(key).map_or(0, |e| e.mod_revision);
            if revision_of(&keys[1]) != write.fence.live_revision {
                return Ok(Written::Refused(WriteRefusal::Claim));
            }
            if revision_of(&keys[2]) != write.fence.store_revision {
                return Ok(Written::Refused(WriteRefusal::Store));
            }
            if write.target_revision.is_some_and(|r| r != revision_of(&keys[3])) {
                return Ok(Written::Refused(WriteRefusal::Target));
            }
            // The transaction was not applied yet, or the listing was not as expected: repeat it
            // with the listing found now.
            listed = snapshot.get(&keys[0]).map(|entry| entry.value.clone());
        }
    }

    fn host_transaction(&self, write: &HostWrite<'_>, listed: Option<&[u8]>) -> (Vec<Compare>, Vec<TxnOp>) {
        let host = write.host;
        let revision_is =
            |key: Key, revision| Compare::mod_revision(self.full(key), CompareOp::Equal, revision);
        let mut compares = vec![
            revision_is(Key::Live(host.clone()), write.fence.live_revision),
            revision_is(Key::Store, write.fence.store_revision),
        ];
        if let Some(revision) = write.target_revision {
            compares.push(revision_is(Key::CurrentVersion, revision));
        }
        let report = self.full(Key::Report(host.clone()));
        let mut operations = vec![TxnOp::put(report, write.report.write_bounded(), None)];
        if write.listing != Listing::Keep {
            self.add_listing(write, listed, &mut compares, &mut operations);
        }
        add_statuses(self, host, &write.statuses, &mut operations);
        (compares, operations)
    }

    fn add_listing(
        &self,
        write: &HostWrite<'_>,
        listed: Option<&[u8]>,
        compares: &mut Vec<Compare>,
        operations: &mut Vec<TxnOp>,
    ) {
        let host = write.host;
        let announced = self.full(Key::Announced(host.clone()));
        compares.push(match listed {
            Some(value) => Compare::value(announced.clone(), CompareOp::Equal, value),
            None => Compare::version(announced.clone(), CompareOp::Equal, 0),
        });
        let new = if let Listing::Set(version, _) = &write.listing { Some(version) } else { None };
        let old = listed.and_then(|value| codec::read_version(value).ok());
        if let Some(old) = old.filter(|old| Some(old) != new) {
            operations.push(TxnOp::delete(self.full(Key::RunningVersion(old, host.clone())), None));
        }
        match &write.listing {
            Listing::Set(version, at) => {
                let under_lease = || Some(PutOptions::new().with_lease(write.lease));
                let listing = self.full(Key::RunningVersion(version.clone(), host.clone()));
                operations.push(TxnOp::put(listing, at.0.to_string(), under_lease()));
                operations.push(TxnOp::put(announced, version.as_str(), under_lease()));
            }
            _ if listed.is_some() => operations.push(TxnOp::delete(announced, None)),
            _ => {}
        }
    }
}

/// Adds the operations that write results. Each written state deletes the other states of its type,
/// by exact key.
pub(crate) fn add_statuses(
    session: &Session,
    host: &HostName,
    statuses: &[(StatusType, StatusState, StatusRecord)],
    operations: &mut Vec<TxnOp>,
) {
    for (kind, state, record) in statuses {
        for other in StatusState::ALL {
            let key = session.full(Key::Status(kind.clone(), other, host.clone()));
            operations.push(if other == *state {
                TxnOp::put(key, codec::write(record), None)
            } else {
                TxnOp::delete(key, None)
            });
        }
    }
}

fn own_write(snapshot: &KeySnapshot, report: &Key, write_id: &Token) -> Option<i64> {
    let entry = snapshot.get(report)?;
    let found: Report = codec::read(&entry.value).ok()?;
    (found.write_id == *write_id).then_some(entry.mod_revision)
}
