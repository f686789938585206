//! Derives the verdict about a host from what the store contains about it, and about the fleet.

use super::facts::HostFacts;
use super::state::Fleet;
use super::target::FleetTarget;
use crate::verdict::{FailedBy, FleetVerdict, Running};
use schema::freeze::FreezeScope;
use schema::frozen::FrozenBy;
use schema::keys::StatusState;
use schema::names::{HostName, StatusType};
use schema::plan::Phase;
use schema::records::{Driver, Report};
use schema::verdict::{HostVerdict, VerdictKind};
use schema::why_not::WhyNot;

impl Fleet {
    pub(super) fn derive_verdict(&self, host: &HostName, facts: &HostFacts) -> FleetVerdict {
        lost(facts)
            .or_else(|| self.failed(facts).map(FleetVerdict::Failed))
            .or_else(|| self.why_not(host, facts).map(FleetVerdict::Held))
            .or_else(|| self.running(facts).map(FleetVerdict::Running))
            .unwrap_or(FleetVerdict::Ok)
    }

    /// Returns why the host does not go on. What needs an operator comes first.
    fn why_not(&self, host: &HostName, facts: &HostFacts) -> Option<WhyNot> {
        self.blocked(facts)
            .or_else(|| self.deadlocks.get(host).cloned().map(WhyNot::Deadlock))
            .or_else(|| self.frozen(host, facts).map(WhyNot::Frozen))
            .or_else(|| self.waiting(facts))
    }

    /// Returns the report of a live agent. If there is an instruction, the report counts only if
    /// the host decided on exactly that instruction.
    pub(super) fn current_report<'e>(&self, facts: &'e HostFacts) -> Option<&'e Report> {
        let report = facts.live_report()?;
        match &self.target {
            FleetTarget::Known { order, .. } => {
                report.target.as_ref().is_some_and(|t| t.revision == order.revision).then_some(report)
            }
            _ => Some(report),
        }
    }

    fn failed(&self, facts: &HostFacts) -> Option<FailedBy> {
        if let Some(HostVerdict::Failed(failed)) = self.current_report(facts).map(|r| &r.verdict) {
            return Some(FailedBy::Report(failed.clone()));
        }
        if let Some((kind, record)) = facts.results(StatusState::Failed).next() {
            return Some(FailedBy::Status { kind: kind.clone(), record: record.cloned() });
        }
        // The results of an agent are durable. Only the successful result of a script expires; the
        // key in `/orchestrate/reporting` then shows that it existed.
        let stale = |kind: &&StatusType| !facts.statuses.keys().any(|(found, _)| found == *kind);
        if facts.live.is_some() {
            return None;
        }
        let kind = facts.reporting.iter().find(stale)?;
        Some(FailedBy::Stale { kind: kind.clone() })
    }

    fn blocked(&self, facts: &HostFacts) -> Option<WhyNot> {
        let report = facts.live_report();
        if facts.is_decommissioned() {
            return Some(WhyNot::Decommissioned);
        }
        // The cause is rarely the instruction, so the host also counts as blocked if its report is
        // about an older instruction.
        match (report.map(|r| &r.verdict), &self.target) {
            (Some(HostVerdict::Held(WhyNot::InvalidInstruction { .. })), FleetTarget::Known { .. }) => {}
            (Some(HostVerdict::Held(reason)), _) if reason.kind() == VerdictKind::Blocked => {
                return Some(reason.clone());
            }
            _ => {}
        }
        match (&self.target, report.and_then(|r| r.target.as_ref())) {
            (FleetTarget::Invalid { why }, _) => Some(WhyNot::InvalidInstruction { why: why.clone() }),
            (FleetTarget::Known { order, .. }, Some(decided)) if decided.revision > order.revision => {
                Some(WhyNot::NewerInstruction { decided: decided.revision, found: order.revision })
            }
            _ => None,
        }
    }

    /// Returns the freeze that keeps a host from starting: one that matches it while it is not at the
    /// target and has disturbed nothing yet.
    fn frozen(&self, host: &HostName, facts: &HostFacts) -> Option<FrozenBy> {
        let target = self.target.version()?;
        if self.freezes.is_empty() || facts.listed.iter().eq([target]) {
            return None;
        }
        let report = facts.live_report()?;
        // A host that has the target installed has nothing to start, and a script says no phase.
        let starts = match report.phase {
            Phase::Idle => report.installed.as_ref() != Some(target),
            Phase::Prefetch | Phase::Start => true,
            Phase::Apply | Phase::Converge | Phase::Validate => false,
        };
        let is_script = matches!(&facts.live, Some(Ok(claim)) if claim.driver == Driver::External);
        if !starts || is_script {
            return None;
        }
        self.freezes_of(host, facts).next().cloned()
    }

    /// Returns the freezes that match a host.
    pub(super) fn freezes_of(&self, host: &HostName, facts: &HostFacts) -> impl Iterator<Item = &FrozenBy> {
        let roster = facts.roster.as_ref();
        let (role, group) = (roster.and_then(|r| r.role.as_ref()), roster.and_then(|r| r.group.as_ref()));
        let scopes = FreezeScope::of_host(host, role, group);
        self.freezes.values().filter(move |frozen| scopes.contains(&frozen.scope))
    }

    fn waiting(&self, facts: &HostFacts) -> Option<WhyNot> {
        let reported = self.current_report(facts).map(|report| &report.verdict);
        if let Some(HostVerdict::Held(reason)) = reported
            && reason.kind() == VerdictKind::Waiting
        {
            return Some(self.with_halt(reason));
        }
        if let Some((kind, _)) = facts.results(StatusState::Pending).next() {
            return Some(WhyNot::Status(kind.clone()));
        }
        let idle = facts.live.is_none() && facts.listed.is_empty();
        (idle && self.target == FleetTarget::NotSet).then_some(WhyNot::Instruction)
    }

    /// Returns what a host waits for. Its report may be older than the halt of the rollout.
    fn with_halt(&self, reason: &WhyNot) -> WhyNot {
        match self.target.order().and_then(|order| self.halts.get(&order)) {
            Some(why) if reason.is_turn() => WhyNot::Halted { why: why.clone() },
            _ => reason.clone(),
        }
    }

    fn running(&self, facts: &HostFacts) -> Option<Running> {
        if facts.live.is_some() {
            match &facts.report {
                None => return Some(Running::NoReport),
                Some(Err(why)) => return Some(Running::UnreadableReport { why: why.clone() }),
                Some(Ok(_)) => {}
            }
            // The host had already proven this version when it was triggered again, so it has
            // nothing to do.
            let is_proven = |report: &Report| {
                let version = self.target.version();
                report.verdict == HostVerdict::Ok
                    && report.installed.as_ref() == version
                    && facts.listed.iter().eq(version)
            };
            if facts.readable_report().is_some_and(is_proven) {
                return None;
            }
            let Some(report) = self.current_report(facts) else {
                let decided = facts.readable_report().and_then(|r| r.target.as_ref()).map(|t| t.revision);
                return Some(Running::NotActedOn { decided });
            };
            if let HostVerdict::Running { version } = &report.verdict {
                let step = report.running_step.as_ref().map(|running| (running.phase, running.step.clone()));
                return Some(Running::Towards { version: version.clone(), step });
            }
        }
        // A report with the verdict ok counts only together with the listing, which is the proof
        // for all other readers.
        let wanted = match &self.target {
            FleetTarget::Known { version, .. } => Some(version),
            _ => self.current_report(facts).and_then(|r| r.installed.as_ref()),
        };
        let there = facts.listed.len() == 1 && wanted.is_none_or(|wanted| facts.listed.contains(wanted));
        if there || (facts.listed.is_empty() && wanted.is_none()) {
            None
        } else if facts.listed.is_empty() {
            Some(Running::NotListed)
        } else {
            Some(Running::ListedUnder(facts.listed.clone()))
        }
    }
}

/// Returns the verdict lost for a host that is on the roster or once reported, and that is now
/// neither live nor listed. A host that only scripts put on the roster is not: its listing ends while it is updated.
fn lost(facts: &HostFacts) -> Option<FleetVerdict> {
    let known = facts.is_expected() || facts.report.is_some();
    let silent = facts.live.is_none() && facts.listed.is_empty();
    if !known || !silent {
        return None;
    }
    let last_report = facts.readable_report().map(|report| report.at);
    Some(FleetVerdict::Lost { seen: facts.was_seen(), last_report })
}
