//! The transactions by which an agent claims the name of its host, and by which the first agent
//! gives the store its identity.

use crate::codec;
use crate::keys::{self, Key, Prefix};
use crate::names::HostName;
use crate::records::{LiveClaim, NameClash, RosterEntry, StoreIdentity};
use crate::snapshot::{Entry, KeySnapshot};
use crate::transaction::{Compare, Operation, Transaction};

/// A claim of a host's name.
#[derive(Debug, Clone)]
pub struct ClaimWrite<'a> {
    /// Name of the host to claim.
    pub host: &'a HostName,
    /// Value of the claim.
    pub claim: &'a LiveClaim,
    /// Entry that is written to the roster if the host is not on it.
    pub roster: &'a RosterEntry,
    /// Live lease, to which the claim is attached.
    pub lease: i64,
    /// True if the claim under this lease already exists and is resumed.
    pub resumed: bool,
    /// Revision of `/orchestrate/store`; 0 if the key does not exist.
    pub store_revision: i64,
}

impl ClaimWrite<'_> {
    /// Returns the transaction that claims the name if the claim is still as it was found. A claim
    /// under a new lease also deletes the old listing, whose version was proven before this claim.
    ///
    /// The transaction has no operations if it resumes a claim that is complete: its comparisons
    /// alone prove that the claim is still ours, so a restart writes nothing.
    pub fn transaction(&self, found: &KeySnapshot) -> Transaction {
        let (live, roster) = (Key::Live(self.host.clone()), Key::Host(self.host.clone()));
        // A repetition after a lost answer writes the same values under the same lease, or it is
        // refused and the claim is read again.
        let mut transaction = Transaction::idempotent("claim the name")
            .when(Compare::Revision(live.clone(), found.revision_of(&live)))
            .when(Compare::Revision(Key::Store, self.store_revision));
        let claim = codec::write(self.claim);
        let says_so = found.get(&live).is_some_and(|entry| entry.value == claim.as_bytes());
        let of_script = of_script(found.get(&roster));
        if self.resumed && says_so && found.get(&roster).is_some() && of_script.is_none() {
            return transaction.when(Compare::Lease(live, self.lease));
        }
        transaction.put(live, claim, self.lease);
        match of_script {
            Some((revision, before)) => {
                let role = self.roster.role.clone().or(before.role);
                let entry = RosterEntry { role, since: before.since, ..self.roster.clone() };
                transaction.compares.push(Compare::Revision(roster.clone(), revision));
                transaction.put(roster, codec::write(&entry), 0);
            }
            None => {
                let value = codec::write(self.roster).into_bytes();
                transaction.operations.push(Operation::PutIfAbsent { key: roster, value });
            }
        }
        let announced = Key::Announced(self.host.clone());
        if self.resumed {
            return transaction;
        }
        // A host that is back is not lost. Nobody marks hosts in a store without brakes, in which older
        // grants are enough.
        let identity = found.value_of(keys::Store);
        if identity.is_some_and(|identity| identity.has_brakes) {
            transaction.delete(Key::LostMark(self.host.clone()));
        }
        // A write under the old claim may have listed the host since it was read.
        transaction.compares.push(Compare::Revision(announced.clone(), found.revision_of(&announced)));
        if let Some(entry) = found.get(&announced) {
            transaction.delete(announced);
            if let Ok(version) = codec::read_version(&entry.value) {
                transaction.delete(Key::RunningVersion(version, self.host.clone()));
            }
        }
        transaction
    }
}

/// Returns the entry by which scripts of the host put it on the roster, and its revision; `None` if an agent or an
/// operator wrote the entry.
fn of_script(entry: Option<&Entry>) -> Option<(i64, RosterEntry)> {
    let entry = entry?;
    let roster = keys::Host::read(&entry.value).ok()?;
    (roster.from_script && roster.decommissioned.is_none()).then_some((entry.mod_revision, roster))
}

/// Returns the transaction by which an agent says that another one, whose claim has this revision, lives under the name
/// of its host.
pub fn note_clash(host: &HostName, clash: &NameClash, live_revision: i64, lease: i64) -> Transaction {
    let key = Key::NameClash(host.clone());
    // A third agent may have said it already. A repetition finds the key.
    let mut transaction = Transaction::idempotent("say that the host name is taken")
        .when(Compare::Revision(Key::Live(host.clone()), live_revision))
        .when(Compare::absent(key.clone()));
    transaction.put(key, codec::write(clash), lease);
    transaction
}

/// Returns the transaction that creates the store's identity, unless it already exists.
pub fn create_identity(identity: &StoreIdentity) -> Transaction {
    // Only the first write creates the identity, so a repeated attempt does no harm. An identity without
    // brakes must not stand beside a freeze or a policy.
    let mut transaction = Transaction::idempotent("create the store's identity")
        .when(Compare::absent(Key::Store))
        .when(Compare::NoneIn(Prefix::Freezes))
        .when(Compare::absent(Key::RolloutPolicy));
    transaction.put(Key::Store, identity.write(), 0);
    transaction
}
