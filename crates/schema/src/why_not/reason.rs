//! The reasons, and their texts.

use super::parts::{LimitDetail, StageHold, StageSoak, WaitingHost, describe_loop, over_budget};
use crate::frozen::FrozenBy;
use crate::limit::Limit;
use crate::names::{StageName, StatusType, StepName, Token};
use crate::records::Wait;
use crate::steps::StepPhase;
use crate::store_trust::WentBack;
use crate::time::EpochSeconds;
use crate::verdict_kind::VerdictKind;
use std::fmt;

/// Why a host does not go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhyNot {
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
    /// The rules of the rollout cannot be followed on this host: its record lets no host start, or what the
    /// store says about the host cannot be used.
    Rollout {
        /// What is wrong with them.
        why: String,
    },
    /// The state directory cannot be written: nothing disruptive starts that could not be recorded.
    CannotRecord {
        /// The error of the write.
        why: String,
    },
    /// The host decided on an instruction that is newer than the one in the store. Only a reader sees this.
    NewerInstruction {
        /// Revision of the instruction that the host decided on.
        decided: i64,
        /// Revision of the instruction in the store.
        found: i64,
    },
    /// The host is in a deadlock or waits for one. Only a reader sees this. The list is the loop.
    Deadlock(Vec<WaitingHost>),
    Frozen(FrozenBy),
    /// A deferred step: it said "not yet".
    Step {
        /// Phase of the step.
        phase: StepPhase,
        /// Name of the step.
        step: StepName,
    },
    /// A service that is needed.
    Service(Wait),
    /// A result of this type is pending. Only a reader sees this.
    Status(StatusType),
    /// The host's place in the window over which the starts of hosts are spread.
    Spread,
    /// A limit of the rollout.
    Limit {
        limit: Limit,
        /// Who holds it, or comes first.
        detail: LimitDetail,
    },
    /// The stage of the host: the hosts of an earlier stage come first.
    Stage {
        stage: StageName,
        /// The last one that is open; `None` in what an earlier agent wrote.
        open: Option<StageName>,
        /// The soak of that stage, if its hosts are through.
        soak: Option<StageSoak>,
        /// The hosts of that stage, if the next one waits only because they keep their claims. An agent that
        /// waits does not read that.
        hold: Option<Box<StageHold>>,
    },
    /// No update window is open, by the clock of the host.
    Window {
        /// When the next one opens, in its own time zone, in words.
        opens: String,
        /// When the host may start; `None` in what an earlier agent wrote.
        starts: Option<EpochSeconds>,
    },
    /// The rollout is halted.
    Halted {
        why: String,
    },
    /// More hosts failed than the rollout tolerates. Whoever sees it halts the rollout.
    OverBudget {
        /// How many hosts failed.
        failed: usize,
        /// How many are tolerated.
        budget: u32,
    },
    /// The store, which cannot be used.
    Store,
    /// The external script that applies versions on this host.
    ExternalDriver,
    /// A first instruction.
    Instruction,
    /// The rollout has not been read since it refused the host.
    NotRead,
    /// The record of the rollout is not written yet.
    NoRecord,
    /// The words of a plan that was read from the store: a plan says in words what holds a start.
    InWords {
        /// The verdict that belongs to them.
        kind: VerdictKind,
        words: String,
    },
}

impl WhyNot {
    /// Returns the verdict that belongs to it.
    pub fn kind(&self) -> VerdictKind {
        match self {
            Self::StoreWentBack { .. }
            | Self::StoreUnreadable { .. }
            | Self::OtherLineage { .. }
            | Self::NameHeld { .. }
            | Self::Decommissioned
            | Self::InvalidInstruction { .. }
            | Self::Settings { .. }
            | Self::Rollout { .. }
            | Self::CannotRecord { .. }
            | Self::NewerInstruction { .. }
            | Self::Deadlock(_) => VerdictKind::Blocked,
            Self::Frozen(_) => VerdictKind::Frozen,
            Self::Step { .. }
            | Self::Service(_)
            | Self::Status(_)
            | Self::Spread
            | Self::Limit { .. }
            | Self::Stage { .. }
            | Self::Window { .. }
            | Self::Halted { .. }
            | Self::OverBudget { .. }
            | Self::Store
            | Self::ExternalDriver
            | Self::Instruction => VerdictKind::Waiting,
            // It is over within moments.
            Self::NotRead | Self::NoRecord => VerdictKind::Running,
            Self::InWords { kind, .. } => *kind,
        }
    }

    /// True if the host waits for its turn in the rollout. A halt of the rollout outweighs this.
    pub fn is_turn(&self) -> bool {
        matches!(self, Self::Limit { .. } | Self::Stage { .. } | Self::Window { .. })
    }

    /// True if the rollout is halted, or would be by whoever sees this.
    pub fn is_halt(&self) -> bool {
        matches!(self, Self::Halted { .. } | Self::OverBudget { .. })
    }

    /// True if a halt of the rollout keeps the host, or would.
    pub fn depends_on_halt(&self) -> bool {
        self.is_turn() || self.is_halt()
    }

    /// True if both are the same news. Not compared are the details that change while a host waits for the
    /// same thing: who holds a limit, whether a stage is observed, the number of instances of a service.
    pub fn is_same_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Service(one), Self::Service(two)) => one.is_same_as(two),
            (Self::Limit { limit: one, detail }, Self::Limit { limit: two, detail: other }) => {
                one == two && detail.is_zero() == other.is_zero()
            }
            (Self::Stage { stage: one, .. }, Self::Stage { stage: two, .. }) => one == two,
            (Self::Window { opens: one, .. }, Self::Window { opens: two, .. }) => one == two,
            (one, two) if one.is_halt() && two.is_halt() => one.detail() == two.detail(),
            (one, two) => one == two,
        }
    }

    /// Returns when it is expected to end, if it ends by itself at a known time.
    pub fn ends(&self) -> Option<EpochSeconds> {
        match self {
            Self::Stage { soak: Some(soak), .. } => soak.ends,
            Self::Stage { hold, .. } => hold.as_ref().map(|hold| hold.ends),
            Self::Window { starts, .. } => *starts,
            _ => None,
        }
    }

    /// Returns the reason with what is known about who holds the host.
    pub fn detail(&self) -> String {
        match self {
            Self::Limit { limit, detail } => detail.text(limit),
            Self::Stage { stage, open: Some(open), soak: Some(_), .. } => {
                format!("stage {stage} is not open: the hosts of stage {open} are observed first")
            }
            Self::Stage { stage, hold: Some(hold), .. } => {
                let StageHold { host, others, length, .. } = &**hold;
                let rest = match others {
                    0 => format!("is proven and holds its claims for {length}"),
                    others => format!("and {others} more are proven and hold their claims for {length}"),
                };
                format!("stage {stage} is not open: {host} {rest}")
            }
            Self::Stage { stage, open: Some(open), .. } => {
                format!("stage {stage} is not open: not all hosts of stage {open} are proven")
            }
            Self::Stage { stage, open: None, .. } => format!("stage {stage} is not open"),
            Self::Window { opens, .. } => {
                format!("no update window is open; the next one opens {opens}")
            }
            Self::Halted { why } => format!("the rollout is halted: {why}"),
            Self::OverBudget { failed, budget } => {
                format!("the rollout is halted: {}", over_budget(*failed, *budget))
            }
            reason => reason.to_string(),
        }
    }
}

impl fmt::Display for WhyNot {
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
            Self::NewerInstruction { decided, found } => write!(
                f,
                "it decided on the instruction of revision {decided}, the store has one of revision {found}: the store went back"
            ),
            Self::Deadlock(hosts) => write!(f, "a deadlock: {}", describe_loop(hosts)),
            Self::Frozen(by) => by.fmt(f),
            Self::Step { phase, step } => write!(f, "waits for {phase} step {step}, which said \"not yet\""),
            Self::Service(wait) => write!(f, "waits for {wait}"),
            Self::Status(kind) => write!(f, "{kind} said \"not yet\""),
            Self::Spread => f.write_str("waits for its turn: the start of hosts is spread"),
            Self::Limit { limit, detail } if detail.is_zero() => {
                write!(f, "waits for a larger limit: the limit of {limit} is 0")
            }
            Self::Limit { limit, .. } => {
                write!(f, "waits for its turn: the limit of {limit} is reached")
            }
            Self::Stage { stage, .. } => write!(f, "waits for its turn: stage {stage} is not open"),
            Self::Window { opens, .. } => {
                write!(f, "waits for the next update window, which opens {opens}")
            }
            Self::Halted { .. } | Self::OverBudget { .. } => {
                write!(f, "waits for an operator: {}", self.detail())
            }
            Self::Store => f.write_str("waits for the store, which cannot be read"),
            Self::ExternalDriver => f.write_str("waits for the script that applies versions here"),
            Self::Instruction => f.write_str("waits for a first version to be triggered"),
            Self::NotRead => f.write_str("the limits of the rollout are being read"),
            Self::NoRecord => f.write_str("the record of the rollout is not written yet"),
            Self::InWords { words, .. } => f.write_str(words),
        }
    }
}
