//! The state of the whole fleet in one word, from the verdicts about its hosts.

use super::state::Fleet;
use super::target::FleetTarget;
use super::verdict::{FleetState, FleetVerdict};
use schema::names::HostName;
use schema::verdict::VerdictKind;
use schema::why_not::WhyNot;

impl Fleet {
    /// Returns the state of the whole fleet.
    pub fn state(&self) -> FleetState {
        self.state_by(!self.failed_services().is_empty())
    }

    /// True if a host reports settings, service files or templates that it cannot use, or settings that name another
    /// role or group than the roster.
    fn has_problems(&self) -> bool {
        let mut live = self.hosts.values().filter(|facts| facts.live.is_some());
        live.any(|facts| facts.readable_report().is_some_and(|report| !report.problems.is_empty()))
    }

    /// Returns the state of the fleet, for a caller that knows whether services fail.
    pub(super) fn state_by(&self, is_service_down: bool) -> FleetState {
        let any = |test: fn(&FleetVerdict) -> bool| self.verdicts().values().any(test);
        let needs_somebody = |v: &FleetVerdict| {
            matches!(v, FleetVerdict::Lost { .. } | FleetVerdict::Failed(_))
                || v.kind() == VerdictKind::Blocked
        };
        let clashes = self.hosts.values().any(|facts| facts.clash.is_some());
        let is_impaired = is_service_down || clashes || self.has_problems();
        let is_held = || self.is_halted() && self.verdicts().values().any(waits_for_operator);
        if any(needs_somebody) || is_impaired || is_held() || self.lacks_while_settled() {
            FleetState::Failing
        } else if self.target == FleetTarget::NotSet {
            FleetState::Unknown
        } else if any(|v| *v != FleetVerdict::Ok) {
            FleetState::Updating
        } else if self.unknown_reason().is_some() {
            FleetState::Unknown
        } else {
            FleetState::Settled
        }
    }

    /// True if the host waits for its turn in a rollout that is halted. That it reports so does not count: the halt
    /// may have ended since.
    pub fn is_held_by_halt(&self, host: &HostName) -> bool {
        self.is_halted() && self.verdict(host).is_some_and(waits_for_operator)
    }

    /// True if the rollout of the desired version is halted.
    pub(super) fn is_halted(&self) -> bool {
        self.target.order().is_some_and(|order| self.halts.contains_key(&order))
    }

    /// True if a host that is listed under the target waits for a service. Such a host is not
    /// updating: a service that it needs has gone.
    fn lacks_while_settled(&self) -> bool {
        let is_there = |host: &HostName| match self.target.version() {
            Some(version) => self.hosts[host].listed.contains(version),
            None => false,
        };
        let waits = |v: &FleetVerdict| matches!(v, FleetVerdict::Held(WhyNot::Service(_)));
        self.verdicts().iter().any(|(host, verdict)| waits(verdict) && is_there(host))
    }

    /// Returns what, apart from the verdicts of hosts, keeps a reader from calling the fleet
    /// settled.
    pub fn unknown_reason(&self) -> Option<String> {
        match &self.target {
            FleetTarget::NotSet => return Some("no version has been triggered".into()),
            FleetTarget::Invalid { why } => return Some(format!("/current_version is not a version: {why}")),
            FleetTarget::Known { .. } => {}
        }
        if let Some(key) = self.unreadable().first() {
            return Some(format!("{} values cannot be read, the first under {key}", self.unreadable().len()));
        }
        self.hosts.is_empty().then(|| "no host is known".into())
    }
}

fn waits_for_operator(verdict: &FleetVerdict) -> bool {
    verdict.why_not().is_some_and(WhyNot::is_halt)
}
