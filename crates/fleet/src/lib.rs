//! The fleet as a reader sees it at one revision, and exactly one verdict for each of its hosts.
//!
//! A host judges itself and writes its verdict in its report. A reader knows more in two ways: it
//! sees hosts that no longer report, and it knows the newest instruction. Hosts without an agent,
//! driven by scripts of the original tool, are judged by their listing and their results.

mod bundles;
mod derive;
mod facts;
pub mod incidents;
mod remaining;
mod services;
mod state;
mod stuck;
mod summary;
mod target;
#[cfg(test)]
mod tests;
pub mod text;
mod verdict;
pub mod views;
mod waits;

pub use bundles::{NewestBundles, UploadedBundle};
pub use facts::HostFacts;
pub use remaining::{Remaining, remaining};
pub use services::FailedService;
pub use state::Fleet;
pub use target::FleetTarget;
pub use verdict::{FailedBy, FleetState, FleetVerdict, Running, Unaccounted};
pub use waits::{Chain, GRACE_SECONDS, LOOP_AGE_SECONDS, Member, Prospect, Root, WaitGraph};
