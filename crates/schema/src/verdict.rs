//! Verdicts: where a host stands, in one word and in sentences. All are plain values: they are tested,
//! served by `/status`, stored in the report and printed by `orchestrate`.

use crate::codec::cut;
use crate::names::{StepName, Token, Version};
use crate::records::{Cause, REASON_MAX_BYTES, Wait};
use crate::steps::{StepEnd, StepPhase};
use crate::store_trust::WentBack;
use crate::time::Span;
use serde::{Deserialize, Serialize};
use std::fmt;

pub use crate::verdict_kind::VerdictKind;

/// What blocks a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum BlockedBy {
    /// The store went back.
    StoreWentBack {
        /// The sign that showed it.
        sign: WentBack,
    },
    /// The store's identity cannot be read.
    StoreUnreadable {
        /// The error of the parser.
        why: String,
    },
    /// The store belongs to another fleet.
    OtherLineage {
        /// The lineage that this host belongs to.
        ours: Token,
        /// The lineage of the store.
        theirs: Token,
    },
    /// Another agent claims this host name.
    NameHeld {
        /// The claim of the other agent, in words.
        holder: String,
        /// The claim of this agent, in words.
        ours: String,
    },
    /// The host was decommissioned.
    Decommissioned,
    /// The text of `/current_version` is not a valid version.
    InvalidInstruction {
        /// The rule that the text breaks.
        why: String,
    },
    /// Users other than root and the agent's user can write the settings: nothing that the settings
    /// name runs.
    Settings {
        /// The file or directory, and who can write it.
        why: String,
    },
    /// The rules of the rollout cannot be followed on this host.
    Rollout {
        /// What is wrong with them.
        why: String,
    },
    /// The state directory cannot be written: nothing disruptive starts that could not be recorded.
    CannotRecord {
        /// The error of the write.
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
            Self::Rollout { why } => f.write_str(why),
            Self::CannotRecord { why } => write!(f, "the state directory cannot be written: {why}"),
        }
    }
}

/// What a host waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "on", rename_all = "snake_case")]
pub enum WaitingOn {
    /// A deferred step: it said "not yet".
    Step {
        /// Phase of the step.
        phase: StepPhase,
        /// Name of the step.
        step: StepName,
    },
    /// A service that is needed.
    Service(Wait),
    /// The host's place in the window over which the starts of hosts are spread.
    Spread,
    /// A limit of the rollout: as many hosts as it allows are unavailable.
    Limit {
        /// The hosts that it counts, in words.
        limit: String,
        /// True if it is 0: no host of it starts, whoever is done.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_zero: bool,
    },
    /// The stage of the host: the hosts of an earlier stage come first.
    Stage {
        /// The stage.
        stage: String,
    },
    /// An update window.
    Window {
        /// When the next one opens, in words.
        opens: String,
    },
    /// An operator: the rollout is halted.
    Operator {
        /// Why, in words.
        why: String,
    },
    /// The store, which cannot be used.
    Store,
    /// The external script that applies versions on this host.
    ExternalDriver,
    /// A first instruction.
    Instruction,
}

impl WaitingOn {
    /// Returns the explanation of a host that waits.
    pub fn message(&self) -> String {
        format!("waits for {self}")
    }

    /// True if the host waits for its turn in the rollout. A halt of the rollout outweighs this.
    pub fn is_turn(&self) -> bool {
        matches!(self, Self::Limit { .. } | Self::Stage { .. } | Self::Window { .. })
    }

    /// True if a halt of the rollout keeps the host, or would.
    pub fn depends_on_halt(&self) -> bool {
        self.is_turn() || matches!(self, Self::Operator { .. })
    }
}

impl fmt::Display for WaitingOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step { phase, step } => write!(f, "{phase} step {step}, which said \"not yet\""),
            Self::Service(wait) => wait.fmt(f),
            Self::Spread => f.write_str("its turn: the start of hosts is spread"),
            Self::Limit { limit, is_zero: false } => write!(f, "its turn: the limit of {limit} is reached"),
            Self::Limit { limit, is_zero: true } => write!(f, "a larger limit: the limit of {limit} is 0"),
            Self::Stage { stage } => write!(f, "its turn: stage {stage} is not open"),
            Self::Window { opens } => write!(f, "the next update window, which opens {opens}"),
            Self::Operator { why } => write!(f, "an operator: {why}"),
            Self::Store => f.write_str("the store, which cannot be read"),
            Self::ExternalDriver => f.write_str("the script that applies versions here"),
            Self::Instruction => f.write_str("a first version to be triggered"),
        }
    }
}

/// The verdict of a host about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum HostVerdict {
    /// The target is installed and works.
    Ok,
    /// The host works towards the target.
    Running {
        /// The target.
        version: Version,
    },
    /// The host could continue, but waits.
    Waiting {
        /// What the host waits for.
        #[serde(flatten)]
        on: WaitingOn,
    },
    /// The host is blocked.
    Blocked {
        /// What blocks the host.
        #[serde(flatten)]
        by: BlockedBy,
    },
    /// An attempt or a validation failed.
    Failed(HostFailure),
}

impl HostVerdict {
    /// True if both are the same verdict. The number of instances of a service that the host waits
    /// for is not compared.
    pub fn is_same_as(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Waiting { on: WaitingOn::Service(one) },
                Self::Waiting { on: WaitingOn::Service(two) },
            ) => one.is_same_as(two),
            _ => self == other,
        }
    }

    /// Returns the kind of the verdict.
    pub fn kind(&self) -> VerdictKind {
        match self {
            Self::Ok => VerdictKind::Ok,
            Self::Running { .. } => VerdictKind::Running,
            Self::Waiting { .. } => VerdictKind::Waiting,
            Self::Blocked { .. } => VerdictKind::Blocked,
            Self::Failed(failed) => failed.kind(),
        }
    }

    /// Returns the explanation of the verdict, in words; empty for [`HostVerdict::Ok`].
    pub fn message(&self) -> String {
        match self {
            Self::Ok => String::new(),
            Self::Running { version } => on_its_way(version),
            Self::Waiting { on } => on.message(),
            Self::Blocked { by } => by.to_string(),
            Self::Failed(failed) => failed.to_string(),
        }
    }
}

/// Returns the explanation of a host that works towards a version.
pub fn on_its_way(version: &Version) -> String {
    format!("on its way to {version}")
}

/// A failure of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFailure {
    /// The version that failed, if it is known.
    pub version: Option<Version>,
    /// What failed.
    pub failure: Failure,
    /// True if the host is suspect: the agent only retries slowly.
    pub suspect: bool,
}

impl HostFailure {
    /// Returns the kind of the verdict.
    pub fn kind(&self) -> VerdictKind {
        if self.suspect { VerdictKind::Suspect } else { VerdictKind::Failed }
    }
}

impl fmt::Display for HostFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.failure.reason)?;
        self.version.as_ref().map_or(Ok(()), |version| write!(f, " (version {version})"))
    }
}

/// What failed, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The phase that failed.
    pub phase: StepPhase,
    /// The step that failed.
    pub step: StepName,
    /// Exit code of the step, if it ended with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// Reason of the failure, in words.
    pub reason: String,
    /// How the step ended; `None` in what an agent wrote that did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<StepEnd>,
    /// The cause, as the output of the step shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
}

impl Failure {
    /// Returns the failure of a step that ended in this way.
    pub fn of(phase: StepPhase, step: StepName, end: StepEnd) -> Self {
        let end = match end {
            StepEnd::NotStarted { why } => StepEnd::NotStarted { why: cut(&why, REASON_MAX_BYTES) },
            end => end,
        };
        let code = if let StepEnd::Exited { code } = end { Some(code) } else { None };
        let reason = cut(&format!("{phase} step {step} {end}"), REASON_MAX_BYTES);
        Self { phase, step, code, reason, end: Some(end), cause: None }
    }

    /// Returns the failure of an update that took longer than its rollout allows, at this step.
    pub fn too_slow(phase: StepPhase, step: StepName, within: Span) -> Self {
        let reason = format!("{phase} step {step} had not succeeded {within} after the start");
        Self { phase, step, code: None, reason, end: None, cause: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A time-out is not an exit, also for those that read the report or the journal.
    #[test]
    fn the_end_of_a_failed_step_keeps_its_type() {
        let check = |end: StepEnd, expected: &str| {
            let failure = Failure::of(StepPhase::Apply, StepName::new("s").unwrap(), end);
            let text = serde_json::to_string(&failure).unwrap();
            assert_eq!(text, format!(r#"{{"phase":"apply","step":"s",{expected}}}"#));
            assert_eq!(serde_json::from_str::<Failure>(&text).unwrap(), failure);
        };
        check(
            StepEnd::Exited { code: 3 },
            r#""code":3,"reason":"apply step s exited with code 3","end":{"end":"exited","code":3}"#,
        );
        check(
            StepEnd::TimedOut { limit_millis: 5000 },
            r#""reason":"apply step s took longer than 5s (timeout)","end":{"end":"timed_out","limit_millis":5000}"#,
        );
        check(
            StepEnd::Signalled { signal: "SIGKILL".into() },
            r#""reason":"apply step s was ended by SIGKILL","end":{"end":"signalled","signal":"SIGKILL"}"#,
        );
    }
}
