//! What a site configures for its hosts: the steps of each phase, and the intervals. It is made
//! from the settings.

use catalog::requires::Requirement;
use schema::names::StepName;
use schema::records::Driver;
use schema::steps::{StepEnd, StepPhase};
use schema::time::Backoff;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What happens to processes that a step leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Leftovers {
    /// Processes that a step leaves behind are killed when it ends, and counted in its result.
    #[default]
    Kill,
    /// Processes that a step leaves behind keep running: for steps that start a daemon without a service manager.
    Keep,
}

/// One command of a phase. It runs at least once, so it must be idempotent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The name of the step, unique in its phase.
    pub name: StepName,
    /// Program and arguments. No shell is used.
    pub command: Vec<String>,
    /// Longest run time. After it, all processes of the step get TERM, and KILL after
    /// [`Step::grace`].
    pub timeout: Duration,
    /// Time between TERM and KILL.
    pub grace: Duration,
    /// Exit codes that mean done.
    pub done_codes: Vec<i32>,
    /// Exit codes that mean "not yet": the step is deferred.
    pub not_yet_codes: Vec<i32>,
    /// What happens to processes that the step leaves behind.
    pub leftovers: Leftovers,
    /// Why the step can only fail, if so: it stands for something that should run but cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cannot_run: Option<String>,
}

/// What the end of a step means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepMeaning {
    /// The step is done, and the phase goes on.
    Done,
    /// The step is deferred and runs again later.
    NotYet,
    /// The step was interrupted and runs again.
    Again,
    Failed,
}

impl Step {
    /// Returns what this end means for this step. A signal is never read as an exit code.
    pub fn meaning(&self, end: &StepEnd) -> StepMeaning {
        match end {
            StepEnd::Exited { code } if self.done_codes.contains(code) => StepMeaning::Done,
            StepEnd::Exited { code } if self.not_yet_codes.contains(code) => StepMeaning::NotYet,
            StepEnd::Interrupted => StepMeaning::Again,
            _ => StepMeaning::Failed,
        }
    }
}

/// The steps of each phase, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Steps {
    /// Steps that run before the host is disturbed.
    pub prefetch: Vec<Step>,
    /// Steps of the apply phase.
    pub apply: Vec<Step>,
    /// Steps of the converge phase.
    pub converge: Vec<Step>,
    /// Steps of the validate phase: single commands, then the entries of the validation directory.
    pub validate: Vec<Step>,
    /// Steps that run once per instruction, when the host becomes suspect.
    pub on_suspect: Vec<Step>,
}

impl Steps {
    /// Returns the steps of one phase.
    pub fn of(&self, phase: StepPhase) -> &[Step] {
        match phase {
            StepPhase::Prefetch => &self.prefetch,
            StepPhase::Apply => &self.apply,
            StepPhase::Converge => &self.converge,
            StepPhase::Validate => &self.validate,
            StepPhase::OnSuspect => &self.on_suspect,
        }
    }

    /// Returns what this end means for a step. One that was removed from the configuration while it ran
    /// has no codes of its own: 0 means done, every other exit code means failed.
    pub fn meaning(&self, phase: StepPhase, step: &StepName, end: &StepEnd) -> StepMeaning {
        let known = self.of(phase).iter().find(|known| known.name == *step);
        known.map_or(
            match end {
                StepEnd::Exited { code: 0 } => StepMeaning::Done,
                StepEnd::Interrupted => StepMeaning::Again,
                _ => StepMeaning::Failed,
            },
            |step| step.meaning(end),
        )
    }
}

/// The configuration that decisions of a host depend on, in addition to facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteConfig {
    /// Who applies versions.
    pub driver: Driver,
    /// The steps of each phase.
    pub steps: Steps,
    /// The services that the host needs.
    pub requires: Vec<Requirement>,
    /// Shortest time between two runs of the converge phase that follow changes of the needed
    /// services.
    pub converge_at_most_every: Duration,
    /// Time between two validations of a settled host.
    pub validate_every: Duration,
    /// Time before a deferred step runs again.
    pub not_yet_retry: Duration,
    /// Delay before the next attempt after a failed apply or prefetch.
    pub attempt_backoff: Backoff,
    /// Number of failed disruptive attempts at one instruction that make a host suspect.
    pub suspect_after: u32,
    /// Window over which suspect hosts spread another attempt at a failed apply, if what the
    /// catalog makes addressable has changed since the attempt began. A host makes at most one such
    /// attempt in this time. Zero turns it off.
    pub suspect_retry_on_change: Duration,
    /// Time after which a suspect host tries a failed apply again without any change. Zero turns it
    /// off.
    pub suspect_retry_every: Duration,
    /// Largest number of disruptive repairs of a proven version in 24 hours.
    pub reapply_per_day: u32,
    /// How long validation must fail without a break before a version is applied again. Each host
    /// waits between once and twice this time.
    pub reapply_after: Duration,
    /// Window over which hosts spread the start of a new instruction.
    pub spread_window: Duration,
}

/// Number of failed attempts after which a host is suspect, unless its settings say otherwise.
pub const SUSPECT_AFTER: u32 = 3;
/// The bounds of the delay after a failed attempt, in seconds, unless the settings of the host say otherwise.
pub const BACKOFF_SECONDS: [u64; 2] = [30, 1800];

/// Number of interruptions of a step at which it counts as failed.
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
