//! What a host that wants to start read about its rollout, and what follows from it: whether it may
//! start, which claims it takes, and what it waits for.

use super::author::Author;
use super::closing::{DriverSeen, stage_delay};
use super::failures::Failures;
use super::halt::halts;
use super::hold::stage_hold;
use super::limits::{LimitView, PASSED_OVER_AFTER, QueuedHost, limit_view, place};
use super::reads::roster_of;
use super::rules::{RecordTask, Rules, Times, governs, record_of};
use super::stages::{StageView, stage_of};
use schema::freeze::FreezeScope;
use schema::frozen::FrozenBy;
use schema::instruction::Instruction;
use schema::keys::Key;
use schema::names::{HostName, Version};
use schema::order::InstructionOrder;
use schema::records::{HeldClaim, ResolvedLimit};
use schema::snapshot::KeySnapshot;
use schema::time::{BootMillis, Now};
use schema::transaction::Transaction;
use schema::why_not::WhyNot;
use schema::writes::claims::{FoundClaims, RolloutGuard};
use std::time::Duration;

/// Time within which the host that writes the record of a rollout has written it.
const RECORD_WITHIN: Duration = Duration::from_secs(60);

/// Longest time until a host that waits for an update window looks at its clock again.
const CLOCK_INTERVAL: Duration = Duration::from_secs(60);

/// Whether a host needs claims to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimNeed {
    /// The host is available: it needs a claim of each limit.
    Take,
    /// The host is not available: it tries the same instruction again, holds claims of an earlier installation, or
    /// wants its claims for something more.
    /// It needs a claim of each limit, and keeps those that it has, whoever else holds some: two hosts above a
    /// limit would wait for each other otherwise.
    Retake,
    /// The old version of the host is gone and a newer instruction came. It needs no claim, and keeps those
    /// that it has.
    Nothing,
    /// The host never ran a version, so nobody misses it. It needs no claim, and its failure is its own.
    FirstInstall,
}

impl ClaimNeed {
    /// True if the host needs a claim of each limit.
    pub(crate) fn takes_claims(self) -> bool {
        matches!(self, Self::Take | Self::Retake)
    }
}

/// What a host that may start takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permit {
    /// Whether the host needs claims.
    pub need: ClaimNeed,
    /// What the start transaction compares.
    pub guard: RolloutGuard,
    /// The claims that the host has afterwards; `None` if they do not change.
    pub claims: Option<Vec<HeldClaim>>,
    /// The times of the rollout; `None` if no record governs it.
    pub times: Option<Times>,
    /// True if a failure of the host counts against the budget of the rollout.
    pub counts_failure: bool,
}

/// What a host read about its rollout, at one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RolloutView {
    /// The revision.
    pub revision: i64,
    pub order: InstructionOrder,
    /// Revision of the roster entry from which scopes and limits follow.
    pub roster_revision: i64,
    /// The freezes that would match the host.
    pub scopes: Vec<FreezeScope>,
    resolving: Option<Vec<u8>>,
    /// The host, and its place.
    pub(super) own: QueuedHost,
    frozen: Option<FrozenBy>,
    policy_revision: i64,
    pub(super) rules: Rules,
    failures: Failures,
    /// Why the host can be counted by no limit and matched by no freeze.
    unusable: Option<String>,
    /// The stage of the host; `None` if the rollout has no stages.
    stage: Option<StageView>,
    /// True if the host started in this rollout: it is not available, and waits for no stage.
    has_started: bool,
    /// True if no update window was open when this was read.
    is_outside_window: bool,
    /// Who looks whether the rollout has ended, and opens its stages.
    driver_seen: DriverSeen,
    pub(super) limits: Vec<LimitView>,
}

impl RolloutView {
    /// Makes the view of a host from what was read about the rollout of an instruction.
    pub fn new(host: &HostName, instruction: &Instruction, found: &KeySnapshot, now: Now) -> Self {
        let Instruction { order, version } = instruction;
        let order = *order;
        let place = place(host, version);
        let known = record_of(order, found);
        let record = known.as_ref().and_then(|(record, _)| record.as_ref().ok());
        let stage = record.filter(|record| !record.stages.is_empty()).map(|record| {
            let roster = roster_of(host, found).unwrap_or_default();
            let number = stage_of(&record.stages, host, &roster, place);
            let mut stage = StageView::read(order, &record.stages, number, found);
            if let StageView::Closed { hold, .. } = &mut stage {
                *hold = stage_hold(order, record, found).map(Box::new);
            }
            stage
        });
        let (rules, limits) = match known {
            Some((record, revision)) => Rules::of_record(record, revision),
            None if governs(order, found) => (Rules::NoRecord, Vec::new()),
            None => (Rules::None, Vec::new()),
        };
        let failures = match &rules {
            Rules::Record { budget, .. } => Failures::read(order, *budget, found),
            _ => Failures::default(),
        };
        let is_outside_window = matches!(rules.next_window(place, now), Ok(Some(_)));
        let own = QueuedHost { place, host: host.clone() };
        let view = Self::with_rules(own, order, rules, &limits, found, now.boot);
        let driver_seen = DriverSeen::read(host, order, found);
        let has_started = found.get(&Key::Progress(order, host.clone())).is_some();
        Self { failures, stage, has_started, is_outside_window, driver_seen, ..view }
    }

    /// Makes the view of a host to which these rules and limits apply.
    pub(super) fn with_rules(
        own: QueuedHost,
        order: InstructionOrder,
        rules: Rules,
        limits: &[ResolvedLimit],
        found: &KeySnapshot,
        now: BootMillis,
    ) -> Self {
        let host = &own.host;
        let roster = roster_of(host, found);
        let unusable = roster.as_ref().err().map(|error| format!("its roster entry cannot be read: {error}"));
        let roster = roster.unwrap_or_default();
        let scopes = FreezeScope::of_host(host, roster.role.as_ref(), roster.group.as_ref());
        let frozen = FrozenBy::all(found).find(|frozen| scopes.contains(&frozen.scope));
        let mut view = Self {
            revision: found.revision,
            order,
            roster_revision: found.revision_of(&Key::Host(host.clone())),
            scopes,
            resolving: found.get(&Key::Resolving(order)).map(|entry| entry.value.clone()),
            own: own.clone(),
            frozen,
            policy_revision: found.revision_of(&Key::RolloutPolicy),
            rules,
            failures: Failures::default(),
            unusable,
            stage: None,
            has_started: false,
            is_outside_window: false,
            driver_seen: DriverSeen::Missing,
            limits: Vec::new(),
        };
        for resolved in limits {
            match resolved.by.of_host(&roster) {
                Ok(Some(limit)) => {
                    view.limits.push(limit_view(limit, resolved, order, &own, found, now));
                }
                Ok(None) => {}
                Err(error) => {
                    view.unusable = Some(format!("no limit can count it: {}: {error}", resolved.by))
                }
            }
        }
        view
    }

    /// Takes over from an earlier view since when nothing has changed.
    #[must_use]
    pub fn after(mut self, earlier: Option<&Self>) -> Self {
        // Nobody uses its turn while everybody is held.
        let goes_on = |view: &&Self| {
            view.frozen.is_none() && view.failures.halted().is_none() && view.failures.over_budget().is_none()
        };
        let earlier = earlier.filter(goes_on);
        for view in &mut self.limits {
            let same = earlier.into_iter().flat_map(|earlier| &earlier.limits).find(|before| {
                let waits_for_same = if view.is_far_back() {
                    before.ahead == view.ahead
                } else {
                    // Before that, not all that come first were known.
                    !before.is_far_back() && before.ahead.first() == view.ahead.first()
                };
                before.limit == view.limit && before.holders == view.holders && waits_for_same
            });
            if let Some(same) = same {
                view.unchanged_since = same.unchanged_since;
            }
        }
        self
    }

    /// Returns what the host itself does about the record of its rollout. `lacking_for` is how long it has known that the record is missing.
    pub fn record_task(&self, lacking_for: Duration) -> RecordTask {
        match &self.resolving {
            _ if self.rules != Rules::NoRecord => RecordTask::None,
            None => RecordTask::Begin,
            // The answer to its own mark was lost, or it began before it was restarted.
            Some(by) if by == self.own.host.as_str().as_bytes() => RecordTask::Write,
            // The other one lives and does not write. Two that write do no harm.
            Some(_) if lacking_for >= RECORD_WITHIN => RecordTask::Write,
            Some(_) => RecordTask::None,
        }
    }

    /// True if a record is needed and there is none.
    pub fn lacks_record(&self) -> bool {
        self.rules == Rules::NoRecord
    }

    /// True if the host waits until its stage is open.
    pub fn waits_for_stage(&self) -> bool {
        matches!(self.stage, Some(StageView::Closed { .. })) && self.has_not_begun()
    }

    /// True if the host has neither started in this rollout nor waits for a limit.
    fn has_not_begun(&self) -> bool {
        !self.has_started && !self.limits.iter().any(|view| view.is_queued)
    }

    /// True if the host has nothing to do with limits yet: its stage is not open, or no window.
    pub(super) fn is_before_limits(&self) -> bool {
        self.waits_for_stage() || self.is_outside_window && self.has_not_begun()
    }

    /// True if the stage of the host is not open because the time runs for which earlier hosts are observed.
    pub fn waits_for_soak(&self) -> bool {
        matches!(self.stage, Some(StageView::Closed { is_timed: true, .. }))
    }

    /// True if the stage of the host may wait for hosts that keep their claims. What [`end_reads`](super::end_reads) names
    /// shows it.
    pub fn may_wait_for_hold(&self) -> bool {
        let holds = matches!(&self.rules, Rules::Record { times: Times { hold: Some(_), .. }, .. });
        holds && self.waits_for_stage()
    }

    /// True if the rollout has stages.
    pub fn has_stages(&self) -> bool {
        self.stage.is_some()
    }

    /// Returns who looks whether the rollout has ended, and opens its stages.
    pub fn driver_seen(&self) -> DriverSeen {
        self.driver_seen
    }

    /// Returns after which time the host reads again when its stage may have been opened. `random` is from 0 to 1.
    pub fn stage_delay(&self, random: f64) -> Duration {
        let DriverSeen::Other(hosts) = self.driver_seen else { return stage_delay(0, random) };
        stage_delay(hosts, random)
    }

    /// True if the host is far back in a queue, or not in one yet, so that hardly any change lets it start.
    pub fn is_far_back(&self) -> bool {
        self.is_before_limits() || self.limits.iter().any(LimitView::is_far_back)
    }

    /// Returns what the host takes when it starts, or what keeps it from starting. `held` is what it has.
    ///
    /// # Errors
    /// Returns the first reason.
    pub fn permit(&self, held: &FoundClaims, need: ClaimNeed, now: Now) -> Result<Permit, WhyNot> {
        if let Some(why) = &self.unusable {
            return Err(WhyNot::Rollout { why: why.clone() });
        }
        if held.revision != 0 && held.claims.is_none() {
            let host = &self.own.host;
            let why = format!("the claims of the host cannot be read; `orchestrate claims release {host}`");
            return Err(WhyNot::Rollout { why });
        }
        if let Some(frozen) = &self.frozen {
            return Err(WhyNot::Frozen(frozen.clone()));
        }
        let (record_revision, times, budget) = match &self.rules {
            Rules::None => (0, None, None),
            Rules::NoRecord => return Err(WhyNot::NoRecord),
            Rules::Record { refused: Some(why), .. } => {
                return Err(WhyNot::Rollout { why: why.clone() });
            }
            Rules::Record { revision, refused: None, times, budget, .. } => {
                (*revision, Some(*times), *budget)
            }
        };
        if let Some(why) = self.failures.halted() {
            return Err(WhyNot::Halted { why: why.to_owned() });
        }
        // A host that is not available anyway is held by a halt alone, so that a fix can reach it.
        if let Some((failed, budget)) = self.failures.over_budget()
            && need.takes_claims()
        {
            return Err(WhyNot::OverBudget { failed, budget });
        }
        let counts_failure = budget.is_some() && need != ClaimNeed::FirstInstall;
        let mut guard = RolloutGuard {
            order: self.order,
            record_revision,
            policy_revision: self.policy_revision,
            limits: Vec::new(),
            checks_halt: record_revision != 0,
            failures_read_at: if budget.is_some() && need.takes_claims() {
                Some(self.revision)
            } else {
                None
            },
            stage: None,
        };
        // A host that is not available anyway waits for no stage.
        match &self.stage {
            Some(StageView::Closed { stage, open, soak, hold, .. }) if need == ClaimNeed::Take => {
                let (stage, open, hold) = (stage.clone(), Some(open.clone()), hold.clone());
                return Err(WhyNot::Stage { stage, open, soak: *soak, hold });
            }
            Some(StageView::Open(key)) if need == ClaimNeed::Take => guard.stage.clone_from(key),
            _ => {}
        }
        let next =
            if need == ClaimNeed::Take { self.rules.next_window(self.own.place, now) } else { Ok(None) };
        if let Some(next) = next.map_err(|error| WhyNot::Rollout { why: error.to_string() })? {
            return Err(next.into());
        }
        if !need.takes_claims() {
            let claims = held.claims.as_ref().map(|_| held.held().to_vec());
            return Ok(Permit { need, guard, claims, times, counts_failure });
        }
        let mut claims = Vec::new();
        for view in &self.limits {
            let own = held.claims.as_ref().and_then(|held| held.number_of(&view.limit));
            let number = match own {
                Some(own) if need == ClaimNeed::Retake => own,
                _ => {
                    guard.limits.push((view.limit.clone(), view.max));
                    view.number(&self.own, own, now.boot)?
                }
            };
            claims.push(HeldClaim { limit: view.limit.clone(), number, keep_failed: view.keep_failed });
        }
        let changes = !claims.is_empty() || held.claims.is_some();
        Ok(Permit { need, guard, claims: changes.then_some(claims), times, counts_failure })
    }

    /// Returns the transactions that halt the rollout, if too many hosts failed and nobody has halted it. The first
    /// one that the store permits counts. `version` is the one of the instruction.
    pub fn halts(&self, version: &Version, author: Author) -> Vec<Transaction> {
        let rollout = Instruction { order: self.order, version: version.clone() };
        halts(&rollout, &self.rules, &self.failures, author)
    }

    /// Returns when a host that waits tries again though nothing changes: it may pass over another one, or an update
    /// window opens.
    pub fn tries_at(&self, now: Now) -> Option<BootMillis> {
        if self.waits_for_stage() {
            return None;
        }
        if let Ok(Some(next)) = self.rules.next_window(self.own.place, now) {
            let seconds = u64::try_from(next.starts.0 - now.wall.0).unwrap_or(0);
            // The wall clock may be set meanwhile.
            return Some(now.boot.plus(Duration::from_secs(seconds).min(CLOCK_INTERVAL)));
        }
        let now = now.boot;
        let next = |view: &LimitView| {
            let next = u32::try_from(view.passed(now)).unwrap_or(u32::MAX).saturating_add(1);
            view.unchanged_since.plus(PASSED_OVER_AFTER.saturating_mul(next))
        };
        let waits = |view: &&LimitView| {
            !view.ahead.is_empty() && !view.is_far_back() && !view.free(&self.own.host).is_empty()
        };
        self.limits.iter().filter(waits).map(next).min()
    }

    /// True if more hosts failed than are tolerated, and nobody has halted the rollout.
    pub(super) fn is_over_budget(&self) -> bool {
        self.failures.halted().is_none() && self.failures.over_budget().is_some()
    }

    /// Returns the host that reads.
    pub(super) fn host(&self) -> &HostName {
        &self.own.host
    }
}
