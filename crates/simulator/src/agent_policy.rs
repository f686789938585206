//! The steps and intervals of the hosts of a script.

use crate::scenario::step;
use planning::policy::{Policy, Steps};
use schema::records::Driver;
use schema::time::Backoff;
use std::time::Duration;

/// Returns the intervals that hosts have without settings, one apply step and one validation. Settled hosts
/// validate seldom.
pub(crate) fn usual_policy() -> Policy {
    Policy {
        driver: Driver::Agent,
        steps: Steps { apply: vec![step("packages")], validate: vec![step("http")], ..Steps::default() },
        requires: Vec::new(),
        converge_at_most_every: Duration::from_secs(10),
        validate_every: Duration::from_secs(300),
        not_yet_retry: Duration::from_secs(15),
        attempt_backoff: Backoff::new(Duration::from_secs(30), Duration::from_secs(1800)),
        suspect_after: 3,
        suspect_retry_on_change: Duration::from_secs(60),
        suspect_retry_every: Duration::from_secs(3600),
        reapply_per_day: 1,
        reapply_after: Duration::from_secs(900),
        spread_window: Duration::ZERO,
    }
}
