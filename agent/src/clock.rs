//! The two clocks of the machine.

use rustix::time::{ClockId, clock_gettime};
use schema::time::{BootMillis, EpochSeconds, Now};

pub(crate) fn now() -> Now {
    let wall = clock_gettime(ClockId::Realtime);
    Now { boot: boot_millis(), wall: EpochSeconds(wall.tv_sec) }
}

/// Returns the milliseconds since boot, including the time that the machine was suspended.
#[cfg(not(test))]
pub(crate) fn boot_millis() -> BootMillis {
    let boot = clock_gettime(ClockId::Boottime);
    let millis = boot.tv_sec.saturating_mul(1000).saturating_add(boot.tv_nsec / 1_000_000);
    BootMillis(u64::try_from(millis).unwrap_or(0))
}

/// In tests the time is that of tokio's clock, which a test can pause.
#[cfg(test)]
pub(crate) fn boot_millis() -> BootMillis {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    let now = tokio::time::Instant::now().into_std();
    let since = now.saturating_duration_since(*START.get_or_init(std::time::Instant::now));
    BootMillis(1_000_000 + u64::try_from(since.as_millis()).unwrap_or(0))
}
