//! Runs local commands. Only a file is executed that nobody but root or this process's user could have put there, and
//! there is no shell.

mod environment;
mod run;
pub mod trust;

pub use environment::base_environment;
pub use run::{End, Outcome, run};
