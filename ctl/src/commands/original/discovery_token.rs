//! A token of an etcd discovery service: `new_discovery_token`.

use crate::commands::answers;
use crate::commands::context::Store;
use crate::commands::verb::{About, Answer, Group, Past, Spec, Verb};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use anyhow::Context;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

/// Get a new token from an etcd discovery service
#[derive(Debug, Args)]
pub(crate) struct NewDiscoveryToken {
    /// URL of the service; the public service no longer exists
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
}

impl Verb for NewDiscoveryToken {
    const SPEC: Spec = Spec {
        name: "new_discovery_token",
        group: Group::Original,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[],
        answer: Answer::Json(answers::of::<TokenAnswer<'_>>),
        examples: &[],
    };

    /// Gets a token from a discovery service; this does not use the store.
    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let Some(endpoint) = self.endpoint else {
            return Err(Failure::cannot_tell(
                "the public etcd discovery service no longer exists; use --endpoint URL",
            ));
        };
        let asking = tokio::task::spawn_blocking(move || etcd_session::new_discovery_token(&endpoint));
        let Ok(answer) = tokio::time::timeout(store.deadline.left(), asking).await else {
            return Err(Failure::cannot_tell("the discovery service: no answer within the time-out"));
        };
        let token = answer.context("the discovery service")??;
        output.sorted_answer(&TokenAnswer { token: &token }, |o| o.line(&token));
        Ok(Exit::Yes)
    }
}

/// What `new_discovery_token` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TokenAnswer<'a> {
    token: &'a str,
}
