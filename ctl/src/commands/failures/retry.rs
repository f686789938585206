//! `retry`: asks hosts to try again now.

use crate::commands::answers;
use crate::commands::context::{Store, host_of, now};
use crate::commands::selection::{Selection, members, unknown};
use crate::commands::verb::{About, Answer, Group, Past, Spec, Verb};
use crate::completion;
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use anyhow::anyhow;
use clap::Args;
use schema::keys::Key;
use schema::names::HostName;
use schema::verdict::VerdictKind;
use schema::writes::operator;
use schemars::JsonSchema;
use serde::Serialize;

/// Ask a host, or selected hosts, to try again now
#[derive(Debug, Args)]
pub(crate) struct Retry {
    /// The host that tries again
    #[arg(add = completion::hosts(), conflicts_with_all = ["roles", "groups", "labels", "suspect"])]
    host: Option<String>,
    #[command(flatten)]
    selection: Selection,
    /// Only hosts that are suspect: they failed several times and retry slowly
    #[arg(long)]
    suspect: bool,
}

impl Verb for Retry {
    const SPEC: Spec = Spec {
        name: "retry",
        group: Group::Fleet,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[Exit::No, Exit::Refused],
        answer: Answer::Json(|generator| {
            answers::either([
                answers::of::<HostAnswer<'_>>(generator),
                answers::of::<HostsAnswer<'_>>(generator),
            ])
        }),
        examples: &[
            ("orchestrate retry web-7", "try again now"),
            ("orchestrate retry --suspect", "all suspect hosts"),
        ],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let Self { host, selection, suspect } = self;
        if let Some(host) = host {
            let host = host_of(&host)?;
            let revision = ask(&host, store).await?;
            output.sorted_answer(&HostAnswer { host: &host, revision, changed: true }, |_| {});
            return Ok(Exit::Yes);
        }
        if selection.is_empty() && !suspect {
            return Err(Failure::usage(anyhow!(
                "name a host, or select hosts with --role, --group, --label or --suspect"
            )));
        }
        let verdicts = if suspect { vec![VerdictKind::Suspect] } else { Vec::new() };
        let hosts = members(&selection.filter(verdicts)?, store).await?;
        let mut revision = 0;
        for (done, host) in hosts.iter().enumerate() {
            revision = ask(host, store).await.inspect_err(|_| {
                output::note(&format!("{done} of {} hosts were asked before this error", hosts.len()));
            })?;
        }
        output.sorted_answer(&HostsAnswer { hosts: &hosts, revision, changed: true }, |output| {
            hosts.iter().for_each(|host| output.line(host.as_str()));
        });
        Ok(Exit::Yes)
    }
}

/// What `retry` answers about one host.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct HostAnswer<'a> {
    host: &'a HostName,
    revision: i64,
    changed: bool,
}

/// What `retry` answers about several hosts.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct HostsAnswer<'a> {
    hosts: &'a [HostName],
    revision: i64,
    changed: bool,
}

/// Asks one host, and returns the revision of the request.
async fn ask(host: &HostName, store: &Store<'_>) -> Result<i64, Failure> {
    store.prepare_act();
    let known_by = [Key::Host(host.clone()), Key::Live(host.clone()), Key::Report(host.clone())];
    let keys = [&known_by[..], &[Key::Retry(host.clone())]].concat();
    let snapshot = store.session.read_keys(&keys, store.deadline).await?;
    if known_by.iter().all(|key| snapshot.get(key).is_none()) {
        return Err(unknown(host));
    }
    let act = store.act("retry", None).await?;
    let revision = store.commit(&operator::request_retry(host, now(), &snapshot, &act)).await?;
    if snapshot.get(&keys[1]).is_none() {
        output::warn(&format!("no agent runs on {host}; the host tries again when its agent starts"));
    }
    Ok(revision)
}
