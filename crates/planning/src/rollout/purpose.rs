//! Claims for something else than an update: a reboot, or a command of an operator. They are held under
//! the limits of the current rollout; where it has no record, under those that the policy has now.

use super::holders::Holders;
use super::resolve::limits_of_policy;
use super::view::{Obstacle, RolloutView, Rules, Times, first_reads, ranges_of_limits, record_of};
use crate::rollout::Need;
use schema::instruction::Epoch;
use schema::keys::{Key, Prefix};
use schema::limit::Place;
use schema::names::{HostName, Token};
use schema::order::InstructionOrder;
use schema::records::{HeldClaim, HostClaims, LOST_AFTER, PURPOSES_MAX, Purpose, ResolvedLimit};
use schema::snapshot::KeySnapshot;
use schema::time::{BootMillis, EpochSeconds};
use schema::transaction::Transaction;
use schema::writes::Fence;
use schema::writes::claims::FoundClaims;
use schema::writes::host::StartGuard;
use schema::writes::purpose::take_claims;
use std::collections::BTreeSet;

/// Whoever asks for a reboot or a command comes after the hosts of the rollout that wait.
const LAST: Place = Place(u32::MAX);

/// A request of a program on a host.
#[derive(Debug, Clone, Copy)]
pub struct ClaimRequest<'a> {
    /// The host.
    pub host: &'a HostName,
    /// Its agent.
    pub instance: &'a Token,
    /// What the claims are for.
    pub purpose: &'a Purpose,
    /// What the transaction compares.
    pub fence: Fence,
    /// The time.
    pub at: EpochSeconds,
}

/// What is to be done about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimAnswer {
    /// Nothing: the host holds its claims for this purpose already, or no limit counts it.
    Nothing,
    /// This transaction takes the claims.
    Take(Transaction),
    /// Something stands in the way. The host looks after the holders of the claims, if they are given.
    Waits(Obstacle, Option<Holders>),
}

/// Returns what is read first: the desired version, and what the host holds.
pub fn store_reads(host: &HostName) -> [Key; 3] {
    [Key::CurrentVersion, Key::Store, Key::Claimed(host.clone())]
}

/// Returns what is read then, at the same revision: the rollout, the policy and the roster.
pub fn rollout_reads(host: &HostName, found: &KeySnapshot) -> (Vec<Key>, Vec<Prefix>) {
    let (keys, mut ranges) = first_reads(host, order(found));
    // Percentages count the hosts.
    ranges.push(Prefix::Hosts);
    (keys, ranges)
}

/// Returns what is read at last, at the same revision: claims and queues.
pub fn limit_reads(host: &HostName, found: &KeySnapshot) -> Vec<Prefix> {
    let order = order(found);
    ranges_of_limits(host, order, &rules(order, found).1, found)
}

/// Returns the order of the current instruction; that before the first one if there is none.
fn order(found: &KeySnapshot) -> InstructionOrder {
    let epoch = Epoch::read(found.get(&Key::Store)).unwrap_or_default();
    let none = InstructionOrder { epoch: epoch.number, revision: 0 };
    let instruction = epoch.instruction(found.get(&Key::CurrentVersion)).ok().flatten();
    instruction.map_or(none, |instruction| instruction.order)
}

fn rules(order: InstructionOrder, found: &KeySnapshot) -> (Rules, Vec<ResolvedLimit>) {
    if let Some((record, revision)) = record_of(order, found) {
        return Rules::of_record(record, revision);
    }
    match limits_of_policy(found) {
        Ok((limits, times)) => (Rules::Record { revision: 0, refused: None, times }, limits),
        Err(why) => (Rules::Record { revision: 0, refused: Some(why), times: Times::USUAL }, Vec::new()),
    }
}

/// Returns the view of the limits that a request is held to. `found` is everything that was read.
fn view(host: &HostName, found: &KeySnapshot) -> RolloutView {
    let order = order(found);
    let (rules, limits) = rules(order, found);
    RolloutView::with_rules(host, (order, LAST), (rules, &limits), found, BootMillis(0))
}

impl ClaimRequest<'_> {
    /// Returns what is to be done. `found` is everything that was read.
    pub fn answer(&self, found: &KeySnapshot) -> ClaimAnswer {
        let held = FoundClaims::read(self.host, found);
        let is_held =
            |claims: &HostClaims| !claims.claims.is_empty() && claims.purposes.contains(self.purpose);
        if held.claims.as_ref().is_some_and(is_held) {
            return ClaimAnswer::Nothing;
        }
        let view = view(self.host, found);
        let permit = match view.permit(&held, Need::Claims, BootMillis(0)) {
            Ok(permit) => permit,
            Err(obstacle) => return ClaimAnswer::Waits(obstacle, view.holders()),
        };
        let taken = permit.claims.unwrap_or_default();
        let of_other_limit = |claim: &&HeldClaim| taken.iter().all(|taken| taken.limit != claim.limit);
        let kept: Vec<HeldClaim> = held.held().iter().filter(of_other_limit).cloned().collect();
        // A host that gave up its update goes on counting; one that runs a command does not.
        let is_for_update = held.claims.as_ref().is_some_and(HostClaims::is_for_update);
        let taken = taken
            .into_iter()
            .map(|claim| HeldClaim { keep_failed: claim.keep_failed && is_for_update, ..claim });
        let claims: Vec<HeldClaim> = taken.chain(kept).collect();
        if claims.is_empty() {
            return ClaimAnswer::Nothing;
        }
        let before = held.claims.clone().filter(|before| !before.claims.is_empty());
        let lost_after = permit.times.map_or(LOST_AFTER, |times| times.lost_after);
        let base = before.unwrap_or_else(|| {
            let none = HostClaims::none(self.instance.clone(), view.order, self.at);
            let (ticket, released) = (held.ticket().cloned(), held.claims.is_some_and(|held| held.released));
            HostClaims { purposes: BTreeSet::new(), ticket, released, lost_after, ..none }
        });
        let mut new = HostClaims { claims, lost: false, ..base };
        if new.purposes.len() >= PURPOSES_MAX {
            let why = format!("the host holds its claims for {PURPOSES_MAX} purposes already");
            return ClaimAnswer::Waits(Obstacle::Unusable(why), None);
        }
        new.purposes.insert(self.purpose.clone());
        let target = found.get(&Key::CurrentVersion);
        let guard = StartGuard {
            target_revision: found.revision_of(&Key::CurrentVersion),
            target_value: target.map(|entry| entry.value.clone()).unwrap_or_default(),
            scopes: view.scopes.clone(),
            roster_revision: view.roster_revision,
            rollout: Some(permit.guard),
        };
        ClaimAnswer::Take(take_claims(self.host, self.fence, &guard, &new, found))
    }
}
