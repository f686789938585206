//! `verify_hosts --wait`: asks again until the answer is yes, says who is missing and why, and ends early when
//! waiting does not help.

use super::verification::{Verification, Verified};
use crate::commands::context::{Store, now};
use crate::commands::fleet;
use crate::exit::{Exit, Failure};
use crate::output::{self, ProgressLine};
use ::fleet::FleetVerdict;
use ::fleet::text::rough;
use ::fleet::views::{Cause, HostVerdictView};
use anyhow::{Context, anyhow};
use etcd_session::{Deadline, StoreError};
use schema::names::HostName;
use schema::time::{Backoff, EpochSeconds};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// Exit code of a command that Ctrl-C ended, as shells have it.
pub(super) const INTERRUPTED: u8 = 130;
/// Shortest time limit of one request.
const LAST_QUESTION: Duration = Duration::from_secs(1);
/// Shortest time between two looks at what keeps the missing hosts.
const BETWEEN_LOOKS: Duration = Duration::from_secs(10);
/// Largest number of causes that are printed.
const CAUSES_MAX: usize = 10;
/// Number of missing hosts in the line that shows the progress.
const NAMED_MAX: usize = 3;

/// Why the wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum WaitEnd {
    /// The answer is yes.
    Yes,
    /// The time is over.
    Time,
    /// A host cannot reach the version without an operator.
    Stuck,
    /// Somebody pressed Ctrl-C.
    Interrupt,
}

/// How the wait ended, and what keeps the missing hosts.
#[derive(Debug)]
pub(super) struct Waited {
    pub(super) end: WaitEnd,
    pub(super) causes: Vec<Cause>,
}

impl Waited {
    /// Prints what keeps the missing hosts.
    pub(super) fn print(&self) {
        self.causes.iter().take(CAUSES_MAX).for_each(|cause| output::note(&cause.to_string()));
        if self.causes.len() > CAUSES_MAX {
            output::note(&format!("and {} more causes", self.causes.len() - CAUSES_MAX));
        }
        match self.end {
            WaitEnd::Stuck => output::note(
                "the wait ends early: a host cannot reach the version without an operator; --wait-anyway waits on",
            ),
            WaitEnd::Interrupt => output::note("interrupted"),
            WaitEnd::Yes | WaitEnd::Time => {}
        }
    }
}

/// What was seen so far.
struct Seen<'a> {
    /// The last answer.
    held: Option<Verified<'a>>,
    causes: Vec<Cause>,
    /// The hosts that were stuck at the last look.
    stuck: BTreeSet<HostName>,
    looks_at: Instant,
    /// Why the last look failed.
    look_failed: Option<StoreError>,
}

/// Asks again until all hosts run the version, one of them is stuck, or the time is over. The last answer
/// counts; if no request was answered, the result is the last error.
pub(super) async fn wait_for<'a>(
    question: &Verification<'a>,
    store: &Store<'_>,
    limit: Duration,
    anyway: bool,
) -> Result<(Verified<'a>, Waited), Failure> {
    let looks_at = Instant::now() + BETWEEN_LOOKS;
    let mut seen =
        Seen { held: None, causes: Vec::new(), stuck: BTreeSet::new(), looks_at, look_failed: None };
    let progress = ProgressLine;
    let end = tokio::select! {
        end = ask_again(question, store, limit, anyway, &mut seen, &progress) => end,
        signal = tokio::signal::ctrl_c() => signal.context("signals").map(|()| WaitEnd::Interrupt)
            .map_err(Failure::from),
    };
    progress.clear();
    let end = end?;
    let Some(verified) = seen.held else {
        // It was interrupted before the first answer.
        let error = anyhow!("interrupted; the store has not answered yet");
        return Err(Failure::new(Exit::Own(INTERRUPTED), error));
    };
    if let Some(error) = seen.look_failed
        && !verified.missing.is_empty()
    {
        output::warn(&format!("what keeps the missing hosts is not known: {error}"));
    }
    let mut causes = seen.causes;
    for cause in &mut causes {
        cause.hosts.retain(|host| verified.missing.contains(&host.as_str()));
    }
    causes.retain(|cause| !cause.hosts.is_empty());
    Ok((verified, Waited { end, causes }))
}

async fn ask_again<'a>(
    question: &Verification<'a>,
    store: &Store<'_>,
    limit: Duration,
    anyway: bool,
    seen: &mut Seen<'a>,
    progress: &ProgressLine,
) -> Result<WaitEnd, Failure> {
    let end = Instant::now() + limit;
    let until = EpochSeconds(now().0.saturating_add_unsigned(limit.as_secs()));
    let pace = Backoff::new(Duration::from_millis(300), Duration::from_secs(3));
    let (mut rounds, began) = (0, Instant::now());
    loop {
        // Every request gets some time even if none is left, because the answer at the end counts.
        let left = || end.saturating_duration_since(Instant::now());
        let deadline = || Deadline::within(left().max(LAST_QUESTION).min(store.settings.timeout));
        let started = Instant::now();
        let answer = question.ask(store, deadline()).await;
        let last_error = match answer {
            Ok(verified) if verified.missing.is_empty() => {
                seen.held = Some(verified);
                return Ok(WaitEnd::Yes);
            }
            Ok(verified) => {
                let all = question.hosts.names.len();
                progress.show(&line(all, &verified.missing, &seen.causes, began.elapsed()));
                seen.held = Some(verified);
                None
            }
            Err(error) => Some(error),
        };
        rounds += 1;
        // A long list costs the store something, so the store is left alone nine tenths of the
        // time.
        let delay = pace.delay(rounds, etcd_session::jitter()).max(started.elapsed() * 9);
        if let Some(verified) = &seen.held
            && (seen.looks_at <= Instant::now() || left().is_zero())
        {
            let started = Instant::now();
            // The answer does not depend on it.
            match look(question, &verified.missing, until, store, deadline()).await {
                Ok((causes, stuck)) => {
                    let is_stuck = !anyway && stuck.intersection(&seen.stuck).next().is_some();
                    (seen.causes, seen.stuck, seen.look_failed) = (causes, stuck, None);
                    if is_stuck && !left().is_zero() {
                        return Ok(WaitEnd::Stuck);
                    }
                }
                Err(error) => seen.look_failed = Some(error),
            }
            seen.looks_at = Instant::now() + BETWEEN_LOOKS.max(started.elapsed() * 9);
        }
        if left().is_zero() {
            return match (&seen.held, last_error) {
                (Some(_), last_error) => {
                    last_error.iter().for_each(|error| output::warn(&error.to_string()));
                    Ok(WaitEnd::Time)
                }
                (None, Some(error)) => Err(asked_for(limit, error).into()),
                (None, None) => unreachable!("a round ends with an answer or an error"),
            };
        }
        tokio::time::sleep(delay.min(left())).await;
    }
}

/// Returns the error of the last request as that of all of them, because the last one had less time.
fn asked_for(limit: Duration, error: StoreError) -> StoreError {
    match error {
        StoreError::Deadline { operation, detail, .. } => StoreError::Deadline { operation, limit, detail },
        other => other,
    }
}

/// Returns what keeps the missing hosts from the version, and which of them do not reach it by themselves until
/// then.
async fn look(
    question: &Verification<'_>,
    missing: &[&str],
    until: EpochSeconds,
    store: &Store<'_>,
    deadline: Deadline,
) -> Result<(Vec<Cause>, BTreeSet<HostName>), StoreError> {
    let (mut fleet, revision) = fleet::read(store, None, deadline).await?;
    // The time of the command itself is over long before that of the wait.
    let store = Store::new(store.settings, store.session.clone(), deadline);
    fleet::read_wait_causes(&mut fleet, revision, &store).await?;
    let missing: Vec<HostName> = missing.iter().filter_map(|host| HostName::new(*host).ok()).collect();
    let verdicts = fleet.verdicts();
    let of = |host: &HostName| {
        let verdict = verdicts.get(host).filter(|verdict| **verdict != FleetVerdict::Ok)?;
        Some(HostVerdictView::new(host, verdict, &fleet))
    };
    let causes = Cause::all(&missing.iter().filter_map(of).collect::<Vec<_>>(), &fleet);
    // Verdicts are about the desired version, which may be another one.
    let is_desired = fleet.target().version() == Some(question.version);
    let stuck = missing.into_iter().filter(|host| is_desired && fleet.is_stuck(host, until));
    Ok((causes, stuck.collect()))
}

/// Says how many hosts are there, after which time, and who is missing.
fn line(all: usize, missing: &[&str], causes: &[Cause], took: Duration) -> String {
    let named = missing.iter().take(NAMED_MAX).copied().collect::<Vec<_>>().join(" ");
    let more = if missing.len() > NAMED_MAX { " …" } else { "" };
    let worst = causes.first().map(|cause| format!("; {cause}")).unwrap_or_default();
    let (there, took) = (all - missing.len(), rough(took.as_secs()));
    format!("{there}/{all} hosts, {took}, missing: {named}{more}{worst}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::verdict::VerdictKind;

    #[test]
    fn the_line_says_who_is_missing_and_the_worst_reason() {
        let cause = Cause {
            verdict: VerdictKind::Failed,
            reason: "validate step http exited with code 7".into(),
            role: None,
            hosts: vec![HostName::new("web2").unwrap()],
            reported_at: None,
            bundles: Vec::new(),
        };
        let check = |missing: &[&str], causes: &[Cause], expected: &str| {
            assert_eq!(line(40, missing, causes, Duration::from_secs(75)), expected);
        };
        check(
            &["web2"],
            &[cause],
            "39/40 hosts, 75 s, missing: web2; web2: failed: validate step http exited with code 7",
        );
        check(&["a", "b", "c", "d"], &[], "36/40 hosts, 75 s, missing: a b c …");
    }
}
