//! The forms of a reason in the store. Earlier agents wrote only the names and texts, and earlier commands ignore the
//! fields that say more: these may be absent.

use super::WhyNot;
use super::parts::{LimitDetail, StageSoak};
use crate::limit::Limit;
use crate::names::{HostName, StageName, StepName, Token};
use crate::records::Wait;
use crate::steps::StepPhase;
use crate::store_trust::WentBack;
use crate::time::EpochSeconds;
use crate::verdict_kind::VerdictKind;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Number of holders of a limit in a report.
const HOLDERS_WRITTEN: usize = 10;

/// What precedes the reason of a halt.
const HALTED: &str = "the rollout is halted: ";

/// What a host waits for.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "on", rename_all = "snake_case")]
pub(crate) enum WaitingWire {
    Step {
        phase: StepPhase,
        step: StepName,
    },
    Service(Wait),
    Spread,
    Limit(LimitWire),
    Stage {
        stage: StageName,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        open: Option<StageName>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        soak: Option<StageSoak>,
    },
    Window {
        opens: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        starts: Option<EpochSeconds>,
    },
    Operator {
        why: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failed: Option<usize>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        budget: Option<u32>,
    },
    Store,
    ExternalDriver,
    Instruction,
}

/// A limit, and who holds it: `max` and `used` if it is full, `ahead` if other hosts come first. The words of a limit
/// may be those of another one, so `of` names it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct LimitWire {
    #[serde(with = "limit_in_words")]
    limit: Limit,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_zero: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    of: Option<Limit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    used: Option<usize>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    holders: Vec<HostName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ahead: Option<usize>,
}

/// What blocks a host.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub(crate) enum BlockedWire {
    StoreWentBack { sign: WentBack },
    StoreUnreadable { why: String },
    OtherLineage { ours: Token, theirs: Token },
    NameHeld { holder: String, ours: String },
    Decommissioned,
    InvalidInstruction { why: String },
    Settings { why: String },
    Rollout { why: String },
    CannotRecord { why: String },
}

/// What keeps a host from starting, in its plan: in words.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
enum PlannedWire {
    Frozen { by: String },
    Limited { why: String },
    Rollout { why: String },
}

/// A reason as the verdict of a host has it.
pub(crate) enum VerdictWire {
    Waiting(WaitingWire),
    Blocked(BlockedWire),
}

impl From<WhyNot> for VerdictWire {
    fn from(reason: WhyNot) -> Self {
        match reason {
            WhyNot::StoreWentBack { sign } => Self::Blocked(BlockedWire::StoreWentBack { sign }),
            WhyNot::StoreUnreadable { why } => Self::Blocked(BlockedWire::StoreUnreadable { why }),
            WhyNot::OtherLineage { ours, theirs } => {
                Self::Blocked(BlockedWire::OtherLineage { ours, theirs })
            }
            WhyNot::NameHeld { holder, ours } => Self::Blocked(BlockedWire::NameHeld { holder, ours }),
            WhyNot::Decommissioned => Self::Blocked(BlockedWire::Decommissioned),
            WhyNot::InvalidInstruction { why } => Self::Blocked(BlockedWire::InvalidInstruction { why }),
            WhyNot::Settings { why } => Self::Blocked(BlockedWire::Settings { why }),
            WhyNot::Rollout { why } => Self::Blocked(BlockedWire::Rollout { why }),
            WhyNot::CannotRecord { why } => Self::Blocked(BlockedWire::CannotRecord { why }),
            WhyNot::Step { phase, step } => Self::Waiting(WaitingWire::Step { phase, step }),
            WhyNot::Service(wait) => Self::Waiting(WaitingWire::Service(wait)),
            WhyNot::Spread => Self::Waiting(WaitingWire::Spread),
            WhyNot::Limit { limit, detail } => {
                Self::Waiting(WaitingWire::Limit(LimitWire::new(limit, detail)))
            }
            // What is known of hosts that keep their claims is not written: an agent that waits does not read it.
            WhyNot::Stage { stage, open, soak, .. } => {
                Self::Waiting(WaitingWire::Stage { stage, open, soak })
            }
            WhyNot::Window { opens, starts } => Self::Waiting(WaitingWire::Window { opens, starts }),
            WhyNot::OverBudget { failed, budget } => Self::Waiting(WaitingWire::Operator {
                why: WhyNot::OverBudget { failed, budget }.detail(),
                failed: Some(failed),
                budget: Some(budget),
            }),
            WhyNot::Store => Self::Waiting(WaitingWire::Store),
            WhyNot::ExternalDriver => Self::Waiting(WaitingWire::ExternalDriver),
            WhyNot::Instruction => Self::Waiting(WaitingWire::Instruction),
            // Besides a halt, no host says one of these about itself; a reader would see the words.
            other @ (WhyNot::Halted { .. }
            | WhyNot::NewerInstruction { .. }
            | WhyNot::Deadlock(_)
            | WhyNot::Frozen(_)
            | WhyNot::Status(_)
            | WhyNot::NotRead
            | WhyNot::NoRecord
            | WhyNot::InWords { .. }) => {
                Self::Waiting(WaitingWire::Operator { why: other.detail(), failed: None, budget: None })
            }
        }
    }
}

impl LimitWire {
    fn new(limit: Limit, detail: LimitDetail) -> Self {
        let is_zero = detail.is_zero();
        let of = Some(limit.clone());
        let plain =
            Self { limit, is_zero, of: None, max: None, used: None, holders: Vec::new(), ahead: None };
        match detail {
            LimitDetail::Full { max, used, mut holders } => {
                holders.truncate(HOLDERS_WRITTEN);
                Self { of, max: Some(max), used: Some(used), holders, ..plain }
            }
            LimitDetail::Queue { ahead } => Self { of, ahead: Some(ahead), ..plain },
            LimitDetail::Unknown { .. } => plain,
        }
    }
}

impl From<LimitWire> for WhyNot {
    fn from(LimitWire { limit, is_zero, of, max, used, holders, ahead }: LimitWire) -> Self {
        let limit = of.unwrap_or(limit);
        let detail = match (max, used, ahead) {
            (Some(max), Some(used), _) => LimitDetail::Full { max, used, holders },
            (_, _, Some(ahead)) => LimitDetail::Queue { ahead },
            _ => LimitDetail::Unknown { is_zero },
        };
        Self::Limit { limit, detail }
    }
}

impl From<WaitingWire> for WhyNot {
    fn from(on: WaitingWire) -> Self {
        match on {
            WaitingWire::Step { phase, step } => Self::Step { phase, step },
            WaitingWire::Service(wait) => Self::Service(wait),
            WaitingWire::Spread => Self::Spread,
            WaitingWire::Limit(limit) => limit.into(),
            WaitingWire::Stage { stage, open, soak } => Self::Stage { stage, open, soak, hold: None },
            WaitingWire::Window { opens, starts } => Self::Window { opens, starts },
            WaitingWire::Operator { failed: Some(failed), budget: Some(budget), .. } => {
                Self::OverBudget { failed, budget }
            }
            WaitingWire::Operator { why, .. } => {
                Self::Halted { why: why.strip_prefix(HALTED).map_or(why.clone(), str::to_owned) }
            }
            WaitingWire::Store => Self::Store,
            WaitingWire::ExternalDriver => Self::ExternalDriver,
            WaitingWire::Instruction => Self::Instruction,
        }
    }
}

impl From<BlockedWire> for WhyNot {
    fn from(by: BlockedWire) -> Self {
        match by {
            BlockedWire::StoreWentBack { sign } => Self::StoreWentBack { sign },
            BlockedWire::StoreUnreadable { why } => Self::StoreUnreadable { why },
            BlockedWire::OtherLineage { ours, theirs } => Self::OtherLineage { ours, theirs },
            BlockedWire::NameHeld { holder, ours } => Self::NameHeld { holder, ours },
            BlockedWire::Decommissioned => Self::Decommissioned,
            BlockedWire::InvalidInstruction { why } => Self::InvalidInstruction { why },
            BlockedWire::Settings { why } => Self::Settings { why },
            BlockedWire::Rollout { why } => Self::Rollout { why },
            BlockedWire::CannotRecord { why } => Self::CannotRecord { why },
        }
    }
}

/// A limit as operators read it.
mod limit_in_words {
    use super::{Deserialize, Deserializer, Limit, Serializer};

    pub(super) fn serialize<S: Serializer>(limit: &Limit, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(limit)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Limit, D::Error> {
        let words = String::deserialize(deserializer)?;
        Limit::read_words(&words).map_err(serde::de::Error::custom)
    }
}

/// The form of a reason in a plan.
pub(crate) mod planned {
    use super::{Deserialize, Deserializer, PlannedWire, Serialize, Serializer, VerdictKind, WhyNot};

    pub(crate) fn serialize<S: Serializer>(reason: &WhyNot, serializer: S) -> Result<S::Ok, S::Error> {
        let words = reason.detail();
        let plan = match reason.kind() {
            VerdictKind::Frozen => PlannedWire::Frozen { by: words },
            VerdictKind::Waiting if !reason.is_halt() => PlannedWire::Limited { why: words },
            _ => PlannedWire::Rollout { why: words },
        };
        plan.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<WhyNot, D::Error> {
        let (kind, words) = match PlannedWire::deserialize(deserializer)? {
            PlannedWire::Frozen { by } => (VerdictKind::Frozen, by),
            PlannedWire::Limited { why } => (VerdictKind::Waiting, why),
            PlannedWire::Rollout { why } => (VerdictKind::Running, why),
        };
        Ok(WhyNot::InWords { kind, words })
    }
}
