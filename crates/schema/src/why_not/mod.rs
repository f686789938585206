//! Why a host does not go on: one type, from the decision of the host to the report and to every view. It is
//! data; its texts are made where they are shown.
//!
//! There are two texts. [`std::fmt::Display`] writes the reason of the verdict: it stays the same as long as the
//! host waits for the same thing, so hosts with one reason are counted together. [`WhyNot::detail`]
//! also says who holds the host, as far as that is known.

mod hint;
mod parts;
mod reason;
#[cfg(test)]
mod tests;
mod wire;

pub use parts::{LimitDetail, StageHold, StageSoak, WaitingHost, describe_loop, over_budget};
pub use reason::WhyNot;
pub(crate) use wire::{BlockedWire, VerdictWire, WaitingWire, planned};
