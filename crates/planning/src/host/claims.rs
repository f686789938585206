//! Which claims of limits a host should have, and whether it should wait in a queue. Both follow from
//! its state alone, so that a difference to the store is repaired at any time, also after a crash.

use crate::host::brakes::Brakes;
use crate::host::input::{Desired, Observed};
use crate::host::state::HostState;
use crate::policy::Policy;
use crate::rollout::{Obstacle, Permit, place};
use schema::freeze::FreezeScope;
use schema::limit::Limit;
use schema::plan::AttemptCause;
use schema::records::{Driver, HeldClaim, HostClaims, Ticket};
use schema::time::Now;
use schema::writes::claims::FoundClaims;

/// Which claims a host keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    All,
    /// Those of limits that go on counting a host that gave up.
    OfFailed,
    None,
}

impl HostState {
    /// Returns which claims the host keeps. A claim is the right to be unavailable: it ends when the host
    /// is proven, or gives up.
    fn kept_claims(&self, policy: &Policy) -> Kept {
        if self.in_progress_version.is_none() {
            return Kept::None;
        }
        let goes_on = self.attempt.as_ref().is_some_and(|attempt| {
            // The next repair comes much later.
            let waits_for_repair = attempt.ended.is_some() && attempt.cause == AttemptCause::Repair;
            !self.is_suspect(policy) && !waits_for_repair
        });
        if goes_on { Kept::All } else { Kept::OfFailed }
    }
}

/// Returns the claims and the ticket that the host has from now on; `None` if the store holds exactly
/// those. `obstacle` keeps a host from starting that is ready to; `starts` is what a host that starts
/// takes.
pub(super) fn wanted(
    state: &HostState,
    desired: &Desired,
    (observed, obstacle): (&Observed, Option<&Obstacle>),
    starts: Option<&Permit>,
    now: Now,
) -> Option<HostClaims> {
    let nothing = FoundClaims::default();
    let found = match (&observed.published, starts) {
        (Some(published), _) => &published.claims,
        // The start finds out what the store holds.
        (None, Some(_)) => &nothing,
        (None, None) => return None,
    };
    let order = state.attempt.as_ref().map(|attempt| attempt.instruction.order);
    let before = found.claims.as_ref();
    let (instance, since) = (observed.instance.clone(), before.map_or(now.wall, |before| before.since));
    let rollout = before.map(|before| before.rollout);
    let new = if let Some(permit) = starts {
        let claims = permit.claims.clone().unwrap_or_else(|| found.held().to_vec());
        let (rollout, since) = (order.or(rollout)?, now.wall);
        HostClaims { instance, rollout, since, claims, ticket: None }
    } else {
        let ticket = ticket(state, (observed, obstacle), found);
        let claims = kept(state, desired.policy, observed, found);
        let rollout = if claims.is_empty() { order.or(rollout)? } else { rollout.or(order)? };
        HostClaims { instance, rollout, since, claims, ticket }
    };
    let is_same = match before {
        Some(before) => before.claims == new.claims && before.ticket == new.ticket,
        // A value that cannot be read stays: the claims that it names would never be released.
        None if found.revision != 0 => return None,
        None => new.is_empty(),
    };
    // A start writes its claims again, for its own rollout.
    let is_same = is_same && (starts.is_none() || new.is_empty());
    (!is_same).then_some(new)
}

fn kept(state: &HostState, policy: &Policy, observed: &Observed, found: &FoundClaims) -> Vec<HeldClaim> {
    let held = found.held();
    let is_own = found.claims.as_ref().is_some_and(|claims| claims.instance == *observed.instance);
    // A script claims and releases for itself. The claims of an earlier life of the host stay until the
    // host is proven: nobody knows what that life left behind.
    if policy.driver == Driver::External || !is_own && state.listing().is_none() {
        return held.to_vec();
    }
    match state.kept_claims(policy) {
        Kept::All => held.to_vec(),
        Kept::OfFailed => held.iter().filter(|claim| claim.keep_failed).cloned().collect(),
        Kept::None => Vec::new(),
    }
}

/// Returns the ticket that the host should have. A ticket orders and never grants.
fn ticket(
    state: &HostState,
    (observed, obstacle): (&Observed, Option<&Obstacle>),
    found: &FoundClaims,
) -> Option<Ticket> {
    let attempt = state.attempt.as_ref()?;
    let (rollout, version) = (attempt.instruction.order, &attempt.instruction.version);
    let of_limit = |limit: &Limit| {
        let place = place(&state.host, version);
        Ticket { rollout, limit: limit.clone(), place, lease: observed.live_lease }
    };
    match obstacle? {
        Obstacle::Full { limit, .. } | Obstacle::NotItsTurn { limit, .. } => Some(of_limit(limit)),
        // What holds everybody changes no order.
        Obstacle::Frozen(by) if matches!(by.scope, FreezeScope::Fleet | FreezeScope::Pause) => {
            found.ticket().filter(|ticket| ticket.rollout == rollout).map(|ticket| of_limit(&ticket.limit))
        }
        // Nothing is known until the rollout was read again.
        Obstacle::NotRead if matches!(observed.brakes, Brakes::Refused(_)) => {
            found.ticket().filter(|ticket| ticket.rollout == rollout).cloned()
        }
        _ => None,
    }
}
