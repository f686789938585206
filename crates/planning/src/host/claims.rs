//! Which claims of limits a host should have, and whether it should wait in a queue. Both follow from
//! its state alone, so that a difference to the store is repaired at any time, also after a crash.

use crate::host::brakes::Brakes;
use crate::host::cycle::ValidationResult;
use crate::host::input::Observed;
use crate::host::inputs::Inputs;
use crate::host::site_config::SiteConfig;
use crate::host::state::HostState;
use crate::rollout::{Permit, place};
use schema::digest::Digest;
use schema::freeze::FreezeScope;
use schema::limit::{CLAIM_NUMBERS, Limit};
use schema::names::Token;
use schema::order::InstructionOrder;
use schema::records::{Driver, HeldClaim, HostClaims, LOST_AFTER, Purpose, Ticket};
use schema::time::BootMillis;
use schema::why_not::WhyNot;
use schema::writes::claims::FoundClaims;
use std::collections::{BTreeMap, BTreeSet};

/// Which claims a host keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    All,
    /// The claims of limits that go on counting a host that gave up.
    OnFailure,
    None,
}

impl HostState {
    /// Returns which claims the host keeps. A claim is the right to be unavailable: it ends when the host
    /// is proven, after the hold of its rollout, or when it gives up.
    fn kept_claims(&self, policy: &SiteConfig) -> Kept {
        if self.is_disturbed() && self.has_given_up(policy) {
            Kept::OnFailure
        } else if self.is_disturbed() || self.rollout.hold.is_some() {
            Kept::All
        } else {
            Kept::None
        }
    }
}

/// Claims that are taken again get a number from here on. Whoever holds a lower one keeps it; the first
/// host that waits for the limit moves the claim down when there is a free number.
const TAKEN_AGAIN_FROM: u32 = CLAIM_NUMBERS / 2;

/// Returns the claims and the ticket that the host has from now on; `None` if the store holds exactly
/// those. `obstacle` is what blocks a ready host; `starts` is the permit of a host that starts now.
pub(super) fn wanted(
    inputs: Inputs<'_>,
    obstacle: Option<&WhyNot>,
    starts: Option<&Permit>,
) -> Option<HostClaims> {
    let Inputs { state, desired, observed, now } = inputs;
    let nothing = FoundClaims::default();
    let found = match (&observed.published, starts) {
        (Some(published), _) => &published.claims,
        // The start finds out what the store holds.
        (None, Some(_)) => &nothing,
        (None, None) => return None,
    };
    let before = found.claims.as_ref();
    // A value that cannot be read stays: the claims that it names would never be released.
    if before.is_none() && found.revision != 0 {
        return None;
    }
    let order = state.attempt.as_ref().map(|attempt| attempt.instruction.order);
    let none = |order| HostClaims::none(observed.instance.clone(), order, now.wall);
    // A store without brakes was restored from before the first policy: nobody counts there.
    let taken = if observed.marked_at.is_some() { state.rollout.claims.as_ref() } else { None };
    let commands = observed.commands.running.values().any(|claims| !claims.is_empty());
    // Before the first instruction a command can hold claims.
    let first = InstructionOrder { epoch: 0, revision: 0 };
    let order_of_base = order.or(state.observed.instruction).or(commands.then_some(first));
    let base = before.or(taken).cloned().or_else(|| order_of_base.map(none))?;
    let kept = kept(state, desired.policy, observed, found, base);
    let new = match starts {
        Some(permit) => {
            // A host that needs no claims keeps those that it has.
            let taken = if permit.need.takes_claims() { permit.claims.clone() } else { None };
            let lost_after = permit.times.map_or(LOST_AFTER, |times| times.lost_after);
            let mut purposes = kept.purposes;
            purposes.insert(Purpose::Update);
            HostClaims { claims: taken.unwrap_or(kept.claims), purposes, lost_after, ..none(order?) }
        }
        None => HostClaims { ticket: ticket(state, observed, obstacle, found), ..kept },
    };
    let is_same = before.map_or(new.is_empty(), |before| *before == new);
    // A start writes its claims again, for its own rollout, and so does a host whose store was accepted.
    let is_asserted = desired.policy.driver == Driver::External || Some(found.revision) > observed.marked_at;
    let is_needed = starts.is_some() || !is_asserted;
    (!is_same || is_needed && !new.claims.is_empty()).then_some(new)
}

/// True if these claims take nothing from what the store holds but the ticket.
pub(super) fn leaves_queue(observed: &Observed, claims: &HostClaims) -> bool {
    let found = observed.published.as_ref().and_then(|published| published.claims.claims.as_ref());
    claims.is_empty() && found.is_some_and(|found| found.claims.is_empty() && !found.released)
}

/// Returns what the host holds claims for besides its update: reboots until their clients end them, and
/// commands that run. One that was killed, or cut off by a reboot, ends when a validation that began later
/// has passed.
fn other_purposes<'a>(
    state: &'a HostState,
    observed: &'a Observed,
    found: &'a FoundClaims,
    is_script: bool,
) -> impl Iterator<Item = &'a Purpose> {
    let passed = state.cycles.validation_with(ValidationResult::Passed);
    let is_over = move |ended: &BootMillis| {
        // The agent does not validate what a script applies.
        is_script || state.subject().is_none() || passed.is_some_and(|validation| validation.at > *ended)
    };
    let held = found.claims.as_ref().filter(|found| !found.claims.is_empty());
    held.into_iter().flat_map(|found| &found.purposes).filter(move |purpose| match purpose {
        Purpose::Update => false,
        Purpose::Reboot(_) => true,
        Purpose::Command(run) => !observed.commands.ended.get(run).is_some_and(is_over),
    })
}

/// Returns what the host keeps of its claims. `base` is what it has, or had.
fn kept(
    state: &HostState,
    policy: &SiteConfig,
    observed: &Observed,
    found: &FoundClaims,
    base: HostClaims,
) -> HostClaims {
    let is_script = policy.driver == Driver::External;
    let is_own = is_script || base.instance == *observed.instance;
    // The claims of an earlier life of the host stay until the host is proven: nobody knows what that life
    // left behind.
    if !is_own && state.listing().is_none() {
        return HostClaims { claims: found.held().to_vec(), ..base };
    }
    let mut purposes: BTreeSet<Purpose> = if is_own {
        other_purposes(state, observed, found, is_script).cloned().collect()
    } else {
        BTreeSet::new()
    };
    let is_for_update = found.claims.as_ref().is_none_or(HostClaims::is_for_update);
    // A script claims and releases for itself.
    let kept = match state.kept_claims(policy) {
        _ if is_script && is_for_update => Kept::All,
        _ if is_script => Kept::None,
        kept => kept,
    };
    let is_valid = observed.marked_at.is_some() && !base.released;
    let taken = match &state.rollout.claims {
        Some(taken) if is_valid => &taken.claims[..],
        _ => &[],
    };
    // Between two attempts a host is held by its limits like any other: it takes nothing above them.
    let goes_on = state.is_under_way();
    let lacks = |claim: &&HeldClaim| {
        (goes_on || claim.keep_failed) && found.held().iter().all(|held| held.limit != claim.limit)
    };
    // A command that still runs on a host that was lost takes its claims again too.
    let lacks_purpose = |run: &Token| {
        let purposes = found.claims.as_ref().map(|found| &found.purposes);
        !purposes.is_some_and(|purposes| purposes.contains(&Purpose::Command(run.clone())))
    };
    let commands = observed.commands.running.iter().filter(|(run, _)| is_valid && lacks_purpose(run));
    let lost: BTreeMap<&Limit, &HeldClaim> = commands
        .clone()
        .flat_map(|(_, claims)| claims)
        .filter(|claim| found.held().iter().all(|held| held.limit != claim.limit))
        .map(|claim| (&claim.limit, claim))
        .collect();
    purposes.extend(
        commands.filter(|(_, claims)| !claims.is_empty()).map(|(run, _)| Purpose::Command(run.clone())),
    );
    let of_update = taken.iter().filter(|claim| !is_script && lacks(claim));
    let takes_again = of_update.clone().next().is_some();
    let mut again: BTreeMap<&Limit, &HeldClaim> = lost;
    again.extend(of_update.map(|claim| (&claim.limit, claim)));
    let again = again.into_values().map(|claim| {
        let digest = Digest::default().text(observed.write_id.as_str()).text(&claim.limit.path()).finish();
        let number = TAKEN_AGAIN_FROM + (digest % u64::from(CLAIM_NUMBERS - TAKEN_AGAIN_FROM)) as u32;
        HeldClaim { number, ..claim.clone() }
    });
    let mut claims: Vec<HeldClaim> = found.held().iter().cloned().chain(again).collect();
    if kept != Kept::None && (is_for_update || takes_again) {
        if kept == Kept::OnFailure && purposes.is_empty() {
            claims.retain(|claim| claim.keep_failed);
        }
        purposes.insert(Purpose::Update);
    } else if purposes.is_empty() {
        claims.clear();
    }
    let is_counted = state.is_disturbed() || state.rollout.hold.is_some();
    let has_purpose = is_counted || !observed.commands.running.is_empty();
    let released = base.released && has_purpose;
    if claims.is_empty() {
        // Whoever holds nothing waits, if at all, for its own rollout.
        let order = state.attempt.as_ref().map_or(base.rollout, |attempt| attempt.instruction.order);
        let none = HostClaims::none(observed.instance.clone(), order, base.since);
        return HostClaims { released, ..none };
    }
    HostClaims { claims, purposes, lost: false, released, ..base }
}

/// Returns the ticket that the host should have. A ticket orders and never grants.
fn ticket(
    state: &HostState,
    observed: &Observed,
    obstacle: Option<&WhyNot>,
    found: &FoundClaims,
) -> Option<Ticket> {
    let attempt = state.attempt.as_ref()?;
    let (rollout, version) = (attempt.instruction.order, &attempt.instruction.version);
    let of_limit = |limit: &Limit| {
        let place = place(&state.host, version);
        Ticket { rollout, limit: limit.clone(), place, lease: observed.live_lease }
    };
    let same = || found.ticket().filter(|ticket| ticket.rollout == rollout);
    match obstacle? {
        WhyNot::Limit { limit, .. } => Some(of_limit(limit)),
        // What holds everybody changes no order.
        WhyNot::Halted { .. } | WhyNot::OverBudget { .. } => same().map(|ticket| of_limit(&ticket.limit)),
        WhyNot::Frozen(by) if matches!(by.scope, FreezeScope::Fleet | FreezeScope::Pause) => {
            same().map(|ticket| of_limit(&ticket.limit))
        }
        // Nothing is known until the rollout was read again.
        WhyNot::NotRead if matches!(observed.brakes, Brakes::Refused(..)) => same().cloned(),
        _ => None,
    }
}
