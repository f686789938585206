//! Decisions: what a host does next, and how a rollout goes on.

pub mod calendar;
pub mod host;
pub mod rollout;
