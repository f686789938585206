//! What the store should contain about a host, and when a difference is worth a write.

use crate::host::input::{Claim, Decision, Desired, Observed, Published, ServiceProblems, Target};
use crate::host::needs::holding;
use crate::host::state::{HostState, REPORTS_IN_A_BURST, Validation, ValidationResult};
use crate::policy::Policy;
use schema::keys::StatusState;
use schema::names::{Token, Version};
use schema::plan::{Action, Effect, HostVerdict, Plan, Planned, Reason};
use schema::records::{Driver, MachineInfo, Report, ReportedStore, ReportedTarget, Wait};
use schema::store_trust::StoreTrust;
use schema::time::Now;
use std::time::Duration;

/// Largest number of needs in a report.
const WAITS_IN_REPORT: usize = 16;
const BURST_WINDOW: Duration = Duration::from_secs(60);

impl HostState {
    /// Returns the version that the host may be listed under: the installed version while its proof
    /// holds.
    pub fn listing(&self) -> Option<&Version> {
        self.installed.as_ref().filter(|_| self.proof_holds && self.in_progress_version.is_none())
    }

    fn may_announce(&self, policy: &Policy) -> bool {
        let passed = |v: &Validation| v.result == ValidationResult::Passed;
        policy.driver == Driver::External || self.validation.as_ref().is_some_and(passed)
    }

    /// Builds the report that belongs to a decision.
    #[expect(clippy::too_many_arguments, reason = "the parts of a report, put together once")]
    pub fn report(
        &self,
        decision: &Decision,
        target: &Target,
        facts: &MachineInfo,
        waits: Vec<Wait>,
        problems: &ServiceProblems,
        now: Now,
        write_id: Token,
    ) -> Report {
        let Decision { plan, verdict } = decision;
        let writes = |p: &Planned| {
            matches!(p.action, Action::Do(Effect::Announce { .. } | Effect::Withdraw | Effect::Report))
        };
        let begins_with_write = plan.actions.first().is_some_and(writes);
        Report {
            at: now.wall,
            write_id,
            phase: plan.phase,
            verdict: verdict.clone(),
            target: match target {
                Target::Known(instruction) => Some(ReportedTarget {
                    version: instruction.version.clone(),
                    revision: instruction.order.revision,
                }),
                _ => None,
            },
            installed: self.installed.clone(),
            // The plan in the report leaves out the write that carries the report, and times since
            // boot, which mean nothing to other hosts.
            plan: Plan {
                actions: plan.actions.iter().skip(usize::from(begins_with_write)).cloned().collect(),
                requeue_at: None,
                ..plan.clone()
            },
            store: self.store.as_ref().map(|s| ReportedStore { lineage: s.lineage.clone(), epoch: s.epoch }),
            facts: facts.clone(),
            waits,
            checks: problems.reported_checks().cloned().collect(),
            unpublished: problems.reported_unpublished().cloned().collect(),
            log: self.log.clone(),
        }
    }
}

/// Returns the needs that hold a host now, as many as its report may name.
pub fn waits_of(state: &HostState, policy: &Policy, waits: &[Wait]) -> Vec<Wait> {
    let mut held = holding(state, policy, waits);
    held.truncate(WAITS_IN_REPORT);
    held
}

/// Inserts a write at the front of the plan if the store does not contain what is true. Local
/// conclusions come first, because they change what is true. The start transaction writes its own
/// report.
pub(super) fn add(
    plan: &mut Plan,
    verdict: &HostVerdict,
    (state, desired, observed): (&HostState, &Desired, &Observed),
    now: Now,
) {
    let settled = match plan.actions.first().map(|p| &p.action) {
        None | Some(Action::Do(Effect::RunStep { .. })) => true,
        Some(_) => false,
    };
    let may_write = observed.store_ready && observed.claim == Claim::Held && !observed.decommissioned;
    let (true, true, Some(published)) = (settled, may_write, &observed.published) else { return };
    let truth = Truth { plan, verdict, state, desired, observed, now };
    let write = match observed.store_trust {
        // A change of the listing must be journaled first. Only a report may be written; it says
        // that local state cannot be recorded.
        StoreTrust::Trusted if observed.cannot_record.is_some() => truth.report_differs(published),
        StoreTrust::Trusted => truth.differing_action(published),
        // The listing and the results are not written. Only a report may be written; it says that
        // the host is blocked.
        StoreTrust::WentBack { .. } => truth.report_differs(published),
        _ => None,
    };
    match write {
        Some(Due::Now(write)) => {
            plan.actions.insert(0, Planned { action: write.into(), because: Reason::StoreDiffers });
        }
        Some(Due::At(at)) => plan.requeue_at = Some(plan.requeue_at.map_or(at, |other| other.min(at))),
        None => {}
    }
}

enum Due {
    Now(Effect),
    At(schema::time::BootMillis),
}

/// What is true on the host now, to be compared with what the store contains.
#[derive(Clone, Copy)]
struct Truth<'a> {
    plan: &'a Plan,
    verdict: &'a HostVerdict,
    state: &'a HostState,
    desired: &'a Desired<'a>,
    observed: &'a Observed<'a>,
    now: Now,
}

impl Truth<'_> {
    /// Returns the first write that is due.
    fn differing_action(&self, published: &Published) -> Option<Due> {
        let Self { state, desired, .. } = *self;
        match (state.listing(), &published.listing) {
            // A validation without a result neither removes nor adds a listing.
            (Some(version), listed)
                if listed.as_ref() != Some(version) && state.may_announce(desired.policy) =>
            {
                return Some(Due::Now(Effect::Announce { version: version.clone() }));
            }
            // A script that drives the host announces by itself. Its listing stays until the version
            // file names another version.
            (None, Some(_)) if desired.policy.driver == Driver::Agent => {
                return Some(Due::Now(Effect::Withdraw));
            }
            _ => {}
        }
        if desired.policy.driver == Driver::Agent && statuses_differ(state, published) {
            return Some(Due::Now(Effect::Report));
        }
        self.report_differs(published)
    }

    /// Returns when a report is due: on a change of phase, verdict, target, installed version, needs,
    /// checks, unpublished services, machine facts or store identity. A change of other details of the
    /// plan alone writes no report.
    fn report_differs(&self, published: &Published) -> Option<Due> {
        let Self { plan, verdict, state, desired, observed, now } = *self;
        let waits = waits_of(state, desired.policy, observed.waits);
        let says = |r: &Report| {
            r.phase == plan.phase
                && r.verdict.is_same_as(verdict)
                && r.waits.len() == waits.len()
                && r.waits.iter().zip(&waits).all(|(reported, wait)| reported.is_same_as(wait))
                && r.checks.len() == observed.problems.reported_checks().count()
                && r.checks
                    .iter()
                    .zip(observed.problems.reported_checks())
                    .all(|(reported, c)| reported.is_same_as(c))
                && r.unpublished.iter().eq(observed.problems.reported_unpublished())
                && r.installed == state.installed
                && r.facts == *observed.facts
                && r.store.as_ref().map(|s| (&s.lineage, s.epoch))
                    == state.store.as_ref().map(|s| (&s.lineage, s.epoch))
                && match &desired.target {
                    Target::Known(t) => r.target.as_ref().is_some_and(|found| {
                        found.version == t.version && found.revision == t.order.revision
                    }),
                    _ => r.target.is_none(),
                }
        };
        if published.report.as_ref().is_some_and(says) {
            return None;
        }
        // A reader of the fleet must learn without delay that the host is blocked until an operator
        // acts.
        let stays_blocked = matches!(observed.store_trust, StoreTrust::WentBack { .. })
            || observed.settings_untrusted.is_some();
        if stays_blocked && published.report.as_ref().is_none_or(|report| report.verdict != *verdict) {
            return Some(Due::Now(Effect::Report));
        }
        let recent = state.report_times.iter().filter(|at| now.boot.since(**at) < BURST_WINDOW).count();
        match state.report_times.last() {
            // If the store has no report of this host, the report is written at once.
            Some(last) if recent >= REPORTS_IN_A_BURST && published.report.is_some() => {
                Some(Due::At(last.plus(BURST_WINDOW)))
            }
            _ => Some(Due::Now(Effect::Report)),
        }
    }
}

fn statuses_differ(state: &HostState, published: &Published) -> bool {
    state.statuses.iter().any(|(kind, (wanted, record))| {
        StatusState::ALL.iter().any(|state| {
            let found = published.statuses.get(&(kind.clone(), *state));
            if state == wanted { found != Some(record) } else { found.is_some() }
        })
    })
}
