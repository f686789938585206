//! `/orchestrate/live/<host>`: the claim of a name.

use crate::names::{Token, quoted};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Who applies versions on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Driver {
    /// The agent.
    #[default]
    Agent,
    /// An old cron script; the agent follows its files and keeps the leases.
    External,
}

/// `/orchestrate/live/<host>`: one running agent's claim of the name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveClaim {
    /// Random, made when a state directory is first used; tells two agents apart.
    pub instance: Token,
    /// `/etc/machine-id`.
    pub machine_id: String,
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
    /// Addresses of the host, without loopback.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Version of the program.
    #[serde(default)]
    pub agent_version: String,
    /// Who applies versions here.
    #[serde(default)]
    pub driver: Driver,
}

impl fmt::Display for LiveClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "instance {} on machine {} at {}",
            self.instance,
            quoted(&self.machine_id),
            if self.addresses.is_empty() {
                "unknown addresses".into()
            } else {
                quoted(&self.addresses.join(" "))
            }
        )
    }
}
