//! Everything of `orchestrate` that can be known and decided without IO: names, keys, values,
//! settings, decisions and verdicts. No clock, no file, no environment, no process, no randomness;
//! what these would bring comes in as an argument.

pub mod catalog;
pub mod planning;
pub mod schema;
