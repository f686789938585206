//! What a host does next: the inputs of a decision, the decision itself, and the recorded state of
//! the host that it depends on.

mod brakes;
mod claims;
mod counted_failure;
mod decide;
mod input;
mod needs;
mod next_attempt;
mod progress;
mod publish;
mod state;
mod step_logs;
pub mod store_view;
#[cfg(test)]
mod tests;
mod trust;
mod verdict;
mod write;

pub use brakes::{Brakes, BrakesMemory, EndSearch};
pub use decide::{Advance, advance, decide};
pub use input::{
    Addressable, Claim, Commands, Decision, Desired, HostProblems, Observed, Published, Target, VersionFile,
};
pub use state::{
    Attempt, AttemptEnd, Converged, CountedFailure, Cycle, Deferred, Fact, Hold, HostState, OnSuspect,
    Progress, ProvenIn, REPORTS_IN_A_BURST, RolloutProgress, RunningStep, StepReport, Validation,
    ValidationResult,
};
pub use trust::{HighestSeen, TrustChange, reassess};
pub use write::{KnownStore, StoreWrite};
