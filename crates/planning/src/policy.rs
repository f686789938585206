//! What a site decided for its hosts: the steps of each phase and the intervals. Made from settings.

use catalog::requires::Requirement;
use schema::names::StepName;
use schema::records::Driver;
use schema::steps::StepPhase;
use schema::time::Backoff;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// What happens to processes that a step leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Leftovers {
    /// They are ended with the step and counted in its result.
    #[default]
    Kill,
    /// They stay; for steps that start a daemon without a service manager.
    Keep,
}

/// One command of a phase. It runs at least once, so it must be idempotent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Its name, unique in its phase.
    pub name: StepName,
    /// Program and arguments; no shell.
    pub command: Vec<String>,
    /// Most time it may take; then TERM, [`Step::grace`], KILL to all of its processes.
    pub timeout: Duration,
    /// Time between TERM and KILL.
    pub grace: Duration,
    /// Exit codes that mean done.
    pub done_codes: Vec<i32>,
    /// Exit codes that mean "not yet".
    pub not_yet_codes: Vec<i32>,
    /// What happens to processes that it leaves behind.
    pub leftovers: Leftovers,
    /// Why it can only fail: it stands for something that would have to be run and cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cannot_run: Option<String>,
}

/// How a step ended, as its runner saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum StepEnd {
    /// It exited by itself.
    Exited {
        /// Its exit code.
        code: i32,
    },
    /// A signal ended it.
    Signalled {
        /// The signal's name.
        signal: String,
    },
    /// It took longer than its limit and was ended.
    TimedOut {
        /// The limit in milliseconds.
        limit_millis: u64,
    },
    /// Its runner disappeared without a result: power loss, reboot, kill.
    Interrupted,
    /// It could not be started.
    NotStarted {
        /// Why.
        why: String,
    },
}

/// What a step's end means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepMeaning {
    /// Go on.
    Done,
    /// Ask again later.
    NotYet,
    /// Run it again: it was interrupted.
    Again,
    /// It failed.
    Failed,
}

impl Step {
    /// What this end means for this step. A signal never reads as an exit code.
    pub fn meaning(&self, end: &StepEnd) -> StepMeaning {
        match end {
            StepEnd::Exited { code } if self.done_codes.contains(code) => StepMeaning::Done,
            StepEnd::Exited { code } if self.not_yet_codes.contains(code) => StepMeaning::NotYet,
            StepEnd::Interrupted => StepMeaning::Again,
            _ => StepMeaning::Failed,
        }
    }
}

impl fmt::Display for StepEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited { code } => write!(f, "exited with code {code}"),
            Self::Signalled { signal } => write!(f, "was ended by {signal}"),
            Self::TimedOut { limit_millis } => write!(
                f,
                "took longer than {} (timeout)",
                schema::time::format_duration(Duration::from_millis(*limit_millis))
            ),
            Self::Interrupted => f.write_str("was interrupted"),
            Self::NotStarted { why } => write!(f, "could not be started: {why}"),
        }
    }
}

/// The steps of each phase, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Steps {
    /// Before the host is disturbed.
    pub prefetch: Vec<Step>,
    /// The consistent phase.
    pub apply: Vec<Step>,
    /// The eventual phase.
    pub converge: Vec<Step>,
    /// Single commands, then the entries of the validation directory.
    pub validate: Vec<Step>,
    /// Once per instruction, when the host becomes suspect.
    pub on_suspect: Vec<Step>,
}

impl Steps {
    /// The steps of one phase.
    pub fn of(&self, phase: StepPhase) -> &[Step] {
        match phase {
            StepPhase::Prefetch => &self.prefetch,
            StepPhase::Apply => &self.apply,
            StepPhase::Converge => &self.converge,
            StepPhase::Validate => &self.validate,
            StepPhase::OnSuspect => &self.on_suspect,
        }
    }
}

/// What decisions of a host depend on beside facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Who applies versions.
    pub driver: Driver,
    /// The steps.
    pub steps: Steps,
    /// What the host needs of others.
    pub requires: Vec<Requirement>,
    /// The eventual phase follows a change of what is needed at most this often.
    pub converge_at_most_every: Duration,
    /// Time between two validations of a settled host.
    pub validate_every: Duration,
    /// Time before a step that said "not yet" runs again.
    pub not_yet_retry: Duration,
    /// Delay before the next attempt after a failed apply or prefetch.
    pub attempt_backoff: Backoff,
    /// Failed attempts at one instruction that make a host suspect.
    pub suspect_after: u32,
    /// A suspect host tries a failed apply again when what the catalog makes addressable has changed since it began:
    /// at most once in this time, over which hosts spread. Zero turns it off.
    pub suspect_retry_on_change: Duration,
    /// A suspect host tries a failed apply again this often without any change. Zero turns it off.
    pub suspect_retry_every: Duration,
    /// Disruptive repairs of a proven version in 24 hours.
    pub reapply_per_day: u32,
    /// How long validation must fail without a break before a version is applied again; each host
    /// waits between once and twice this long.
    pub reapply_after: Duration,
    /// Window over which hosts spread the start of a new instruction.
    pub spread_window: Duration,
}

/// How often a step may be interrupted in one attempt before that counts as its failure.
pub const INTERRUPTIONS_MAX: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_mean_what_the_step_declares() {
        let step = Step {
            name: StepName::new("puppet").unwrap(),
            command: vec!["/usr/bin/puppet".into()],
            timeout: Duration::from_secs(1),
            grace: Duration::from_secs(1),
            done_codes: vec![0, 2],
            not_yet_codes: vec![75],
            leftovers: Leftovers::Kill,
            cannot_run: None,
        };
        let check = |end: StepEnd, meaning| assert_eq!(step.meaning(&end), meaning, "{end}");
        check(StepEnd::Exited { code: 0 }, StepMeaning::Done);
        check(StepEnd::Exited { code: 2 }, StepMeaning::Done);
        check(StepEnd::Exited { code: 75 }, StepMeaning::NotYet);
        check(StepEnd::Exited { code: 1 }, StepMeaning::Failed);
        check(StepEnd::Exited { code: 4 }, StepMeaning::Failed);
        check(StepEnd::Signalled { signal: "SIGKILL".into() }, StepMeaning::Failed);
        check(StepEnd::TimedOut { limit_millis: 5 }, StepMeaning::Failed);
        check(StepEnd::NotStarted { why: "no such file".into() }, StepMeaning::Failed);
        check(StepEnd::Interrupted, StepMeaning::Again);
    }
}
