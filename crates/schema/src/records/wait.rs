//! The needs of a host that are not met.

use crate::health::Level;
use crate::names::{ServiceName, StepName};
use crate::steps::StepPhase;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A need that is not met. It names what the host waits for, so that a reader can follow it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// For this service,
    pub service: ServiceName,
    /// at this level,
    pub level: Level,
    /// so many instances of it;
    pub need: u32,
    /// so many there were when this was written.
    pub have: u32,
    /// Before this phase,
    pub phase: StepPhase,
    /// or this step of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<StepName>,
    /// The instances are there, and the probe from this host fails.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unreachable: bool,
}

impl Wait {
    /// The same need: how many there are is left out, because others see that by themselves.
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
