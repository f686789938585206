//! An attempt at an instruction, and the stage that it has reached.

use crate::host::site_config::{SiteConfig, Step};
use schema::instruction::Instruction;
use schema::names::{StepName, Version};
use schema::plan::AttemptCause;
use schema::time::{BootMillis, Span};
use schema::verdict::Failure;
use serde::{Deserialize, Serialize};

/// The progress of a phase.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// The steps that are done.
    pub done: Vec<StepName>,
    /// How often the due step was interrupted.
    pub interruptions: u32,
    /// The deferred step, if there is one, and when it runs again.
    pub held: Option<Deferred>,
    /// The failure that ended the phase.
    pub failed: Option<Failure>,
}

/// A deferred step: it ended with "not yet".
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deferred {
    /// The name of the step.
    pub step: StepName,
    /// When the step runs again.
    pub until: BootMillis,
}

/// The progress of a phase that has not begun.
pub(super) static NOT_BEGUN: Progress =
    Progress { done: Vec::new(), interruptions: 0, held: None, failed: None };

impl Progress {
    /// Returns the first step that is not done; `None` if the phase is complete.
    pub fn due<'a>(&self, steps: &'a [Step]) -> Option<&'a Step> {
        steps.iter().find(|step| !self.done.contains(&step.name))
    }
}

/// One try at an instruction: prefetch, start, apply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// The instruction that the attempt works towards.
    pub instruction: Instruction,
    /// Why the attempt was begun.
    pub cause: AttemptCause,
    /// The attempts at the same instruction so far.
    pub history: AttemptHistory,
    /// When the attempt began, in this boot.
    pub began: BootMillis,
    /// Digest of what the catalog made addressable when the attempt began, if that was known.
    pub addressable: Option<u64>,
    /// The version that was proven before.
    pub from: Option<Version>,
    /// How far the attempt has come.
    pub stage: Stage,
}

/// What came before an attempt at the same instruction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptHistory {
    /// Counts the disruptive attempts at the instruction, from 1.
    pub number: u32,
    /// Counts all attempts at the instruction, including those that ended before the start.
    pub tries: u32,
    /// The failure of the previous attempt.
    pub last_failure: Option<Failure>,
}

/// How far an attempt has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The host prefetches, or waits for its start. Nothing is disturbed yet, and the attempt may still be dropped.
    Preparing {
        /// Progress of the prefetch phase.
        prefetch: Progress,
    },
    /// The start transaction was committed: the host is off its old version. It applies the new one, and then
    /// converges and validates it.
    Applying(Disruption),
    /// A cycle has ended since apply ended. After a successful apply, a cycle without a validation result does not
    /// count. The attempt ends with the result.
    Checked(Disruption),
    /// The attempt ended without success.
    Ended(AttemptEnd),
}

/// What an attempt has done to the host since its start transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disruption {
    /// Progress of the apply phase.
    pub apply: Progress,
    /// When the attempt gives up, in this boot; `None` without a limit, and after it gave up.
    pub deadline: Option<Deadline>,
    /// Time after its proof in which a host that stops working counts as failed in the rollout; `None` if
    /// its failures do not count.
    pub charge_for: Option<Span>,
    /// Time after its proof for which the host keeps its claims; `None` if it releases them at once.
    pub hold: Option<Span>,
}

/// When a started attempt gives up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deadline {
    /// The time, in this boot.
    pub at: BootMillis,
    /// The time that the attempt has from its start, or from a reboot.
    pub within: Span,
}

/// The end of a failed attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptEnd {
    /// The failure that ended the attempt.
    pub failure: Failure,
    /// When the next attempt may begin.
    pub next_at: BootMillis,
    /// What the attempt did to the host; `None` if it ended before its start.
    pub disruption: Option<Disruption>,
    /// True if the attempt needed longer than its rollout allows.
    pub gave_up: bool,
}

impl AttemptHistory {
    /// Returns the history of an attempt that follows `before`, which was at the same instruction.
    pub(super) fn after(before: Option<Attempt>) -> Self {
        let Some(Attempt { history, stage, .. }) = before else {
            return Self { number: 1, tries: 1, last_failure: None };
        };
        let (was_started, last_failure) = match stage {
            Stage::Preparing { .. } => (false, None),
            Stage::Applying(_) | Stage::Checked(_) => (true, None),
            Stage::Ended(end) => (end.disruption.is_some(), Some(end.failure)),
        };
        // An attempt that ended before its start disturbed nothing and does not count.
        let number = if was_started { history.number + 1 } else { history.number.max(1) };
        Self { number, tries: history.tries + 1, last_failure }
    }
}

impl Default for Stage {
    fn default() -> Self {
        Self::Preparing { prefetch: Progress::default() }
    }
}

impl Deadline {
    /// Returns the deadline of something that begins now.
    pub(super) fn after(within: Span, now: BootMillis) -> Self {
        Self { at: now.plus(within.0), within }
    }

    /// Lets the whole time begin with the boot: how long the machine was off is not known.
    pub(super) fn rebooted(&mut self) {
        *self = Self::after(self.within, BootMillis(0));
    }
}

impl Disruption {
    /// True if every apply step is done.
    fn is_applied(&self, policy: &SiteConfig) -> bool {
        self.apply.failed.is_none() && self.apply.due(&policy.steps.apply).is_none()
    }

    fn rebooted(mut self) -> Self {
        self.apply.held = None;
        if let Some(deadline) = &mut self.deadline {
            deadline.rebooted();
        }
        self
    }
}

impl Stage {
    /// True while the attempt has neither started nor ended.
    pub fn is_preparing(&self) -> bool {
        matches!(self, Self::Preparing { .. })
    }

    /// True while the attempt has started and has not ended.
    pub fn is_under_way(&self) -> bool {
        matches!(self, Self::Applying(_) | Self::Checked(_))
    }

    fn rebooted(self) -> Self {
        match self {
            Self::Preparing { prefetch } => Self::Preparing { prefetch: Progress { held: None, ..prefetch } },
            Self::Applying(disruption) | Self::Checked(disruption) => Self::Applying(disruption.rebooted()),
            Self::Ended(end) => Self::Ended(AttemptEnd {
                next_at: BootMillis(0),
                disruption: end.disruption.map(Disruption::rebooted),
                ..end
            }),
        }
    }
}

impl Attempt {
    /// Returns the progress of the prefetch phase, while the attempt prepares its start.
    pub fn prefetch(&self) -> Option<&Progress> {
        match &self.stage {
            Stage::Preparing { prefetch } => Some(prefetch),
            _ => None,
        }
    }

    pub(super) fn prefetch_mut(&mut self) -> Option<&mut Progress> {
        match &mut self.stage {
            Stage::Preparing { prefetch } => Some(prefetch),
            _ => None,
        }
    }

    /// Returns what the attempt did to the host; `None` if it has not started.
    pub fn disruption(&self) -> Option<&Disruption> {
        match &self.stage {
            Stage::Preparing { .. } => None,
            Stage::Applying(disruption) | Stage::Checked(disruption) => Some(disruption),
            Stage::Ended(end) => end.disruption.as_ref(),
        }
    }

    pub(super) fn disruption_mut(&mut self) -> Option<&mut Disruption> {
        match &mut self.stage {
            Stage::Preparing { .. } => None,
            Stage::Applying(disruption) | Stage::Checked(disruption) => Some(disruption),
            Stage::Ended(end) => end.disruption.as_mut(),
        }
    }

    /// Returns how the attempt ended; `None` while it goes on.
    pub fn end(&self) -> Option<&AttemptEnd> {
        match &self.stage {
            Stage::Ended(end) => Some(end),
            _ => None,
        }
    }

    /// Returns the progress of the apply phase.
    pub(super) fn apply(&self) -> &Progress {
        self.disruption().map_or(&NOT_BEGUN, |disruption| &disruption.apply)
    }

    /// Returns the failure of the steps of the attempt itself.
    pub(super) fn step_failure(&self) -> Option<&Failure> {
        let progress = self.prefetch().or_else(|| Some(&self.disruption()?.apply));
        progress.and_then(|progress| progress.failed.as_ref())
    }

    /// True if the attempt has started and its apply phase did not fail.
    pub(super) fn apply_works(&self) -> bool {
        self.disruption().is_some_and(|disruption| disruption.apply.failed.is_none())
    }

    /// True if the attempt has applied the version as a whole.
    pub(super) fn is_applied(&self, policy: &SiteConfig) -> bool {
        self.disruption().is_some_and(|disruption| disruption.is_applied(policy))
    }

    /// Notes that the start transaction was committed.
    pub(super) fn start(&mut self, disruption: Disruption) {
        self.stage = Stage::Applying(disruption);
    }

    /// Notes that a cycle ended. `has_result` is false if its validation has no result.
    pub(super) fn cycle_ended(&mut self, has_result: bool, policy: &SiteConfig) {
        self.stage = match std::mem::take(&mut self.stage) {
            Stage::Applying(disruption) | Stage::Checked(disruption) => {
                if disruption.apply.failed.is_some() || has_result && disruption.is_applied(policy) {
                    Stage::Checked(disruption)
                } else {
                    Stage::Applying(disruption)
                }
            }
            other => other,
        };
    }

    /// Notes that the attempt ended without success. `gave_up` is true if it needed longer than its rollout allows.
    pub(super) fn fail(&mut self, failure: Failure, next_at: BootMillis, gave_up: bool) {
        let disruption = match std::mem::take(&mut self.stage) {
            Stage::Preparing { .. } => None,
            Stage::Applying(disruption) | Stage::Checked(disruption) => Some(disruption),
            Stage::Ended(end) => end.disruption,
        };
        self.stage = Stage::Ended(AttemptEnd { failure, next_at, disruption, gave_up });
    }

    /// Lets the next attempt begin at once, as if none had failed before. One that goes on does not change.
    pub(super) fn rearm(&mut self, now: BootMillis) {
        if let Stage::Ended(end) = &mut self.stage {
            (end.gave_up, end.next_at) = (false, now);
            (self.history.number, self.history.tries) = (0, 0);
        }
    }

    /// Deadlines of the old boot are due now, except for the time that the rollout allows, which begins again.
    pub(super) fn rebooted(&mut self) {
        self.began = BootMillis(0);
        self.stage = std::mem::take(&mut self.stage).rebooted();
    }
}
