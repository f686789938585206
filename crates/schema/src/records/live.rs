//! `/orchestrate/live/<host>`: the claim of a host name.

use crate::names::{Token, quoted};
use crate::time::EpochSeconds;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What applies versions on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Driver {
    #[default]
    Agent,
    /// An external script, typically run by cron. The agent follows the script's files and keeps
    /// the leases.
    External,
}

/// `/orchestrate/live/<host>`: the claim of a host name by one running agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveClaim {
    /// Random token, created when a state directory is first used. It tells two agents apart.
    pub instance: Token,
    /// Content of `/etc/machine-id`.
    pub machine_id: String,
    /// Content of `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
    /// Addresses of the host, without loopback addresses.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Version of the agent program.
    #[serde(default)]
    pub agent_version: String,
    /// What applies versions on this host.
    #[serde(default)]
    pub driver: Driver,
    /// The newest format of the store's identity that the agent reads; 1 for agents that do not know
    /// freezes.
    #[serde(default = "first_format", skip_serializing_if = "is_first_format")]
    pub store_format: u32,
}

/// `/orchestrate/clashes/<host>`: an agent cannot claim the name of its host, because another one lives under it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameClash {
    /// When it was seen.
    pub at: EpochSeconds,
    /// The claim of the agent that lives, in words.
    pub holder: String,
    /// The claim of the agent that cannot claim the name, in words.
    pub refused: String,
}

impl fmt::Display for NameClash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { holder, refused, .. } = self;
        write!(f, "two machines have this name: {holder} runs the agent; {refused} is refused")
    }
}

fn first_format() -> u32 {
    1
}

fn is_first_format(format: &u32) -> bool {
    *format == first_format()
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
