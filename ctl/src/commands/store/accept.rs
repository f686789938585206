//! The store itself: `store show` and `store accept`.

use super::identity;
use crate::commands::answers;
use crate::commands::context::{Store, now, version_of};
use crate::commands::verb::{About, Answer, Group, Past, Spec, Verb};
use crate::completion;
use crate::exit::{Exit, Failure};
use crate::local::LocalState;
use crate::output::{self, Output};
use clap::Args;
use schema::keys::{self, Key, Prefix};
use schema::names::{Token, Version};
use schema::records::{ReportedStore, StoreIdentity};
use schema::server_version;
use schema::writes::operator;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeSet;

/// Print identity, revision, members and alarms of the store
#[derive(Debug, Args)]
pub(crate) struct Show;

impl Verb for Show {
    const SPEC: Spec = Spec {
        name: "store show",
        group: Group::Store,
        about: About::Other,
        past: Past::Answers,
        exits: &[],
        answer: Answer::Json(answers::of::<ShowAnswer<'_>>),
        examples: &[("orchestrate store show", "lineage, members and alarms of the store")],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let snapshot = store.session.read_keys(&[Key::Store, Key::CurrentVersion], store.deadline).await?;
        store.remember_desired(&snapshot);
        let identity = snapshot.read(keys::Store);
        let members = store.session.members(store.deadline).await?;
        // The rest of the answer is useful without the alarms too.
        let alarms = store.session.alarms(store.deadline).await;
        let alarms = alarms.map_err(|e| output::warn(&e.to_string())).ok().flatten();
        let version =
            store.session.server_version(store.deadline).await.map_err(|e| output::warn(&e.to_string())).ok();
        version.as_deref().and_then(server_version::warning).iter().for_each(|text| output::warn(text));
        let readable = identity.as_ref().and_then(|identity| identity.as_ref().ok());
        let answer = ShowAnswer {
            lineage: readable.map(|i| &i.lineage),
            epoch: readable.map(|i| i.epoch),
            revision: snapshot.revision,
            raft_term: snapshot.raft_term,
            members: &members,
            store_version: version.as_deref(),
            alarms: alarms.as_deref(),
        };
        output.sorted_answer(&answer, |o| {
            o.line(&format!("lineage:  {}", readable.map_or("none", |i| i.lineage.as_str())));
            o.line(&format!("epoch:    {}", readable.map_or("none".into(), |i| i.epoch.to_string())));
            o.line(&format!("revision: {}", snapshot.revision));
            o.line(&format!("members:  {}", members.join(", ")));
            o.line(&format!("version:  {}", version.as_deref().unwrap_or("not known")));
            let alarms = alarms
                .as_ref()
                .map_or("not known".into(), |a| if a.is_empty() { "none".into() } else { a.join(", ") });
            o.line(&format!("alarms:   {alarms}"));
        });
        Ok(match identity {
            Some(Err(error)) => {
                output::warn(&format!("{}: {error}", Key::Store));
                Exit::CannotTell
            }
            _ => Exit::Yes,
        })
    }
}

/// Accept the store as it is, for the whole fleet
#[derive(Debug, Args)]
pub(crate) struct Accept {
    /// Version that the fleet is asked to run
    #[arg(long, add = completion::versions())]
    version: String,
    /// Lineage of the fleet, if the store has lost it
    #[arg(long)]
    lineage: Option<String>,
    /// Why, for the event
    #[arg(long)]
    reason: Option<String>,
}

impl Verb for Accept {
    const SPEC: Spec = Spec {
        name: "store accept",
        group: Group::Store,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[Exit::Refused],
        answer: Answer::Json(answers::of::<AcceptAnswer<'_>>),
        examples: &[("orchestrate store accept --version v42", "go on after a restore, at v42")],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let version = &version_of(&self.version)?;
        let lineage = self.lineage.map(Token::new).transpose().map_err(Failure::usage)?;
        store.prepare_act();
        let found = store
            .session
            .read_all(
                &[Key::Store, Key::RolloutPolicy],
                &[Prefix::Reports, Prefix::Freezes],
                None,
                store.deadline,
            )
            .await?;
        let key = found.read(keys::Store);
        let key = match key.transpose() {
            Ok(key) => key,
            Err(error) if lineage.is_none() => {
                return Err(Failure::cannot_tell(format!(
                    "{}: {error}; give the lineage by --lineage",
                    Key::Store
                )));
            }
            Err(_) => None,
        };
        let identity = next_identity(key.as_ref(), lineage, &identity::reported(&found))?;
        let act = store.act("store accept", self.reason.as_deref()).await?;
        let transaction = operator::accept_store(&identity, version, now(), &found, &act);
        let accepted = store.session.commit_act(&transaction, &act, store.deadline).await?;
        if !accepted.applied {
            return Err(Failure::cannot_tell(
                "the store's identity changed during the command; check it and repeat the command",
            ));
        }
        LocalState::of(store.settings).keep_current_version(version);
        output::note(&format!(
            "accepted at revision {}: lineage {}, epoch {}, version {version}",
            accepted.revision, identity.lineage, identity.epoch
        ));
        if operator::has_limits(&found) {
            output::note(
                "the fleet is frozen, because the store may have lost claims of limits: look at `orchestrate claims --stale`, then `orchestrate unfreeze`",
            );
        }
        let answer = AcceptAnswer {
            lineage: &identity.lineage,
            epoch: identity.epoch,
            version,
            revision: accepted.revision,
        };
        output.sorted_answer(&answer, |_| {});
        Ok(Exit::Yes)
    }
}

/// What `store show` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ShowAnswer<'a> {
    lineage: Option<&'a Token>,
    epoch: Option<u64>,
    revision: i64,
    raft_term: u64,
    members: &'a [String],
    store_version: Option<&'a str>,
    alarms: Option<&'a [String]>,
}

/// What `store accept` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AcceptAnswer<'a> {
    lineage: &'a Token,
    epoch: u64,
    version: &'a Version,
    revision: i64,
}

/// Returns the identity that every host recognises as newer: the fleet's lineage, with an epoch
/// above all known ones.
fn next_identity(
    key: Option<&StoreIdentity>,
    given: Option<Token>,
    reported: &[ReportedStore],
) -> Result<StoreIdentity, Failure> {
    let known: BTreeSet<&Token> = reported.iter().map(|r| &r.lineage).collect();
    let names = || known.iter().map(|token| token.as_str()).collect::<Vec<_>>().join(", ");
    let lineage = match (key, given) {
        // A command wrote it, and no agent has used it: those of the fleet refuse a lineage that they do not know.
        (Some(key), Some(given)) if key.lineage != given && !(key.epoch == 0 && reported.is_empty()) => {
            return Err(Failure::refused(format!(
                "the lineage of this store is {}, not {given}",
                key.lineage
            )));
        }
        (_, Some(given)) => given,
        (Some(key), None) => key.lineage.clone(),
        (None, None) => identity::lineage_of(reported)?.unwrap_or_else(|| {
            output::note(
                "the store gets a new lineage, as for a new fleet; agents that know another lineage refuse it, unless it is given with --lineage",
            );
            etcd_session::random_token()
        }),
    };
    if known.iter().any(|other| **other != lineage) {
        output::warn(&format!(
            "hosts report the lineages {}; those of another than {lineage} will refuse it",
            names()
        ));
    }
    let epochs = reported.iter().map(|r| r.epoch).chain(key.map(|key| key.epoch));
    Ok(StoreIdentity::new(lineage, epochs.max().unwrap_or(0) + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str) -> Token {
        Token::new(text).unwrap()
    }

    /// Checks the next identity. `expected` is its lineage and epoch, or the exit code.
    fn check(
        key: Option<(&str, u64)>,
        given: Option<&str>,
        reported: &[(&str, u64)],
        expected: Result<(&str, u64), Exit>,
    ) {
        let key = key.map(|(lineage, epoch)| StoreIdentity::new(token(lineage), epoch));
        let reported: Vec<_> = reported
            .iter()
            .map(|(lineage, epoch)| ReportedStore { lineage: token(lineage), epoch: *epoch })
            .collect();
        let found = next_identity(key.as_ref(), given.map(token), &reported);
        let found = found.map(|i| (i.lineage.to_string(), i.epoch)).map_err(|f| f.exit);
        assert_eq!(found, expected.map(|(lineage, epoch)| (lineage.to_owned(), epoch)));
    }

    #[test]
    fn the_lineage_is_that_of_the_store_then_the_given_then_the_reported() {
        check(Some(("L", 2)), None, &[], Ok(("L", 3)));
        check(Some(("L", 2)), Some("L"), &[("L", 7)], Ok(("L", 8)));
        check(Some(("L", 2)), Some("M"), &[], Err(Exit::Refused));
        check(Some(("L", 0)), Some("M"), &[], Ok(("M", 1)));
        check(Some(("L", 0)), Some("M"), &[("L", 0)], Err(Exit::Refused));
        check(None, Some("M"), &[("L", 4)], Ok(("M", 5)));
        check(None, None, &[("L", 4), ("L", 6)], Ok(("L", 7)));
        check(None, None, &[("L", 4), ("M", 6)], Err(Exit::Refused));
        assert_eq!(next_identity(None, None, &[]).unwrap().epoch, 1);
    }
}
