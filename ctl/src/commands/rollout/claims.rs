//! The claims of limits: `claims` lists which hosts are counted, and `claims release` releases them.

use crate::commands::answers;
use crate::commands::context::{Store, host_of};
use crate::commands::verb::{About, Answer, Group, Past, Spec, Verb};
use crate::completion;
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use clap::Args;
use fleet::views::{ClaimView, HeldClaimView};
use schema::keys::{self, Key, Prefix};
use schema::limit::Limit;
use schema::names::HostName;
use schema::snapshot::KeySnapshot;
use schema::writes::claims::FoundClaims;
use schema::writes::rollout::release_claims;
use schemars::JsonSchema;
use serde::Serialize;

/// List the hosts that count against a limit
#[derive(Debug, Args)]
pub(crate) struct Claims {
    /// Only claims that no host has written since the store was accepted or first marked
    #[arg(long)]
    stale: bool,
}

impl Verb for Claims {
    const SPEC: Spec = Spec {
        name: "claims",
        group: Group::Rollout,
        about: About::Hosts,
        past: Past::Answers,
        exits: &[Exit::No],
        answer: Answer::Json(answers::of::<ClaimsAnswer<'_>>),
        examples: &[("orchestrate claims", "which hosts count against a limit, and since when")],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let ranges = [Prefix::Claims, Prefix::Lives, Prefix::Claimed, Prefix::Lost];
        let found = store.session.read_all(&[Key::Store], &ranges, None, store.deadline).await?;
        let claims: Vec<ClaimView> =
            ClaimView::all(&found).filter(|claim| claim.is_stale || !self.stale).collect();
        output.sorted_answer(&ClaimsAnswer { claims: &claims, revision: found.revision }, |o| {
            o.table(ClaimView::HEADER, claims.iter().map(ClaimView::row));
        });
        Ok(Exit::of(claims.is_empty()))
    }
}

/// What `claims` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ClaimsAnswer<'a> {
    claims: &'a [ClaimView],
    revision: i64,
}

/// What `claims release` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ReleaseAnswer<'a> {
    host: &'a HostName,
    released: Vec<HeldClaimView>,
    revision: i64,
}

/// Number of times that a release is tried if the claims change meanwhile.
const TRIES: u32 = 5;

/// Reads what a host holds, by its own list and by the claims of all hosts.
async fn read(host: &HostName, store: &Store<'_>) -> Result<(KeySnapshot, Vec<(Limit, u32)>), Failure> {
    let keys = [Key::Claimed(host.clone())];
    let found = store.session.read_all(&keys, &[Prefix::Claims], None, store.deadline).await?;
    let held = found.entries.iter().filter_map(|(key, entry)| match Key::parse(key) {
        Ok(Key::Claim(limit, number)) => {
            let claim = keys::Claim::read(&entry.value).ok()?;
            (claim.host == *host).then_some((limit, number))
        }
        _ => None,
    });
    let held = held.collect();
    Ok((found, held))
}

/// Releases the claims of a host that was decommissioned.
pub(crate) async fn release_all(
    host: &HostName,
    verb: &'static str,
    store: &Store<'_>,
) -> Result<(), Failure> {
    for _ in 0..TRIES {
        store.prepare_act();
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

/// Release all claims of a host, so that it counts no longer: the host may still be unavailable
#[derive(Debug, Args)]
pub(crate) struct Release {
    /// Host whose claims are released
    #[arg(add = completion::hosts())]
    host: String,
    /// Reason, shown to other operators
    #[arg(long)]
    reason: String,
}

impl Verb for Release {
    const SPEC: Spec = Spec {
        name: "claims release",
        group: Group::Rollout,
        about: About::Hosts,
        past: Past::DoesNotRead,
        exits: &[Exit::No],
        answer: Answer::Json(answers::of::<ReleaseAnswer<'_>>),
        examples: &[("orchestrate claims release web-7 --reason 'gone for good'", "let another host start")],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let host = &host_of(&self.host)?;
        store.prepare_act();
        let (found, held) = read(host, store).await?;
        let claims = FoundClaims::read(host, &found);
        let is_released =
            claims.claims.as_ref().is_some_and(|claims| claims.released && claims.ticket.is_none());
        if held.is_empty() && (claims.revision == 0 || is_released) {
            return Err(Failure::no(format!("host {host} holds no claim and does not wait for one")));
        }
        let act = store.act("claims release", Some(&self.reason)).await?;
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
        let released =
            held.iter().map(|(limit, number)| HeldClaimView { limit: limit.clone(), number: *number });
        let answer = ReleaseAnswer { host, released: released.collect(), revision: committed.revision };
        output.sorted_answer(&answer, |_| {});
        Ok(Exit::Yes)
    }
}
