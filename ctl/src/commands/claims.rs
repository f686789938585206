//! The claims of limits: `claims` lists which hosts are counted, and `claims release` releases them.

use super::context::{Store, host_of};
use crate::completion;
use crate::exit::{Exit, Failure};
use crate::output::{self, Output, rfc3339};
use clap::{Args, Subcommand};
use schema::codec;
use schema::keys::{Key, Prefix};
use schema::limit::Limit;
use schema::names::HostName;
use schema::records::{LimitClaim, LostMark, Purpose};
use schema::snapshot::KeySnapshot;
use schema::writes::claims::FoundClaims;
use schema::writes::operator;
use schema::writes::rollout::release_claims;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt;

/// List the hosts that count against a limit: 0 none, 1 some
#[derive(Debug, Args)]
pub(crate) struct Claims {
    /// Only those that nobody has written since the store was accepted
    #[arg(long)]
    stale: bool,
    #[command(subcommand)]
    verb: Option<ClaimsVerb>,
}

/// Verbs of `claims`.
#[derive(Debug, Subcommand)]
pub(crate) enum ClaimsVerb {
    /// Release all claims of a host, so that it counts no longer: the host may still be unavailable
    Release {
        /// The host
        #[arg(add = completion::hosts())]
        host: String,
        /// Reason, for others to read
        #[arg(long)]
        reason: String,
    },
}

/// Runs `claims` or one of its verbs.
pub(super) async fn claims(options: Claims, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
    match options.verb {
        None => list(options.stale, store, output).await,
        Some(ClaimsVerb::Release { host, reason }) => release(&host_of(&host)?, &reason, store, output).await,
    }
}

/// What is known of the agent of a host that holds claims.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Agent {
    Live,
    /// It does not run; the time is given if another host saw that.
    Vanished(Option<String>),
    /// It has not run for so long that the host counts as lost.
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
        let mark = found.get(&Key::LostMark(host.clone()));
        let mark = mark.and_then(|entry| codec::read::<LostMark>(&entry.value).ok());
        let mark = mark.filter(|mark| claims.is_some_and(|claims| mark.is_about(&claims)));
        Self::Vanished(mark.and_then(|mark| rfc3339(mark.at)))
    }

    fn is_live(&self) -> Option<bool> {
        (*self != Self::NotKnown).then_some(*self == Self::Live)
    }

    fn vanished_at(&self) -> Option<&str> {
        if let Self::Vanished(at) = self { at.as_deref() } else { None }
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

async fn list(only_stale: bool, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
    let ranges = [Prefix::Claims, Prefix::Lives, Prefix::Claimed, Prefix::Lost];
    let found = store.session.read_all(&[Key::Store], &ranges, None, store.deadline).await?;
    let claims: Vec<ShownClaim> =
        ShownClaim::all(&found).filter(|claim| claim.is_stale || !only_stale).collect();
    let list: Vec<Value> = claims.iter().map(ShownClaim::json).collect();
    output.answer(&json!({ "claims": list, "revision": found.revision }), |_| {});
    if !output.is_json() {
        let row = |claim: &ShownClaim| {
            let (limit, number) = (claim.limit.to_string(), claim.number.to_string());
            let since = claim.since.clone().unwrap_or_default();
            [limit, number, claim.host(), claim.purposes(), claim.agent.text(), since]
        };
        output.table(["LIMIT", "NUMBER", "HOST", "FOR", "AGENT", "SINCE"], claims.iter().map(row));
    }
    Ok(Exit::of(claims.is_empty()))
}

/// A claim of a limit, as commands show it.
#[derive(Debug)]
pub(super) struct ShownClaim {
    limit: Limit,
    number: u32,
    claim: Option<LimitClaim>,
    agent: Agent,
    since: Option<String>,
    is_stale: bool,
}

impl ShownClaim {
    /// Returns the claims that were found. What was found about their holders is taken into account.
    pub(super) fn all(found: &KeySnapshot) -> impl Iterator<Item = Self> {
        found.entries.iter().filter_map(|(key, entry)| {
            let Ok(Key::Claim(limit, number)) = Key::parse(key) else { return None };
            let claim = codec::read::<LimitClaim>(&entry.value).ok();
            let agent = claim.as_ref().map_or(Agent::NotKnown, |claim| Agent::of(&claim.host, found));
            let since = claim.as_ref().and_then(|claim| rfc3339(claim.since));
            Some(Self { limit, number, agent, since, is_stale: operator::is_stale(entry, found), claim })
        })
    }

    /// Returns what is read about holders, besides the claims themselves.
    pub(super) fn keys_of(host: &HostName) -> [Key; 3] {
        [Key::Live, Key::Claimed, Key::LostMark].map(|make| make(host.clone()))
    }

    fn host(&self) -> String {
        self.claim.as_ref().map_or("cannot be read".into(), |claim| claim.host.to_string())
    }

    /// Returns what the claim is held for, in words.
    fn purposes(&self) -> String {
        let words: BTreeSet<&str> =
            self.claim.iter().flat_map(|claim| &claim.purposes).map(Purpose::word).collect();
        Vec::from_iter(words).join(", ")
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "by": self.limit.by, "value": self.limit.value, "number": self.number,
            "host": self.claim.as_ref().map(|claim| &claim.host),
            "live": self.agent.is_live(), "vanished_at": self.agent.vanished_at(),
            "lost": self.agent == Agent::Lost, "stale": self.is_stale, "since": self.since,
            "rollout": self.claim.as_ref().map(|claim| claim.rollout.to_string()),
            "for": self.claim.as_ref().map(|claim| &claim.purposes),
        })
    }
}

impl fmt::Display for ShownClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.host())?;
        if let Some(since) = &self.since {
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

/// Number of times that a release is tried if the claims change meanwhile.
const TRIES: u32 = 5;

/// Reads what a host holds, by its own list and by the claims of all hosts.
async fn read(host: &HostName, store: &Store<'_>) -> Result<(KeySnapshot, Vec<(Limit, u32)>), Failure> {
    let keys = [Key::Claimed(host.clone())];
    let found = store.session.read_all(&keys, &[Prefix::Claims], None, store.deadline).await?;
    let held = found.entries.iter().filter_map(|(key, entry)| match Key::parse(key) {
        Ok(Key::Claim(limit, number)) => {
            let claim = codec::read::<LimitClaim>(&entry.value).ok()?;
            (claim.host == *host).then_some((limit, number))
        }
        _ => None,
    });
    let held = held.collect();
    Ok((found, held))
}

/// Releases the claims of a host that was decommissioned.
pub(super) async fn release_all(
    host: &HostName,
    verb: &'static str,
    store: &Store<'_>,
) -> Result<(), Failure> {
    for _ in 0..TRIES {
        let (found, held) = read(host, store).await?;
        if held.is_empty() && found.get(&Key::Claimed(host.clone())).is_none() {
            return Ok(());
        }
        let act = store.act(verb, None).await?;
        let release = release_claims(host, false, &found, &act);
        if store.session.commit_act(&release, &act, store.deadline).await?.applied {
            return Ok(());
        }
    }
    Err(Failure::cannot_tell(format!(
        "host {host} was decommissioned, and its claims keep changing; run `orchestrate claims release {host}`"
    )))
}

async fn release(
    host: &HostName,
    reason: &str,
    store: &Store<'_>,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let (found, held) = read(host, store).await?;
    let claims = FoundClaims::read(host, &found);
    let is_released = claims.claims.as_ref().is_some_and(|claims| claims.released && claims.ticket.is_none());
    if held.is_empty() && (claims.revision == 0 || is_released) {
        return Err(Failure::no(format!("host {host} holds no claim and does not wait for one")));
    }
    let act = store.act("claims release", Some(reason)).await?;
    let committed =
        store.session.commit_act(&release_claims(host, true, &found, &act), &act, store.deadline).await?;
    if !committed.applied {
        return Err(Failure::cannot_tell(
            "the claims changed during the command; nothing was written, repeat the command",
        ));
    }
    let released: Vec<String> =
        held.iter().map(|(limit, number)| format!("{limit} number {number}")).collect();
    let what = if released.is_empty() { "its ticket".into() } else { released.join(", ") };
    output::note(&format!("released: {what} of {host}"));
    let list: Vec<Value> = held
        .iter()
        .map(|(limit, number)| json!({ "by": limit.by, "value": limit.value, "number": number }))
        .collect();
    output.answer(&json!({ "host": host, "released": list, "revision": committed.revision }), |_| {});
    Ok(Exit::Yes)
}
