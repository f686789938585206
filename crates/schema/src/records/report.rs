//! `/orchestrate/reports/<host>`: what a host decided and why.

use crate::codec::{cut, log_tail, write};
use crate::health::CheckStatus;
use crate::names::{ServiceName, Token, Version};
use crate::plan::{HostVerdict, Phase, Plan};
use crate::records::machine::MachineInfo;
use crate::records::wait::Wait;
use crate::time::EpochSeconds;
use serde::{Deserialize, Serialize};

/// Largest report in bytes.
pub const REPORT_MAX_BYTES: usize = 16 * 1024;

/// What a host remembers of the store; stands in its report so that `store accept` can find it when
/// the store itself has lost it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedStore {
    /// The lineage that the host belongs to.
    pub lineage: Token,
    /// The epoch that the host has accepted.
    pub epoch: u64,
}

/// An instruction as a host saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedTarget {
    /// The version.
    pub version: Version,
    /// The revision of `/current_version`.
    pub revision: i64,
}

/// `/orchestrate/reports/<host>`: what a host decided and why. Written on change, with no ages or
/// counters in it. At most [`REPORT_MAX_BYTES`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// When it was written.
    pub at: EpochSeconds,
    /// Random; by it the writer knows its own write again when the answer was lost.
    pub write_id: Token,
    /// Where in its life the host is.
    pub phase: Phase,
    /// The host's own verdict.
    pub verdict: HostVerdict,
    /// The instruction that it decided on.
    #[serde(default)]
    pub target: Option<ReportedTarget>,
    /// The version that it has proven, if any.
    #[serde(default)]
    pub installed: Option<Version>,
    /// What it is going to do.
    pub plan: Plan,
    /// The store that it belongs to.
    #[serde(default)]
    pub store: Option<ReportedStore>,
    /// About the machine.
    #[serde(default)]
    pub facts: MachineInfo,
    /// The services that hold it where it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<Wait>,
    /// The checks that do not pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<FailingCheck>,
    /// The services that are defined on it and not published.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unpublished: Vec<UnpublishedService>,
    /// The last lines of the step that failed or holds; at most [`LOG_TAIL_MAX_BYTES`], redacted.
    #[serde(default)]
    pub log: Vec<String>,
}

impl Report {
    /// The report as JSON within its bound: the log goes first, then the plan's actions, then what checks said and why
    /// services are not published.
    pub fn write_bounded(&self) -> String {
        let text = write(self);
        if text.len() <= REPORT_MAX_BYTES {
            return text;
        }
        let mut smaller = self.clone();
        smaller.log.clear();
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
        write(&smaller)
    }
}

/// A check of a host that does not pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailingCheck {
    /// The service that it is about; none: the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceName>,
    /// Its name.
    pub check: String,
    /// Warning or critical.
    pub status: CheckStatus,
    /// The last line of its output when it began to say so; at most [`CHECK_LINE_MAX_BYTES`], redacted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub line: String,
}

/// Most of what a check said that is reported, in bytes.
pub const CHECK_LINE_MAX_BYTES: usize = 256;

/// Most checks in a report.
pub const CHECKS_IN_REPORT: usize = 16;

/// A service that is defined on a host and not published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnpublishedService {
    /// The service.
    pub service: ServiceName,
    /// Why, and what would be right; at most [`REASON_MAX_BYTES`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Most services in a report that are not published.
pub const UNPUBLISHED_IN_REPORT: usize = 16;

impl FailingCheck {
    /// The last line of an output, without control characters, within its bound.
    pub fn last_line(output: &str) -> String {
        log_tail(output.lines().rev().find(|line| !line.trim().is_empty()).into_iter())
            .first()
            .map(|line| cut(line, CHECK_LINE_MAX_BYTES))
            .unwrap_or_default()
    }

    /// It says the same: what it printed is no news.
    pub fn is_same_as(&self, other: &Self) -> bool {
        (&self.service, &self.check, self.status) == (&other.service, &other.check, other.status)
    }
}
