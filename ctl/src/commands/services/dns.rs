//! `dns`: answers a DNS question as an agent would.

use super::catalog::read;
use crate::commands::answers;
use crate::commands::context::Store;
use crate::commands::verb::{About, Answer, Group, Past, Spec, Verb};
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use catalog::{Claim, QueryType, Question, ResponseCode, Zone, answer};
use clap::Args;
use schema::keys::Key;
use schemars::JsonSchema;
use serde::Serialize;

/// Answer a DNS question as an agent would
#[derive(Debug, Args)]
pub(crate) struct Dns {
    /// Name to look up, for example web.service.consul
    name: String,
    /// Type of the records, for example A or SRV
    #[arg(default_value = "A")]
    kind: String,
    /// Domain of the zone
    #[arg(long, default_value = "consul")]
    domain: String,
}

impl Verb for Dns {
    const SPEC: Spec = Spec {
        name: "dns",
        group: Group::Services,
        about: About::Hosts,
        past: Past::Answers,
        exits: &[Exit::No],
        answer: Answer::Json(answers::of::<DnsAnswer<'_>>),
        examples: &[("orchestrate dns web.service.consul SRV", "hosts and ports of web, as DNS gives them")],
    };

    /// Answers a question as the DNS server of an agent would, from the store. Exits with 0 if there
    /// are records, with 1 if there are none.
    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let Self { name, kind, domain } = self;
        let kind: QueryType = kind.parse().map_err(|error| Failure::usage(anyhow::Error::new(error)))?;
        let (view, revision) = read(store, None, None).await?;
        let zone = Zone {
            domain: domain.trim_matches('.').to_ascii_lowercase(),
            datacenter: None,
            host: store.settings.host(None)?,
            ttl: 5,
            negative_ttl: 5,
        };
        let lower = name.trim_end_matches('.').to_ascii_lowercase();
        let mut found = answer(&Question { labels: lower.split('.').collect(), kind }, &view, &zone);
        if let Some(host) = found.host.take() {
            let key = Key::Live(host);
            let snapshot = store.session.read_keys(std::slice::from_ref(&key), store.deadline).await?;
            let claim = Claim::read(snapshot.get(&key).map(|entry| &entry.value[..]));
            found = found.with_claim(&claim.map_err(|e| Failure::cannot_tell(format!("{key}: {e}")))?, kind);
        }
        let mut records = found.records;
        records.sort();
        let lines: Vec<String> = records.iter().map(|record| record.data.text(&zone)).collect();
        let answer = DnsAnswer {
            name: &lower,
            kind: kind.to_string(),
            answer: found.code.as_str(),
            records: &lines,
            revision,
        };
        output.sorted_answer(&answer, |o| lines.iter().for_each(|line| o.line(line)));
        if lines.is_empty() {
            let why = match found.code {
                ResponseCode::NoError => format!("the name has no record of the type {kind}"),
                ResponseCode::NoSuchName => "no such name (NXDOMAIN)".into(),
                ResponseCode::Refused => "the name is outside the zones of the agents (REFUSED)".into(),
                ResponseCode::NotReady => "the catalog has not been read yet (SERVFAIL)".into(),
            };
            output::note(&format!("{lower} {kind}: {why}"));
        }
        Ok(Exit::of(!lines.is_empty()))
    }
}

/// What `dns` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DnsAnswer<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    kind: String,
    answer: &'static str,
    records: &'a [String],
    revision: i64,
}
