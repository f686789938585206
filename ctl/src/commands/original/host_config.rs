//! The values that the original tool keeps for hosts: `manage_config` and the verbs around it.
//!
//! This file is long because its six verbs share how values are named and checked.

use crate::commands::answers;
use crate::commands::context::{Store, host_of};
use crate::commands::verb::{About, Answer, Group, Past, Spec, Verb};
use crate::completion;
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use anyhow::anyhow;
use clap::{Args, ValueEnum};
use schema::host_config::{ConfigKind, ConfigScope, check_value, enables, read_value};
use schema::keys::{Key, Prefix};
use schema::names::{ConfigName, HostName, Role};
use schema::writes::host_config::write_value;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// Number of times that a change is tried if others change the same value.
const TRIES: u32 = 5;
/// Exit code of `check_puppet` for a host that may not run; a script ends with it.
const DISABLED: u8 = 9;

/// What to do with a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ConfigAction {
    /// Write it.
    Set,
    /// Delete it.
    Delete,
}

/// Options of the verbs that change a value.
#[derive(Debug, Args)]
pub(crate) struct ChangeOptions {
    /// Name of the role or host, for the scopes role and host
    #[arg(short, long)]
    name: Option<String>,
    /// Whether the value is written or deleted
    #[arg(short, long, value_enum, default_value = "set")]
    action: ConfigAction,
}

/// Write or delete a value for all hosts, a role or a host
#[derive(Debug, Args)]
pub(crate) struct ManageConfig {
    /// `state` or `version`; `config_state` and `config_version` mean the same
    #[arg(value_name = "TYPE", add = completion::words(&["state", "version"]))]
    kind: String,
    /// `global`, `role` or `host`
    #[arg(add = completion::words(&["global", "role", "host"]))]
    scope: String,
    /// `KEY=VALUE`, or KEY and VALUE
    #[arg(value_name = "DATA", required = true, num_args = 1..=2, allow_negative_numbers = true)]
    data: Vec<String>,
    #[command(flatten)]
    change: ChangeOptions,
}

/// Print the values that count for a host
#[derive(Debug, Args)]
pub(crate) struct HostData {
    /// `state` or `version`; `config_state` and `config_version` mean the same
    #[arg(value_name = "TYPE", add = completion::words(&["state", "version"]))]
    kind: String,
    /// Host about which the verb asks [default: this host]
    #[arg(short = 'n', long, add = completion::hosts())]
    hostname: Option<String>,
}

/// Check whether the scripts of a host may run
#[derive(Debug, Args)]
pub(crate) struct CheckPuppet {
    /// Host about which the verb asks [default: this host]
    #[arg(short = 'n', long, add = completion::hosts())]
    hostname: Option<String>,
}

/// Set whether the scripts of hosts may run
#[derive(Debug, Args)]
pub(crate) struct EnablePuppet {
    /// `True` or `False`
    #[arg(add = completion::words(&["True", "False"]))]
    value: String,
    /// `global`, `role` or `host`
    #[arg(add = completion::words(&["global", "role", "host"]))]
    scope: String,
    #[command(flatten)]
    change: ChangeOptions,
}

/// Write or delete a value, of type `state` without `-c`
#[derive(Debug, Args)]
pub(crate) struct SetConfig {
    /// `KEY=VALUE SCOPE`, or `KEY VALUE SCOPE`; the scope is `global`, `role` or `host`
    #[arg(value_name = "DATA", required = true, num_args = 2..=3, allow_negative_numbers = true)]
    data: Vec<String>,
    #[command(flatten)]
    change: ChangeOptions,
    /// `state` or `version`; `config_state` and `config_version` mean the same
    #[arg(short, long = "config_type", value_name = "TYPE", default_value = "state")]
    config_type: String,
}

/// Print one value of all hosts, a role or a host
#[derive(Debug, Args)]
pub(crate) struct CheckConfig {
    /// Name of the value
    #[arg(value_name = "KEY")]
    config_key: String,
    /// `global`, `role` or `host`
    #[arg(add = completion::words(&["global", "role", "host"]))]
    scope: String,
    /// Name of the role or host, for the scopes role and host
    #[arg(short, long)]
    name: Option<String>,
    /// `state` or `version`; `config_state` and `config_version` mean the same
    #[arg(short, long = "config_type", value_name = "TYPE", default_value = "state")]
    config_type: String,
}

/// Why arguments are wrong.
enum Wrong {
    /// The original prints this and `False`.
    Printed(String),
    /// A name or a value breaks a rule.
    Failure(Failure),
}

impl Wrong {
    /// Prints what the original prints. Nothing was written, so the code is not its 0.
    fn answer(self, output: &mut Output) -> Result<Exit, Failure> {
        match self {
            Self::Printed(text) if output.is_json() => Err(Failure::usage(anyhow!(text))),
            Self::Printed(text) => {
                output.line(&text);
                output.line("False");
                Ok(Exit::Usage)
            }
            Self::Failure(failure) => Err(failure),
        }
    }
}

fn kind_of(text: &str) -> Result<ConfigKind, Wrong> {
    ConfigKind::read(text).ok_or_else(|| Wrong::Printed(format!("Invalid action type: {text}")))
}

fn scope_of(text: &str, name: Option<&str>) -> Result<ConfigScope, Wrong> {
    let name = || name.ok_or_else(|| Wrong::Printed("name must be passed if scope is not global".into()));
    match text {
        "global" => Ok(ConfigScope::Global),
        "role" => Role::new(name()?).map(ConfigScope::Role).map_err(|e| Wrong::Failure(Failure::usage(e))),
        "host" => host_of(name()?).map(ConfigScope::Host).map_err(Wrong::Failure),
        other => Err(Wrong::Printed(format!("Invalid scope type: {other}"))),
    }
}

/// A key and its new value.
struct Data<'a> {
    key: &'a str,
    value: &'a str,
}

/// Returns key and value from one argument, as the fourth generation writes them, or from two, as the fifth
/// does.
fn data_of(data: &[String]) -> Result<Data<'_>, Wrong> {
    match data {
        [key, value] => Ok(Data { key, value }),
        [both] => {
            let parts = both.split_once('=');
            let parts = parts.map(|(key, value)| Data { key, value });
            parts.ok_or_else(|| Wrong::Printed("data should be of form key=value".into()))
        }
        _ => Err(Wrong::Printed("data should be of form key=value".into())),
    }
}

fn name_of(key: &str) -> Result<ConfigName, Wrong> {
    ConfigName::new(key).map_err(|error| Wrong::Failure(Failure::usage(error)))
}

/// A change of a value, with its arguments checked.
struct Change {
    key: Key,
    value: String,
    action: ConfigAction,
}

impl Change {
    fn new(kind: &str, scope: &str, data: Data<'_>, options: &ChangeOptions) -> Result<Self, Wrong> {
        let kind = kind_of(kind)?;
        let scope = scope_of(scope, options.name.as_deref())?;
        check_value(data.value).map_err(|why| Wrong::Failure(Failure::usage(anyhow!(why))))?;
        let key = Key::HostConfig(kind, scope, name_of(data.key)?);
        Ok(Self { key, value: data.value.to_owned(), action: options.action })
    }

    /// Commits the change, and prints the value as the original does, also of one that was deleted.
    async fn commit(
        &self,
        verb: &'static str,
        store: &Store<'_>,
        output: &mut Output,
    ) -> Result<Exit, Failure> {
        for _ in 0..TRIES {
            store.prepare_act();
            let found = store.session.read_keys(std::slice::from_ref(&self.key), store.deadline).await?;
            let mut changed = (false, found.revision);
            if self.action == ConfigAction::Set || found.get(&self.key).is_some() {
                let act = store.act(verb, None).await?;
                let value = (self.action == ConfigAction::Set).then_some(self.value.as_str());
                let transaction = write_value(&self.key, value, &found, &act);
                let committed = store.session.commit_act(&transaction, &act, store.deadline).await?;
                if !committed.applied {
                    continue;
                }
                changed = (true, committed.revision);
            }
            let (changed, revision) = changed;
            let key = self.key.to_string();
            let answer = ChangeAnswer { key, value: &self.value, changed, revision };
            output.sorted_answer(&answer, |o| o.line(&self.value));
            return Ok(Exit::Yes);
        }
        Err(Failure::cannot_tell(format!(
            "{}: other commands keep changing this value; nothing was written",
            self.key
        )))
    }
}

impl Verb for ManageConfig {
    const SPEC: Spec = Spec {
        name: "manage_config",
        group: Group::Original,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[],
        answer: Answer::Json(answers::of::<ChangeAnswer<'_>>),
        examples: &[],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let Self { kind, scope, data, change } = self;
        match data_of(&data).and_then(|data| Change::new(&kind, &scope, data, &change)) {
            Ok(change) => change.commit("manage_config", store, output).await,
            Err(wrong) => wrong.answer(output),
        }
    }
}

impl Verb for EnablePuppet {
    const SPEC: Spec = Spec {
        name: "enable_puppet",
        group: Group::Original,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[],
        answer: Answer::Json(answers::of::<ChangeAnswer<'_>>),
        examples: &[("orchestrate enable_puppet False role -n web", "hold the scripts of a role")],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let Self { value, scope, change } = self;
        let key = ConfigName::enable_puppet();
        let kind = ConfigKind::State.as_str();
        match Change::new(kind, &scope, Data { key: key.as_str(), value: &value }, &change) {
            Ok(change) => change.commit("enable_puppet", store, output).await,
            Err(wrong) => wrong.answer(output),
        }
    }
}

impl Verb for SetConfig {
    const SPEC: Spec = Spec {
        name: "set_config",
        group: Group::Original,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[],
        answer: Answer::Json(answers::of::<ChangeAnswer<'_>>),
        examples: &[],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let Self { data, change, config_type } = self;
        let checked = data.split_last().map(|(scope, data)| {
            data_of(data).and_then(|data| Change::new(&config_type, scope, data, &change))
        });
        match checked {
            Some(Ok(change)) => change.commit("set_config", store, output).await,
            Some(Err(wrong)) => wrong.answer(output),
            None => Err(Failure::usage(anyhow!("no key is given"))),
        }
    }
}

/// Reads a value that is printed.
fn shown<'a>(key: &str, bytes: &'a [u8]) -> Result<&'a str, Failure> {
    let value = read_value(bytes).map(|text| text.trim_end_matches('\n'));
    value.map_err(|why| Failure::cannot_tell(format!("{key}: {why}")))
}

/// Returns a mapping in one line, which JSON, YAML and Python read alike.
pub(crate) fn mapping(value: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| anyhow!(error).into())
}

impl Verb for HostData {
    const SPEC: Spec = Spec {
        name: "host_data",
        group: Group::Original,
        about: About::Operators,
        past: Past::Answers,
        exits: &[],
        answer: Answer::Json(answers::of::<HostDataAnswer<'_>>),
        examples: &[],
    };

    /// Prints the values that count for a host: of each key the narrowest.
    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let kind = match kind_of(&self.kind) {
            Ok(kind) => kind,
            Err(wrong) => return wrong.answer(output),
        };
        let host = store.settings.host(self.hostname.as_deref())?;
        let ranges: Vec<Prefix> =
            ConfigScope::of_host(&host).into_iter().map(|scope| Prefix::HostConfig(kind, scope)).collect();
        let found = store.session.read_ranges(&ranges, store.deadline).await?;
        let mut values: BTreeMap<String, (ConfigScope, &str)> = BTreeMap::new();
        for range in &ranges {
            let prefix = range.to_string();
            for (key, entry) in found.entries.iter().filter(|(key, _)| key.starts_with(&prefix)) {
                if let Ok(Key::HostConfig(_, scope, name)) = Key::parse(key) {
                    values.insert(name.to_string(), (scope, shown(key, &entry.value)?));
                }
            }
        }
        let line = mapping(&values.iter().map(|(key, (_, value))| (key, value)).collect::<BTreeMap<_, _>>())?;
        let list = values.iter().map(|(key, (scope, value))| ScopedValue { key, value, scope: scope.path() });
        let answer = HostDataAnswer {
            host: &host,
            kind: kind.as_str(),
            values: list.collect(),
            revision: found.revision,
        };
        output.sorted_answer(&answer, |o| o.line(&line));
        Ok(Exit::Yes)
    }
}

impl Verb for CheckPuppet {
    const SPEC: Spec = Spec {
        name: "check_puppet",
        group: Group::Original,
        about: About::Operators,
        past: Past::Answers,
        exits: &[Exit::Own(DISABLED)],
        answer: Answer::Json(answers::of::<EnabledAnswer<'_>>),
        examples: &[("orchestrate check_puppet || exit 0", "at the start of a cron script")],
    };

    /// Says by the exit code whether the scripts of a host may run. An operator holds them with `enable_puppet`;
    /// besides, a rolling upgrade does until it is the turn of the host.
    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let host = store.settings.host(self.hostname.as_deref())?;
        let paused = |scope| Key::HostConfig(ConfigKind::State, scope, ConfigName::enable_puppet());
        let of_operators: Vec<Key> = ConfigScope::of_host(&host).into_iter().map(paused).collect();
        let of_upgrade: Vec<Key> = ConfigScope::of_host(&host).into_iter().map(Key::EnablePuppet).collect();
        let found = store
            .session
            .read_keys(&[of_operators.clone(), of_upgrade.clone()].concat(), store.deadline)
            .await?;
        let held_by = [of_operators, of_upgrade].into_iter().find_map(|keys| {
            let narrowest = keys.into_iter().rev().find_map(|key| found.get(&key).map(|entry| (key, entry)));
            narrowest.filter(|(_, entry)| !enables(&entry.value)).map(|(key, _)| key.to_string())
        });
        let answer = EnabledAnswer {
            host: &host,
            enabled: held_by.is_none(),
            disabled_by: held_by.as_deref(),
            revision: found.revision,
        };
        output.sorted_answer(&answer, |_| {});
        let Some(key) = held_by else { return Ok(Exit::Yes) };
        output::note(&format!("scripts of {host} may not run: {key}"));
        Ok(Exit::Own(DISABLED))
    }
}

impl Verb for CheckConfig {
    const SPEC: Spec = Spec {
        name: "check_config",
        group: Group::Original,
        about: About::Operators,
        past: Past::Answers,
        exits: &[],
        answer: Answer::Json(answers::of::<ValueAnswer<'_>>),
        examples: &[],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let Self { config_key, scope, name, config_type } = self;
        let checked = || -> Result<Key, Wrong> {
            let kind = kind_of(&config_type)?;
            Ok(Key::HostConfig(kind, scope_of(&scope, name.as_deref())?, name_of(&config_key)?))
        };
        let key = match checked() {
            Ok(key) => key,
            Err(wrong) => return wrong.answer(output),
        };
        let found = store.session.read_keys(std::slice::from_ref(&key), store.deadline).await?;
        let path = key.to_string();
        let value = found.get(&key).map(|entry| shown(&path, &entry.value)).transpose()?;
        let line: BTreeMap<&str, &str> = value.map(|value| (path.as_str(), value)).into_iter().collect();
        let line = mapping(&line)?;
        let answer = ValueAnswer { key: &path, value, revision: found.revision };
        output.sorted_answer(&answer, |o| o.line(&line));
        Ok(Exit::Yes)
    }
}

/// What `set_config`, `manage_config` and `enable_puppet` answer.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ChangeAnswer<'a> {
    key: String,
    value: &'a str,
    changed: bool,
    revision: i64,
}

/// What `host_data` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct HostDataAnswer<'a> {
    host: &'a HostName,
    #[serde(rename = "type")]
    kind: &'static str,
    values: Vec<ScopedValue<'a>>,
    revision: i64,
}

/// A value that counts for a host.
#[derive(Debug, Serialize, JsonSchema)]
struct ScopedValue<'a> {
    key: &'a str,
    value: &'a str,
    scope: String,
}

/// What `check_puppet` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct EnabledAnswer<'a> {
    host: &'a HostName,
    enabled: bool,
    disabled_by: Option<&'a str>,
    revision: i64,
}

/// What `check_config` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ValueAnswer<'a> {
    key: &'a str,
    value: Option<&'a str>,
    revision: i64,
}
