//! `ping`: checks whether the store answers.

use crate::commands::answers;
use crate::commands::context::Store;
use crate::commands::verb::{About, Answer, Group, Past, Spec, Verb};
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Duration;

/// Longest time that `ping` takes. Service managers ask every ten seconds, and the answer must come
/// well before the next request.
const PING_MAX: Duration = Duration::from_secs(5);

/// Check whether the store answers
#[derive(Debug, Args)]
pub(crate) struct Ping;

/// What `ping` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PingAnswer {
    connected: bool,
    members: Vec<String>,
}

impl Verb for Ping {
    const SPEC: Spec = Spec {
        name: "ping",
        group: Group::Store,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[Exit::No],
        answer: Answer::Json(answers::of::<PingAnswer>),
        examples: &[
            ("orchestrate ping", "does the store answer?"),
            ("orchestrate --endpoints https://etcd1:2379 --cacert ca.crt ping", "does this one answer?"),
        ],
    };
    const LIMIT: Option<Duration> = Some(PING_MAX);

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let members = store.session.members(store.deadline).await.unwrap_or_else(|error| {
            output::note(&format!("error: {error}"));
            Vec::new()
        });
        let connected = !members.is_empty();
        output.sorted_answer(&PingAnswer { connected, members }, |o| {
            // The misspelling is that of the original tool; scripts look for it.
            o.line(if connected { "Connection succesful" } else { "Connection failed" });
        });
        Ok(Exit::of(connected))
    }
}
