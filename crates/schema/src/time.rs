//! Time as values. Deadlines are counted in milliseconds since boot on a clock that continues
//! during sleep (`CLOCK_BOOTTIME`). A suspended machine or a jump of the wall clock therefore
//! neither shortens nor lengthens a deadline. Wall time is only for display.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::time::Duration;

/// A point in time, in milliseconds since boot, including sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct BootMillis(pub u64);

impl BootMillis {
    /// Returns the time that is `duration` later; saturates.
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }

    /// Returns the time that has passed since `earlier`; zero if `earlier` is in the future.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// A point in time, in seconds since the Unix epoch; only for display.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct EpochSeconds(pub i64);

impl EpochSeconds {
    /// Returns the time that is this much earlier; a part of a second does not count.
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(span.as_secs()).unwrap_or(i64::MAX)))
    }
}

/// The time on both clocks, read together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// Time since boot, for deadlines.
    pub boot: BootMillis,
    /// Wall time, for display.
    pub wall: EpochSeconds,
}

/// The error of text that is not a duration; it says how to write one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a duration: write a number and a unit each, as in 90s, 1m30s, 500ms, 2h or 1d")]
pub struct DurationError(String);

/// Parses `90s`, `1m30s`, `500ms`, `2h`, `1d`. A number without a unit is refused, except `0`.
///
/// # Errors
/// Returns an error that says how to write a duration.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let error = || DurationError(crate::names::quoted(text));
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = text.trim();
    let mut millis: u64 = 0;
    if rest.is_empty() {
        return Err(error());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(error)?;
        let number: u64 = rest[..digits].parse().map_err(|_| error())?;
        rest = &rest[digits..];
        let unit_end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let scale = match &rest[..unit_end] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(error()),
        };
        millis = number.checked_mul(scale).and_then(|n| millis.checked_add(n)).ok_or_else(error)?;
        rest = &rest[unit_end..];
    }
    Ok(Duration::from_millis(millis))
}

/// Returns a duration in at most two units, in the form that [`parse_duration`] reads; for
/// messages.
pub fn format_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    let units: [(u128, &str); 5] =
        [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
    let mut rest = millis;
    let mut text = String::new();
    let mut written = 0;
    for (size, unit) in units {
        if rest >= size && written < 2 {
            text.push_str(&format!("{}{unit}", rest / size));
            rest %= size;
            written += 1;
        }
    }
    if text.is_empty() { "0s".into() } else { text }
}

/// A duration in the form that people write. In files and in the store it is text, such as `"90s"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, JsonSchema)]
#[schemars(with = "String")]
pub struct Span(pub Duration);

impl fmt::Display for Span {
    /// Writes one number in the largest unit in which the duration is whole; it reads back exactly.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
        let whole = |(size, _): &(u128, &str)| millis >= *size && millis.is_multiple_of(*size);
        match units.into_iter().find(whole) {
            Some((size, unit)) => write!(f, "{}{unit}", millis / size),
            None => f.write_str("0s"),
        }
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(SpanVisitor)
    }
}

/// Reads a [`Span`], and says what is expected where something else stands.
struct SpanVisitor;

impl serde::de::Visitor<'_> for SpanVisitor {
    type Value = Span;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration in quotes with a unit, as in \"30s\"")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Span, E> {
        parse_duration(text).map(Span).map_err(E::custom)
    }
}

/// A delay that doubles with each failure, between two bounds, and varies at random.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    min: Duration,
    max: Duration,
}

impl Backoff {
    /// Returns a backoff with the two bounds in either order. The smaller one is the delay after
    /// the first failure.
    pub fn new(one: Duration, other: Duration) -> Self {
        Self { min: one.min(other), max: one.max(other) }
    }

    /// Returns the delay after `failures` failures in a row, drawn from the upper half of the
    /// doubled delay. `jitter` in 0..1 spreads the hosts over that half.
    pub fn delay(&self, failures: u32, jitter: f64) -> Duration {
        self.doubled(failures).mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
    }

    /// Returns a delay for clients that fail together and must not come back together. While the
    /// doubled delay grows, the result is drawn from the whole range below it, so that the clients
    /// lose step. At the larger bound it is drawn from the upper third. The client that waits
    /// longest then waits little longer than the others, and the clients come back evenly over two
    /// thirds of that bound.
    pub fn spread(&self, failures: u32, jitter: f64) -> Duration {
        let (full, jitter) = (self.doubled(failures), jitter.clamp(0.0, 1.0));
        full.mul_f64(if full < self.max { jitter.max(0.02) } else { (2.0 + jitter) / 3.0 })
    }

    fn doubled(&self, failures: u32) -> Duration {
        self.min.saturating_mul(1u32 << failures.saturating_sub(1).min(20)).min(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_read_as_people_write_them() {
        for (text, millis) in [
            ("0", 0),
            ("90s", 90_000),
            ("1m30s", 90_000),
            ("500ms", 500),
            ("2h", 7_200_000),
            ("1d1h", 90_000_000),
        ] {
            assert_eq!(parse_duration(text).unwrap(), Duration::from_millis(millis), "{text}");
        }
        for bad in
            ["", "10", "s", "1x", "-1s", "1.5s", "1s2", "99999999999999999999d", "18446744073709551615d"]
        {
            parse_duration(bad).unwrap_err();
        }
    }

    proptest! {
        #[test]
        fn a_backoff_stays_within_its_bounds(min in 1u64..5_000, max in 1u64..500_000, n in 0u32..100, jitter in 0.0f64..1.0) {
            let backoff = Backoff::new(Duration::from_millis(min), Duration::from_millis(max));
            let delay = backoff.delay(n, jitter);
            prop_assert!(delay >= Duration::from_millis(min.min(max)) / 2);
            prop_assert!(delay <= Duration::from_millis(min.max(max)));
            prop_assert!(backoff.spread(n, jitter) <= Duration::from_millis(min.max(max)));
        }

        #[test]
        fn those_who_were_cut_off_together_for_long_come_back_apart(seed in any::<u64>(), healed in 60.0f64..600.0) {
            // The smallest and the largest delay of the store's clients.
            let backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(45));
            let mut state = seed | 1;
            let mut jitter = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 11) as f64 / (1u64 << 53) as f64
            };
            let mut back: Vec<f64> = (0..1000)
                .map(|_| {
                    let (mut at, mut failures) = (0.0, 0);
                    while at < healed {
                        failures += 1;
                        at += backoff.spread(failures, jitter()).as_secs_f64();
                    }
                    at - healed
                })
                .collect();
            back.sort_by(f64::total_cmp);
            prop_assert!(back[999] - back[0] >= 30.0, "all within {} s", back[999] - back[0]);
            let busiest = (0..45).map(|s| back.iter().filter(|at| at.floor() == f64::from(s)).count()).max();
            prop_assert!(busiest <= Some(80), "{busiest:?} of 1000 within one second");
        }

        #[test]
        fn a_short_duration_reads_back(seconds in 0u64..86_400) {
            let duration = Duration::from_secs(seconds);
            prop_assert_eq!(parse_duration(&Span(duration).to_string()).unwrap(), duration);
            let read = parse_duration(&format_duration(duration)).unwrap();
            // Two units are kept: from one hour on, the seconds are dropped.
            prop_assert!(duration >= read && duration - read < Duration::from_secs(60));
        }
    }
}
