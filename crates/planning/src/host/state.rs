//! The recorded state of a host. The agent keeps this value in its journal; the simulation in the tests keeps it in
//! memory. Both change it through [`HostState::record`].

use crate::host::attempt::{Attempt, Deadline, Progress};
use crate::host::cycle::Cycles;
use crate::host::reporting::Reporting;
use crate::host::site_config::SiteConfig;
use crate::host::step_memory::StepMemory;
use schema::names::{HostName, Version};
use schema::order::InstructionOrder;
use schema::plan::AttemptCause;
use schema::records::{FailedHost, HostClaims, HostProgress};
use schema::store_trust::StoreMemory;
use schema::time::{BootMillis, Span};
use serde::{Deserialize, Serialize};

/// Everything that a host remembers about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostState {
    /// The host that this state belongs to. A journal of another host is refused.
    pub host: HostName,
    /// The boot that the times and deadlines in this state belong to.
    pub boot_id: String,
    /// The machine that the journal was written on.
    pub machine_id: String,
    /// What the host remembers of the store.
    pub store: Option<StoreMemory>,
    /// The versions on the machine.
    pub versions: Versions,
    /// The newest orders that the host has acted on.
    pub observed: ObservedOrders,
    /// The current attempt, or the last one if it failed.
    pub attempt: Option<Attempt>,
    /// What the host has done after failures.
    pub recovery: Recovery,
    /// The part of the host in rollouts.
    pub rollout: RolloutPart,
    pub cycles: Cycles,
    /// The steps that ran, and the one that runs.
    pub steps: StepMemory,
    /// What the host says in the store.
    pub reporting: Reporting,
}

/// The versions on a machine.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Versions {
    /// The installed version: the version that was last proven here.
    pub installed: Option<Version>,
    /// The version whose disruptive start happened last and that is not proven since.
    pub in_progress: Option<InProgress>,
    /// True if the proof of `installed` holds: validation passed in this boot, and nothing has
    /// disturbed the version since.
    pub proof_holds: bool,
}

/// A version that the host started and has not proven yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InProgress {
    pub version: Version,
    /// The instruction under which the start happened; `None` if a restored store has used its order again.
    pub started_by: Option<InstructionOrder>,
}

/// The newest orders that a host has acted on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ObservedOrders {
    /// The observed instruction: the newest instruction that the host has acted on.
    pub instruction: Option<InstructionOrder>,
    /// The newest retry request of an operator that the host has acted on.
    pub retry: Option<InstructionOrder>,
}

/// What a host has done after failures.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Recovery {
    /// When proven versions were applied again, in the last 24 hours.
    pub repairs: Vec<BootMillis>,
    /// The instruction for which the `on_suspect` steps ran, and their progress.
    pub on_suspect: Option<OnSuspect>,
}

/// The run of the steps that run once when a host becomes suspect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnSuspect {
    /// The instruction that made the host suspect.
    pub order: InstructionOrder,
    /// Progress of the steps.
    pub progress: Progress,
}

/// The part of a host in rollouts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RolloutPart {
    /// The claims that the host took with its last start. It takes them again if they end without its doing.
    pub claims: Option<HostClaims>,
    /// How far the host got in its last rollout that has a record.
    pub progress: Option<RolloutProgress>,
    /// The failure of the host that counts in a rollout, or did.
    pub counted_failure: Option<CountedFailure>,
    /// The rollout in which the installed version was proven, while that counts.
    pub proven_in: Option<ProvenIn>,
    /// Set while the host is proven and keeps its claims.
    pub hold: Option<Hold>,
}

/// A failure of the host in a rollout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedFailure {
    pub order: InstructionOrder,
    /// The failure, as the store should contain it.
    pub failed: FailedHost,
    /// True if it was written since it changed last.
    pub is_written: bool,
}

/// A proof in a rollout whose failures count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvenIn {
    pub order: InstructionOrder,
    /// Until when a failed validation counts, in this boot.
    pub until: Deadline,
}

/// How far a host got in a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolloutProgress {
    pub order: InstructionOrder,
    /// How far, as the store should contain it.
    pub progress: HostProgress,
    /// True if it was written since it changed last.
    pub is_written: bool,
    /// True if the rollout is known to have ended.
    pub has_ended: bool,
}

/// A host that was proven and keeps its claims until its validation has passed for some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// The rollout in which its failures count; `None` if they do not.
    pub counts_in: Option<InstructionOrder>,
    /// The time for which validation must pass.
    pub length: Span,
    /// Since when it has passed, in this boot; `None` if it does not.
    pub passes_since: Option<BootMillis>,
    /// When the host releases its claims though its validation never passed or failed since.
    pub deadline: Deadline,
}

impl HostState {
    /// Creates the state of a host without a journal. `installed` is the version in the version
    /// file: a host that lost its journal validates that version and does not apply it again
    /// blindly.
    pub fn new(host: HostName, machine_id: String, boot_id: String, installed: Option<Version>) -> Self {
        Self {
            host,
            boot_id,
            machine_id,
            store: None,
            versions: Versions { installed, ..Versions::default() },
            observed: ObservedOrders::default(),
            attempt: None,
            recovery: Recovery::default(),
            rollout: RolloutPart::default(),
            cycles: Cycles::default(),
            steps: StepMemory::default(),
            reporting: Reporting::default(),
        }
    }

    /// Records a reboot. No proof outlives a reboot, and deadlines of the old boot are due now.
    /// Repairs of the old boot count as made at the beginning of this boot, so that a reboot loop
    /// never refills the budget.
    pub fn rebooted(&mut self, boot_id: String) {
        self.boot_id = boot_id;
        self.versions.proof_holds = false;
        // Before the start transaction nothing has changed that should be validated first.
        let may_have_changed = self.attempt.as_ref().is_none_or(|attempt| attempt.disruption().is_some());
        self.cycles.rebooted(self.steps.running.is_some() && may_have_changed);
        self.reporting.report_times.clear();
        // Nobody knows how long the machine was off. If it does not work any more, the version may be at fault.
        if let Some(proven) = &mut self.rollout.proven_in {
            proven.until.rebooted();
        }
        if let Some(hold) = &mut self.rollout.hold {
            hold.passes_since = None;
            hold.deadline.rebooted();
        }
        self.recovery.repairs.iter_mut().for_each(|at| *at = BootMillis(0));
        if let Some(attempt) = &mut self.attempt {
            attempt.rebooted();
        }
    }

    /// Returns the version that counts as installed on a host without a journal: the one in its version
    /// file, unless the disk was copied from another host while that was disturbed. Then the version is not
    /// whole any more.
    pub fn installed_by_file(file: Option<Version>, is_disturbed: bool) -> Option<Version> {
        if is_disturbed { None } else { file }
    }

    /// Returns the version that steps and validation are about: the in-progress version if there is
    /// one, else the installed version.
    pub fn subject(&self) -> Option<&Version> {
        self.in_progress_version().or(self.versions.installed.as_ref())
    }

    /// Returns the version whose disruptive start happened last and that is not proven since.
    pub fn in_progress_version(&self) -> Option<&Version> {
        self.versions.in_progress.as_ref().map(|in_progress| &in_progress.version)
    }

    /// True if the host is off its old version, and the new one is not proven yet.
    pub fn is_disturbed(&self) -> bool {
        self.versions.in_progress.is_some()
    }

    /// True while an attempt has started and has not ended.
    pub fn is_under_way(&self) -> bool {
        self.attempt.as_ref().is_some_and(|attempt| attempt.stage.is_under_way())
    }

    /// Returns the attempt that prepares its start, if there is one.
    pub fn preparing(&self) -> Option<&Attempt> {
        self.attempt.as_ref().filter(|attempt| attempt.stage.is_preparing())
    }

    /// True if the version that steps and validation are about is on the machine as a whole: nothing was begun that
    /// its apply phase did not finish.
    pub(super) fn is_whole(&self, policy: &SiteConfig) -> bool {
        !self.is_disturbed() || self.attempt.as_ref().is_some_and(|attempt| attempt.is_applied(policy))
    }

    /// True after `suspect_after` failed disruptive attempts at the instruction. One that ended before
    /// its start disturbed nothing and does not count. A repair whose apply succeeded does not make a
    /// host suspect, because the cause may be a service that hosts share.
    pub fn is_suspect(&self, policy: &SiteConfig) -> bool {
        let Some(attempt) = &self.attempt else { return false };
        let Some(end) = attempt.end() else { return false };
        let number = attempt.history.number;
        let disruptive = if end.disruption.is_some() { number } else { number.saturating_sub(1) };
        let counts = attempt.cause == AttemptCause::Instruction || attempt.apply().failed.is_some();
        end.gave_up || disruptive >= policy.suspect_after && counts
    }
}
