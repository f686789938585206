//! The time of day.

use schema::time::EpochSeconds;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the current time.
pub(crate) fn now() -> EpochSeconds {
    EpochSeconds(i64::try_from(since_epoch().as_secs()).unwrap_or(i64::MAX))
}

/// Returns the current time in milliseconds since 1970.
pub(crate) fn now_millis() -> i64 {
    i64::try_from(since_epoch().as_millis()).unwrap_or(i64::MAX)
}

fn since_epoch() -> Duration {
    // A clock before 1970 means a machine without a clock; any time is as good there.
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
