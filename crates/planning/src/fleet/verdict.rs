//! The verdict of a reader about a host, and the state of the whole fleet.

use schema::freeze::FreezeScope;
use schema::frozen::FrozenBy;
use schema::names::{HostName, ServiceName, StatusType, StepName, Version};
use schema::records::StatusRecord;
use schema::steps::StepPhase;
use schema::time::EpochSeconds;
use schema::verdict::{BlockedBy, HostFailure, VerdictKind, WaitingOn, on_its_way};
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

/// What blocks a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blocked {
    /// A cause that the host itself can see.
    By(BlockedBy),
    /// The host decided on an instruction that is newer than the one in the store: the store went
    /// back.
    NewerInstruction {
        /// Revision of the instruction that the host decided on.
        decided: i64,
        /// Revision of the instruction in the store.
        found: i64,
    },
    /// The host is in a deadlock or waits for one. The list is the loop: each host with the service
    /// that it waits for.
    Deadlock(Vec<(HostName, ServiceName)>),
}

/// What a host waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waiting {
    /// The cause that the host reports.
    On(WaitingOn),
    /// A result of this type is pending.
    Status(StatusType),
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
    /// The host cannot go on until the cause is removed.
    Blocked(Blocked),
    /// A freeze keeps the host from starting.
    Frozen(FrozenBy),
    /// The host would go on, but waits.
    Waiting(Waiting),
    /// The host is on its way to the target.
    Running(Running),
    /// The target is installed and works.
    Ok,
}

/// The state of the whole fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
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
            Self::Blocked(_) => VerdictKind::Blocked,
            Self::Frozen(_) => VerdictKind::Frozen,
            Self::Waiting(_) => VerdictKind::Waiting,
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
            Self::Blocked(Blocked::By(by)) => by.to_string(),
            Self::Blocked(Blocked::NewerInstruction { decided, found }) => format!(
                "it decided on the instruction of revision {decided}, the store has one of revision {found}: the store went back"
            ),
            Self::Blocked(Blocked::Deadlock(hosts)) => {
                format!("a deadlock: {}", super::waits::describe_loop(hosts))
            }
            Self::Frozen(by) => by.to_string(),
            Self::Waiting(Waiting::On(on)) => on.message(),
            Self::Waiting(Waiting::Status(kind)) => format!("{kind} said \"not yet\""),
            Self::Running(running) => running.message(),
            Self::Ok => String::new(),
        }
    }

    /// Returns what would change the verdict, as text; empty for ok.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Lost { .. } => "the host comes back, or `orchestrate hosts decommission` takes it out",
            Self::Failed(FailedBy::Report(HostFailure { suspect: true, failure, .. }))
                if failure.phase == StepPhase::Validate =>
            {
                "its validation passes; a new instruction or `orchestrate retry` makes it try now"
            }
            Self::Failed(FailedBy::Report(HostFailure { suspect: true, .. })) => {
                "its next attempt succeeds; a new instruction or `orchestrate retry` makes it try now"
            }
            Self::Failed(FailedBy::Report(_)) => {
                "its next attempt succeeds; `orchestrate retry` makes it begin now"
            }
            Self::Failed(FailedBy::Status { .. }) => "a later result of the same type that succeeds",
            Self::Failed(FailedBy::Stale { .. }) => {
                "the host reports again, or `orchestrate hosts decommission` takes it out"
            }
            Self::Blocked(Blocked::By(BlockedBy::OtherLineage { .. })) => {
                "the host is pointed at its own store"
            }
            Self::Blocked(Blocked::By(BlockedBy::StoreUnreadable { .. })) => {
                "the identity is written as it was, or the agent is upgraded"
            }
            Self::Blocked(Blocked::By(BlockedBy::NameHeld { .. })) => {
                "one of the two agents stops, or gets another name"
            }
            Self::Blocked(Blocked::By(BlockedBy::Decommissioned)) => {
                "`orchestrate hosts add`, or the host is stopped"
            }
            Self::Blocked(Blocked::By(BlockedBy::InvalidInstruction { .. })) => {
                "`orchestrate trigger_update` with a version"
            }
            Self::Blocked(Blocked::By(BlockedBy::Settings { .. })) => {
                "its settings belong to root or the agent's user, and nobody else can write them"
            }
            Self::Blocked(Blocked::By(BlockedBy::Rollout { .. })) => {
                "the policy or the labels of the host are put right, and a version is triggered"
            }
            Self::Blocked(Blocked::By(BlockedBy::CannotRecord { .. })) => {
                "its state directory can be written again"
            }
            Self::Blocked(
                Blocked::By(BlockedBy::StoreWentBack { .. }) | Blocked::NewerInstruction { .. },
            ) => "`orchestrate store accept --version V`",
            Self::Blocked(Blocked::Deadlock(_)) => {
                "one of the hosts in the loop needs less, or another host has the service"
            }
            Self::Frozen(FrozenBy { scope: FreezeScope::Pause, .. }) => "`orchestrate rollout resume`",
            Self::Frozen(_) => "`orchestrate unfreeze` with the role, group or host that is frozen",
            Self::Waiting(Waiting::On(WaitingOn::Service(_))) => {
                "enough instances of the service at that level"
            }
            Self::Waiting(Waiting::On(WaitingOn::Spread)) => "its turn comes",
            Self::Waiting(Waiting::On(WaitingOn::Limit { .. })) => {
                "another host is done or gives up; `orchestrate claims` shows which hosts are counted"
            }
            Self::Waiting(Waiting::On(WaitingOn::Stage { .. })) => {
                "the hosts of the earlier stages are proven, or excused with `orchestrate rollout excuse`"
            }
            Self::Waiting(Waiting::On(WaitingOn::Window { .. })) => {
                "the window opens, or the policy has others and a version is triggered"
            }
            Self::Waiting(Waiting::On(WaitingOn::Operator { .. })) => {
                "`orchestrate rollout resume`, or another version is triggered"
            }
            Self::Waiting(Waiting::On(WaitingOn::Store)) => "the store answers the host",
            Self::Waiting(Waiting::On(WaitingOn::ExternalDriver)) => {
                "the script on the host applies the version"
            }
            Self::Waiting(Waiting::On(WaitingOn::Instruction)) => "`orchestrate trigger_update`",
            Self::Waiting(Waiting::On(WaitingOn::Step { .. })) => {
                "the step succeeds; it is run again by itself"
            }
            Self::Waiting(Waiting::Status(_)) => "a later result of the same type",
            Self::Running(Running::NotListed | Running::ListedUnder(_)) => {
                "the host reports the target by its listing"
            }
            Self::Running(_) => "the host goes on by itself",
            Self::Ok => "",
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
            Self::Stale { kind } => format!("{kind} was reported once and is not any more"),
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
