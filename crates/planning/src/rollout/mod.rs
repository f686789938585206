//! Rollouts: how many hosts may be unavailable at the same time, and in which order they go. Everything
//! here is a pure function over what was read at one revision of the store.

mod end;
mod failures;
mod halt;
mod holders;
mod limits;
mod obstacle;
mod opening;
mod policy;
mod purpose;
mod resolve;
mod rules;
mod stages;
#[cfg(test)]
mod tests;
mod view;

pub use end::{
    ClosingTask, EndTask, HostResult, closing_reads, closing_task, end_reads, end_task, results, unchanged,
};
pub use failures::failed_hosts;
pub use holders::{HolderTask, Holders, mark};
pub use limits::{LimitView, place};
pub use obstacle::Obstacle;
pub use opening::{hosts_of, record_without};
pub use policy::read_policy;
pub use purpose::{ClaimAnswer, ClaimRequest, limit_reads, rollout_reads, store_reads, view_for_claims};
pub use resolve::{RECORD_RANGES, good_version, resolve, unusable};
pub use rules::{RecordTask, Times, governs};
pub use stages::{REST, open_stage, stage_name, stage_of};
pub use view::{Need, Permit, RolloutView, first_reads, second_reads};
