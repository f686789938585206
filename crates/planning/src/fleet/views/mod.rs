//! What commands and pages show of the fleet. Each view is a value: `Serialize` gives its JSON, and
//! `Display` its text.

mod causes;
mod claim;
mod freeze;
mod host;
mod hosts;
mod parts;
mod roots;
mod service;
mod status;
#[cfg(test)]
mod tests;
mod unaccounted;

pub use causes::{Cause, HostVerdictView};
pub use claim::ClaimView;
pub use freeze::FreezeView;
pub use host::{HostRollout, HostView, HostWaits};
pub use hosts::{HostFilter, HostOrder, HostsView, ListedHost};
pub use parts::{DesiredVersion, Unpublished};
pub use roots::RootsView;
pub use service::{ServiceView, ServicesView};
pub use status::{MaintenanceView, SilentService, StatusParts, StatusView};
pub use unaccounted::UnaccountedView;
