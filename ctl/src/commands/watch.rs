//! Shows an answer again whenever it changes, or waits until it is final.

use super::context::Store;
use crate::exit::{Exit, Failure};
use crate::output::{self, Output, Screen};
use crate::seen_stores::{self, About};
use anyhow::anyhow;
use schema::time::parse_duration;
use std::time::Duration;
use tokio::time::Instant;

/// Shortest time between two questions.
const INTERVAL: Duration = Duration::from_secs(2);
/// The store is left alone so many times longer than an answer took.
const REST: u32 = 4;

/// Longest time between two questions.
const REST_MAX: Duration = Duration::from_secs(15);

/// How long a verb goes on with its question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    /// The command asks once.
    Once,
    /// Until the answer is final, or somebody interrupts it. Every change is shown.
    Watch,
    /// Until the answer is final or this time is over. Only the last answer is shown.
    Wait(Duration),
}

impl Repeat {
    /// Reads the two options of a verb.
    pub(super) fn read(watch: bool, wait: Option<&str>) -> Result<Self, Failure> {
        match wait.map(parse_duration).transpose() {
            Err(error) => Err(Failure::usage(anyhow!(error).context("--wait"))),
            Ok(Some(limit)) => Ok(Self::Wait(limit)),
            Ok(None) if watch => Ok(Self::Watch),
            Ok(None) => Ok(Self::Once),
        }
    }
}

/// An answer, and whether it changes no more.
pub(super) struct Answer {
    pub(super) exit: Exit,
    pub(super) is_final: bool,
}

/// Asks a question about the fleet as often as it takes.
pub(super) async fn repeat(
    repeat: Repeat,
    store: &Store<'_>,
    output: &mut Output,
    question: impl AsyncFn(&Store<'_>, &mut Output) -> Result<Answer, Failure>,
) -> Result<Exit, Failure> {
    let begin = Instant::now();
    let limit = match repeat {
        Repeat::Wait(limit) => Some(limit),
        Repeat::Once | Repeat::Watch => None,
    };
    let mut screen = Screen::default();
    loop {
        let (round_began, again) = (Instant::now(), store.again());
        let mut next = output.empty();
        let mut is_final = false;
        let held = output::hold_notes();
        let asking = async {
            let answer = question(&again, &mut next).await?;
            is_final = answer.is_final;
            Ok(answer.exit)
        };
        let exit =
            seen_stores::answer(store.settings, &again.session, again.deadline, About::Hosts, asking).await;
        let notes = held.take();
        let left = limit.map(|limit| limit.saturating_sub(begin.elapsed()));
        let is_over = left.is_some_and(|left| left.is_zero());
        match exit {
            Ok(_) if repeat == Repeat::Watch && !is_final => {
                screen.show(&notes, &next)?;
                if Screen::is_closed() {
                    return Ok(Exit::Yes);
                }
            }
            Ok(exit) if is_final || is_over || repeat == Repeat::Once => {
                notes.iter().for_each(|text| output::note(text));
                *output = next;
                return Ok(exit);
            }
            Ok(_) => {}
            // The store may be back in time. What was shown stays.
            Err(failure) if failure.exit == Exit::CannotTell && repeat != Repeat::Once && !is_over => {
                if repeat == Repeat::Watch {
                    screen.interrupt(&output::chain(&failure.error));
                }
            }
            Err(failure) => {
                notes.iter().for_each(|text| output::note(text));
                return Err(failure);
            }
        }
        let rest = INTERVAL.max(round_began.elapsed() * REST).min(REST_MAX);
        tokio::time::sleep(left.map_or(rest, |left| rest.min(left))).await;
    }
}
