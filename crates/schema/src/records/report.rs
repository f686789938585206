//! `/orchestrate/reports/<host>`: what a host decided, and why.

use crate::codec::{cut, log_tail, write};
use crate::health::CheckStatus;
use crate::names::{ServiceName, StepName, Token, Version};
use crate::plan::{Phase, Plan, Reason};
use crate::records::bundle_link::BundleLink;
use crate::records::file_problem::FileProblem;
use crate::records::log_lines::LogLines;
use crate::records::machine::MachineInfo;
use crate::records::wait::Wait;
use crate::steps::StepPhase;
use crate::time::{EpochSeconds, Span};
use crate::verdict::HostVerdict;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Largest report, in bytes.
pub const REPORT_MAX_BYTES: usize = 16 * 1024;

/// What a host remembers of the store. It is part of the report so that `store accept` can find it
/// when the store itself has lost it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedStore {
    /// The lineage that the host belongs to.
    pub lineage: Token,
    /// The epoch that the host has accepted.
    pub epoch: u64,
}

/// The instruction that a host decided on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReportedTarget {
    /// Version that the instruction names.
    pub version: Version,
    /// The revision at which `/current_version` was written.
    pub revision: i64,
}

/// `/orchestrate/reports/<host>`: what a host decided, and why. It is written when it changes, so
/// it contains no ages or counters. At most [`REPORT_MAX_BYTES`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// When the report was written.
    pub at: EpochSeconds,
    /// Random token by which the writer recognises its own write when the answer was lost.
    pub write_id: Token,
    /// The phase that the host is in.
    pub phase: Phase,
    /// The verdict of the host about itself.
    pub verdict: HostVerdict,
    /// The instruction that the host decided on; `None` if it knows none.
    #[serde(default)]
    pub target: Option<ReportedTarget>,
    /// The version that is installed and was last proven, if any.
    #[serde(default)]
    pub installed: Option<Version>,
    /// What the host is going to do.
    pub plan: Plan,
    /// The step that is running, if an update is under way and the step has run for [`LONG_STEP`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_step: Option<LongStep>,
    /// When the next attempt begins, by the clock of the host; `None` if none is scheduled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<EpochSeconds>,
    /// The store that the host belongs to.
    #[serde(default)]
    pub store: Option<ReportedStore>,
    /// Facts about the machine.
    #[serde(default)]
    pub facts: MachineInfo,
    /// The needs that are not met and hold the host in its phase.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<Wait>,
    /// The checks that do not pass; at most [`CHECKS_IN_REPORT`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<FailingCheck>,
    /// The services that are defined on the host but not published; at most
    /// [`UNPUBLISHED_IN_REPORT`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unpublished: Vec<UnpublishedService>,
    /// What is wrong with the files of the host; at most
    /// [`PROBLEMS_IN_REPORT`](crate::records::PROBLEMS_IN_REPORT).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<FileProblem>,
    /// How long the steps of the host took when they last succeeded; at most [`DURATIONS_IN_REPORT`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub durations: Vec<StepDuration>,
    /// The step that printed `log`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_of: Option<LoggedStep>,
    /// The bundle that the host uploaded of its failure under the present instruction, if it is the one that did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<BundleLink>,
    /// Last output lines of a step that failed or was deferred: the one that the verdict names, if any; at most
    /// [`LOG_TAIL_MAX_BYTES`](crate::codec::LOG_TAIL_MAX_BYTES), redacted.
    #[serde(default)]
    pub log: LogLines,
}

impl Report {
    /// Returns the report of an idle host without anything else to say, as a base for others.
    pub fn idle(at: EpochSeconds, write_id: Token) -> Self {
        Self {
            at,
            write_id,
            phase: Phase::Idle,
            verdict: HostVerdict::Ok,
            target: None,
            installed: None,
            plan: Plan {
                phase: Phase::Idle,
                actions: Vec::new(),
                because: Reason::Settled,
                requeue_at: None,
            },
            running_step: None,
            next_attempt_at: None,
            store: None,
            facts: MachineInfo::default(),
            waits: Vec::new(),
            checks: Vec::new(),
            unpublished: Vec::new(),
            problems: Vec::new(),
            durations: Vec::new(),
            bundle: None,
            log_of: None,
            log: LogLines::default(),
        }
    }

    /// True if the other report says the same, so that it need not be replaced. Not compared are the
    /// write itself, the plan and the log, how long steps took, the number of instances of a service
    /// that the host waits for, and the output of checks and of commands of templates: a change of these alone
    /// is not worth a write.
    pub fn says_the_same_as(&self, other: &Self) -> bool {
        // Every field is named, so that a new one is not forgotten.
        let Self {
            at: _,
            write_id: _,
            phase,
            verdict,
            target,
            installed,
            plan: _,
            running_step,
            next_attempt_at,
            store,
            facts,
            waits,
            checks,
            unpublished,
            problems,
            durations: _,
            bundle,
            log_of: _,
            log: _,
        } = self;
        *phase == other.phase
            && verdict.is_same_as(&other.verdict)
            && *target == other.target
            && *installed == other.installed
            && *running_step == other.running_step
            && is_about(*next_attempt_at, other.next_attempt_at)
            && *store == other.store
            && *facts == other.facts
            && are_same(waits, &other.waits, Wait::is_same_as)
            && are_same(checks, &other.checks, FailingCheck::is_same_as)
            && *unpublished == other.unpublished
            && are_same(problems, &other.problems, FileProblem::is_same_as)
            && *bundle == other.bundle
    }

    /// Returns the report as JSON, shortened to fit into [`REPORT_MAX_BYTES`]: first the log
    /// and the durations are removed, then the plan's actions after the eighth, then the output of checks, the
    /// reasons why services are not published, and the problems of files.
    pub fn write_bounded(&self) -> String {
        let text = write(self);
        if text.len() <= REPORT_MAX_BYTES {
            return text;
        }
        let mut smaller = self.clone();
        smaller.log.clear();
        smaller.durations.clear();
        let text = write(&smaller);
        if text.len() <= REPORT_MAX_BYTES {
            return text;
        }
        smaller.plan.actions.truncate(8);
        let text = write(&smaller);
        if text.len() <= REPORT_MAX_BYTES {
            return text;
        }
        smaller.checks.iter_mut().for_each(|check| check.line.clear());
        smaller.unpublished.iter_mut().for_each(|service| service.reason.clear());
        smaller.problems.truncate(1);
        write(&smaller)
    }
}

/// True if both times are unknown, or about the same: clocks are set right now and then.
fn is_about(one: Option<EpochSeconds>, other: Option<EpochSeconds>) -> bool {
    const SECONDS: u64 = 30;
    match (one, other) {
        (Some(one), Some(other)) => one.0.abs_diff(other.0) <= SECONDS,
        (one, other) => one == other,
    }
}

fn are_same<T>(ones: &[T], others: &[T], is_same: impl Fn(&T, &T) -> bool) -> bool {
    ones.len() == others.len() && ones.iter().zip(others).all(|(one, other)| is_same(one, other))
}

/// A check of a host that does not pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailingCheck {
    /// The service that is checked; `None` if the check is one of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceName>,
    /// Name of the check.
    pub check: String,
    /// Result of the check: warning or critical.
    pub status: CheckStatus,
    /// Last line of the check's output when it got this result; at most [`CHECK_LINE_MAX_BYTES`],
    /// redacted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub line: String,
}

impl fmt::Display for FailingCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "check {}", self.check)?;
        if self.line.is_empty() { Ok(()) } else { write!(f, ": {}", self.line) }
    }
}

/// Longest output of a check in a report, in bytes.
pub const CHECK_LINE_MAX_BYTES: usize = 256;

/// Largest number of checks in a report.
pub const CHECKS_IN_REPORT: usize = 16;

/// Time after which a running step is reported. Shorter ones end before anybody asks for them.
pub const LONG_STEP: Duration = Duration::from_secs(10);

/// A step that has run for some time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LongStep {
    /// The phase of the step.
    pub phase: StepPhase,
    /// The name of the step.
    pub step: StepName,
    /// When it began, by the clock of the host.
    pub since: EpochSeconds,
    /// Time limit of the step.
    pub timeout: Span,
}

/// A step whose output is in a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedStep {
    /// The phase of the step.
    pub phase: StepPhase,
    /// The name of the step.
    pub step: StepName,
}

/// How long a step took when it last succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepDuration {
    /// The phase of the step.
    pub phase: StepPhase,
    /// The name of the step.
    pub step: StepName,
    /// The duration, in whole milliseconds.
    pub took: Span,
}

/// Largest number of durations in a report.
pub const DURATIONS_IN_REPORT: usize = 64;

/// A service that is defined on a host but not published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnpublishedService {
    /// Name of the service.
    pub service: ServiceName,
    /// Why it is not published, and how to correct that; at most
    /// [`REASON_MAX_BYTES`](crate::records::REASON_MAX_BYTES).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Largest number of unpublished services in a report.
pub const UNPUBLISHED_IN_REPORT: usize = 16;

impl FailingCheck {
    /// Returns the last line of an output that is not blank, without control characters, in at most
    /// [`CHECK_LINE_MAX_BYTES`].
    pub fn last_line(output: &str) -> String {
        log_tail(output.lines().rev().find(|line| !line.trim().is_empty()).into_iter())
            .first()
            .map(|line| cut(line, CHECK_LINE_MAX_BYTES))
            .unwrap_or_default()
    }

    /// True if a later result has the same service, check and status. The output is not compared: a change
    /// of it alone is not worth a new report, unless nothing was known of it before.
    pub fn is_same_as(&self, other: &Self) -> bool {
        let has_first_line = self.line.is_empty() && !other.line.is_empty();
        (&self.service, &self.check, self.status) == (&other.service, &other.check, other.status)
            && !has_first_line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::Level;
    use crate::records::file_problem::ProblemFile;

    #[test]
    fn a_report_says_the_same_unless_something_changed_that_a_reader_needs() {
        let wait = Wait {
            service: ServiceName::new("db").unwrap(),
            level: Level::Functional,
            need: 2,
            have: 1,
            phase: StepPhase::Apply,
            step: None,
            unreachable: false,
        };
        let check = FailingCheck {
            service: None,
            check: "disk".into(),
            status: CheckStatus::Critical,
            line: "full".into(),
        };
        let service = UnpublishedService { service: ServiceName::new("web").unwrap(), reason: "why".into() };
        let (file, reason, line) = (ProblemFile::Template, "exited with code 1".into(), "pid 3".into());
        let report = Report {
            waits: vec![wait],
            checks: vec![check],
            unpublished: vec![service],
            problems: vec![FileProblem { file, reason, line }],
            ..Report::idle(EpochSeconds(1), Token::new("a").unwrap())
        };
        let check = |change: fn(&mut Report), says_the_same: bool| {
            let mut other = report.clone();
            change(&mut other);
            assert_eq!(report.says_the_same_as(&other), says_the_same, "{other:?}");
        };
        let mut silent = report.clone();
        silent.checks[0].line.clear();
        assert!(!silent.says_the_same_as(&report), "the check has printed its first line");
        assert!(report.says_the_same_as(&silent));
        check(|_| {}, true);
        check(|r| r.at = EpochSeconds(2), true);
        check(|r| r.write_id = Token::new("b").unwrap(), true);
        check(|r| r.plan.because = Reason::Spread, true);
        check(|r| r.log = LogLines::from_iter(["line"]), true);
        check(
            |r| {
                let (phase, step) = (StepPhase::Apply, StepName::new("packages").unwrap());
                r.durations = vec![StepDuration { phase, step, took: Span(Duration::from_secs(1)) }];
            },
            true,
        );
        check(|r| r.waits[0].have = 0, true);
        check(|r| r.checks[0].line = "fuller".into(), true);
        check(|r| r.phase = Phase::Apply, false);
        check(|r| r.verdict = HostVerdict::Running { version: Version::new("1").unwrap() }, false);
        check(
            |r| r.target = Some(ReportedTarget { version: Version::new("1").unwrap(), revision: 1 }),
            false,
        );
        check(|r| r.installed = Version::new("1").ok(), false);
        check(|r| r.store = Some(ReportedStore { lineage: Token::new("l").unwrap(), epoch: 1 }), false);
        check(|r| r.facts.processors = 2, false);
        check(|r| r.waits[0].need = 3, false);
        check(|r| r.waits.clear(), false);
        check(|r| r.checks[0].status = CheckStatus::Warning, false);
        check(|r| r.unpublished[0].reason = "another".into(), false);
        check(|r| r.problems[0].reason = "exited with code 2".into(), false);
        check(|r| r.problems.clear(), false);
        check(|r| r.problems.push(r.problems[0].clone()), false);
        check(|r| r.problems[0].file = ProblemFile::Settings, false);
        check(|r| r.problems[0].line = "pid 4".into(), true);
        check(
            |r| {
                let (phase, step) = (StepPhase::Apply, StepName::new("packages").unwrap());
                let timeout = Span(Duration::from_secs(60));
                r.running_step = Some(LongStep { phase, step, since: EpochSeconds(1), timeout });
            },
            false,
        );
    }
}
