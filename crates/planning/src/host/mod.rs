//! What a host does next: the inputs of a decision, the decision itself, and the recorded state of
//! the host that it depends on.

mod attempt;
mod brakes;
mod claims;
mod counted_failure;
mod cycle;
mod decide;
mod ends;
mod input;
mod inputs;
mod needs;
mod next_attempt;
mod progress;
mod publish;
mod record;
mod reporting;
mod site_config;
mod state;
mod step_logs;
mod step_memory;
pub mod store_view;
#[cfg(test)]
mod tests;
mod trust;
mod verdict;
mod write;

pub use attempt::{Attempt, AttemptEnd, AttemptHistory, Deadline, Deferred, Disruption, Progress, Stage};
pub use brakes::{Brakes, BrakesMemory, RolloutDriver};
pub use cycle::{Converged, Cycle, Cycles, LastConverge, Validation, ValidationResult};
pub use decide::{Advance, advance, decide};
pub use input::{
    Addressable, Claim, Commands, Decision, Desired, HostProblems, Observed, Published, Target, VersionFile,
};
pub use record::{Fact, Start, StepReport};
pub use reporting::{REPORTS_IN_A_BURST, Reporting};
pub use site_config::{
    BACKOFF_SECONDS, INTERRUPTIONS_MAX, Leftovers, SUSPECT_AFTER, SiteConfig, Step, StepMeaning, Steps,
};
pub use state::{
    CountedFailure, Hold, HostState, InProgress, ObservedOrders, OnSuspect, ProvenIn, Recovery, RolloutPart,
    RolloutProgress, Versions,
};
pub use step_memory::{Running, RunningStep, StepMemory};
pub use trust::{HighestSeen, TrustChange, reassess};
pub use write::{KnownStore, StoreWrite};
