//! The list of the freezes that stand: `freezes`, and what other verbs note of it.

use crate::commands::answers;
use crate::commands::context::{Store, now};
use crate::commands::verb::{About, Answer, Group, Past, Spec, Verb};
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use clap::Args;
use fleet::views::FreezeView;
use planning::calendar::rfc3339;
use schema::freeze::FreezeScope;
use schema::frozen::FrozenBy;
use schema::keys::Prefix;
use schema::names::Token;
use schema::records::Freeze as FreezeRecord;
use schema::time::EpochSeconds;
use schemars::JsonSchema;
use serde::Serialize;

/// List the freezes
#[derive(Debug, Args)]
pub(crate) struct Freezes;

impl Verb for Freezes {
    const SPEC: Spec = Spec {
        name: "freezes",
        group: Group::Rollout,
        about: About::Operators,
        past: Past::Answers,
        exits: &[Exit::No],
        answer: Answer::Json(answers::of::<FreezesAnswer>),
        examples: &[("orchestrate freezes", "who froze what, and why")],
    };

    /// Lists the freezes. Exits with 0 if there is none, with 1 if there are some.
    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let found = store.session.read_ranges(&[Prefix::Freezes], store.deadline).await?;
        let freezes: Vec<FrozenBy> = FrozenBy::all(&found).collect();
        let list: Vec<FreezeView> = freezes.iter().cloned().map(FreezeView).collect();
        output.sorted_answer(&FreezesAnswer { freezes: list, revision: found.revision }, |_| {});
        if !output.is_json() {
            print_table(&freezes, output);
        }
        freezes.iter().for_each(note_overdue);
        Ok(Exit::of(freezes.is_empty()))
    }
}

/// What `freezes` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FreezesAnswer {
    freezes: Vec<FreezeView>,
    revision: i64,
}

fn print_table(freezes: &[FrozenBy], output: &mut Output) {
    let time = |at: EpochSeconds| rfc3339(at).unwrap_or_default();
    output.table(
        ["FROZEN", "ID", "BY", "SINCE", "UNTIL", "REASON"],
        freezes.iter().map(|FrozenBy { scope, token, freeze }| {
            let of = |text: fn(&FreezeRecord) -> String| freeze.as_ref().map(text).unwrap_or_default();
            let since = freeze.as_ref().map(|freeze| time(freeze.at)).unwrap_or_default();
            let until = freeze.as_ref().and_then(|freeze| freeze.until).map(time).unwrap_or_default();
            [
                scope.to_string(),
                token.as_ref().map(Token::to_string).unwrap_or_default(),
                of(|f| f.by.clone()),
                since,
                until,
                of(|f| f.reason.clone()),
            ]
        }),
    );
}

/// Notes a freeze that stands for longer than it says.
fn note_overdue(frozen: &FrozenBy) {
    if frozen.freeze.as_ref().is_some_and(|freeze| freeze.is_overdue(now())) {
        output::note(&format!(
            "{frozen}: this should have ended. A new leader of the store lets its lease begin again, or somebody keeps the lease alive. `{}` ends it",
            ending_of(&frozen.scope)
        ));
    }
}

/// Notes the freezes that stand. The act before is done, so a failure is only a warning.
pub(crate) async fn note_freezes(store: &Store<'_>) {
    match store.session.read_ranges(&[Prefix::Freezes], store.deadline).await {
        Ok(found) => FrozenBy::all(&found).for_each(|frozen| output::note(&format!("still: {frozen}"))),
        Err(error) => output::warn(&format!("the freezes that stand cannot be read: {error}")),
    }
}

/// Returns the command that ends the freezes of a scope.
pub(crate) fn ending_of(scope: &FreezeScope) -> String {
    match scope {
        FreezeScope::Fleet => "orchestrate unfreeze".into(),
        FreezeScope::Role(role) => format!("orchestrate unfreeze --role {role}"),
        FreezeScope::Group(group) => format!("orchestrate unfreeze --group {group}"),
        FreezeScope::Host(host) => format!("orchestrate unfreeze --hostname {host}"),
        FreezeScope::Pause => "orchestrate rollout resume".into(),
    }
}
