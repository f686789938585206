//! Converge and validate: the cycle that runs, and what the last ones brought.

use crate::host::attempt::Progress;
use schema::keys::StatusState;
use schema::names::{StepName, Version};
use schema::steps::StepPhase;
use schema::time::BootMillis;
use schema::verdict::Failure;
use serde::{Deserialize, Serialize};

/// What a host remembers of converge and validate.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cycles {
    pub current: Option<Cycle>,
    /// The last validation in this boot.
    pub validation: Option<Validation>,
    /// The last converge phase.
    pub converge: LastConverge,
    /// True if a reboot cut off a step: the host validates before it goes on.
    pub validate_first: bool,
}

/// One run of converge and validate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cycle {
    /// The version that the cycle is about.
    pub version: Version,
    /// Progress of the converge phase, if it is part of this cycle.
    pub converge: Option<Progress>,
    /// Progress of the validate phase.
    pub validate: Progress,
}

/// What the last converge phase brought.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LastConverge {
    /// Its failure; cleared when the phase succeeds.
    pub failure: Option<Failure>,
    /// Its deferred step, if there was one.
    pub held: Option<StepName>,
    /// When it began, and on which services.
    pub began: Converged,
}

/// When the converge phase ran last, and on which services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Converged {
    /// Digest of the needed services as the host saw them when the phase began.
    pub seen: Option<u64>,
    /// When the phase began, in this boot.
    pub at: Option<BootMillis>,
}

/// The result of a validation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValidationResult {
    Passed,
    /// The host does not work.
    Failed,
    /// There is no result yet: a step was deferred, or a service is missing.
    NotYet,
}

/// The last validation since boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validation {
    /// The version that was validated.
    pub version: Version,
    pub result: ValidationResult,
    /// When the validation ended.
    pub at: BootMillis,
    /// Since when validation has failed without a break.
    pub failing_since: Option<BootMillis>,
    /// The failure, if validation failed.
    pub failure: Option<Failure>,
    /// The deferred step, if there was one.
    pub held: Option<StepName>,
}

impl Cycle {
    /// Returns the result of the validation, and the state that the store shows. Phases in `lacking` lack a service.
    pub(super) fn result(&self, lacking: &[StepPhase]) -> (ValidationResult, StatusState) {
        if self.validate.failed.is_some() {
            (ValidationResult::Failed, StatusState::Failed)
        } else if self.validate.held.is_some() || lacking.contains(&StepPhase::Validate) {
            (ValidationResult::NotYet, StatusState::Pending)
        } else {
            (ValidationResult::Passed, StatusState::Success)
        }
    }
}

impl Cycles {
    /// Returns the last validation if it has this result.
    pub(super) fn validation_with(&self, result: ValidationResult) -> Option<&Validation> {
        self.validation.as_ref().filter(|validation| validation.result == result)
    }

    /// True if the last validation passed.
    pub(super) fn has_passed(&self) -> bool {
        self.validation_with(ValidationResult::Passed).is_some()
    }

    /// Forgets what belongs to the old boot.
    pub(super) fn rebooted(&mut self, validate_first: bool) {
        (self.current, self.validation) = (None, None);
        self.converge.began.at = None;
        self.validate_first = validate_first;
    }

    /// Takes over the converge phase of a cycle that ended. `lacks` is true if it lacked a service.
    pub(super) fn note_converge(&mut self, converge: Progress, lacks: bool) {
        self.converge.failure = converge.failed;
        self.converge.held = converge.held.map(|held| held.step);
        if lacks {
            // The converge phase did not run on the services that the host saw.
            self.converge.began.seen = None;
        }
    }
}
