//! The claims of a host and its ticket, as a part of the host's transactions. All claims of a host are
//! written together with `/orchestrate/claimed/<host>`, so they have its revision, and a claim with
//! another revision is not the host's any more.

use crate::codec;
use crate::keys::{self, Key, Prefix};
use crate::limit::{CLAIM_NUMBERS, Limit};
use crate::names::HostName;
use crate::order::InstructionOrder;
use crate::records::{HeldClaim, HostClaims, LimitClaim, Ticket};
use crate::snapshot::KeySnapshot;
use crate::transaction::{Compare, Transaction};

/// The claims of a host and its ticket, as found in the store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FoundClaims {
    /// The value; `None` if there is none, or if it cannot be read.
    pub claims: Option<HostClaims>,
    /// Revision of `/orchestrate/claimed/<host>`; 0 if it does not exist.
    pub revision: i64,
}

impl FoundClaims {
    /// Reads the claims of a host.
    pub fn read(host: &HostName, found: &KeySnapshot) -> Self {
        let Some(entry) = found.get(&Key::Claimed(host.clone())) else { return Self::default() };
        Self { claims: keys::Claimed::read(&entry.value).ok(), revision: entry.mod_revision }
    }

    pub fn held(&self) -> &[HeldClaim] {
        self.claims.as_ref().map_or(&[], |found| &found.claims)
    }

    pub fn ticket(&self) -> Option<&Ticket> {
        self.claims.as_ref()?.ticket.as_ref()
    }

    /// Leaves out claims whose keys were read, and turned out to be gone or another host's.
    fn without_lost(mut self, read: &[Key], found: &KeySnapshot) -> Self {
        if let Some(claims) = &mut self.claims {
            claims.claims.retain(|claim| {
                let key = claim.key();
                !read.contains(&key) || found.revision_of(&key) == self.revision
            });
        }
        self
    }
}

impl HeldClaim {
    /// Returns the key of the claim.
    pub fn key(&self) -> Key {
        Key::Claim(self.limit.clone(), self.number)
    }
}

impl Ticket {
    /// Returns the key of the ticket of this host.
    pub fn key(&self, host: &HostName) -> Key {
        Key::Ticket(self.rollout, self.limit.clone(), self.place, host.clone())
    }
}

/// What the start transaction compares of its rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RolloutGuard {
    pub order: InstructionOrder,
    /// Revision that the record of the rollout must have; 0 if there must be none.
    pub record_revision: i64,
    /// Revision that the policy must have if there is no record; 0 if there must be none.
    pub policy_revision: i64,
    /// The limits of which the host takes a new claim, and how many hosts of each may be unavailable.
    pub limits: Vec<(Limit, u32)>,
    /// True if a halt of the rollout matters: it is about the version, and not about other work on the host.
    pub checks_halt: bool,
    /// The revision at which the failed hosts were counted: none may have been written since. `None` if
    /// they do not matter.
    pub failures_read_at: Option<i64>,
    /// The key that says that the stage of the host is open, and its revision. `None` if the first stage is its
    /// own, or no stage matters.
    pub stage: Option<(Key, i64)>,
}

impl RolloutGuard {
    /// Adds the comparisons.
    pub(super) fn add_to(&self, transaction: &mut Transaction) {
        let Self { order, record_revision, policy_revision, limits, checks_halt, failures_read_at, stage } =
            self;
        transaction.compares.push(Compare::Revision(Key::RolloutRecord(*order), *record_revision));
        if *record_revision == 0 {
            transaction.compares.push(Compare::Revision(Key::RolloutPolicy, *policy_revision));
        }
        if *checks_halt {
            transaction.compares.push(Compare::absent(Key::Halt(*order)));
        }
        if let Some(failures_read_at) = failures_read_at {
            let failed = Prefix::FailedOf(*order);
            transaction.compares.push(Compare::NoneNewer(failed.clone(), *failures_read_at));
            transaction.read_ranges.push(failed);
        }
        if let Some((key, revision)) = stage {
            transaction.compares.push(Compare::Revision(key.clone(), *revision));
        }
        for (limit, max) in limits {
            let (limit, from) = (limit.clone(), *max);
            transaction.compares.push(Compare::NoClaims { limit: limit.clone(), from, below: CLAIM_NUMBERS });
            transaction.read_ranges.push(Prefix::ClaimsOf(limit));
        }
    }

    /// Returns the keys from which [`Self::is_broken`] judges.
    pub(super) fn keys(&self) -> Vec<Key> {
        let keys = vec![Key::RolloutRecord(self.order), Key::RolloutPolicy, Key::Halt(self.order)];
        keys.into_iter().chain(self.stage.iter().map(|(key, _)| key.clone())).collect()
    }

    /// True if a comparison does not hold in what was found. `claims` are those that the host wants.
    pub(super) fn is_broken(
        &self,
        host: &HostName,
        claims: Option<&HostClaims>,
        found: &KeySnapshot,
    ) -> bool {
        let record = found.revision_of(&Key::RolloutRecord(self.order));
        let policy = found.revision_of(&Key::RolloutPolicy);
        if record != self.record_revision || record == 0 && policy != self.policy_revision {
            return true;
        }
        if self.stage.as_ref().is_some_and(|(key, revision)| found.revision_of(key) != *revision) {
            return true;
        }
        let is_newer = |(key, entry): (&String, &crate::snapshot::Entry)| {
            let is_failed = matches!(Key::parse(key), Ok(Key::Failed(order, _)) if order == self.order);
            is_failed
                && self.failures_read_at.is_some_and(|failures_read_at| entry.mod_revision > failures_read_at)
        };
        let is_halted = self.checks_halt && found.get(&Key::Halt(self.order)).is_some();
        if is_halted || found.entries.iter().any(is_newer) {
            return true;
        }
        let is_of_other = |entry: &crate::snapshot::Entry| {
            keys::Claim::read(&entry.value).map_or(true, |claim| claim.host != *host)
        };
        self.limits.iter().any(|(limit, max)| {
            let wanted = claims.and_then(|claims| claims.number_of(limit));
            found.entries.iter().any(|(key, entry)| match Key::parse(key) {
                Ok(Key::Claim(of, number)) if of == *limit => {
                    (number >= *max || Some(number) == wanted) && is_of_other(entry)
                }
                _ => false,
            })
        })
    }
}

/// A change of a host's claims and ticket.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClaimsChange<'a> {
    pub(super) host: &'a HostName,
    /// What the host wants to have from now on.
    pub(super) new: &'a HostClaims,
    pub(super) old: &'a FoundClaims,
}

impl ClaimsChange<'_> {
    /// Adds the change. Nothing is deleted or replaced unless it is still as it was found.
    pub(super) fn add_to(self, transaction: &mut Transaction) {
        let Self { host, new, old } = self;
        let key = Key::Claimed(host.clone());
        transaction.compares.push(Compare::Revision(key.clone(), old.revision));
        for claim in old.held() {
            transaction.compares.push(Compare::Revision(claim.key(), old.revision));
            if new.number_of(&claim.limit) != Some(claim.number) {
                transaction.delete(claim.key());
            }
        }
        let is_held = |claim: &HeldClaim| {
            old.held().iter().any(|held| (&held.limit, held.number) == (&claim.limit, claim.number))
        };
        for claim in &new.claims {
            if !is_held(claim) {
                transaction.compares.push(Compare::absent(claim.key()));
            }
            let HostClaims { instance, rollout, since, purposes, .. } = new;
            let value = LimitClaim {
                host: host.clone(),
                instance: instance.clone(),
                rollout: *rollout,
                since: *since,
                purposes: purposes.clone(),
            };
            transaction.put(claim.key(), codec::write(&value), 0);
        }
        let tickets = [old.ticket(), new.ticket.as_ref()].map(|ticket| ticket.map(|ticket| ticket.key(host)));
        let [old_ticket, new_ticket] = tickets;
        if let Some(ticket) = old_ticket.filter(|ticket| new_ticket.as_ref() != Some(ticket)) {
            transaction.delete(ticket);
        }
        if let (Some(key), Some(ticket)) = (new_ticket, &new.ticket) {
            transaction.put(key, "", ticket.lease);
        }
        if !new.is_empty() {
            transaction.put(key, codec::write(new), 0);
        } else if old.revision != 0 {
            transaction.delete(key);
        }
    }
}

/// Returns the keys from which [`found_claims`] tells what the host has.
pub(super) fn claim_keys(host: &HostName, expected: &FoundClaims, new: Option<&HostClaims>) -> Vec<Key> {
    let new = new.map_or(&[][..], |new| &new.claims);
    let mut keys: Vec<Key> = expected.held().iter().chain(new).map(HeldClaim::key).collect();
    keys.sort();
    keys.dedup();
    keys.push(Key::Claimed(host.clone()));
    keys
}

/// Returns the claims that the host has. `read` are the keys that were read.
pub(super) fn found_claims(host: &HostName, read: &[Key], found: &KeySnapshot) -> FoundClaims {
    FoundClaims::read(host, found).without_lost(read, found)
}

/// Adds the deletion of a host's claims and ticket, if they are still as they were found. With `may_return`,
/// the host finds out that they were released. `found` holds the claims of all hosts.
pub(super) fn delete_claims(
    transaction: &mut Transaction,
    host: &HostName,
    may_return: bool,
    found: &KeySnapshot,
) {
    let key = Key::Claimed(host.clone());
    let claims = FoundClaims::read(host, found);
    transaction.compares.push(Compare::Revision(key.clone(), claims.revision));
    // The claims themselves say whose they are, also if the host's own list cannot be read.
    for (key, entry) in &found.entries {
        let Ok(claim @ Key::Claim(..)) = Key::parse(key) else { continue };
        if keys::Claim::read(&entry.value).is_ok_and(|claim| claim.host == *host) {
            transaction.compares.push(Compare::Revision(claim.clone(), entry.mod_revision));
            transaction.delete(claim);
        }
    }
    if claims.revision == 0 {
        return;
    }
    if let Some(ticket) = claims.ticket() {
        transaction.delete(ticket.key(host));
    }
    match claims.claims {
        Some(before) if may_return => {
            let none = HostClaims::none(before.instance, before.rollout, before.since);
            transaction.put(key, codec::write(&HostClaims { released: true, ..none }), 0);
        }
        _ => transaction.delete(key),
    }
}
