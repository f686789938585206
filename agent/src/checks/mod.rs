//! Checks: one task runs them on time, and a registry holds their results.

mod registry;
mod run;
mod scheduler;

pub(crate) use registry::{CheckRegistry, CheckView, UnknownCheck};
pub(crate) use scheduler::Scheduler;
