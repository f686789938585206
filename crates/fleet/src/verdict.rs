//! The verdict of a reader about a host, and the state of the whole fleet.

use schema::names::{StatusType, StepName, Version};
use schema::records::StatusRecord;
use schema::steps::StepPhase;
use schema::time::EpochSeconds;
use schema::verdict::{HostFailure, VerdictKind, on_its_way};
use schema::why_not::WhyNot;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;

/// Why a host counts as failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FailedBy {
    /// The report of the host has the verdict failed.
    Report(HostFailure),
    /// A result of the host has the state failed.
    Status {
        /// The type of the result.
        kind: StatusType,
        /// The record of the result, if it can be read.
        record: Option<StatusRecord>,
    },
    /// A result that the host used to report has expired.
    Stale {
        /// The type of the result.
        kind: StatusType,
    },
}

/// Why a host is not at the target yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Running {
    /// The host works towards this version.
    Towards {
        /// The version.
        version: Version,
        /// The step that runs, if it has run for some time.
        step: Option<(StepPhase, StepName)>,
    },
    /// The report is about an older instruction, or about none.
    NotActedOn {
        /// Revision of the instruction that the host decided on last, if any.
        decided: Option<i64>,
    },
    /// The agent has not reported yet.
    NoReport,
    /// The report cannot be read.
    UnreadableReport {
        /// Why the report cannot be read.
        why: String,
    },
    /// The host is not listed under any version.
    NotListed,
    /// The host is listed, but not under the target alone.
    ListedUnder(BTreeSet<Version>),
}

/// The verdict of a reader about a host. Exactly one applies; the variants are in the order of
/// precedence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FleetVerdict {
    /// The host is known to be part of the fleet, and is neither live nor listed.
    Lost {
        /// True if the host was ever seen: it has a report or results.
        seen: bool,
        /// When the host reported last, if its report can be read.
        last_report: Option<EpochSeconds>,
    },
    /// The host failed.
    Failed(FailedBy),
    /// The host does not go on: it is blocked, frozen or waits.
    Held(WhyNot),
    /// The host is on its way to the target.
    Running(Running),
    /// The target is installed and works.
    Ok,
}

/// The state of the whole fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FleetState {
    /// Every host runs the target.
    Settled,
    /// Some hosts are not at the target yet; none needs an operator.
    Updating,
    /// At least one host is lost, failed or blocked, or waits because the rollout is halted, or a host
    /// at the target waits for a service, or a service does not work without an explanation.
    Failing,
    /// The state cannot be determined; see [`Fleet::unknown_reason`](super::Fleet::unknown_reason).
    Unknown,
}

impl FleetState {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Settled, Self::Updating, Self::Failing, Self::Unknown];
}

impl fmt::Display for FleetState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Settled => "settled",
            Self::Updating => "updating",
            Self::Failing => "failing",
            Self::Unknown => "unknown",
        })
    }
}

/// Why a host is unaccounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unaccounted {
    /// The host is present, but has not reported about the newest instruction.
    Late,
    /// The host was seen, and is gone.
    Lost,
    /// The host is on the roster and was never seen.
    NeverSeen,
}

impl fmt::Display for Unaccounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Late => "late",
            Self::Lost => "lost",
            Self::NeverSeen => "never seen",
        })
    }
}

impl FleetVerdict {
    /// Returns the kind of the verdict.
    pub fn kind(&self) -> VerdictKind {
        match self {
            Self::Lost { .. } => VerdictKind::Lost,
            Self::Failed(FailedBy::Report(failed)) => failed.kind(),
            Self::Failed(_) => VerdictKind::Failed,
            Self::Held(reason) => reason.kind(),
            Self::Running(_) => VerdictKind::Running,
            Self::Ok => VerdictKind::Ok,
        }
    }

    /// Returns the details of the verdict as text; empty for ok.
    pub fn message(&self) -> String {
        match self {
            Self::Lost { seen: false, .. } => "on the roster, but never seen".into(),
            Self::Lost { seen: true, .. } => "neither live nor listed under a version".into(),
            Self::Failed(by) => by.message(),
            // The report does not follow how many instances there are.
            Self::Held(WhyNot::Service(wait)) if wait.unreachable => {
                format!("waits for {}: the probe from here fails", wait.service)
            }
            Self::Held(WhyNot::Service(wait)) => {
                format!("waits for {}: {} {} needed", wait.service, wait.need, wait.level)
            }
            Self::Held(reason) => reason.to_string(),
            Self::Running(running) => running.message(),
            Self::Ok => String::new(),
        }
    }

    /// Returns the condition that ends the verdict, and the commands that help, as text; empty for ok.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Lost { .. } => {
                "ends when its agent is back; `orchestrate hosts decommission` removes the host from the fleet"
            }
            Self::Failed(FailedBy::Report(failed)) => failure_hint(failed),
            Self::Failed(FailedBy::Status { .. }) => "ends when a later result of the same type succeeds",
            Self::Failed(FailedBy::Stale { .. }) => {
                "ends when the host reports again; `orchestrate hosts decommission` removes it from the fleet"
            }
            Self::Held(reason) => reason.hint(),
            Self::Running(Running::NotListed | Running::ListedUnder(_)) => {
                "ends when the host is listed under the target alone"
            }
            Self::Running(Running::NoReport | Running::UnreadableReport { .. }) => {
                "ends when its agent writes a report"
            }
            Self::Running(Running::Towards { .. } | Running::NotActedOn { .. }) => {
                "ends when the update of the host has ended"
            }
            Self::Ok => "",
        }
    }

    /// True if the host waits for services, also in a deadlock.
    pub fn waits_for_services(&self) -> bool {
        matches!(self, Self::Held(WhyNot::Service(_) | WhyNot::Deadlock(_)))
    }

    /// Returns why the host does not go on; `None` if nothing keeps it.
    pub fn why_not(&self) -> Option<&WhyNot> {
        match self {
            Self::Held(reason) => Some(reason),
            _ => None,
        }
    }

    /// Returns why the host is unaccounted; `None` if it is not.
    pub fn unaccounted(&self) -> Option<Unaccounted> {
        match self {
            Self::Lost { seen: false, .. } => Some(Unaccounted::NeverSeen),
            Self::Lost { seen: true, .. } => Some(Unaccounted::Lost),
            Self::Running(Running::Towards { .. }) => None,
            Self::Running(_) => Some(Unaccounted::Late),
            _ => None,
        }
    }
}

/// Returns the condition that ends a failure. A step of the converge or validate phase is run again by itself, a
/// step of another phase only in an attempt.
fn failure_hint(failed: &HostFailure) -> &'static str {
    match (failed.failure.phase, failed.suspect) {
        (StepPhase::Converge | StepPhase::Validate, _) => {
            "ends when the step succeeds, which is run again by itself; `orchestrate retry` begins an attempt now"
        }
        (_, true) => {
            "ends when an attempt succeeds; a new instruction or `orchestrate retry` begins an attempt now"
        }
        (_, false) => "ends when an attempt succeeds; `orchestrate retry` begins an attempt now",
    }
}

impl FailedBy {
    fn message(&self) -> String {
        match self {
            Self::Report(failed) => failed.to_string(),
            Self::Status { kind, record } => {
                let code = record.as_ref().and_then(|r| r.code).map(|code| format!(" with code {code}"));
                let reason =
                    record.as_ref().filter(|r| !r.reason.is_empty()).map(|r| format!(": {}", r.reason));
                format!("{kind} failed{}{}", code.unwrap_or_default(), reason.unwrap_or_default())
            }
            Self::Stale { kind } => format!("{kind} is no longer reported"),
        }
    }
}

impl Running {
    fn message(&self) -> String {
        match self {
            Self::Towards { version, step: None } => on_its_way(version),
            Self::Towards { version, step: Some((phase, step)) } => {
                format!("{}: {phase} step {step} runs", on_its_way(version))
            }
            Self::NotActedOn { decided: Some(revision) } => {
                format!("has not acted on the instruction yet; it decided on revision {revision}")
            }
            Self::NotActedOn { decided: None } => "has not acted on the instruction yet".into(),
            Self::NoReport => "its agent has not reported yet".into(),
            Self::UnreadableReport { why } => format!("its report cannot be read: {why}"),
            Self::NotListed => "not listed under a version".into(),
            Self::ListedUnder(versions) => {
                let names: Vec<&str> = versions.iter().map(Version::as_str).collect();
                format!("listed under {}", names.join(", "))
            }
        }
    }
}
