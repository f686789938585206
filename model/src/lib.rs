//! Everything of `orchestrate` that can be known and decided without IO: names, keys, values,
//! settings, decisions and verdicts. No clock, no file, no environment, no process, no randomness;
//! what these would bring comes in as an argument.

pub mod catalog;
pub mod checks;
pub mod decide;
pub mod definitions;
pub mod fleet;
pub mod grants;
pub mod keys;
pub mod lint;
pub mod names;
pub mod policy;
pub mod requires;
pub mod server_version;
pub mod settings;
pub mod standing;
pub mod time;
pub mod values;
