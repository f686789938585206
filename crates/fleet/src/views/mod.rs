//! What commands and pages show of the fleet. Each view is a value: `Serialize` gives its JSON, and
//! `Display`, or `text` if the text depends on the time or the terminal, its text.

mod automatic;
mod causes;
mod changes;
mod claim;
mod events;
mod failure_groups;
mod failures;
mod found_failure;
mod freeze;
mod host;
mod host_rollout;
mod hosts;
mod machine;
mod maintenance;
mod own_verdict;
mod parts;
mod past_event;
mod policy_changes;
mod problem;
mod rollout_history;
mod roots;
mod running_step;
mod service;
mod status;
#[cfg(test)]
mod tests;
mod unaccounted;

pub use automatic::tells_of_events;
pub use causes::{Cause, HostVerdictView};
pub use changes::{host_changes, tells_of_hosts};
pub use claim::{ClaimView, HeldClaimView};
pub use events::{EventsView, event_reads, events_after};
pub use failure_groups::{FailureGroup, FailureGroups};
pub use failures::{FailuresView, known_types};
pub use found_failure::{FailedCheck, FoundFailure};
pub use freeze::FreezeView;
pub use host::{HostView, HostWaits, Link};
pub use host_rollout::{FullLimit, HOLDERS_SHOWN, HostRollout};
pub use hosts::{HostFilter, HostOrder, HostsView, ListedHost};
pub use maintenance::MaintenanceView;
pub use parts::{DesiredVersion, Unpublished};
pub use past_event::{HostChange, PastEvent};
pub use problem::{Problem, ProblemKind, ProblemOn};
pub use rollout_history::{PastOutcome, PastRollout, RolloutHistory};
pub use roots::{RootsView, WaitingFor};
pub use running_step::RunningStepView;
pub use service::{CheckView, InstanceView, ServiceCounts, ServiceView, ServicesView};
pub use status::{SilentService, StatusParts, StatusView, VersionCount};
pub use unaccounted::UnaccountedView;
