//! The steps and intervals of hosts.

use planning::host::{Leftovers, SiteConfig, Step, Steps};
use schema::names::StepName;
use schema::records::Driver;
use schema::time::Backoff;
use std::time::Duration;

fn step(name: &str) -> Step {
    Step {
        name: StepName::new(name).unwrap_or_else(|_| unreachable!("{name} is a name")),
        command: vec![name.to_owned()],
        timeout: Duration::from_secs(600),
        grace: Duration::from_secs(5),
        done_codes: vec![0],
        not_yet_codes: vec![75],
        leftovers: Leftovers::Kill,
        cannot_run: None,
    }
}

/// Returns the intervals that hosts have without settings, one apply step and one validation. Settled hosts
/// validate seldom.
pub(crate) fn usual_policy() -> SiteConfig {
    SiteConfig {
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

/// Returns steps and intervals, drawn.
pub(crate) fn drawn_policy(rng: &mut fastrand::Rng) -> SiteConfig {
    let some = |rng: &mut fastrand::Rng, name| if rng.bool() { vec![step(name)] } else { Vec::new() };
    let mut apply = vec![step("packages")];
    if rng.bool() {
        apply.push(step("configuration"));
    }
    SiteConfig {
        driver: Driver::Agent,
        steps: Steps {
            prefetch: some(rng, "fetch"),
            apply,
            converge: some(rng, "render"),
            validate: vec![step("http")],
            on_suspect: some(rng, "page"),
        },
        requires: Vec::new(),
        converge_at_most_every: Duration::from_secs(10),
        validate_every: Duration::from_secs(rng.u64(60..600)),
        not_yet_retry: Duration::from_secs(15),
        attempt_backoff: Backoff::new(Duration::from_secs(30), Duration::from_secs(1800)),
        suspect_after: rng.u32(1..4),
        suspect_retry_on_change: Duration::from_secs(60),
        suspect_retry_every: Duration::from_secs(3600),
        reapply_per_day: rng.u32(0..3),
        reapply_after: Duration::from_secs(rng.u64(60..900)),
        spread_window: Duration::from_secs(if rng.bool() { 0 } else { rng.u64(0..300) }),
    }
}
