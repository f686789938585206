//! What the store should contain about a host, and when a difference is worth a write.

use crate::host::brakes::Brakes;
use crate::host::input::{Claim, Published, Target};
use crate::host::inputs::Inputs;
use crate::host::needs::holding;
use crate::host::next_attempt::{next_attempt, turn_of};
use crate::host::reporting::REPORTS_IN_A_BURST;
use crate::host::site_config::SiteConfig;
use crate::host::state::HostState;
use crate::host::step_memory::Running;
use schema::keys::StatusState;
use schema::names::Version;
use schema::plan::{Action, Effect, Phase, Plan, Planned, Reason};
use schema::records::{
    BundleLink, Driver, HostClaims, LONG_STEP, LongStep, Report, ReportedStore, ReportedTarget,
};
use schema::store_trust::StoreTrust;
use schema::time::{BootMillis, EpochSeconds, Now, Span};
use schema::verdict::HostVerdict;
use schema::why_not::WhyNot;
use std::time::Duration;

/// Largest number of needs in a report.
const WAITS_IN_REPORT: usize = 16;
/// Time within which a host that was refused its start usually knows why.
const READ_WITHIN: Duration = Duration::from_secs(2);
/// How long a phase of an update lasts before it is reported. Most updates have phases that are over sooner, and
/// each report is a write.
const PHASE_LASTS: Duration = Duration::from_secs(2);
/// Time in which a host writes at most [`REPORTS_IN_A_BURST`] reports without a pause.
const BURST_WINDOW: Duration = Duration::from_secs(150);
/// Pause between two reports of a host that has written so many.
const REPORT_PAUSE: Duration = Duration::from_secs(60);

impl HostState {
    /// Returns the version that the host may be listed under: the installed version while its proof
    /// holds.
    pub fn listing(&self) -> Option<&Version> {
        if self.versions.proof_holds && !self.is_disturbed() {
            self.versions.installed.as_ref()
        } else {
            None
        }
    }

    /// True if the store lists the host under a version that the host does not stand for any more. A script that
    /// drives the host announces by itself, and its listing stays until the version file names another version.
    pub fn contradicts(&self, listed: &Version, driver: Driver) -> bool {
        match self.listing() {
            Some(version) => version != listed,
            None => driver == Driver::Agent,
        }
    }

    /// Returns the bundle of this host that is about the instruction which it acts on, or which it has carried out:
    /// other hosts may still fail for the same cause.
    fn bundle_to_report(&self) -> Option<&BundleLink> {
        let of_attempt = self.attempt.as_ref().map(|attempt| attempt.instruction.order);
        let order = of_attempt.or(self.observed.instruction)?;
        self.reporting.bundle.as_ref().filter(|link| link.rollout == order)
    }

    fn may_announce(&self, policy: &SiteConfig) -> bool {
        policy.driver == Driver::External || self.cycles.has_passed()
    }
}

/// Returns the report that belongs to a plan. The plan does not yet begin with the write that carries
/// the report.
pub(super) fn report(
    plan: &Plan,
    verdict: &HostVerdict,
    obstacle: Option<&WhyNot>,
    inputs: Inputs<'_>,
) -> Report {
    let Inputs { state, desired, observed, now } = inputs;
    let mut waits = holding(state, desired.policy, observed.waits);
    waits.truncate(WAITS_IN_REPORT);
    let (log_of, log) = match state.steps.logs.of(verdict) {
        Some((of, lines)) => (Some(of), lines),
        None => (None, Vec::new()),
    };
    Report {
        at: now.wall,
        write_id: observed.write_id.clone(),
        phase: phase_to_report(plan, state),
        verdict: verdict.clone(),
        target: match &desired.target {
            Target::Known(instruction) => Some(ReportedTarget {
                version: instruction.version.clone(),
                revision: instruction.order.revision,
            }),
            _ => None,
        },
        installed: state.versions.installed.clone(),
        // The time to look again is one since boot.
        plan: Plan { requeue_at: None, ..plan.clone() },
        running_step: long_step(plan.phase, state, desired.policy, now).and_then(Result::ok),
        next_attempt_at: next_attempt_at(verdict, obstacle, inputs),
        store: state.store.as_ref().map(|s| ReportedStore { lineage: s.lineage.clone(), epoch: s.epoch }),
        facts: observed.facts.clone(),
        waits,
        checks: observed.problems.reported_checks().cloned().collect(),
        unpublished: observed.problems.reported_unpublished().cloned().collect(),
        problems: observed.problems.reported_files().cloned().collect(),
        durations: state.steps.durations.clone(),
        bundle: state.bundle_to_report().cloned(),
        log_of,
        log: log.into_iter().collect(),
    }
}

/// Returns the phase that the host reports. A host that waits for its start goes on validating its old version, which
/// is no news each time.
fn phase_to_report(plan: &Plan, state: &HostState) -> Phase {
    if state.preparing().is_some() && plan.phase == Phase::Idle { Phase::Start } else { plan.phase }
}

/// Returns when the next attempt begins, or when the host may start, if that is known.
fn next_attempt_at(
    verdict: &HostVerdict,
    obstacle: Option<&WhyNot>,
    inputs: Inputs<'_>,
) -> Option<EpochSeconds> {
    let Inputs { state, desired, observed, now } = inputs;
    if let Some(WhyNot::Window { starts, .. }) = obstacle {
        return *starts;
    }
    let at = match (verdict, &desired.target) {
        (HostVerdict::Held(WhyNot::Spread), Target::Known(target)) => {
            Some(turn_of(&state.host, target, desired))
        }
        _ => next_attempt(state, desired.policy, observed.addressable, now.boot),
    };
    // One that is due and does not begin is held by something else.
    at.filter(|at| *at > now.boot).map(|at| wall_time(at, now))
}

/// Returns the step that runs, if the host is in a phase of an update and the step has run for some time, or
/// the time at which it will have. Steps of a host that has nothing else to do are repeated for ever, and not
/// reported.
fn long_step(
    phase: Phase,
    state: &HostState,
    policy: &SiteConfig,
    now: Now,
) -> Option<Result<LongStep, BootMillis>> {
    let Running { step: running, since: started, at: since } = state.steps.running.as_ref()?;
    if phase == Phase::Idle {
        return None;
    }
    let by_clock = || Duration::from_secs(now.wall.0.saturating_sub(since.0).try_into().unwrap_or_default());
    // The clock may be set meanwhile.
    let ran = started.map_or_else(by_clock, |since| now.boot.since(since));
    if ran < LONG_STEP {
        return Some(Err(now.boot.plus(LONG_STEP - ran)));
    }
    let steps = policy.steps.of(running.phase);
    let timeout = Span(steps.iter().find(|step| step.name == running.step)?.timeout);
    Some(Ok(LongStep { phase: running.phase, step: running.step.clone(), since: *since, timeout }))
}

/// Returns a time on the wall clock. Times since boot mean nothing to other hosts.
fn wall_time(at: BootMillis, now: Now) -> EpochSeconds {
    EpochSeconds(now.wall.0.saturating_add_unsigned(at.since(now.boot).as_secs()))
}

/// Inserts a write at the front of the plan if the store does not contain what is true. Local
/// conclusions come first, because they change what is true. The start transaction writes its own
/// report.
pub(super) fn add(plan: &mut Plan, report: &Report, claims: Option<&HostClaims>, inputs: Inputs<'_>) {
    let Inputs { state, desired, observed, now } = inputs;
    let settled = match plan.actions.first().map(|p| &p.action) {
        None | Some(Action::Do(Effect::RunStep { .. })) => true,
        Some(_) => false,
    };
    let may_write = observed.store_ready && observed.claim == Claim::Held && !observed.decommissioned;
    let (true, true, Some(published)) = (settled, may_write, &observed.published) else { return };
    let truth = Truth { report, claims, inputs };
    let write = match observed.store_trust {
        // A change of the listing must be journaled first. Only a report may be written; it says
        // that local state cannot be recorded. A host that cannot start leaves its queue.
        StoreTrust::Trusted if observed.cannot_record.is_some() => match claims {
            Some(_) => Some(Due::Now(Effect::Report)),
            None => truth.report_differs(published),
        },
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
        Some(Due::At(at)) => requeue(plan, at),
        None => {}
    }
    if let Some(Err(at)) = long_step(plan.phase, state, desired.policy, now) {
        requeue(plan, at);
    }
}

fn requeue(plan: &mut Plan, at: BootMillis) {
    plan.requeue_at = Some(plan.requeue_at.map_or(at, |other| other.min(at)));
}

enum Due {
    Now(Effect),
    At(schema::time::BootMillis),
}

/// What is true on the host now, to be compared with what the store contains.
#[derive(Clone, Copy)]
struct Truth<'a> {
    report: &'a Report,
    claims: Option<&'a HostClaims>,
    inputs: Inputs<'a>,
}

impl Truth<'_> {
    /// Returns the first write that is due.
    fn differing_action(&self, published: &Published) -> Option<Due> {
        let Inputs { state, desired, .. } = self.inputs;
        match (state.listing(), &published.listing) {
            // A validation without a result neither removes nor adds a listing.
            (Some(version), listed)
                if listed.as_ref() != Some(version) && state.may_announce(desired.policy) =>
            {
                return Some(Due::Now(Effect::Announce { version: version.clone() }));
            }
            (None, Some(listed)) if state.contradicts(listed, desired.policy.driver) => {
                return Some(Due::Now(Effect::Withdraw));
            }
            _ => {}
        }
        if desired.policy.driver == Driver::Agent && statuses_differ(state, published) {
            return Some(Due::Now(Effect::Report));
        }
        // Claims keep other hosts from starting, so they are released without delay. A failure may keep others
        // from starting, and the end of a rollout waits for the progress of its hosts.
        if self.claims.is_some() || state.must_write_outcome() {
            return Some(Due::Now(Effect::Report));
        }
        self.report_differs(published)
    }

    /// Returns when a report is due: when the store has none that says the same.
    fn report_differs(&self, published: &Published) -> Option<Due> {
        let Self { report, inputs: Inputs { state, observed, now, .. }, .. } = *self;
        if published.report.as_ref().is_some_and(|found| found.says_the_same_as(report)) {
            return None;
        }
        // A reader of the fleet must learn without delay that the host is blocked until an operator
        // acts.
        let stays_blocked = matches!(observed.store_trust, StoreTrust::WentBack { .. })
            || observed.settings_untrusted.is_some();
        if stays_blocked && published.report.as_ref().is_none_or(|found| found.verdict != report.verdict) {
            return Some(Due::Now(Effect::Report));
        }
        // What refused the start is read within moments, and then the report says it.
        if let Brakes::Refused(_, refused_at) = observed.brakes {
            let due = refused_at.plus(READ_WITHIN);
            if now.boot < due && published.report.is_some() {
                return Some(Due::At(due));
            }
        }
        if let (Some(found), Some(last)) = (&published.report, state.reporting.report_times.last())
            && matches!(report.verdict, HostVerdict::Running { .. })
            && (&found.verdict, &found.target) == (&report.verdict, &report.target)
            && now.boot < last.plus(PHASE_LASTS)
        {
            return Some(Due::At(last.plus(PHASE_LASTS)));
        }
        let due = match &state.reporting.report_times[..] {
            [first, .., last] if state.reporting.report_times.len() >= REPORTS_IN_A_BURST => {
                first.plus(BURST_WINDOW).min(last.plus(REPORT_PAUSE))
            }
            _ => now.boot,
        };
        // If the store has no report of this host, the report is written at once.
        if due > now.boot && published.report.is_some() {
            Some(Due::At(due))
        } else {
            Some(Due::Now(Effect::Report))
        }
    }
}

fn statuses_differ(state: &HostState, published: &Published) -> bool {
    state.reporting.statuses.iter().any(|(kind, (wanted, record))| {
        StatusState::ALL.iter().any(|state| {
            let found = published.statuses.get(&(kind.clone(), *state));
            if state == wanted { found != Some(record) } else { found.is_some() }
        })
    })
}
