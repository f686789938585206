//! Parts of several views.

use crate::target::FleetTarget;
use planning::calendar::rfc3339;
use schema::keys::StatusState;
use schema::names::{ServiceName, StatusType, Version};
use schema::records::{StatusRecord, UnpublishedService};
use schemars::JsonSchema;
use serde::Serialize;

/// The desired version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DesiredVersion {
    /// The version.
    pub version: Version,
    /// The revision of `/current_version`.
    pub revision: i64,
}

impl DesiredVersion {
    pub(super) fn of(target: &FleetTarget) -> Option<Self> {
        match target {
            FleetTarget::Known { version, order } => {
                Some(Self { version: version.clone(), revision: order.revision })
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
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

/// A result of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ResultView {
    /// The type of the result.
    #[serde(rename = "type")]
    pub kind: StatusType,
    /// Its state.
    pub state: &'static str,
    /// The version that it is about, if the record names one.
    pub version: Option<Version>,
    /// When it was written (RFC 3339).
    pub at: Option<String>,
    /// The exit code.
    pub exit_code: Option<i64>,
    /// The reason that came with it.
    pub reason: Option<String>,
}

impl ResultView {
    pub(super) fn new(kind: &StatusType, state: StatusState, record: Option<&StatusRecord>) -> Self {
        Self {
            kind: kind.clone(),
            state: state.as_str(),
            version: record.and_then(|record| record.version.clone()),
            at: record.and_then(|record| rfc3339(record.at)),
            exit_code: record.and_then(|record| record.code),
            reason: record.map(|record| record.reason.clone()).filter(|reason| !reason.is_empty()),
        }
    }
}
