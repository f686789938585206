//! Claims for something else than an update: a reboot, or a command of an operator. They are held under
//! the limits of the current rollout; where it has no record, under those that the policy has now.

use super::limits::QueuedHost;
use super::reads::{first_reads, reads_of_limits};
use super::resolve::numbers_of_policy;
use super::rules::{Rules, Times, record_of};
use super::view::RolloutView;
use crate::rollout::ClaimNeed;
use schema::instruction::Epoch;
use schema::keys::{Key, Prefix};
use schema::limit::Place;
use schema::names::{HostName, Token};
use schema::order::InstructionOrder;
use schema::reads::Read;
use schema::records::{
    HeldClaim, HostClaims, LOST_AFTER, PURPOSES_MAX, Purpose, REBOOTS_MAX, ResolvedLimit, RolloutOptions,
    SCRIPT_INSTANCE,
};
use schema::snapshot::KeySnapshot;
use schema::time::{BootMillis, Now};
use schema::transaction::Transaction;
use schema::why_not::WhyNot;
use schema::writes::Fence;
use schema::writes::claims::{FoundClaims, RolloutGuard};
use schema::writes::host::StartGuard;
use schema::writes::purpose::take_claims;
use std::collections::BTreeSet;

/// Whoever asks for a reboot or a command comes after the hosts of the rollout that wait.
const LAST: Place = Place(u32::MAX);

/// A request of a program on a host.
#[derive(Debug, Clone, Copy)]
pub struct ClaimRequest<'a> {
    pub host: &'a HostName,
    pub instance: &'a Token,
    /// What the claims are for.
    pub purpose: &'a Purpose,
    /// What the transaction compares.
    pub fence: Fence,
    pub now: Now,
}

/// What is to be done about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimAnswer {
    /// Nothing: the host holds its claims for this purpose already, or no limit counts it.
    Nothing,
    /// This transaction takes these claims.
    Take(Transaction, Vec<HeldClaim>),
    /// Something stands in the way.
    Waits(WhyNot),
}

/// Returns what is read first: the desired version, and what the host holds.
pub fn store_reads(host: &HostName) -> [Key; 3] {
    [Key::CurrentVersion, Key::Store, Key::Claimed(host.clone())]
}

/// Returns what is read then, at the same revision: the rollout, the policy and the roster.
pub fn rollout_reads(host: &HostName, found: &KeySnapshot) -> Vec<Read> {
    let mut reads = first_reads(host, order(found));
    // Percentages count the hosts.
    reads.push(Read::Range(Prefix::Hosts));
    reads
}

/// Returns what is read at last, at the same revision: claims and queues.
pub fn limit_reads(host: &HostName, found: &KeySnapshot) -> Vec<Read> {
    let order = order(found);
    reads_of_limits(&QueuedHost { place: LAST, host: host.clone() }, order, &rules(order, found).1, found)
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
        let (rules, limits) = Rules::of_record(record, revision);
        // A halt is about the version.
        return (rules.without_version(), limits);
    }
    let rules = |refused, times| Rules::only(0, refused, times);
    match numbers_of_policy(&RolloutOptions::default(), found) {
        Ok(numbers) => (rules(None, numbers.times), numbers.limits),
        Err(why) => (rules(Some(why), Times::USUAL), Vec::new()),
    }
}

/// Returns the view of the limits that a request is held to. `found` is everything that was read, `earlier`
/// the view of the request before.
pub fn view_for_claims(
    host: &HostName,
    found: &KeySnapshot,
    earlier: Option<&RolloutView>,
    now: BootMillis,
) -> RolloutView {
    let order = order(found);
    let (rules, limits) = rules(order, found);
    let own = QueuedHost { place: LAST, host: host.clone() };
    RolloutView::with_rules(own, order, rules, &limits, found, now).after(earlier)
}

impl ClaimRequest<'_> {
    /// True for claims that another agent took under this name. A script's are the host's own.
    fn is_of_earlier_life(&self, held: &HostClaims) -> bool {
        let is_own = held.instance == *self.instance || held.instance.as_str() == SCRIPT_INSTANCE;
        !held.claims.is_empty() && !is_own
    }

    /// Returns what is to be done. `found` is everything that was read, and the view follows from it.
    pub fn answer(&self, view: &RolloutView, found: &KeySnapshot) -> ClaimAnswer {
        let held = FoundClaims::read(self.host, found);
        if held.claims.as_ref().is_some_and(|held| self.is_of_earlier_life(held)) {
            let why = "the host holds claims of an earlier installation until it is proven";
            return ClaimAnswer::Waits(WhyNot::Rollout { why: why.into() });
        }
        let is_held =
            |claims: &HostClaims| !claims.claims.is_empty() && claims.purposes.contains(self.purpose);
        if held.claims.as_ref().is_some_and(is_held) {
            return ClaimAnswer::Nothing;
        }
        let permit = match view.permit(&held, ClaimNeed::Retake, self.now) {
            Ok(permit) => permit,
            Err(obstacle) => return ClaimAnswer::Waits(obstacle),
        };
        let taken = permit.claims.unwrap_or_default();
        let of_other_limit = |claim: &&HeldClaim| taken.iter().all(|taken| taken.limit != claim.limit);
        let kept: Vec<HeldClaim> = held.held().iter().filter(of_other_limit).cloned().collect();
        let claims: Vec<HeldClaim> = taken.into_iter().chain(kept).collect();
        if claims.is_empty() {
            return ClaimAnswer::Nothing;
        }
        let before = held.claims.clone().filter(|before| !before.claims.is_empty());
        let lost_after = permit.times.map_or(LOST_AFTER, |times| times.lost_after);
        let base = before.unwrap_or_else(|| {
            let none = HostClaims::none(self.instance.clone(), view.order, self.now.wall);
            let (ticket, released) = (held.ticket().cloned(), held.claims.is_some_and(|held| held.released));
            HostClaims { purposes: BTreeSet::new(), ticket, released, lost_after, ..none }
        });
        let mut new = HostClaims { claims, lost: false, ..base };
        let reboots = new.purposes.iter().filter(|purpose| matches!(purpose, Purpose::Reboot(_))).count();
        let is_reboot = matches!(self.purpose, Purpose::Reboot(_));
        if new.purposes.len() >= PURPOSES_MAX || is_reboot && reboots >= REBOOTS_MAX {
            let why =
                "the host holds its claims for too many others already; `orchestrate claims` names them";
            return ClaimAnswer::Waits(WhyNot::Rollout { why: why.into() });
        }
        new.purposes.insert(self.purpose.clone());
        let target = found.get(&Key::CurrentVersion);
        let guard = StartGuard {
            target_revision: found.revision_of(&Key::CurrentVersion),
            target_value: target.map(|entry| entry.value.clone()).unwrap_or_default(),
            scopes: view.scopes.clone(),
            roster_revision: view.roster_revision,
            rollout: Some(RolloutGuard { checks_halt: false, ..permit.guard }),
        };
        let taken = new.claims.clone();
        ClaimAnswer::Take(take_claims(self.host, self.fence, &guard, &new, found), taken)
    }
}
