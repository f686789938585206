//! Decisions: what a host does next, the state of a fleet, and the settings that both depend on.

pub mod fleet;
pub mod host;
pub mod incidents;
pub mod lint;
pub mod named_files;
pub mod policy;
pub mod rollout;
pub mod settings;
pub mod text;
pub mod upgrade;
