//! A claim of a limit, with what is known of its holder.

use planning::calendar::rfc3339;
use schema::keys::{self, Key, Prefix};
use schema::limit::Limit;
use schema::names::HostName;
use schema::records::{HeldClaim, LimitClaim, Purpose};
use schema::snapshot::KeySnapshot;
use schema::writes::claims::FoundClaims;
use schema::writes::operator;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::collections::BTreeSet;
use std::fmt;

/// A claim of a limit.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(with = "ClaimJson<'_>")]
pub struct ClaimView {
    /// The limit.
    pub limit: Limit,
    /// The number of the claim in the limit.
    pub number: u32,
    /// The value of the key; `None` if it cannot be read.
    pub claim: Option<LimitClaim>,
    /// True if it was written before the store was last accepted.
    pub is_stale: bool,
    agent: Agent,
}

/// What is known of the agent of a host that holds claims.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Agent {
    Live,
    /// The agent does not run; the time is given if another host saw that.
    Vanished(Option<String>),
    /// The agent has not run for so long that the host counts as lost.
    Lost,
    NotKnown,
}

impl Agent {
    fn of(host: &HostName, found: &KeySnapshot) -> Self {
        if found.get(&Key::Live(host.clone())).is_some() {
            return Self::Live;
        }
        let claims = FoundClaims::read(host, found).claims;
        if claims.as_ref().is_some_and(|claims| claims.lost) {
            return Self::Lost;
        }
        let mark = found.value_of(keys::LostMark(host.clone()));
        let mark =
            mark.filter(|mark| claims.is_some_and(|claims| mark.is_about(claims.since, claims.rollout)));
        Self::Vanished(mark.and_then(|mark| rfc3339(mark.at)))
    }

    fn text(&self) -> String {
        match self {
            Self::Live => "live".into(),
            Self::Vanished(Some(at)) => format!("none since {at}"),
            Self::Vanished(None) => "none".into(),
            Self::Lost => "lost".into(),
            Self::NotKnown => "not known".into(),
        }
    }
}

impl ClaimView {
    /// Names the columns of [`Self::row`].
    pub const HEADER: [&'static str; 6] = ["LIMIT", "NUMBER", "HOST", "FOR", "AGENT", "SINCE"];

    /// Returns the claims of a snapshot. The keys of their holders are taken into account if the
    /// snapshot has them; see [`Self::keys_of`].
    pub fn all(found: &KeySnapshot) -> impl Iterator<Item = Self> {
        Self::in_range(Prefix::Claims, found)
    }

    /// Returns the claims of a limit, as [`Self::all`].
    pub fn of_limit<'a>(limit: &Limit, found: &'a KeySnapshot) -> impl Iterator<Item = Self> + use<'a> {
        Self::in_range(Prefix::ClaimsOf(limit.clone()), found)
    }

    fn in_range(range: Prefix, found: &KeySnapshot) -> impl Iterator<Item = Self> + use<'_> {
        found.in_range(&range).filter_map(|(key, entry)| {
            let Ok(Key::Claim(limit, number)) = Key::parse(key) else { return None };
            let claim = keys::Claim::read(&entry.value).ok();
            let agent = claim.as_ref().map_or(Agent::NotKnown, |claim| Agent::of(&claim.host, found));
            Some(Self { limit, number, claim, is_stale: operator::is_stale(entry, found), agent })
        })
    }

    /// Returns what is read about a holder, besides the claims themselves.
    pub fn keys_of(host: &HostName) -> [Key; 3] {
        [Key::Live, Key::Claimed, Key::LostMark].map(|make| make(host.clone()))
    }

    /// Returns the claim as a row of a table.
    pub fn row(&self) -> [String; 6] {
        let since = self.since().unwrap_or_default();
        [
            self.limit.to_string(),
            self.number.to_string(),
            self.host(),
            self.purposes(),
            self.agent.text(),
            since,
        ]
    }

    fn host(&self) -> String {
        self.claim.as_ref().map_or("cannot be read".into(), |claim| claim.host.to_string())
    }

    fn since(&self) -> Option<String> {
        self.claim.as_ref().and_then(|claim| rfc3339(claim.since))
    }

    /// Returns what the claim is held for, in words.
    fn purposes(&self) -> String {
        let words: BTreeSet<&str> =
            self.claim.iter().flat_map(|claim| &claim.purposes).map(Purpose::word).collect();
        Vec::from_iter(words).join(", ")
    }
}

/// The names of [`ClaimView`] in JSON.
#[derive(Serialize, JsonSchema)]
struct ClaimJson<'a> {
    limit: String,
    number: u32,
    host: Option<&'a HostName>,
    live: Option<bool>,
    vanished_at: Option<&'a str>,
    lost: bool,
    stale: bool,
    since: Option<String>,
    rollout_id: Option<String>,
    r#for: Option<&'a BTreeSet<Purpose>>,
}

impl Serialize for ClaimView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let claim = self.claim.as_ref();
        let json = ClaimJson {
            limit: self.limit.path(),
            number: self.number,
            host: claim.map(|claim| &claim.host),
            live: (self.agent != Agent::NotKnown).then_some(self.agent == Agent::Live),
            vanished_at: if let Agent::Vanished(at) = &self.agent { at.as_deref() } else { None },
            lost: self.agent == Agent::Lost,
            stale: self.is_stale,
            since: self.since(),
            rollout_id: claim.map(|claim| claim.rollout.to_string()),
            r#for: claim.map(|claim| &claim.purposes),
        };
        json.serialize(serializer)
    }
}

impl fmt::Display for ClaimView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.host())?;
        if let Some(since) = self.since() {
            write!(f, " since {since}")?;
        }
        if self.purposes() != Purpose::Update.word() && self.claim.is_some() {
            write!(f, ", for: {}", self.purposes())?;
        }
        if self.agent != Agent::Live {
            write!(f, ", agent {}", self.agent.text())?;
        }
        Ok(())
    }
}

/// A claim that a host holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HeldClaimView {
    /// The limit.
    #[serde(serialize_with = "limit_path")]
    #[schemars(with = "String")]
    pub limit: Limit,
    /// Its number in the limit.
    pub number: u32,
}

fn limit_path<S: serde::Serializer>(limit: &Limit, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&limit.path())
}

impl From<&HeldClaim> for HeldClaimView {
    fn from(HeldClaim { limit, number, .. }: &HeldClaim) -> Self {
        Self { limit: limit.clone(), number: *number }
    }
}
