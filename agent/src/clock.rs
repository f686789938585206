//! The two clocks of the machine.

use rustix::time::{ClockId, clock_gettime};
use schema::time::{BootMillis, EpochSeconds, Now};

/// Reads both clocks.
pub(crate) fn now() -> Now {
    let wall = clock_gettime(ClockId::Realtime);
    Now { boot: boot_millis(), wall: EpochSeconds(wall.tv_sec) }
}

/// Returns the milliseconds since boot, including the time that the machine was suspended.
pub(crate) fn boot_millis() -> BootMillis {
    let boot = clock_gettime(ClockId::Boottime);
    let millis = boot.tv_sec.saturating_mul(1000).saturating_add(boot.tv_nsec / 1_000_000);
    BootMillis(u64::try_from(millis).unwrap_or(0))
}
