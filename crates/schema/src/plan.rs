//! The words of a decision: phases, actions, reasons and verdicts. All are values that are tested,
//! logged, served by `/status`, stored in the report and printed by `orchestrate why`.

use crate::names::{ServiceName, StepName, Token, Version};
use crate::records::Wait;
use crate::steps::StepPhase;
use crate::store_trust::{Instruction, InstructionOrder, WentBack};
use crate::time::BootMillis;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Where in its life a host is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Nothing is under way; a settled host validates itself in this phase.
    #[default]
    Idle,
    /// Fetching, undisturbed.
    Prefetch,
    /// About to leave the old version.
    Start,
    /// The consistent phase.
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

/// One thing to do. The executor runs it as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Action {
    /// Heed an operator's request to try again.
    Rearm {
        /// Which request.
        order: InstructionOrder,
    },
    /// Take up an instruction.
    BeginAttempt {
        /// Which.
        instruction: Instruction,
        /// Why.
        cause: AttemptCause,
        /// What the catalog makes addressable now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        addressable: Option<u64>,
    },
    /// Record that the apply phase waits.
    NoteApplyWaits,
    /// Forget an attempt that disturbed nothing.
    DropAttempt,
    /// Commit the start transaction: off the old version, if the target is still the one decided on.
    CommitStart {
        /// Which.
        instruction: Instruction,
    },
    /// Run one step.
    RunStep {
        /// Of this phase.
        phase: StepPhase,
        /// This one.
        step: StepName,
    },
    /// Begin a round of converge and validate.
    BeginCycle {
        /// For this version.
        version: Version,
        /// Whether the eventual phase is part of it.
        converge: bool,
        /// What the host sees of the services that it needs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seen: Option<u64>,
    },
    /// Draw the conclusion of the round.
    EndCycle {
        /// Phases that could not go on because a service is missing.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        lacking: Vec<StepPhase>,
    },
    /// Draw the conclusion of a failed attempt.
    FailAttempt,
    /// Record that apply and validation of this version succeeded.
    RecordProven {
        /// The version.
        version: Version,
    },
    /// Write the version file.
    WriteVersionFile {
        /// The version.
        version: Version,
    },
    /// Take over what the version file says (driver `external`).
    FollowFile {
        /// What it says.
        version: Option<Version>,
    },
    /// List the host under this version: the done transaction.
    Announce {
        /// The version.
        version: Version,
    },
    /// Take the host off the list: its proof is lost.
    Withdraw,
    /// Write results and the report.
    Report,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rearm { .. } => f.write_str("arm again"),
            Self::BeginAttempt { instruction, .. } => write!(f, "begin version {}", instruction.version),
            Self::NoteApplyWaits => f.write_str("record that apply waits"),
            Self::DropAttempt => f.write_str("drop the attempt"),
            Self::CommitStart { instruction } => write!(f, "start version {}", instruction.version),
            Self::RunStep { phase, step } => write!(f, "run {phase} step {step}"),
            Self::BeginCycle { version, converge: true, .. } => write!(f, "converge and validate {version}"),
            Self::BeginCycle { version, converge: false, .. } => write!(f, "validate {version}"),
            Self::EndCycle { .. } => f.write_str("conclude validation"),
            Self::FailAttempt => f.write_str("conclude the attempt as failed"),
            Self::RecordProven { version } => write!(f, "record version {version} as proven"),
            Self::WriteVersionFile { version } => write!(f, "write {version} to the version file"),
            Self::FollowFile { .. } => f.write_str("follow the version file"),
            Self::Announce { version } => write!(f, "announce version {version}"),
            Self::Withdraw => f.write_str("withdraw the announcement"),
            Self::Report => f.write_str("report"),
        }
    }
}

/// Why something is done, or nothing is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Reason {
    /// An operator triggered a version that is not installed.
    NewInstruction,
    /// The installed version was triggered while another attempt had begun.
    BackToInstalled,
    /// The last attempt failed and its delay is over.
    TryAgain,
    /// What the catalog makes addressable has changed since the failed apply began.
    CatalogChanged,
    /// Validation of a proven version failed for long.
    Repair,
    /// The attempt goes on.
    AttemptUnderWay,
    /// The instruction was taken back before anything was disturbed.
    InstructionGone,
    /// An operator asked for it.
    OperatorAsked,
    /// It is time to validate.
    ValidationDue,
    /// A reboot cut off a step, or proof does not outlive a reboot.
    AfterBoot,
    /// Apply and validation succeeded.
    Succeeded,
    /// Something failed.
    SomethingFailed,
    /// The store does not say yet what is true here.
    StoreDiffers,
    /// The host just became suspect.
    BecameSuspect,
    /// A step is in flight.
    StepRunning {
        /// The run.
        run_id: Token,
    },
    /// The installed version is the target and it works.
    Settled,
    /// `/current_version` is not set.
    NoInstruction,
    /// The instruction is older than one acted on.
    OlderInstruction,
    /// The store has not been read, or cannot be.
    StoreAway,
    /// The start of hosts is spread.
    Spread,
    /// The next attempt waits for its delay.
    BackingOff,
    /// Too many failed attempts; an operator must look.
    Suspect,
    /// A step said "not yet".
    Held {
        /// Which.
        step: StepName,
    },
    /// A service that is needed is missing.
    Lacks {
        /// Which.
        service: ServiceName,
    },
    /// What the host sees of the services that it needs has changed.
    ServicesChanged,
    /// A cron script applies versions here.
    ExternalDriver,
    /// Something stands in the way.
    Blocked,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NewInstruction => "an operator triggered it",
            Self::BackToInstalled => "the installed version was triggered after another attempt had begun",
            Self::TryAgain => "the last attempt failed and its delay is over",
            Self::CatalogChanged => "the catalog has changed since the failed apply began",
            Self::Repair => "validation of the proven version has failed for long",
            Self::AttemptUnderWay => "the attempt goes on",
            Self::InstructionGone => "the instruction was taken back before anything was disturbed",
            Self::OperatorAsked => "an operator asked for another try",
            Self::ValidationDue => "it is time to validate",
            Self::AfterBoot => "no proof outlives a restart of the machine",
            Self::Succeeded => "apply and validation succeeded",
            Self::SomethingFailed => "a step failed",
            Self::StoreDiffers => "the store does not say yet what is true here",
            Self::BecameSuspect => "the host became suspect",
            Self::StepRunning { run_id } => return write!(f, "a step is running (run {run_id})"),
            Self::Settled => "the target is installed and works",
            Self::NoInstruction => "no version has been triggered",
            Self::OlderInstruction => "the instruction is older than one that was acted on",
            Self::StoreAway => "the store cannot be read",
            Self::Spread => "the start of hosts is spread over the configured window",
            Self::BackingOff => "the next attempt waits for its delay",
            Self::Suspect => {
                "too many attempts failed; it tries again when the catalog changes, now and then, or when it is told"
            }
            Self::Held { step } => return write!(f, "step {step} said \"not yet\""),
            Self::Lacks { service } => return write!(f, "it needs {service}"),
            Self::ServicesChanged => "a service that it needs has changed",
            Self::ExternalDriver => "versions are applied by a script here (driver = \"external\")",
            Self::Blocked => "something stands in the way",
        })
    }
}

/// An action and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    /// What.
    #[serde(flatten)]
    pub action: Action,
    /// Why.
    pub because: Reason,
}

/// What a host is going to do, in order, and when it looks again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Where it is.
    pub phase: Phase,
    /// What it does next. The first action is done, then everything is decided anew.
    pub actions: Vec<Planned>,
    /// Why it does this and nothing else.
    pub because: Reason,
    /// When it decides again though nothing changed.
    #[serde(rename = "look_again", default, skip_serializing_if = "Option::is_none")]
    pub requeue_at: Option<BootMillis>,
}

/// What stands in the way of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum BlockedBy {
    /// The store went back.
    StoreWentBack {
        /// How that showed.
        sign: WentBack,
    },
    /// The store's identity cannot be read.
    StoreUnreadable {
        /// Why.
        why: String,
    },
    /// The store belongs to another fleet.
    OtherLineage {
        /// The lineage that this host belongs to.
        ours: Token,
        /// The lineage found.
        theirs: Token,
    },
    /// Another agent lives under this host name.
    NameHeld {
        /// Its claim, in words.
        holder: String,
        /// Ours, in words.
        ours: String,
    },
    /// The host was taken out of the fleet.
    Decommissioned,
    /// `/current_version` is not a version.
    InvalidInstruction {
        /// The rule that it breaks.
        why: String,
    },
    /// Others than root and the agent's user can write the settings: nothing that they name runs.
    Settings {
        /// Which file or directory, and how.
        why: String,
    },
    /// The state directory cannot be written: nothing disruptive starts that could not be remembered.
    CannotRecord {
        /// The error.
        why: String,
    },
}

impl fmt::Display for BlockedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StoreWentBack { sign } => {
                write!(f, "the store went back: {sign}; `orchestrate store accept --version V` ends this")
            }
            Self::StoreUnreadable { why } => {
                write!(f, "the store's identity /orchestrate/store cannot be read: {why}")
            }
            Self::OtherLineage { ours, theirs } => {
                write!(
                    f,
                    "this is another fleet's store: its lineage is {theirs}, this host belongs to {ours}"
                )
            }
            Self::NameHeld { holder, ours } => {
                write!(f, "another agent lives under this host name: {holder}; this one is {ours}")
            }
            Self::Decommissioned => {
                f.write_str("the host was decommissioned; `orchestrate hosts add` takes it in again")
            }
            Self::InvalidInstruction { why } => write!(f, "/current_version is not a version: {why}"),
            Self::Settings { why } => write!(f, "the settings are not trusted, nothing runs: {why}"),
            Self::CannotRecord { why } => write!(f, "the state directory cannot be written: {why}"),
        }
    }
}

/// What a host waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "on", rename_all = "snake_case")]
pub enum WaitingOn {
    /// A step that said "not yet".
    Step {
        /// Its phase.
        phase: StepPhase,
        /// Its name.
        step: StepName,
    },
    /// A service.
    Service(Wait),
    /// Its turn in the configured window.
    Spread,
    /// The store.
    Store,
    /// The script that applies versions here.
    ExternalDriver,
    /// A first instruction.
    Instruction,
}

impl fmt::Display for WaitingOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step { phase, step } => write!(f, "{phase} step {step}, which said \"not yet\""),
            Self::Service(wait) => wait.fmt(f),
            Self::Spread => f.write_str("its turn: the start of hosts is spread"),
            Self::Store => f.write_str("the store, which cannot be read"),
            Self::ExternalDriver => f.write_str("the script that applies versions here"),
            Self::Instruction => f.write_str("a first version to be triggered"),
        }
    }
}

/// The one verdict of a host about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum HostVerdict {
    /// The target is installed and works.
    Ok,
    /// It works towards the target.
    Running {
        /// The target.
        version: Version,
    },
    /// It would go on, but waits.
    Waiting {
        /// For this.
        #[serde(flatten)]
        on: WaitingOn,
    },
    /// Something stands in the way.
    Blocked {
        /// This.
        #[serde(flatten)]
        by: BlockedBy,
    },
    /// It failed.
    Failed {
        /// At the version.
        version: Option<Version>,
        /// What failed.
        failure: Failure,
        /// No further disruptive attempt is made by itself.
        suspect: bool,
    },
}

impl HostVerdict {
    /// The same verdict: how many instances of a service there are is left out.
    pub fn is_same_as(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Waiting { on: WaitingOn::Service(one) },
                Self::Waiting { on: WaitingOn::Service(two) },
            ) => one.is_same_as(two),
            _ => self == other,
        }
    }

    /// The verdict in one word.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Running { .. } => "running",
            Self::Waiting { .. } => "waiting",
            Self::Blocked { .. } => "blocked",
            Self::Failed { suspect: true, .. } => "suspect",
            Self::Failed { .. } => "failed",
        }
    }

    /// What is behind the word, in words; empty for ok.
    pub fn message(&self) -> String {
        match self {
            Self::Ok => String::new(),
            Self::Running { version } => format!("on its way to {version}"),
            Self::Waiting { on } => format!("waits for {on}"),
            Self::Blocked { by } => by.to_string(),
            Self::Failed { version, failure, .. } => match version {
                Some(version) => format!("{} (version {version})", failure.reason),
                None => failure.reason.clone(),
            },
        }
    }
}

/// Why an attempt was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptCause {
    /// An operator triggered the version.
    Instruction,
    /// The version had been proven and its validation failed for long.
    Repair,
}

/// Why something failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The phase that failed.
    pub phase: StepPhase,
    /// The step that failed.
    pub step: StepName,
    /// Its exit code, if it ended with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// In words.
    pub reason: String,
}
