//! Observers of requests, which count them for metrics.

use crate::error::StoreError;
use std::time::Duration;

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    /// A client of a member. Only failures are observed.
    Connect,
    /// A read of keys and ranges.
    Read,
    /// A read of one page of a range.
    List,
    /// A transaction that writes.
    Commit,
    /// A request about a lease.
    Lease,
    /// A request about the store itself: members, version, alarms.
    Admin,
}

impl RequestKind {
    /// Returns the name of the kind, in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Read => "read",
            Self::List => "list",
            Self::Commit => "commit",
            Self::Lease => "lease",
            Self::Admin => "admin",
        }
    }
}

/// Called after each request to the store: its kind, the error if it failed, and how long it took. A
/// request that is repeated counts each time.
pub type RequestObserver = Box<dyn Fn(RequestKind, Option<&StoreError>, Duration) + Send + Sync>;
