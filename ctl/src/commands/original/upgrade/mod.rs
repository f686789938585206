//! The rolling upgrade of the original tool, for hosts whose scripts ask `check_puppet` whether they may run:
//! which of them may go now. The global key holds every host, and the key of a host lets it go. A host that
//! may go and is not listed under the version holds a place of its role until it is.
//!
//! A rollout policy knows nothing of this: its limits hold a host that may go here as any other.

mod pattern;
mod rules;
mod state;
mod step;
#[cfg(test)]
mod tests;

pub(crate) use rules::UpgradeRules;
pub(crate) use state::{UpgradeState, UpgradeView, upgrade_reads};
pub(crate) use step::{UpgradeStep, disable_all, next_step};
