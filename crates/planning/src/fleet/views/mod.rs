//! What commands and pages show of the fleet. Each view is a value: `Serialize` gives its JSON, and
//! `Display` its text.

mod claim;
mod freeze;
mod host;
mod roots;
mod roster;
mod service;
mod status;
#[cfg(test)]
mod tests;
mod unaccounted;

pub use claim::ClaimView;
pub use freeze::FreezeView;
pub use host::{HostRollout, HostView, HostWaits};
pub use roots::RootsView;
pub use roster::RosterView;
pub use service::{ServiceView, ServicesView};
pub use status::{OutOfUse, SilentService, StatusParts, StatusView};
pub use unaccounted::UnaccountedView;

use super::state::FleetTarget;
use schema::names::{ServiceName, Version};
use schema::records::UnpublishedService;
use serde::Serialize;

/// The desired version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DesiredVersion {
    /// The version.
    pub version: Version,
    /// The revision of `/current_version`.
    pub revision: i64,
}

impl DesiredVersion {
    fn of(target: &FleetTarget) -> Option<Self> {
        match target {
            FleetTarget::Known { version, revision } => {
                Some(Self { version: version.clone(), revision: *revision })
            }
            _ => None,
        }
    }
}

impl std::fmt::Display for DesiredVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (revision {})", self.version, self.revision)
    }
}

/// A service that its host defines and does not publish.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unpublished {
    /// The name of the service.
    pub service: ServiceName,
    /// Why it is not published.
    pub reason: String,
}

impl From<&UnpublishedService> for Unpublished {
    fn from(unpublished: &UnpublishedService) -> Self {
        let UnpublishedService { service, reason } = unpublished;
        Self { service: service.clone(), reason: reason.clone() }
    }
}
