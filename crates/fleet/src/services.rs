//! Services that do not work, or only with a warning, without an explanation. A critical one makes the fleet fail
//! even if every host runs its version.

use crate::facts::HostFacts;
use crate::state::Fleet;
use crate::verdict::{FleetVerdict, Running};
use schema::health::CheckStatus;
use schema::keys::StatusState;
use schema::names::{HostName, ServiceName, StatusType};
use schema::plan::Phase;
use schema::records::{FailingCheck, UnpublishedService};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeSet;

/// A service or a host check that is critical or in warning.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct FailedService {
    /// The name of the host.
    pub host: HostName,
    /// The name of the service, or of a check of the host itself.
    pub check: String,
    /// The last line that the check printed; `None` if the host has not reported it yet.
    #[serde(rename = "output")]
    pub line: Option<String>,
}

impl FailedService {
    /// Returns what the check printed, for people.
    pub fn output(&self) -> &str {
        self.line.as_deref().unwrap_or("its host has not reported the output yet")
    }
}

impl Fleet {
    /// Returns the services that live hosts define and do not publish, by host.
    pub fn unpublished(&self) -> impl Iterator<Item = (&HostName, &UnpublishedService)> {
        let live = self.hosts.iter().filter(|(_, facts)| facts.live.is_some());
        live.filter_map(|(host, facts)| Some((host, facts.readable_report()?)))
            .flat_map(|(host, report)| report.unpublished.iter().map(move |service| (host, service)))
    }

    /// Returns the critical services and the critical checks of hosts themselves, ordered by host.
    /// Failures with an explanation are left out: the host is updating or lost, or an operator set
    /// maintenance.
    pub fn failed_services(&self) -> Vec<FailedService> {
        self.unwell_services(CheckStatus::Critical)
    }

    /// Returns the services and checks of hosts that are in warning, in the same way.
    pub fn warning_services(&self) -> Vec<FailedService> {
        self.unwell_services(CheckStatus::Warning)
    }

    fn unwell_services(&self, status: CheckStatus) -> Vec<FailedService> {
        let mut down = BTreeSet::new();
        for ((host, service), _) in self.services.unwell.iter().filter(|(_, found)| **found == status) {
            if self.services.maintenance.get(host).is_some_and(|out| out.of(service).is_some())
                || self.hosts.get(host).is_some_and(|facts| self.is_explained(host, facts))
            {
                continue;
            }
            // A service that stands for a result, as `puppet` of the original tool, fails once.
            let result = StatusType::new(service.as_str()).map(|kind| (kind, StatusState::Failed));
            let facts = self.hosts.get(host);
            if result.is_ok_and(|result| facts.is_some_and(|facts| facts.statuses.contains_key(&result))) {
                continue;
            }
            let (host_checks, line) = self.check_outputs(host, service, status);
            // A check of the host gives its status to all services of the host. It is named instead of them.
            if host_checks.is_empty() {
                down.insert(FailedService { host: host.clone(), check: service.to_string(), line });
            }
        }
        for (host, facts) in &self.hosts {
            let report = facts.live_report();
            let is_down = |check: &&FailingCheck| check.service.is_none() && check.status == status;
            let mut checks = report.iter().flat_map(|report| &report.checks).filter(is_down).peekable();
            let is_out = self.services.maintenance.get(host).is_some_and(|out| out.host.is_some());
            // Most hosts have no such check, and a verdict costs more.
            if checks.peek().is_none() || is_out || self.is_explained(host, facts) {
                continue;
            }
            for check in checks {
                let (check, line) = (check.check.clone(), Some(check.line.clone()));
                down.insert(FailedService { host: host.clone(), check, line });
            }
        }
        down.into_iter().collect()
    }

    /// Returns the checks of the host itself with this status, and the output of the first check of the
    /// service with it. The checks are empty if the service has such a check of its own.
    fn check_outputs(
        &self,
        host: &HostName,
        service: &ServiceName,
        status: CheckStatus,
    ) -> (Vec<&str>, Option<String>) {
        let report = self.hosts.get(host).and_then(HostFacts::readable_report);
        let failing = report.iter().flat_map(|r| &r.checks).filter(|check| check.status == status);
        let own = failing.clone().find(|check| check.service.as_ref() == Some(service));
        let of_host = match own {
            Some(_) => Vec::new(),
            None => failing.filter(|c| c.service.is_none()).map(|check| check.check.as_str()).collect(),
        };
        (of_host, own.map(|check| check.line.clone()))
    }

    /// True if the host is updating or lost: its verdict explains its services better.
    fn is_explained(&self, host: &HostName, facts: &HostFacts) -> bool {
        let report = facts.live_report();
        let is_disturbed = report
            .is_some_and(|report| !matches!(report.phase, Phase::Idle | Phase::Prefetch | Phase::Start));
        is_disturbed
            || matches!(
                self.verdict(host),
                Some(FleetVerdict::Lost { .. } | FleetVerdict::Running(Running::Towards { .. }))
            )
    }
}
