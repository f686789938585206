//! Time limits and delays of requests to the store, in one table.
//!
//! | what | limit or delay |
//! |---|---|
//! | one request of an agent, over all members | [`REQUEST_TIMEOUT`] |
//! | an agent claims its name, writes its state or its services again after a failure | [`write_backoff`] |
//! | the same after the store refused it, unless something changes before | [`refused_delay`] |
//! | a request is sent to the members again after all of them failed | [`request_backoff`] |
//! | a mirror or a feed connects again | [`WATCH_BACKOFF`] |

use crate::error::StoreError;
use crate::request::Deadline;
use schema::time::Backoff;
use std::time::Duration;

/// Time limit of one request of an agent, over all members of the store.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(8);

/// Bounds of the delay before a mirror or a feed connects again. The delays of many agents are
/// spread ([`Backoff::spread`]).
pub(crate) const WATCH_BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(45));

/// Returns the delays before an agent claims its name, writes its state or writes its services
/// again.
pub fn write_backoff() -> Backoff {
    Backoff::new(Duration::from_millis(200), Duration::from_secs(30))
}

/// Returns the shortest delay before an agent tries again what failed with this error. What the store
/// refused, for example with the alarm NOSPACE, it refuses again.
pub fn refused_delay(error: &StoreError) -> Duration {
    match error {
        StoreError::NoSpace { .. }
        | StoreError::PermissionDenied { .. }
        | StoreError::Unauthenticated { .. }
        | StoreError::Refused { .. } => Duration::from_secs(5),
        _ => Duration::ZERO,
    }
}

/// Returns the delays before a request is sent again, after every member was tried once.
pub(crate) fn request_backoff() -> Backoff {
    Backoff::new(Duration::from_millis(40), Duration::from_secs(2))
}

impl Deadline {
    /// Returns the deadline of a request of an agent that begins now.
    pub fn of_request() -> Self {
        Self::within(REQUEST_TIMEOUT)
    }
}
