//! Parts of several views.

use crate::fleet::state::FleetTarget;
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
    pub(super) fn of(target: &FleetTarget) -> Option<Self> {
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
