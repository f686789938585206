//! `values`: the texts that operators keep in the store, and that templates and gates of hosts read.

use crate::commands::answers;
use crate::commands::context::Store;
use crate::commands::verb::{About, Answer, Group, Past, Spec, Verb};
use crate::completion;
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use anyhow::{Context, anyhow};
use clap::Args;
use schema::config_value::{CONFIG_VALUE_MAX_BYTES, config_value};
use schema::keys::{Key, Prefix};
use schema::names::ConfigName;
use schema::snapshot::{Entry, KeySnapshot};
use schema::writes::host_config::write_value;
use schemars::JsonSchema;
use serde::Serialize;
use std::io::Read as _;

/// Values may be secret.
const NOT_RECORDED: Past = Past::NotRecorded("the values are not recorded, because they may be secret");

/// List the values
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only values whose names begin with this
    #[arg(default_value = "", hide_default_value = true)]
    beginning: String,
}

/// Print a value
#[derive(Debug, Args)]
pub(crate) struct Get {
    /// Name of the value
    #[arg(add = completion::values())]
    name: String,
}

/// Write a value
#[derive(Debug, Args)]
pub(crate) struct Set {
    /// Name of the value
    #[arg(add = completion::values())]
    name: String,
    /// The text; `-` reads it from standard input
    #[arg(allow_hyphen_values = true)]
    value: String,
    #[command(flatten)]
    guard: Guard,
}

/// Delete a value
#[derive(Debug, Args)]
#[command(alias = "delete")]
pub(crate) struct Remove {
    /// Name of the value
    #[arg(add = completion::values())]
    name: String,
    #[command(flatten)]
    guard: Guard,
}

/// What the value must be before it is changed.
#[derive(Debug, Args)]
pub(crate) struct Guard {
    /// Only if the value was last changed at this revision; 0 means only if there is none
    #[arg(long, value_name = "REVISION")]
    if_revision: Option<i64>,
}

fn name_of(text: &str) -> Result<ConfigName, Failure> {
    ConfigName::new(text).map_err(Failure::usage)
}

/// Reads the value from standard input, up to what is surely too long.
fn standard_input() -> Result<Vec<u8>, Failure> {
    let mut value = Vec::new();
    let most = CONFIG_VALUE_MAX_BYTES as u64 + 1;
    std::io::stdin().lock().take(most).read_to_end(&mut value).context("standard input")?;
    Ok(value)
}

impl Verb for List {
    const SPEC: Spec = Spec {
        name: "values list",
        group: Group::Values,
        about: About::Operators,
        past: NOT_RECORDED,
        exits: &[],
        answer: Answer::Json(answers::of::<ValuesAnswer<'_>>),
        examples: &[("orchestrate values list", "what templates and gates of hosts read")],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let found = store.session.read_ranges(&[Prefix::Config], store.deadline).await?;
        let values: Vec<(ConfigName, &Entry)> = found
            .entries
            .iter()
            .filter_map(|(key, entry)| match Key::parse(key) {
                Ok(Key::Config(name)) if name.as_str().starts_with(&self.beginning) => Some((name, entry)),
                _ => None,
            })
            .collect();
        let shown = values.iter().map(|(name, entry)| {
            let text = config_value(&entry.value);
            let (value, problem) = match text {
                Ok(value) => (Some(value.to_owned()), None),
                Err(why) => (None, Some(why.to_string())),
            };
            ListedValue { name, value, problem, changed_at_revision: entry.mod_revision }
        });
        let answer = ValuesAnswer { values: shown.collect(), revision: found.revision };
        output.sorted_answer(&answer, |o| {
            let row = |(name, entry): &(ConfigName, &Entry)| {
                [name.to_string(), entry.mod_revision.to_string(), in_one_line(&entry.value)]
            };
            o.table(["NAME", "REVISION", "VALUE"], values.iter().map(row));
        });
        Ok(Exit::Yes)
    }
}

/// What `values list` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ValuesAnswer<'a> {
    values: Vec<ListedValue<'a>>,
    revision: i64,
}

/// A value of the list.
#[derive(Debug, Serialize, JsonSchema)]
struct ListedValue<'a> {
    name: &'a ConfigName,
    value: Option<String>,
    problem: Option<String>,
    changed_at_revision: i64,
}

/// What `values get` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ValueAnswer<'a> {
    name: &'a ConfigName,
    value: &'a str,
    changed_at_revision: i64,
    revision: i64,
}

/// What `values set` and `values rm` answer.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ChangedValue<'a> {
    name: &'a ConfigName,
    changed_at_revision: i64,
    changed: bool,
    revision: i64,
}

/// Returns the first line of a value, and how many follow; or what is wrong with it.
fn in_one_line(value: &[u8]) -> String {
    let text = match config_value(value) {
        Ok(text) => text,
        Err(why) => return format!("not usable: {why}"),
    };
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    match lines.count() {
        0 => first.to_owned(),
        1 => format!("{first} (and 1 line)"),
        more => format!("{first} (and {more} lines)"),
    }
}

impl Verb for Get {
    const SPEC: Spec = Spec {
        name: "values get",
        group: Group::Values,
        about: About::Operators,
        past: NOT_RECORDED,
        exits: &[Exit::No],
        answer: Answer::Json(answers::of::<ValueAnswer<'_>>),
        examples: &[("orchestrate values get motd", "print a value")],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let name = name_of(&self.name)?;
        let key = Key::Config(name.clone());
        let found = store.session.read_keys(std::slice::from_ref(&key), store.deadline).await?;
        let Some(entry) = found.get(&key) else {
            return Err(Failure::no(format!(
                "there is no value {name}; `orchestrate values list` lists them"
            )));
        };
        let text = config_value(&entry.value)
            .map_err(|why| Failure::cannot_tell(format!("the value {name} cannot be used: {why}")))?;
        let answer = ValueAnswer {
            name: &name,
            value: text,
            changed_at_revision: entry.mod_revision,
            revision: found.revision,
        };
        output.sorted_answer(&answer, |o| text.lines().for_each(|line| o.line(line)));
        Ok(Exit::Yes)
    }
}

impl Verb for Set {
    const SPEC: Spec = Spec {
        name: "values set",
        group: Group::Values,
        about: About::Other,
        past: NOT_RECORDED,
        exits: &[Exit::Refused],
        answer: Answer::Json(answers::of::<ChangedValue<'_>>),
        examples: &[
            ("orchestrate values set schema-change go", "open a gate that waits for this value"),
            ("orchestrate values set motd - < motd.txt", "write the content of a file"),
            ("orchestrate values set motd hello --if-revision 812", "only if nobody changed it since"),
        ],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let name = name_of(&self.name)?;
        let value = if self.value == "-" { standard_input()? } else { self.value.into_bytes() };
        let text = config_value(&value).map_err(|why| Failure::usage(anyhow!("the value: {why}")))?;
        change(&name, Some(text), &self.guard, store, output).await
    }
}

impl Verb for Remove {
    const SPEC: Spec = Spec {
        name: "values rm",
        group: Group::Values,
        about: About::Other,
        past: NOT_RECORDED,
        exits: &[Exit::No],
        answer: Answer::Json(answers::of::<ChangedValue<'_>>),
        examples: &[("orchestrate values rm motd", "delete a value")],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        change(&name_of(&self.name)?, None, &self.guard, store, output).await
    }
}

/// Number of times that a change is tried if others change the same value.
const TRIES: u32 = 5;

/// Writes a value, or deletes it.
async fn change(
    name: &ConfigName,
    value: Option<&str>,
    guard: &Guard,
    store: &Store<'_>,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let key = Key::Config(name.clone());
    let (verb, done) = match value {
        Some(_) => ("values set", "is written"),
        None => ("values rm", "is deleted"),
    };
    for _ in 0..TRIES {
        store.prepare_act();
        let found = store.session.read_keys(std::slice::from_ref(&key), store.deadline).await?;
        check_guard(name, guard, found.revision_of(&key))?;
        let is_so = found.get(&key).map(|entry| entry.value.as_slice()) == value.map(str::as_bytes);
        if is_so && value.is_none() {
            return Err(Failure::no(format!("there is no value {name}; nothing was changed")));
        }
        if is_so {
            output::note(&format!("{name} already has this value; nothing was written"));
            answer(name, found.revision_of(&key), false, &found, output);
            return Ok(Exit::Yes);
        }
        let act = store.act(verb, None).await?;
        let committed =
            store.session.commit_act(&write_value(&key, value, &found, &act), &act, store.deadline).await?;
        if committed.applied {
            output::note(&format!("the value {name} {done}, at revision {}", committed.revision));
            answer(name, committed.revision, true, &found, output);
            return Ok(Exit::Yes);
        }
    }
    Err(Failure::cannot_tell(format!(
        "other commands keep changing the value {name}; nothing was written, repeat the command"
    )))
}

fn check_guard(name: &ConfigName, guard: &Guard, revision: i64) -> Result<(), Failure> {
    let what = match (guard.if_revision, revision) {
        (Some(expected), found) if expected != found => match found {
            0 => format!("there is no value {name}"),
            _ => format!("the value {name} was last changed at revision {found}, not at {expected}"),
        },
        _ => return Ok(()),
    };
    Err(Failure::refused(format!("{what}; nothing was changed")))
}

fn answer(name: &ConfigName, changed_at: i64, changed: bool, found: &KeySnapshot, output: &mut Output) {
    let answer = ChangedValue {
        name,
        changed_at_revision: changed_at,
        changed,
        revision: changed_at.max(found.revision),
    };
    output.sorted_answer(&answer, |_| {});
}
