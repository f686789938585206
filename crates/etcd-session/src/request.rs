//! How long one request may take, and whether it may be repeated.

use std::time::Duration;
use tokio::time::Instant;

/// The point in time by which a whole operation must be answered.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    at: Instant,
    pub(crate) limit: Duration,
}

impl Deadline {
    /// From now.
    pub fn within(limit: Duration) -> Self {
        Self { at: Instant::now() + limit, limit }
    }

    /// What is left.
    pub fn left(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }
}

/// Whether a request may be sent again when its answer was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It changes nothing, or the same thing every time.
    Freely,
    /// Only when it surely was not applied.
    IfNotApplied,
}
