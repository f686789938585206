//! Waiting for a condition with a deadline; never for a time.

use std::time::{Duration, Instant};

/// How long a condition may take when nothing else is said.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// Waits until `look` answers, at most [`DEADLINE`]; panics with what `state` says.
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>, state: impl FnOnce() -> String) -> T {
    until_within(DEADLINE, what, look, state)
}

/// As [`until`], with its own deadline.
pub fn until_within<T>(
    limit: Duration,
    what: &str,
    mut look: impl FnMut() -> Option<T>,
    state: impl FnOnce() -> String,
) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return found;
        }
        if Instant::now() > deadline {
            panic!("not within {limit:?}: {what}\n{}", state());
        }
        std::thread::sleep(Duration::from_millis(15));
    }
}

/// Holds that a condition stays true for a while: the only way to show that something does not happen.
pub fn stays(what: &str, duration: Duration, mut holds: impl FnMut() -> bool, state: impl Fn() -> String) {
    let deadline = Instant::now() + duration;
    while Instant::now() < deadline {
        assert!(holds(), "did not stay so: {what}\n{}", state());
        std::thread::sleep(Duration::from_millis(30));
    }
}
