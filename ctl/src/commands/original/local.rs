//! This host: `local_version` and `local_health`.

use crate::commands::answers;
use crate::commands::context::{Store, version_of};
use crate::commands::verb::{About, Answer, Group, LocalVerb, Past, Program, Spec, Verb};
use crate::completion;
use crate::exit::{Exit, Failure};
use crate::local;
use crate::output::{self, Output};
use anyhow::anyhow;
use clap::Args;
use fleet::views::known_types;
use schema::health::CheckStatus;
use schema::keys::{self, Key, StatusState};
use schema::names::{HostName, StatusType};
use schema::records::{FailingCheck, StatusRecord};
use schema::snapshot::KeySnapshot;
use schemars::JsonSchema;
use serde::Serialize;
use std::io;

/// Largest count that `local_health` puts into the exit code. The exit code is one byte, and a
/// shell gives codes from 126 on meanings of their own.
const HEALTH_MAX: usize = 100;

/// Print the version installed on this host, or record it
#[derive(Debug, Args)]
pub(crate) struct LocalVersion {
    /// Version to record; without it, the installed one is printed
    #[arg(add = completion::versions())]
    version: Option<String>,
}

impl LocalVerb for LocalVersion {
    const SPEC: Spec = Spec {
        name: "local_version",
        group: Group::ThisHost,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[Exit::No],
        answer: Answer::Json(answers::of::<LocalVersionAnswer<'_>>),
        examples: &[
            ("orchestrate local_version", "print the installed version"),
            ("orchestrate local_version v43", "record it, from a script that installed it"),
        ],
    };

    fn run(self, program: &Program<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let settings = program.settings;
        // The original tool exited with 1 if the system did not allow reading or writing the file.
        let cannot_tell = |error: io::Error| {
            Failure::new(Exit::No, anyhow!(error).context(settings.local_version_file.display().to_string()))
        };
        let text = match self.version {
            None => local::installed_version(settings).map_err(cannot_tell)?,
            Some(given) => {
                let version = version_of(&given)?;
                if local::record_installed_version(settings, &version).map_err(cannot_tell)? {
                    version.as_str().to_owned()
                } else {
                    output::warn(&format!(
                        "{}: its directory is not there",
                        settings.local_version_file.display()
                    ));
                    String::new()
                }
            }
        };
        let version = if text.is_empty() { None } else { Some(text.as_str()) };
        output.sorted_answer(&LocalVersionAnswer { version }, |o| o.line(&text));
        Ok(Exit::Yes)
    }
}

/// What `local_version` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LocalVersionAnswer<'a> {
    version: Option<&'a str>,
}

/// Returns the keys of the results of one host.
pub(crate) fn status_keys(host: &HostName) -> Vec<Key> {
    let of = |kind: StatusType| Key::statuses(&kind, host);
    known_types().into_iter().flat_map(of).collect()
}

/// What `local_health` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LocalHealthAnswer<'a> {
    host: &'a HostName,
    known: bool,
    failing: Vec<FailingResult<'a>>,
}

/// A check or a result that fails.
#[derive(Debug, Serialize, JsonSchema)]
struct FailingResult<'a> {
    check: &'a str,
    output: &'a str,
}

/// Exit with the number of this host's failures
#[derive(Debug, Args)]
pub(crate) struct LocalHealth {
    /// Print the failures
    #[arg(short, long)]
    verbose: bool,
}

impl Verb for LocalHealth {
    const SPEC: Spec = Spec {
        name: "local_health",
        group: Group::ThisHost,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[],
        answer: Answer::Json(answers::of::<LocalHealthAnswer<'_>>),
        examples: &[("orchestrate local_health -v", "name the failures of this host")],
    };

    /// Puts the number of this host's failures into the exit code. A code other than 0 makes the old
    /// cron script start a configuration run, so an unknown result does not count as a failure.
    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let host = store.settings.host(None)?;
        let mut keys = status_keys(&host);
        keys.push(Key::Report(host.clone()));
        let snapshot = match store.session.read_keys(&keys, store.deadline).await {
            Ok(snapshot) => snapshot,
            Err(error) => {
                output::warn(&format!("{error}; the health of {host} is not known"));
                output.sorted_answer(
                    &LocalHealthAnswer { host: &host, known: false, failing: Vec::new() },
                    |_| {},
                );
                return Ok(Exit::Yes);
            }
        };
        if snapshot.entries.is_empty() {
            output::warn(&format!("no result of {host} is known"));
        }
        let failing = failing(&snapshot, &host);
        let known = !snapshot.entries.is_empty();
        let list = failing.iter().map(|(check, output)| FailingResult { check, output }).collect();
        output.sorted_answer(&LocalHealthAnswer { host: &host, known, failing: list }, |o| {
            if self.verbose {
                failing.iter().for_each(|(check, detail)| o.line(&format!("{check}: {detail}")));
            }
        });
        Ok(Exit::Own(failing.len().min(HEALTH_MAX) as u8))
    }
}

/// Returns the failed results with their reasons, and the failing checks with their output. A check
/// counts if it is critical. The checks `puppet` and `validation`, which have the names of a
/// configuration run's own results, count even if they only warn.
fn failing(snapshot: &KeySnapshot, host: &HostName) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for kind in known_types() {
        let Some(entry) = snapshot.get(&Key::Status(kind.clone(), StatusState::Failed, host.clone())) else {
            continue;
        };
        let detail = match StatusRecord::read(&entry.value) {
            Ok(StatusRecord { reason, .. }) if !reason.is_empty() => reason,
            Ok(StatusRecord { code: Some(code), .. }) => format!("failed with code {code}"),
            _ => "failed".into(),
        };
        found.push((kind.to_string(), detail));
    }
    let report = snapshot.value_of(keys::Report(host.clone()));
    let counts = |check: &FailingCheck| {
        check.status == CheckStatus::Critical || ["puppet", "validation"].contains(&check.check.as_str())
    };
    for check in report.into_iter().flat_map(|report| report.checks).filter(counts) {
        // A check that stands for a result, as `service:puppet` of the original tool, fails once.
        let name = check.check.strip_prefix("service:").unwrap_or(&check.check);
        if !found.iter().any(|(kind, _)| kind == name) {
            found.push((check.check, check.line));
        }
    }
    found
}
