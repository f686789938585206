//! What ends a reason.

use super::WhyNot;
use crate::freeze::FreezeScope;
use crate::frozen::FrozenBy;

const WENT_BACK: &str = "ends when an operator runs `orchestrate store accept --version V`";

impl WhyNot {
    /// Returns the condition that ends it, and the commands that help.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::StoreWentBack { .. } | Self::NewerInstruction { .. } => WENT_BACK,
            Self::OtherLineage { .. } => "ends when the settings of the host name its own store",
            Self::StoreUnreadable { .. } => {
                "ends when the identity of the store is restored, or when the agent is upgraded"
            }
            Self::NameHeld { .. } => "ends when one of the two agents stops, or gets another name",
            Self::Decommissioned => {
                "ends when `orchestrate hosts add` adds the host again; stop its agent if the host is not used"
            }
            Self::InvalidInstruction { .. } => {
                "ends when an operator runs `orchestrate trigger_update` with a version"
            }
            Self::Settings { .. } => "ends when only root or the agent's user can write the settings",
            Self::Rollout { .. } => {
                "ends when the policy or the labels of the host are corrected and a version is triggered"
            }
            Self::CannotRecord { .. } => "ends when the agent can write its state directory",
            Self::Deadlock(_) => {
                "ends when one of the hosts in the loop needs less, or another host has the service"
            }
            Self::Frozen(FrozenBy { scope: FreezeScope::Pause, .. }) => {
                "ends when an operator runs `orchestrate rollout resume`"
            }
            Self::Frozen(_) => {
                "ends when the freeze expires, or with `orchestrate unfreeze`; `orchestrate freezes` lists what is frozen"
            }
            Self::Step { .. } => "ends when the step succeeds, which is run again by itself",
            Self::Service(_) => "ends when enough instances of the service have that level",
            Self::Status(_) => "ends when a later result of the same type succeeds",
            Self::Spread => "ends when the host's time in the spread window comes",
            Self::Limit { detail, .. } if detail.is_zero() => {
                "ends when `orchestrate rollout set --max` raises the limit; the next rollout has that of the policy"
            }
            Self::Limit { .. } => {
                "ends when a host that is counted is done; `orchestrate claims` shows them, and `orchestrate claims release HOST` ends the claims of one that gave up"
            }
            Self::Stage { .. } => {
                "ends when the hosts of the earlier stages are proven; `orchestrate rollout excuse` excuses a host that is gone"
            }
            Self::Window { .. } => {
                "ends when the window opens; another window needs `orchestrate policy set` and a new trigger"
            }
            Self::Halted { .. } | Self::OverBudget { .. } => {
                "ends when a version that works is triggered, or with `orchestrate rollout rollback`; `orchestrate rollout resume` goes on with this one"
            }
            Self::Store => "ends when the store answers the host",
            Self::ExternalDriver => "ends when the script on the host applies the version",
            Self::Instruction => "ends when an operator runs `orchestrate trigger_update`",
            Self::NotRead | Self::NoRecord | Self::InWords { .. } => {
                "ends when the update of the host has ended"
            }
        }
    }
}
