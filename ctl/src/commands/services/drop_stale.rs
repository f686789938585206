//! `drop-stale`.

use crate::commands::answers;
use crate::commands::context::{Store, now};
use crate::commands::verb::{About, Answer, Group, Past, Spec, Verb};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use clap::Args;
use schema::keys::Key;
use schema::writes::operator;
use schemars::JsonSchema;
use serde::Serialize;

/// Stop serving instances that went silent together
#[derive(Debug, Args)]
#[command(aliases = ["drop_stale", "release-view", "release_view"])]
pub(crate) struct DropStale;

impl Verb for DropStale {
    const SPEC: Spec = Spec {
        name: "drop-stale",
        group: Group::Services,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[],
        answer: Answer::Json(answers::of::<DropStaleAnswer>),
        examples: &[("orchestrate drop-stale", "believe that the silent instances are gone")],
    };

    /// Asks every agent to stop serving retained instances.
    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        store.prepare_act();
        let found = store.session.read_keys(&[Key::DropStale], store.deadline).await?;
        let act = store.act("drop-stale", None).await?;
        let revision = store.commit(&operator::request_drop_stale(now(), &found, &act)).await?;
        output.sorted_answer(&DropStaleAnswer { revision }, |_| {});
        Ok(Exit::Yes)
    }
}

/// What `drop-stale` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DropStaleAnswer {
    revision: i64,
}
