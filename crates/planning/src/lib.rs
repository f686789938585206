//! Decisions: what a host does next, how a fleet stands, and the settings that both rest on.

pub mod fleet;
pub mod host;
pub mod lint;
pub mod policy;
pub mod settings;
