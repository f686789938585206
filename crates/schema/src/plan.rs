//! The types of a plan: phases, actions and reasons. All are plain values: they are
//! tested, logged, served by `/status`, stored in the report and printed by `orchestrate why`.
//!
//! This file is long because it lists every action and reason with its text.

use crate::instruction::Instruction;
use crate::names::{ServiceName, StepName, Token, Version};
use crate::order::InstructionOrder;
use crate::steps::StepPhase;
use crate::time::{BootMillis, Span};
use crate::why_not::WhyNot;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The phase of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// No attempt is under way. A settled host stays in this phase while it validates itself.
    #[default]
    Idle,
    /// The attempt fetches what it needs; nothing is disturbed yet.
    Prefetch,
    /// The host is about to leave its old version.
    Start,
    /// The consistent phase of an attempt.
    Apply,
    /// The eventual phase of an attempt.
    Converge,
    /// The proof of an attempt.
    Validate,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle => "idle",
            Self::Prefetch => "prefetch",
            Self::Start => "start",
            Self::Apply => "apply",
            Self::Converge => "converge",
            Self::Validate => "validate",
        })
    }
}

/// One action of a plan. Both kinds have the same form in JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Action {
    /// Records a conclusion in the host's state. Nothing else changes.
    Record(Conclusion),
    /// Changes something outside of the host's state: a file, the store, or what a step changes.
    Do(Effect),
}

impl From<Conclusion> for Action {
    fn from(conclusion: Conclusion) -> Self {
        Self::Record(conclusion)
    }
}

impl From<Effect> for Action {
    fn from(effect: Effect) -> Self {
        Self::Do(effect)
    }
}

/// A conclusion of a decision, which the host records about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action")]
pub enum Conclusion {
    /// The host acts on an operator's request to try again.
    #[serde(rename = "rearm")]
    Rearmed {
        /// The order of the request.
        order: InstructionOrder,
    },
    /// An attempt at an instruction begins.
    #[serde(rename = "begin_attempt")]
    AttemptBegan {
        /// The instruction to attempt.
        instruction: Instruction,
        /// Why the attempt begins.
        cause: AttemptCause,
        /// Digest of what other hosts make addressable when the attempt begins, if that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        addressable: Option<u64>,
    },
    /// The apply phase of the attempt waits.
    #[serde(rename = "note_apply_waits")]
    ApplyWaits,
    /// An attempt that has disturbed nothing is dropped.
    #[serde(rename = "drop_attempt")]
    AttemptDropped,
    /// A cycle of converge and validate begins.
    #[serde(rename = "begin_cycle")]
    CycleBegan {
        /// The version that the cycle checks.
        version: Version,
        /// Whether the eventual phase is part of the cycle.
        converge: bool,
        /// Digest of what the host sees of the services that it needs, if that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seen: Option<u64>,
    },
    /// The cycle ended.
    #[serde(rename = "end_cycle")]
    CycleEnded {
        /// Phases that could not continue because a needed service is missing.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        lacking: Vec<StepPhase>,
    },
    /// The attempt ended without success.
    #[serde(rename = "fail_attempt")]
    AttemptFailed,
    /// The host gives up: it has not proven the version in the time that its rollout allows.
    #[serde(rename = "give_up")]
    GaveUp,
    /// Apply and validation of the version of the attempt succeeded.
    #[serde(rename = "record_proven")]
    Proven {
        /// The version that is proven.
        version: Version,
    },
    /// The host takes over the content of the version file (driver `external`).
    #[serde(rename = "follow_file")]
    FollowsFile {
        /// The version in the file; `None` if there is none.
        version: Option<Version>,
    },
}

/// An effect of a plan, which the executor carries out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Effect {
    /// Commits the start transaction: it takes the host off its old version if the target is still
    /// the one that the host decided on.
    CommitStart {
        /// The instruction to start.
        instruction: Instruction,
    },
    /// Runs one step.
    RunStep {
        /// The phase of the step.
        phase: StepPhase,
        /// Name of the step.
        step: StepName,
    },
    /// Writes the version file.
    WriteVersionFile {
        /// The version to write.
        version: Version,
    },
    /// Lists the host under this version: the done transaction.
    Announce {
        /// The version to announce.
        version: Version,
    },
    /// Removes the listing of the host: its proof does not hold any more.
    Withdraw,
    /// Writes statuses and the report.
    Report,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(conclusion) => conclusion.fmt(f),
            Self::Do(effect) => effect.fmt(f),
        }
    }
}

impl fmt::Display for Conclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rearmed { .. } => f.write_str("try again at an operator's request"),
            Self::AttemptBegan { instruction, .. } => write!(f, "begin version {}", instruction.version),
            Self::ApplyWaits => f.write_str("record that apply waits"),
            Self::AttemptDropped => f.write_str("drop the attempt"),
            Self::CycleBegan { version, converge: true, .. } => write!(f, "converge and validate {version}"),
            Self::CycleBegan { version, converge: false, .. } => write!(f, "validate {version}"),
            Self::CycleEnded { .. } => f.write_str("conclude validation"),
            Self::AttemptFailed => f.write_str("conclude the attempt as failed"),
            Self::GaveUp => f.write_str("give up the update"),
            Self::Proven { version } => write!(f, "record version {version} as proven"),
            Self::FollowsFile { .. } => f.write_str("follow the version file"),
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CommitStart { instruction } => write!(f, "start version {}", instruction.version),
            Self::RunStep { phase, step } => write!(f, "run {phase} step {step}"),
            Self::WriteVersionFile { version } => write!(f, "write {version} to the version file"),
            Self::Announce { version } => write!(f, "announce version {version}"),
            Self::Withdraw => f.write_str("withdraw the announcement"),
            Self::Report => f.write_str("report"),
        }
    }
}

/// Why a host does something, or nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Reason {
    /// An operator triggered a version that is not installed.
    NewInstruction,
    /// The installed version was triggered again before another attempt had started.
    BackToInstalled,
    /// The last attempt failed and its delay is over.
    TryAgain,
    /// What the catalog makes addressable has changed since the failed apply began.
    CatalogChanged,
    /// Validation of a proven version has failed for long.
    Repair,
    /// The attempt continues.
    AttemptUnderWay,
    /// The instruction was withdrawn before anything was disturbed.
    InstructionGone,
    /// An operator requested another try.
    OperatorAsked,
    /// The next validation is due.
    ValidationDue,
    /// A proof is needed after a reboot: no proof outlives one, and a reboot may have interrupted a
    /// step.
    AfterBoot,
    /// Apply and validation succeeded.
    Succeeded,
    /// A step failed.
    SomethingFailed,
    /// The store does not yet contain what is true on this host.
    StoreDiffers,
    /// The host has just become suspect.
    BecameSuspect,
    /// A step is running.
    StepRunning {
        /// Id of the run.
        run_id: Token,
    },
    /// The installed version is the target, and it works.
    Settled,
    /// `/current_version` does not exist.
    NoInstruction,
    /// The instruction is older than one that the host has acted on.
    OlderInstruction,
    /// The store has not been read, or cannot be used.
    StoreAway,
    /// The host waits for its place in the window over which the starts of hosts are spread.
    Spread,
    /// The next attempt waits for its delay.
    BackingOff,
    /// Too many attempts failed; an operator must look at the host.
    Suspect,
    /// A step is deferred: it said "not yet".
    Held {
        /// Name of the step.
        step: StepName,
    },
    /// A service that is needed is missing.
    Lacks {
        /// Name of the service.
        service: ServiceName,
    },
    /// What the host sees of the services that it needs has changed.
    ServicesChanged,
    /// The update has taken longer than its rollout allows.
    TooSlow {
        /// The time that it had.
        within: Span,
    },
    /// An external script applies versions on this host.
    ExternalDriver,
    /// The host is blocked; the verdict says by what.
    Blocked,
    /// A freeze or the rollout keeps the host from starting. In the store it is in words.
    #[serde(untagged)]
    HeldBack(#[serde(with = "crate::why_not::planned")] WhyNot),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NewInstruction => "an operator triggered it",
            Self::BackToInstalled => "the installed version was triggered after another attempt had begun",
            Self::TryAgain => "the last attempt failed and its delay is over",
            Self::CatalogChanged => "the catalog has changed since the failed apply began",
            Self::Repair => "validation of the proven version has failed for long",
            Self::AttemptUnderWay => "the attempt continues",
            Self::InstructionGone => "the instruction was removed before anything disruptive started",
            Self::OperatorAsked => "an operator requested a retry",
            Self::ValidationDue => "it is time to validate",
            Self::AfterBoot => "no proof outlives a restart of the machine",
            Self::Succeeded => "apply and validation succeeded",
            Self::SomethingFailed => "a step failed",
            Self::StoreDiffers => "the store does not contain the current state of this host yet",
            Self::BecameSuspect => "the host became suspect",
            Self::StepRunning { run_id } => return write!(f, "a step is running (run {run_id})"),
            Self::Settled => "the target is installed and works",
            Self::NoInstruction => "no version has been triggered",
            Self::OlderInstruction => "the instruction is older than one that was acted on",
            Self::StoreAway => "the store cannot be read",
            Self::Spread => "the start of hosts is spread over the configured window",
            Self::BackingOff => "the next attempt waits for its delay",
            Self::Suspect => {
                "too many attempts failed; the host retries when the catalog changes, from time to time, or on request"
            }
            Self::Held { step } => return write!(f, "step {step} said \"not yet\""),
            Self::Lacks { service } => return write!(f, "it needs {service}"),
            Self::ServicesChanged => "a service that it needs has changed",
            Self::TooSlow { within } => {
                return write!(f, "it has not succeeded {within} after the start");
            }
            Self::ExternalDriver => "versions are applied by a script here (driver = \"external\")",
            Self::Blocked => "the host is blocked",
            Self::HeldBack(reason) => return f.write_str(&reason.detail()),
        })
    }
}

/// An action with its reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    /// The action to execute.
    #[serde(flatten)]
    pub action: Action,
    /// Why the action is planned.
    pub because: Reason,
}

/// What a host is going to do, in order, and when it decides again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The phase that the host is in.
    pub phase: Phase,
    /// The actions, in order. The agent executes only the first one and then decides again.
    pub actions: Vec<Planned>,
    /// Why the host does this and nothing else.
    pub because: Reason,
    /// When the host decides again though nothing changed, in its time since boot.
    #[serde(rename = "look_again", default, skip_serializing_if = "Option::is_none")]
    pub requeue_at: Option<BootMillis>,
}

/// Why an attempt begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptCause {
    /// An operator triggered the version.
    Instruction,
    /// The version was proven before, and its validation has failed for long.
    Repair,
}
