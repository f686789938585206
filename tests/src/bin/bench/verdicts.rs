//! The verdicts of a large fleet.

use fleet::{Fleet, FleetTarget};
use schema::snapshot::KeySnapshot;
use std::time::{Duration, Instant};

/// Computes the verdicts of a fleet, and again after each of many changes. Returns the milliseconds of the former and, on
/// average, of one of the latter.
pub(crate) fn time_verdicts(found: &KeySnapshot) -> String {
    const CHANGES: u32 = 1000;
    let began = Instant::now();
    let values = found.entries.iter().map(|(key, entry)| (key.as_str(), entry.value.as_slice()));
    let mut fleet = Fleet::new(FleetTarget::of(found), values);
    let whole = began.elapsed();
    let began = Instant::now();
    for count in 0..CHANGES {
        let value = format!(r#"{{"format":1,"at":{count},"version":"1","code":1,"reason":"x"}}"#);
        fleet.change(&format!("/status/validation/failed/h{count:06}"), Some(value.as_bytes()));
    }
    let one = began.elapsed() / CHANGES;
    assert!(!fleet.verdicts().is_empty());
    let millis = |time: Duration| time.as_secs_f64() * 1000.0;
    format!("{} {}", millis(whole), millis(one))
}
