//! `/orchestrate/claims/…`, `/orchestrate/claimed/<host>` and `/orchestrate/lost/…`: which hosts may be
//! unavailable, and which of them vanished.

use crate::limit::{Limit, Place};
use crate::names::{HostName, Token};
use crate::order::InstructionOrder;
use crate::time::{EpochSeconds, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

/// Time after which a holder whose agent does not run counts as lost, where no policy says another.
pub const LOST_AFTER: Span = Span(Duration::from_secs(10 * 60));

pub(super) fn lost_after() -> Span {
    LOST_AFTER
}

pub(super) fn is_usual_lost_after(span: &Span) -> bool {
    *span == LOST_AFTER
}

/// What a host holds its claims for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, JsonSchema)]
#[schemars(with = "String")]
pub enum Purpose {
    /// An update of the host.
    Update,
    /// A reboot, which this client of FleetLock asked for.
    Reboot(Token),
    /// A command that `orchestrate with-claim` runs; the token names the run.
    Command(Token),
}

/// Largest number of purposes of one host.
pub const PURPOSES_MAX: usize = 16;
/// Largest number of clients for whose reboots one host holds claims.
pub const REBOOTS_MAX: usize = 4;
/// Stands for the agent in the claims that a script took.
pub const SCRIPT_INSTANCE: &str = "script";

const UPDATE: &str = "update";
const REBOOT: &str = "reboot/";
const COMMAND: &str = "command/";

impl Purpose {
    /// Returns what it is in one word, for people.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Update => UPDATE,
            Self::Reboot(_) => "reboot",
            Self::Command(_) => "command",
        }
    }

    /// Returns the purposes of a host that is being updated.
    pub fn only_update() -> BTreeSet<Self> {
        BTreeSet::from([Self::Update])
    }
}

fn is_only_update(purposes: &BTreeSet<Purpose>) -> bool {
    *purposes == Purpose::only_update()
}

impl fmt::Display for Purpose {
    /// Writes the purpose as in the store.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Update => f.write_str(UPDATE),
            Self::Reboot(client) => write!(f, "{REBOOT}{client}"),
            Self::Command(run) => write!(f, "{COMMAND}{run}"),
        }
    }
}

impl Serialize for Purpose {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Purpose {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let token = |token: &str| Token::new(token).map_err(serde::de::Error::custom);
        if text == UPDATE {
            Ok(Self::Update)
        } else if let Some(client) = text.strip_prefix(REBOOT) {
            token(client).map(Self::Reboot)
        } else if let Some(run) = text.strip_prefix(COMMAND) {
            token(run).map(Self::Command)
        } else {
            let shown = crate::names::quoted(&text);
            Err(serde::de::Error::custom(format!("{shown} is not update, reboot/CLIENT or command/RUN")))
        }
    }
}

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
    /// What it is held for.
    #[serde(rename = "for", default = "Purpose::only_update", skip_serializing_if = "is_only_update")]
    pub purposes: BTreeSet<Purpose>,
}

/// A claim that a host holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldClaim {
    /// The limit.
    #[serde(flatten)]
    pub limit: Limit,
    /// The number in the limit.
    pub number: u32,
    /// True if a host that gave up, or was lost, goes on holding it.
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
    /// What the host holds them for. It holds all of them as long as there is one purpose.
    #[serde(rename = "for", default = "Purpose::only_update", skip_serializing_if = "is_only_update")]
    pub purposes: BTreeSet<Purpose>,
    /// The ticket; `None` if the host does not wait for its turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<Ticket>,
    /// Time without a running agent after which the host is lost, so that its claims end.
    #[serde(default = "lost_after", skip_serializing_if = "is_usual_lost_after")]
    pub lost_after: Span,
    /// True if the host was lost. The claims that are left go on counting it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
    /// True if an operator released the claims. The host does not take them again before its next start.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub released: bool,
}

impl HostClaims {
    /// Returns the value of a host without claims and ticket.
    pub fn none(instance: Token, rollout: InstructionOrder, since: EpochSeconds) -> Self {
        Self {
            instance,
            rollout,
            since,
            claims: Vec::new(),
            purposes: Purpose::only_update(),
            ticket: None,
            lost_after: LOST_AFTER,
            lost: false,
            released: false,
        }
    }

    /// True if there is nothing to say. Then the key does not exist.
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.ticket.is_none() && !self.released
    }

    /// True if the host holds claims because it is being updated.
    pub fn is_for_update(&self) -> bool {
        !self.claims.is_empty() && self.purposes.contains(&Purpose::Update)
    }

    /// Ends one purpose. With the last one all claims end.
    pub fn end(&mut self, purpose: &Purpose) {
        self.purposes.remove(purpose);
        if self.purposes.is_empty() {
            self.claims.clear();
            self.purposes = Purpose::only_update();
        }
    }

    /// Returns the number that the host holds of a limit.
    pub fn number_of(&self, limit: &Limit) -> Option<u32> {
        self.claims.iter().find(|claim| claim.limit == *limit).map(|claim| claim.number)
    }
}

/// `/orchestrate/lost/mark/<host>`: somebody saw that the agent of a host does not run that holds claims, or that was
/// proven in a rollout which has not ended. The agent of the host deletes the mark when it claims its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostMark {
    /// The host that saw it, or the script.
    pub by: String,
    /// When it was seen.
    pub at: EpochSeconds,
    /// Since when the host had held its claims, or had been proven if it held none. Claims that it took later are not
    /// meant.
    pub claimed_since: EpochSeconds,
    /// The rollout for which it held them, or in which it was proven.
    pub rollout: InstructionOrder,
    /// True if the timer of `lost_after` was started. Nothing else happens before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed: bool,
}

impl LostMark {
    /// True if the mark is about the claims, or the proof, of this time in this rollout.
    pub fn is_about(&self, since: EpochSeconds, rollout: InstructionOrder) -> bool {
        (self.claimed_since, self.rollout) == (since, rollout)
    }
}
