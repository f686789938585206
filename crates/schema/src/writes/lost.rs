//! The transactions by which hosts look after others: one whose agent does not run is marked. After a time its claims
//! end, and it counts as failed in its rollout. Time is counted by the store, as the life of a lease.

use super::claims::{ClaimsChange, FoundClaims};
use crate::codec;
use crate::keys::{self, Key};
use crate::limit::Limit;
use crate::names::HostName;
use crate::order::InstructionOrder;
use crate::records::{FailedHost, FailureKind, HostClaims, LostMark, SCRIPT_INSTANCE};
use crate::snapshot::KeySnapshot;
use crate::time::Span;
use crate::transaction::{Compare, Transaction};

/// Returns the transaction that marks a holder whose agent does not run. `found` holds `claimed`, mark and
/// timer of the host.
pub fn mark_lost(host: &HostName, mark: &LostMark, found: &KeySnapshot) -> Transaction {
    let mut transaction = if_absent("mark a host that vanished", host, found);
    transaction.put(Key::LostMark(host.clone()), codec::write(mark), 0);
    transaction
}

/// Returns the transaction that starts the timer of a marked holder. `timer` is a lease of the time after
/// which the holder is lost. It was granted after the mark was found, and an agent that comes back deletes
/// the mark: so the whole life of the lease is time in which no agent ran, however late this arrives.
/// `found` holds `claimed`, mark and timer of the host.
pub fn time_lost(host: &HostName, mark: LostMark, timer: i64, found: &KeySnapshot) -> Transaction {
    let mut transaction = if_absent("start the timer of a host that vanished", host, found);
    compare_mark(&mut transaction, host, found);
    transaction.put(Key::LostMark(host.clone()), codec::write(&LostMark { timed: true, ..mark }), 0);
    transaction.put(Key::LostTimer(host.clone()), "", timer);
    transaction
}

/// Returns the transaction that ends the claims of a lost host, which counts as failed in its rollout; `None`
/// if they cannot be read. Claims that count failed hosts stay. `found` holds `claimed`, mark, timer
/// and failure of the host.
pub fn end_claims(host: &HostName, found: &KeySnapshot) -> Option<Transaction> {
    let old = FoundClaims::read(host, found);
    let before = old.claims.clone()?;
    let claims = before.claims.iter().filter(|claim| claim.keep_failed).cloned().collect();
    // Nobody knows whether a script that takes long failed.
    let counts = before.is_for_update() && before.instance.as_str() != SCRIPT_INSTANCE;
    let failed = if counts {
        let reason = format!("its agent did not run for {}", before.lost_after);
        let mark = found.value_of(keys::LostMark(host.clone()));
        let at = mark.map_or(before.since, |mark| mark.at);
        let failed =
            FailedHost { at, kind: FailureKind::Lost, reason, cause: None, healed: false, again: None };
        Some(over_earlier(failed, before.rollout, host, found))
    } else {
        None
    };
    let order = before.rollout;
    let new = HostClaims { claims, ticket: None, lost: true, ..before };
    let mut transaction = if_absent("end the claims of a lost host", host, found);
    if let Some(failed) = failed {
        transaction.put(Key::Failed(order, host.clone()), codec::write(&failed), 0);
    }
    compare_mark(&mut transaction, host, found);
    ClaimsChange { host, new: &new, old: &old }.add_to(&mut transaction);
    transaction.delete(Key::LostMark(host.clone()));
    Some(transaction)
}

/// Returns the failure of a host in a rollout as it is written over an earlier one, if there is one that can be read.
fn over_earlier(
    failed: FailedHost,
    order: InstructionOrder,
    host: &HostName,
    found: &KeySnapshot,
) -> FailedHost {
    let Some(entry) = found.get(&Key::Failed(order, host.clone())) else { return failed };
    match keys::Failed::read(&entry.value) {
        Ok(before) => failed.over(&before, entry.mod_revision),
        Err(_) => failed,
    }
}

/// Returns the keys, besides its claims, from which it follows that a host that vanished counts as failed in a rollout
/// in which it was proven: what the host itself said there, and what operators said of it.
pub fn judged_by(order: InstructionOrder, host: &HostName) -> [Key; 4] {
    let host = || host.clone();
    [Key::Progress(order, host()), Key::Failed(order, host()), Key::Host(host()), Key::Maintenance(host())]
}

/// Returns the transaction that counts a host as failed which was proven in a rollout and has not run since for this
/// time, if the rollout has not ended; `None` if nobody marked it. `found` holds the keys of [`judged_by`], and
/// `claimed`, mark and timer of the host.
pub fn charge_vanished(
    host: &HostName,
    order: InstructionOrder,
    lost_after: Span,
    found: &KeySnapshot,
) -> Option<Transaction> {
    let mark = found.value_of(keys::LostMark(host.clone()))?;
    let reason = format!("its agent has not run for {lost_after} since its proof");
    let failed =
        FailedHost { at: mark.at, kind: FailureKind::Lost, reason, cause: None, healed: false, again: None };
    let failed = over_earlier(failed, order, host, found);
    let mut transaction = if_absent("count a host that vanished after its proof", host, found);
    compare_mark(&mut transaction, host, found);
    for key in judged_by(order, host) {
        let revision = found.revision_of(&key);
        transaction.compares.push(Compare::Revision(key, revision));
    }
    transaction.compares.push(Compare::absent(Key::Ended(order)));
    transaction.put(Key::Failed(order, host.clone()), codec::write(&failed), 0);
    transaction.delete(Key::LostMark(host.clone()));
    Some(transaction)
}

/// Returns the transaction that moves a claim of any host to a lower number that is free; `None` if the
/// claims of the host cannot be read, or do not have the number. So a limit whose highest numbers are held
/// counts again only as many hosts as there are. A ticket of the host is written again only if its lease is
/// that of the running agent: a put with a lease that has ended fails. `found` holds `claimed` and `live` of
/// the host.
pub fn move_claim(
    host: &HostName,
    limit: &Limit,
    from: u32,
    to: u32,
    found: &KeySnapshot,
) -> Option<Transaction> {
    let old = FoundClaims::read(host, found);
    let mut new = old.claims.clone()?;
    let claim = new.claims.iter_mut().find(|claim| (&claim.limit, claim.number) == (limit, from))?;
    claim.number = to;
    let live_lease = found.get(&Key::Live(host.clone())).map(|entry| entry.lease);
    new.ticket = new.ticket.filter(|ticket| Some(ticket.lease) == live_lease);
    let mut transaction = Transaction::idempotent("move a claim to a lower number");
    ClaimsChange { host, new: &new, old: &old }.add_to(&mut transaction);
    Some(transaction)
}

/// Returns a transaction that is applied only if no agent of the host runs, and its mark, its timer and
/// its claims are as found.
fn if_absent(name: &'static str, host: &HostName, found: &KeySnapshot) -> Transaction {
    let mut transaction = Transaction::idempotent(name).when(Compare::absent(Key::Live(host.clone())));
    for key in [Key::Claimed, Key::LostMark, Key::LostTimer].map(|make| make(host.clone())) {
        let revision = found.revision_of(&key);
        transaction.compares.push(Compare::Revision(key, revision));
    }
    transaction
}

/// Compares the value of the mark besides its revision: a restored store uses its revisions again.
fn compare_mark(transaction: &mut Transaction, host: &HostName, found: &KeySnapshot) {
    let key = Key::LostMark(host.clone());
    if let Some(entry) = found.get(&key) {
        transaction.compares.push(Compare::Value(key, entry.value.clone()));
    }
}
