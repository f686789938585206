//! Deadlines of requests, and whether a request may be repeated.

use std::time::Duration;
use tokio::time::Instant;

/// Point in time by which a whole operation must be answered.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    at: Instant,
    pub(crate) limit: Duration,
}

impl Deadline {
    /// Returns the deadline that ends this long from now.
    pub fn within(limit: Duration) -> Self {
        Self { at: Instant::now() + limit, limit }
    }

    /// Returns the remaining time; zero after the deadline.
    pub fn left(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }
}

/// Whether a request may be sent again after its answer was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Always: the request changes nothing, or has the same effect every time.
    Freely,
    /// Only if the request was certainly not applied.
    IfNotApplied,
}
