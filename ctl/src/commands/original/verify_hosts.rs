//! `verify_hosts`: checks whether these hosts run this version.

use super::verification::{Verification, WantedHosts};
use super::verify_wait::{INTERRUPTED, WaitEnd, Waited, wait_for};
use crate::commands::answers;
use crate::commands::context::{Store, version_of};
use crate::commands::fleet;
use crate::commands::selection::{Selection, members};
use crate::commands::verb::{About, Answer, Group, Past, Spec, Verb};
use crate::completion;
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use crate::seen_stores;
use ::fleet::views::Cause;
use anyhow::{Context, anyhow};
use clap::Args;
use etcd_session::Deadline;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use schema::names::{HostName, Version};
use schema::time::parse_duration;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;
use std::io::{BufRead, IsTerminal};
use std::time::Duration;

/// Longest standard input that is read, in bytes; more than any list of hosts needs.
const INPUT_MAX_BYTES: usize = 64 * 1024 * 1024;

/// Check whether hosts run a version
#[derive(Debug, Args)]
pub(crate) struct VerifyHosts {
    /// Version that the hosts are to run
    #[arg(add = completion::versions())]
    version: String,
    /// Hosts; without any, and without a selection, they are read from standard input, one per line
    #[arg(add = completion::hosts(), conflicts_with_all = ["roles", "groups", "labels"])]
    hosts: Vec<String>,
    #[command(flatten)]
    selection: Selection,
    /// Ask again until the answer is yes, at most for this long; end earlier if a host cannot reach the version
    /// without an operator
    #[arg(long, value_name = "DURATION")]
    wait: Option<String>,
    /// With --wait: wait to the end, even if a host cannot reach the version
    #[arg(long, requires = "wait")]
    wait_anyway: bool,
    /// Count a host only if its own key names the version too; any agent may write the list of
    /// a version
    #[arg(long)]
    strict: bool,
}

impl Verb for VerifyHosts {
    const SPEC: Spec = Spec {
        name: "verify_hosts",
        group: Group::Rollout,
        about: About::SelfChecked,
        past: Past::Answers,
        exits: &[Exit::No, Exit::Own(INTERRUPTED)],
        answer: Answer::Json(answers::of::<VerifyAnswer<'_>>),
        examples: &[
            ("orchestrate verify_hosts v43 web-1 web-2", "do both hosts run v43?"),
            ("orchestrate verify_hosts v43 --wait 20m < hosts.txt", "wait until all hosts of a file run it"),
        ],
    };

    fn past(&self) -> Past {
        if self.wait.is_some() { Past::Waits } else { Self::SPEC.past }
    }

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let Self { version, hosts: arguments, selection, wait, wait_anyway, strict } = self;
        let version = &version_of(&version)?;
        let wait = wait
            .as_deref()
            .map(parse_duration)
            .transpose()
            .map_err(|e| Failure::usage(anyhow!(e).context("--wait")))?;
        let input = if !selection.is_empty() {
            let selected = Box::pin(members(&selection.filter(Vec::new())?, store)).await;
            // This verb says no by the same code whatever it is about.
            let selected = selected.map_err(|failure| match failure.exit {
                Exit::Refused => Failure::no(format!("{:#}", failure.error)),
                _ => failure,
            })?;
            selected.iter().map(HostName::as_str).collect::<Vec<_>>().join("\n")
        } else if arguments.is_empty() {
            standard_input_within(store.deadline.left().max(wait.unwrap_or_default()))?
        } else {
            arguments.join("\n")
        };
        let lower = input.to_ascii_lowercase();
        let hosts = hosts(&input, &lower)?;
        let question = Verification { version, hosts, strict };
        let alarms = |deadline| seen_stores::alarms(store.settings, &store.session, deadline);
        let (verified, waited, alarms) = match wait {
            None => {
                let (verified, alarms) =
                    tokio::join!(question.ask(store, store.deadline), alarms(store.deadline));
                (verified?, None, alarms?)
            }
            Some(limit) => {
                // Boxed, because this future is the largest one here, and most questions do not wait.
                let (verified, waited) = Box::pin(wait_for(&question, store, limit, wait_anyway)).await?;
                let alarms = alarms(Deadline::within(store.settings.timeout)).await?;
                (verified, Some(waited), alarms)
            }
        };
        seen_stores::check(store.settings, &store.session, verified.store.as_ref())?;
        let hosts = &question.hosts.names;
        output::note_hosts(&format!("not at {version}"), verified.missing.iter().copied());
        waited.iter().for_each(|waited| waited.print());
        fleet::warn_of_unconfirmed(version, verified.unconfirmed.iter().copied());
        let (end, causes) = waited.map(|Waited { end, causes }| (end, causes)).unzip();
        let answer = VerifyAnswer {
            version,
            wanted_count: hosts.len(),
            present_count: hosts.len() - verified.missing.len(),
            missing: &verified.missing,
            unconfirmed_hosts: &verified.unconfirmed,
            causes,
            ended_by: end,
            revision: verified.revision,
        };
        output.sorted_answer(&answer, |_| {});
        Ok(match end {
            Some(WaitEnd::Interrupt) => Exit::Own(INTERRUPTED),
            _ => seen_stores::exit_under(alarms.as_deref(), Exit::of(verified.missing.is_empty())),
        })
    }
}

/// What `verify_hosts` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct VerifyAnswer<'a> {
    version: &'a Version,
    wanted_count: usize,
    present_count: usize,
    missing: &'a [&'a str],
    unconfirmed_hosts: &'a [&'a str],
    causes: Option<Vec<Cause>>,
    ended_by: Option<WaitEnd>,
    revision: i64,
}

/// Reads standard input, which must end within the time limit. Nobody types a list of hosts, so a
/// terminal counts as empty.
///
/// Waits in `poll` on this thread: nothing else runs yet, and a second thread would cost more than
/// the request itself.
fn standard_input_within(limit: Duration) -> Result<String, Failure> {
    let deadline = Deadline::within(limit);
    let mut stdin = std::io::stdin().lock();
    let mut bytes = Vec::new();
    if stdin.is_terminal() {
        return Ok(String::new());
    }
    loop {
        let left = Timespec::try_from(deadline.left()).context("standard input")?;
        let ready = retry_on_intr(|| poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&left)));
        if ready.context("standard input")? == 0 {
            return Err(Failure::cannot_tell("standard input: no end of the list within the time-out"));
        }
        let chunk = stdin.fill_buf().context("standard input")?;
        let read = chunk.len();
        if read == 0 {
            return Ok(String::from_utf8_lossy(&bytes).into_owned());
        }
        bytes.extend_from_slice(chunk);
        stdin.consume(read);
        if bytes.len() > INPUT_MAX_BYTES {
            return Err(Failure::usage(anyhow!("standard input is longer than {INPUT_MAX_BYTES} bytes")));
        }
    }
}

/// Parses a list of hosts, one per line. Every line must be a host name; repeated names count once. `lower` is
/// the same text in lower case.
fn hosts<'a>(input: &'a str, lower: &'a str) -> Result<WantedHosts<'a>, Failure> {
    let lines = |text: &'a str| text.split('\n').map(str::trim).filter(|line| !line.is_empty());
    let mut names: Vec<&str> = lines(lower).collect();
    if let Some(line) = names.iter().position(|name| HostName::check(name).is_err()) {
        let given = lines(input).nth(line).unwrap_or_default();
        HostName::check(given).map_err(|e| Failure::no(e.to_string()))?;
    }
    if names.is_empty() {
        return Err(Failure::no("no hosts given"));
    }
    let mut former = HashMap::new();
    if input != lower {
        former.extend(names.iter().copied().zip(lines(input)).filter(|(name, given)| name != given));
    }
    names.sort_unstable();
    names.dedup();
    Ok(WantedHosts { names, former })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_one_host_per_line() {
        let text = "\n a\r\nB-1\n\nc.example.org \na\n\n";
        let lower = text.to_ascii_lowercase();
        let found = hosts(text, &lower).unwrap();
        assert_eq!(found.names, ["a", "b-1", "c.example.org"]);
        assert_eq!(found.former, HashMap::from([("b-1", "B-1")]));
    }

    #[test]
    fn nothing_to_verify_is_no() {
        for empty in ["", "\n", "  \n\t\n"] {
            let failure = hosts(empty, empty).unwrap_err();
            assert_eq!((failure.exit, failure.error.to_string().as_str()), (Exit::No, "no hosts given"));
        }
    }

    #[test]
    fn a_line_that_is_no_host_is_named() {
        let failure = hosts("a\nb_1\n", "a\nb_1\n").unwrap_err();
        assert_eq!(failure.exit, Exit::No);
        assert!(failure.error.to_string().contains("\"b_1\""), "{}", failure.error);
    }
}
