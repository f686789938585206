//! How a rollout is expected to go: when each host starts, which stage opens when, and where it halts. It uses
//! the functions by which the hosts decide, on a clock that jumps from one event to the next. What it does not
//! know: services that hosts wait for, steps that say "not yet", and reboots.

mod durations;
mod fleet;
mod looker;
mod result;
mod run;
mod types;

pub use durations::Durations;
pub use types::{Forecast, ForecastHost, ForecastInput, ForecastStage, Outcome};

use schema::keys::{Key, Prefix, StatusState};
use schema::names::StatusType;
use schema::order::InstructionOrder;

/// Returns what a forecast of this rollout reads, all at one revision, besides the reports that
/// [`Durations::of_reports`] needs.
pub fn forecast_reads(order: InstructionOrder) -> (Vec<Key>, Vec<Prefix>) {
    let (mut keys, mut ranges) = super::end_reads(order);
    keys.push(Key::RolloutPolicy);
    let provisioned = Prefix::Status(StatusType::provisioned(), StatusState::Success);
    ranges.extend([Prefix::Claims, provisioned]);
    (keys, ranges)
}

/// Returns how a rollout is expected to go.
pub fn forecast(input: &ForecastInput<'_>) -> Forecast {
    result::result(&run::Run::new(input).finish())
}
