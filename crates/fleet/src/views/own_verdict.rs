//! The verdict of a host about itself.

use schema::names::StepName;
use schema::steps::StepPhase;
use schema::verdict::{Failure, HostVerdict, VerdictKind};
use schemars::JsonSchema;
use serde::Serialize;

/// The verdict of a host about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OwnVerdict {
    /// The verdict in one word.
    pub verdict: VerdictKind,
    /// The details of the verdict; `None` for ok.
    pub reason: Option<String>,
    /// The step that failed.
    pub failure: Option<FailureView>,
}

/// A step that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FailureView {
    /// The phase that failed.
    pub phase: StepPhase,
    /// The step that failed.
    pub step: StepName,
    /// Its exit code, if it ended with one.
    pub exit_code: Option<i32>,
    /// The reason, in words.
    pub reason: String,
}

impl From<&Failure> for FailureView {
    fn from(Failure { phase, step, code, reason, .. }: &Failure) -> Self {
        Self { phase: *phase, step: step.clone(), exit_code: *code, reason: reason.clone() }
    }
}

impl From<&HostVerdict> for OwnVerdict {
    fn from(verdict: &HostVerdict) -> Self {
        let failure =
            if let HostVerdict::Failed(failed) = verdict { Some((&failed.failure).into()) } else { None };
        let reason = Some(verdict.message()).filter(|reason| !reason.is_empty());
        Self { verdict: verdict.kind(), reason, failure }
    }
}
