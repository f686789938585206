//! `/orchestrate/claims/…` and `/orchestrate/claimed/<host>`: which hosts may be unavailable.

use crate::limit::{Limit, Place};
use crate::names::{HostName, Token};
use crate::order::InstructionOrder;
use crate::time::EpochSeconds;
use serde::{Deserialize, Serialize};

/// `/orchestrate/claims/<by>/<value>/<number>`: a host holds this number of the limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitClaim {
    /// The host.
    pub host: HostName,
    /// The agent that claimed it.
    pub instance: Token,
    /// The rollout for which it was claimed.
    pub rollout: InstructionOrder,
    /// When it was claimed.
    pub since: EpochSeconds,
}

/// A claim that a host holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldClaim {
    /// The limit.
    #[serde(flatten)]
    pub limit: Limit,
    /// The number in the limit.
    pub number: u32,
    /// True if a host that gave up goes on holding it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_failed: bool,
}

/// The ticket of a host that waits for its turn. It is a key of its own, attached to the live lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    /// The rollout in whose queue it is.
    pub rollout: InstructionOrder,
    /// The limit in whose queue it is.
    #[serde(flatten)]
    pub limit: Limit,
    /// The place in the queue.
    pub place: Place,
    /// The lease that the ticket ends with.
    pub lease: i64,
}

/// `/orchestrate/claimed/<host>`: the claims of a host and its ticket. It is written in every
/// transaction that changes one of them, together with every claim, so that all claims of the host
/// have the revision of this key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostClaims {
    /// The agent that wrote it.
    pub instance: Token,
    /// The rollout for which the claims are held.
    pub rollout: InstructionOrder,
    /// Since when the host has held claims, or has waited for them.
    pub since: EpochSeconds,
    /// The claims.
    #[serde(default)]
    pub claims: Vec<HeldClaim>,
    /// The ticket; `None` if the host does not wait for its turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<Ticket>,
}

impl HostClaims {
    /// True if there is neither a claim nor a ticket. Then the key does not exist.
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.ticket.is_none()
    }

    /// Returns the number that the host holds of a limit.
    pub fn number_of(&self, limit: &Limit) -> Option<u32> {
        self.claims.iter().find(|claim| claim.limit == *limit).map(|claim| claim.number)
    }
}
