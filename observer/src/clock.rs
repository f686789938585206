//! The time of day.

use schema::time::EpochSeconds;
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the current time.
pub(crate) fn now() -> EpochSeconds {
    // A clock before 1970 means a machine without a clock; any time is as good there.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    EpochSeconds(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}
