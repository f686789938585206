//! Functions that wait for a condition with a deadline, never for a fixed time.

use std::time::{Duration, Instant};

/// Default deadline of a condition.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// Waits until `look` returns a value, at most [`DEADLINE`]; panics with the result of `state`.
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>, state: impl FnOnce() -> String) -> T {
    until_within(DEADLINE, what, look, state)
}

/// Same as [`until`], with its own deadline.
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

/// Asserts that a condition stays true for `duration`: the only way to show that something does not
/// happen.
pub fn stays(what: &str, duration: Duration, mut holds: impl FnMut() -> bool, state: impl Fn() -> String) {
    let deadline = Instant::now() + duration;
    while Instant::now() < deadline {
        assert!(holds(), "did not stay so: {what}\n{}", state());
        std::thread::sleep(Duration::from_millis(30));
    }
}
