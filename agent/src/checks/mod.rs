//! Checks: one task runs them on time, and a board holds what they said.

mod board;
mod run;
mod scheduler;

pub use board::{Board, ShownCheck, UnknownCheck};
pub use scheduler::Scheduler;
