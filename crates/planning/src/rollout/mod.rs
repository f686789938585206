//! Rollouts: how many hosts may be unavailable at the same time, and in which order they go. Everything
//! here is a pure function over what was read at one revision of the store.

mod author;
mod closing;
mod end;
mod failures;
mod forecast;
mod frozen;
mod halt;
mod hold;
mod holders;
mod limits;
mod opening;
mod options;
mod outlook;
mod policy;
mod present;
mod problems;
mod purpose;
mod reads;
mod resolve;
mod results;
mod rules;
mod soak;
mod stages;
mod stuck;
mod summary;
#[cfg(test)]
mod tests;
mod view;
mod watching;
mod window;

pub use author::Author;
pub use closing::{
    ClosingTask, DriverSeen, MARK_INTERVAL, MARK_SECONDS, NEWS_DELAY, ask_delay, closing_reads, closing_task,
    opened_delay, stage_delay,
};
pub use end::{EndTask, end_reads, end_task};
pub use failures::failed_hosts;
pub use forecast::{
    Durations, Forecast, ForecastHost, ForecastInput, ForecastStage, Outcome, forecast, forecast_reads,
};
pub use holders::{HolderTask, Holders, start_timer};
pub use limits::{LimitView, place};
pub use opening::{hosts_of, record_without};
pub use options::{RecordChangeError, record_with, with_options};
pub use outlook::{Outlook, RolloutState};
pub use policy::read_policy;
pub use present::{NoRollout, PresentRollout, RolloutStatus, RolloutWord};
pub use problems::{FailedHostView, RolloutFailures};
pub use purpose::{ClaimAnswer, ClaimRequest, limit_reads, rollout_reads, store_reads, view_for_claims};
pub(crate) use reads::possible_reads;
pub use reads::{first_reads, second_reads};
pub use resolve::{RECORD_RANGES, absent_values, good_version, resolve, unusable};
pub use results::{HostResult, results};
pub use rules::{RecordTask, Times, governs};
pub use stages::{open_stage, stage_name, stage_of};
pub use summary::{RolloutSummary, StageState, StageSummary, summary};
pub use view::{ClaimNeed, Permit, RolloutView};
pub use watching::WatchedQueue;
pub use window::{NextWindow, WindowError, next_window};
