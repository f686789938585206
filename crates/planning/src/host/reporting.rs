//! What a host says in the store: its results, its bundle, and how often it reports.

use schema::keys::StatusState;
use schema::names::{StatusType, Version};
use schema::records::{BundleLink, StatusRecord};
use schema::time::{BootMillis, Now};
use schema::verdict::Failure;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a failed result has its cause before another cause replaces it.
const CAUSE_LASTS: Duration = Duration::from_secs(300);

/// How many reports a host writes in quick succession. After that it writes one a minute for some time. An update with
/// phases that last takes about five.
pub const REPORTS_IN_A_BURST: usize = 10;

/// What a host says in the store.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Reporting {
    /// The results that the store should contain.
    pub statuses: BTreeMap<StatusType, (StatusState, StatusRecord)>,
    /// The bundle that the host uploaded last.
    pub bundle: Option<BundleLink>,
    /// When the last reports were written; at most [`REPORTS_IN_A_BURST`] times.
    pub report_times: Vec<BootMillis>,
}

/// A result that the store should contain.
pub(super) struct NewResult<'a> {
    pub(super) kind: StatusType,
    pub(super) state: StatusState,
    /// The version that the result is about.
    pub(super) version: Option<Version>,
    /// The failure, if the result is one.
    pub(super) failure: Option<&'a Failure>,
}

impl Reporting {
    /// True if the result of the apply phase is pending.
    pub(super) fn apply_is_pending(&self) -> bool {
        self.statuses.get(&StatusType::apply()).is_some_and(|(state, _)| *state == StatusState::Pending)
    }

    /// Sets a result. A result that does not differ keeps its time, so it is not written again. One whose cause alone
    /// differs keeps it for some time, because a step may print another line each time.
    pub(super) fn set(&mut self, result: NewResult, now: Now) {
        let NewResult { kind, state, version, failure } = result;
        let code = match failure {
            Some(failure) => failure.code.map(i64::from),
            None if state == StatusState::Success => Some(0),
            None => None,
        };
        let record = StatusRecord {
            at: now.wall,
            version,
            code,
            reason: failure.map(|f| f.reason.clone()).unwrap_or_default(),
            cause: failure.and_then(|f| f.cause.clone()),
        };
        let same = |(old_state, old): &(StatusState, StatusRecord)| {
            let age = record.at.0.abs_diff(old.at.0);
            let has_same_cause = old.cause == record.cause || age < CAUSE_LASTS.as_secs();
            let other = StatusRecord { at: record.at, cause: record.cause.clone(), ..old.clone() };
            *old_state == state && has_same_cause && other == record
        };
        if !self.statuses.get(&kind).is_some_and(same) {
            self.statuses.insert(kind, (state, record));
        }
    }

    /// Notes the bundle of a failure that was uploaded. That of an earlier rollout may have waited for longer.
    pub(super) fn note_bundle(&mut self, link: BundleLink) {
        if self.bundle.as_ref().is_none_or(|newest| newest.rollout <= link.rollout) {
            self.bundle = Some(link);
        }
    }

    /// Notes that a report was written.
    pub(super) fn note_report(&mut self, at: BootMillis) {
        self.report_times.push(at);
        let excess = self.report_times.len().saturating_sub(REPORTS_IN_A_BURST);
        self.report_times.drain(..excess);
    }
}
