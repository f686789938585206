//! The transactions by which a host takes claims for something else than an update, and gives them back.

use super::Fence;
use super::claims::{ClaimsChange, FoundClaims};
use super::host::StartGuard;
use crate::names::HostName;
use crate::records::{HostClaims, Purpose};
use crate::snapshot::KeySnapshot;
use crate::transaction::Transaction;

/// Returns the transaction by which a host takes claims, if nothing forbids it and they are free. `found`
/// holds those that it has.
pub fn take_claims(
    host: &HostName,
    fence: Fence,
    guard: &StartGuard,
    new: &HostClaims,
    found: &KeySnapshot,
) -> Transaction {
    let mut transaction = Transaction::idempotent("take claims");
    fence.add_to(&mut transaction, host);
    guard.add_to(host, &mut transaction);
    let old = FoundClaims::read(host, found);
    ClaimsChange { host, new, old: &old }.add_to(&mut transaction);
    transaction
}

/// Returns the transaction that ends a purpose, and with the last one the claims; `None` if the host holds
/// no claims for it.
pub fn end_purpose(
    host: &HostName,
    fence: Fence,
    purpose: &Purpose,
    found: &KeySnapshot,
) -> Option<Transaction> {
    let old = FoundClaims::read(host, found);
    let mut new = old.claims.clone().filter(|claims| claims.purposes.contains(purpose))?;
    new.end(purpose);
    let mut transaction = Transaction::idempotent("give claims back");
    fence.add_to(&mut transaction, host);
    ClaimsChange { host, new: &new, old: &old }.add_to(&mut transaction);
    Some(transaction)
}
