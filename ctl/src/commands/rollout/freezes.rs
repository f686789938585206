//! Freezes, which keep hosts from starting updates: `freeze`, `unfreeze`, `freezes`, and the pause of
//! `rollout pause` and `rollout resume`.

use super::freeze_list::{ending_of, note_freezes};
use crate::commands::answers;
use crate::commands::context::{Store, host_of, now};
use crate::commands::store::identity;
use crate::commands::verb::{About, Answer, Group, Past, Spec, Verb};
use crate::completion;
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use anyhow::anyhow;
use clap::{ArgGroup, Args};
use fleet::views::FreezeView;
use planning::rollout::hosts_of;
use schema::freeze::FreezeScope;
use schema::frozen::FrozenBy;
use schema::keys::{self, Key, Prefix};
use schema::names::{HostName, Role, Token};
use schema::records::{Freeze as FreezeRecord, RosterEntry, STORE_FORMAT};
use schema::snapshot::KeySnapshot;
use schema::time::{EpochSeconds, parse_duration};
use schema::writes::operator;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeSet;

/// The hosts that a verb is about; all, if nothing is given.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("scope"))]
pub(crate) struct ScopeOptions {
    /// Only the hosts of this role
    #[arg(long, group = "scope")]
    role: Option<String>,
    /// Only the hosts of this group
    #[arg(long, group = "scope")]
    group: Option<String>,
    /// Only this host
    #[arg(long, group = "scope", add = completion::hosts())]
    hostname: Option<String>,
}

impl ScopeOptions {
    fn scope(&self) -> Result<FreezeScope, Failure> {
        let name = |text: &String| Role::new(text).map_err(Failure::usage);
        Ok(match (&self.role, &self.group, &self.hostname) {
            (Some(role), ..) => FreezeScope::Role(name(role)?),
            (_, Some(group), _) => FreezeScope::Group(name(group)?),
            (.., Some(host)) => FreezeScope::Host(host_of(host)?),
            _ => FreezeScope::Fleet,
        })
    }
}

/// Keep hosts from starting updates
#[derive(Debug, Args)]
pub(crate) struct Freeze {
    #[command(flatten)]
    scope: ScopeOptions,
    /// End after this time at the earliest, for example 2h; without it the freeze stands until
    /// somebody removes it
    #[arg(long = "for", value_name = "DURATION")]
    lasts: Option<String>,
    /// Reason, shown to other operators
    #[arg(long)]
    reason: String,
    /// Freeze a role, a group or a host that the fleet does not have yet
    #[arg(long)]
    force: bool,
}

/// Remove a freeze
#[derive(Debug, Args)]
pub(crate) struct Unfreeze {
    #[command(flatten)]
    scope: ScopeOptions,
    /// The freeze with this id, as `freezes` shows it
    #[arg(long)]
    id: Option<String>,
    /// Every freeze of these hosts, also those of other people
    #[arg(long, conflicts_with = "id")]
    all: bool,
    /// Remove the freeze of `store accept` even if hosts have not written their claims since
    #[arg(long)]
    force: bool,
}

/// Longest reason, in bytes.
const REASON_MAX_BYTES: usize = 256;
/// Time by which the lease of a freeze is longer than the freeze: that of the requests in between.
const LEASE_MARGIN_SECONDS: i64 = 1;

impl Verb for Freeze {
    const SPEC: Spec = Spec {
        name: "freeze",
        group: Group::Rollout,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[Exit::Refused],
        answer: Answer::Json(answers::of::<FreezeAnswer>),
        examples: &[
            ("orchestrate freeze --hostname web-7 --reason 'disk is replaced'", "keep one host as it is"),
            (
                "orchestrate freeze --for 2h --reason 'release of the shop'",
                "keep the whole fleet for 2 hours",
            ),
        ],
    };

    /// Writes a freeze.
    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let scope = self.scope.scope()?;
        let lasts = self.lasts.as_deref().map(parse_duration).transpose();
        let lasts = lasts.map_err(|e| Failure::usage(anyhow!(e).context("--for")))?;
        let seconds = lasts.map(|lasts| i64::try_from(lasts.as_millis().div_ceil(1000)).unwrap_or(i64::MAX));
        if seconds.is_some_and(|seconds| seconds < 2) {
            return Err(Failure::usage(anyhow!("--for: the shortest freeze is 2s")));
        }
        if !self.force {
            refuse_unknown(&scope, store).await?;
        }
        add("freeze", &scope, seconds, self.reason, store, output).await
    }
}

/// Refuses a role, a group or a host that the fleet does not have: it is probably misspelled, and a freeze of nothing
/// would be taken for a yes.
async fn refuse_unknown(scope: &FreezeScope, store: &Store<'_>) -> Result<(), Failure> {
    let ranges = match scope {
        FreezeScope::Fleet | FreezeScope::Pause => return Ok(()),
        FreezeScope::Role(_) | FreezeScope::Group(_) => vec![Prefix::Hosts],
        FreezeScope::Host(_) => Vec::new(),
    };
    let keys = match scope {
        FreezeScope::Host(host) => vec![Key::Host(host.clone()), Key::Live(host.clone())],
        _ => Vec::new(),
    };
    let found = store.session.read_all(&keys, &ranges, None, store.deadline).await?;
    let roster = hosts_of(&found);
    let names = |of: fn(&RosterEntry) -> Option<&Role>| {
        let names: BTreeSet<&Role> = roster.values().filter_map(of).collect();
        names.into_iter().map(Role::as_str).collect::<Vec<_>>().join(", ")
    };
    let (is_known, what, known) = match scope {
        FreezeScope::Role(role) => {
            let is_of = |entry: &RosterEntry| entry.role.as_ref() == Some(role);
            (
                roster.values().any(is_of),
                format!("no host of the roster has {scope}"),
                names(|e| e.role.as_ref()),
            )
        }
        FreezeScope::Group(group) => {
            let is_of = |entry: &RosterEntry| entry.group.as_ref() == Some(group);
            (
                roster.values().any(is_of),
                format!("no host of the roster has {scope}"),
                names(|e| e.group.as_ref()),
            )
        }
        FreezeScope::Host(host) => {
            let is_live = found.get(&Key::Live(host.clone())).is_some();
            (is_live || roster.contains_key(host), format!("{scope} is not on the roster"), String::new())
        }
        FreezeScope::Fleet | FreezeScope::Pause => return Ok(()),
    };
    if is_known {
        return Ok(());
    }
    let known = if known.is_empty() { String::new() } else { format!(" (there are {known})") };
    Err(Failure::refused(format!(
        "{what}{known}; nothing was frozen. `--force` freezes what joins the fleet later"
    )))
}

/// Writes a freeze of this scope. In a store without brakes it first looks whether every agent knows
/// them.
pub(crate) async fn add(
    verb: &'static str,
    scope: &FreezeScope,
    seconds: Option<i64>,
    reason: String,
    store: &Store<'_>,
    output: &mut Output,
) -> Result<Exit, Failure> {
    if reason.len() > REASON_MAX_BYTES {
        return Err(Failure::usage(anyhow!("the reason is longer than {REASON_MAX_BYTES} bytes")));
    }
    store.prepare_act();
    let (freeze, token, revision) = loop {
        let found = store.session.read_all(&[Key::Store], &[Prefix::Lives], None, store.deadline).await?;
        let identity = identity::of_store(&found, store).await?;
        if !identity.has_brakes {
            refuse_older_agents(&found)?;
        }
        // The time is taken before the lease is granted, and the lease is a little longer: the freeze must not
        // end before the time that it names.
        let at = now();
        let lease = match seconds {
            Some(seconds) => {
                let seconds = seconds.saturating_add(LEASE_MARGIN_SECONDS);
                store.session.grant_lease(seconds, store.deadline).await?
            }
            None => 0,
        };
        let until = seconds.map(|seconds| EpochSeconds(at.0.saturating_add(seconds)));
        let act = store.act(verb, Some(&reason)).await?;
        let freeze = FreezeRecord { by: act.by.clone(), reason: reason.clone(), at, until };
        let token = etcd_session::random_token();
        let transaction = operator::add_freeze(scope, &token, &freeze, lease, &identity, &found, &act);
        let committed = store.session.commit_act(&transaction, &act, store.deadline).await?;
        if committed.applied {
            break (freeze, token, committed.revision);
        }
        if !identity::is_new(&found) {
            return Err(Failure::cannot_tell(
                "the store's identity changed during the command; nothing was written, repeat the command",
            ));
        }
    };
    let frozen = FrozenBy { scope: scope.clone(), token: Some(token), freeze: Some(freeze) };
    let who = match scope {
        FreezeScope::Fleet | FreezeScope::Pause => "no host",
        FreezeScope::Role(_) | FreezeScope::Group(_) => "none of its hosts",
        FreezeScope::Host(_) => "it no longer",
    };
    output::note(&format!("{frozen}; {who} starts an update after revision {revision}"));
    let answer = FreezeAnswer { freeze: FreezeView(frozen), revision, changed: true };
    output.answer(&answer, |_| {});
    Ok(Exit::Yes)
}

/// An agent that does not know freezes and limits would start in spite of one. As soon as the store is marked, it
/// refuses the store and starts nothing at all, which nobody expects of a freeze.
pub(crate) fn refuse_older_agents(found: &KeySnapshot) -> Result<(), Failure> {
    let is_older =
        |value: &[u8]| keys::Live::read(value).is_ok_and(|claim| claim.store_format < STORE_FORMAT);
    let older: Vec<HostName> = found
        .entries
        .iter()
        .filter_map(|(key, entry)| match Key::parse(key) {
            Ok(Key::Live(host)) if is_older(&entry.value) => Some(host),
            _ => None,
        })
        .collect();
    if older.is_empty() {
        return Ok(());
    }
    output::note_hosts("older agents", older.iter().map(HostName::as_str));
    Err(Failure::refused(
        "these agents do not support freezes and limits; upgrade them first. Nothing was written",
    ))
}

impl Verb for Unfreeze {
    const SPEC: Spec = Spec {
        name: "unfreeze",
        group: Group::Rollout,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[Exit::No, Exit::Refused],
        answer: Answer::Json(answers::of::<UnfreezeAnswer>),
        examples: &[("orchestrate unfreeze --hostname web-7", "end the freeze of one host")],
    };

    /// Removes a freeze. If there are several, one is removed by its id, or all of them together.
    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let scope = self.scope.scope()?;
        let id = self.id.as_deref().map(Token::new).transpose().map_err(Failure::usage)?;
        let found = read(&scope, store).await?;
        let freezes: Vec<FrozenBy> =
            FrozenBy::all(&found).filter(|frozen| id.is_none() || frozen.token == id).collect();
        if freezes.is_empty() {
            let which = id.map_or(String::new(), |id| format!(" by a freeze with the id {id}"));
            let others = store.session.read_ranges(&[Prefix::Freezes], store.deadline).await?;
            let others: Vec<FrozenBy> = FrozenBy::all(&others).collect();
            others.iter().for_each(|frozen| {
                output::note(&format!("{frozen}: `{}` ends that", ending_of(&frozen.scope)));
            });
            let own = if others.is_empty() { "" } else { "; other freezes stand" };
            return Err(Failure::no(format!("{scope} is not frozen{which}{own}")));
        }
        if freezes.len() > 1 && !self.all {
            for frozen in &freezes {
                let id = frozen.token.as_ref().map_or("none", Token::as_str);
                output::note(&format!("{frozen} (id {id})"));
            }
            return Err(Failure::refused(format!(
                "{scope} is frozen {} times; name one by --id, or remove them by --all",
                freezes.len()
            )));
        }
        if !self.force && freezes.iter().any(operator::is_of_accept) {
            refuse_stale_claims(store).await?;
        }
        remove("unfreeze", &freezes, &found, store, output).await
    }
}

/// A host that has not written its claims since the store was accepted has not been seen since: nobody knows
/// whether it is in the middle of an update.
async fn refuse_stale_claims(store: &Store<'_>) -> Result<(), Failure> {
    let found = store.session.read_all(&[Key::Store], &[Prefix::Claims], None, store.deadline).await?;
    let stale = found.entries.values().filter(|entry| operator::is_stale(entry, &found));
    let stale = stale.filter(|entry| keys::Claim::read(&entry.value).is_ok()).count();
    if stale == 0 {
        return Ok(());
    }
    Err(Failure::refused(format!(
        "claims that no host has written since the store was accepted: {stale}. `orchestrate claims --stale` lists them; release those of hosts that are gone, or use --force"
    )))
}

/// Reads the freezes of a scope, for a verb that changes them.
pub(crate) async fn read(scope: &FreezeScope, store: &Store<'_>) -> Result<KeySnapshot, Failure> {
    store.prepare_act();
    let prefix = Prefix::FreezesOf(scope.clone());
    Ok(store.session.read_ranges(&[prefix], store.deadline).await?)
}

/// Removes freezes, one after the other: each act has its own event. Exits with 1 if a key is left that
/// cannot be removed, because it has no valid token.
pub(crate) async fn remove(
    verb: &'static str,
    freezes: &[FrozenBy],
    found: &KeySnapshot,
    store: &Store<'_>,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let mut removed: Vec<&FrozenBy> = Vec::new();
    let mut revision = found.revision;
    for frozen in freezes {
        let Some(token) = &frozen.token else {
            let range = Prefix::FreezesOf(frozen.scope.clone());
            output::warn(&format!("a key below {range} is not valid; remove it with etcdctl"));
            continue;
        };
        let committed = async {
            let act = store.act(verb, None).await?;
            let transaction = operator::remove_freeze(&frozen.scope, token, found, &act);
            store.session.commit_act(&transaction, &act, store.deadline).await
        };
        let committed = committed.await.inspect_err(|_| {
            removed.iter().for_each(|frozen| output::note(&format!("removed: {frozen}")));
        })?;
        revision = committed.revision;
        // Otherwise somebody else removed it, or it has ended.
        if committed.applied {
            removed.push(frozen);
        }
    }
    let answer = UnfreezeAnswer {
        removed: removed.iter().map(|frozen| FreezeView((*frozen).clone())).collect(),
        revision,
        changed: !removed.is_empty(),
    };
    output.sorted_answer(&answer, |_| {});
    note_freezes(store).await;
    Ok(Exit::of(freezes.iter().all(|frozen| frozen.token.is_some())))
}

/// Answers with a freeze that was written, or one that stood already.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FreezeAnswer {
    #[serde(flatten)]
    pub(crate) freeze: FreezeView,
    pub(crate) revision: i64,
    pub(crate) changed: bool,
}

/// What `unfreeze` and `rollout resume` answer.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct UnfreezeAnswer {
    pub(crate) removed: Vec<FreezeView>,
    pub(crate) revision: i64,
    pub(crate) changed: bool,
}
