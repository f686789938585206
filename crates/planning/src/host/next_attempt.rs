//! When a host tries again after a failed attempt, or applies a version again whose validation fails.

use crate::host::attempt::Attempt;
use crate::host::input::{Addressable, Desired};
use crate::host::site_config::SiteConfig;
use crate::host::state::HostState;
use schema::digest::Digest;
use schema::instruction::Instruction;
use schema::names::HostName;
use schema::plan::Reason;
use schema::time::BootMillis;
use std::time::Duration;

/// Returns the place of a host in the window over which hosts spread, from 0 to 1. It is always the
/// same for the same `revision` (of an instruction or of the catalog), and differs for the next
/// one.
pub(super) fn place_in_window(host: &str, revision: u64) -> f64 {
    Digest::default().text(host).number(revision).finish() as f64 / u64::MAX as f64
}

/// Returns when a host may begin an update to this target: its place in the window over which hosts spread.
pub(super) fn turn_of(host: &HostName, target: &Instruction, desired: &Desired) -> BootMillis {
    let place = place_in_window(host.as_str(), target.order.revision.cast_unsigned());
    desired.target_since.plus(desired.policy.spread_window.mul_f64(place))
}

/// Returns when the next attempt begins after a failed one, or the repair of a version that is proven no more;
/// `None` if none is scheduled.
pub(super) fn next_attempt(
    state: &HostState,
    policy: &SiteConfig,
    addressable: Option<Addressable>,
    now: BootMillis,
) -> Option<BootMillis> {
    let Some(attempt) = &state.attempt else { return repair_due(state, policy, now) };
    let end = attempt.end()?;
    if state.is_suspect(policy) {
        suspect_again(attempt, policy, addressable, state.host.as_str()).map(|(due, _)| due)
    } else {
        Some(end.next_at)
    }
}

/// Returns when a proven version whose validation fails without a break is applied again, if
/// the budget of the day allows it. The time differs between hosts, so that a broken shared
/// service does not make all of them reinstall together.
pub(super) fn repair_due(state: &HostState, policy: &SiteConfig, now: BootMillis) -> Option<BootMillis> {
    let failing_since = state.cycles.validation.as_ref()?.failing_since?;
    let day = Duration::from_secs(24 * 60 * 60);
    let recent = state.recovery.repairs.iter().filter(|at| now.since(**at) < day).count();
    if recent >= policy.reapply_per_day as usize {
        return None;
    }
    let place = place_in_window(state.host.as_str(), 0);
    Some(failing_since.plus(policy.reapply_after.mul_f64(1.0 + place)))
}

/// Returns when and why a suspect host tries a failed apply again, or an attempt that ended before its
/// start. The apply may have failed because it needed a service that no requirement declares, and that
/// service may exist by now. A version that is applied needs only a validation that passes.
pub(super) fn suspect_again(
    attempt: &Attempt,
    policy: &SiteConfig,
    addressable: Option<Addressable>,
    host: &str,
) -> Option<(BootMillis, Reason)> {
    if attempt.apply_works() {
        return None;
    }
    let (window, every) = (policy.suspect_retry_on_change, policy.suspect_retry_every);
    let changed = addressable.filter(|now| attempt.addressable != Some(now.digest));
    let changed = if window.is_zero() { None } else { changed };
    let on_change = changed.map(|now| {
        let place = place_in_window(host, now.digest);
        let due = now.since.plus(window.mul_f64(place)).max(attempt.began.plus(window));
        (due, Reason::CatalogChanged)
    });
    let without = (!every.is_zero()).then(|| (attempt.began.plus(every), Reason::TryAgain));
    on_change.into_iter().chain(without).min_by_key(|(due, _)| *due)
}
