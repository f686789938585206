//! The needs of a host that are not met.

use crate::health::Level;
use crate::names::{ServiceName, StepName};
use crate::steps::StepPhase;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A need that is not met. It names the service that the host waits for, so that a reader can
/// follow the chain of waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// The service that is needed.
    pub service: ServiceName,
    /// The level that is needed.
    pub level: Level,
    /// Number of instances that are needed at this level.
    pub need: u32,
    /// Number of instances at this level when this was written.
    pub have: u32,
    /// The phase that waits.
    pub phase: StepPhase,
    /// The step of the phase that waits, if the need is one of a single step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<StepName>,
    /// True if enough instances exist but the probe from this host fails.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unreachable: bool,
}

impl Wait {
    /// True if both are the same need. `have` is not compared, because readers of the store can
    /// count the instances themselves.
    pub fn is_same_as(&self, other: &Self) -> bool {
        Self { have: 0, ..self.clone() } == Self { have: 0, ..other.clone() }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { service, level, need, have, .. } = self;
        if self.unreachable {
            return write!(f, "{service}: {have} of {need} {level}, and the probe from here fails");
        }
        write!(f, "{service}: {have} of {need} {level}")
    }
}
