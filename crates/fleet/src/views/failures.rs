//! What failed in the fleet: results, hosts that are lost, and services that do not work.

use super::failure_groups::FailureGroups;
use super::found_failure::{FailedCheck, FoundFailure};
use crate::bundles::NewestBundles;
use crate::facts::HostFacts;
use crate::state::Fleet;
use schema::keys::StatusState;
use schema::names::{HostName, StatusType};
use schemars::JsonSchema;
use serde::Serialize;

/// The types of results that every host can have.
pub fn known_types() -> [StatusType; 3] {
    [StatusType::validation(), StatusType::apply(), StatusType::provisioned()]
}

/// Everything that failed, by host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FailuresView {
    /// What failed.
    pub failures: Vec<FoundFailure>,
    /// The results that are pending, and the services and checks in warning; empty if they are not wanted.
    pub warnings: Vec<FoundFailure>,
    /// The failures by cause, if they are wanted so.
    pub groups: Option<FailureGroups>,
    /// The revision of the store at which the fleet was read.
    pub revision: i64,
}

impl FailuresView {
    /// Returns everything that failed in a fleet, by cause too, and what is pending.
    pub fn of(fleet: &Fleet, revision: i64) -> Self {
        let bundles = NewestBundles::of(fleet);
        let mut failures = results(fleet, StatusState::Failed, &bundles);
        for (host, facts) in fleet.hosts().iter().chain(fleet.others()) {
            let found = |check| FoundFailure::without_record(host.clone(), check, None);
            let is_lost = facts.is_expected() && !facts.is_decommissioned();
            if is_lost && facts.live.is_none() && facts.listed.is_empty() {
                failures.push(found(FailedCheck::Liveness));
            }
            let stale = known_types().into_iter().filter(|kind| is_stale(kind, facts));
            failures.extend(stale.map(|kind| found(FailedCheck::Stale(kind))));
        }
        failures.extend(fleet.failed_services().into_iter().map(FoundFailure::from));
        failures.sort_by(|a, b| (&a.host, &a.check).cmp(&(&b.host, &b.check)));
        let mut warnings = results(fleet, StatusState::Pending, &bundles);
        warnings.extend(fleet.warning_services().into_iter().map(FoundFailure::from));
        warnings.sort_by(|a, b| (&a.host, &a.check).cmp(&(&b.host, &b.check)));
        Self { groups: Some(FailureGroups::new(&failures)), failures, warnings, revision }
    }
}

/// Returns the results of the known types in a state.
fn results(fleet: &Fleet, state: StatusState, bundles: &NewestBundles) -> Vec<FoundFailure> {
    let hosts = fleet.hosts().iter().chain(fleet.others());
    let of_host = |(host, facts): (&HostName, &HostFacts)| {
        let of_kind = |kind: StatusType| {
            let record = facts.statuses.get(&(kind.clone(), state))?.as_deref().cloned();
            Some(FoundFailure::of_record(host.clone(), FailedCheck::Status(kind), record, bundles))
        };
        known_types().into_iter().filter_map(of_kind).collect::<Vec<_>>()
    };
    hosts.flat_map(of_host).collect()
}

/// True if a host without a live agent once reported a type and has no result of it now.
fn is_stale(kind: &StatusType, facts: &HostFacts) -> bool {
    let has_result = facts.statuses.keys().any(|(found, _)| found == kind);
    facts.live.is_none() && facts.reporting.contains(kind) && !has_result
}
