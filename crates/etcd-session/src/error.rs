//! Errors of the store, classified once: what may be repeated, what is final, and where nobody knows
//! whether a write was applied.

use crate::request::Repeat;
use std::time::Duration;

/// What an error means for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// It was not applied; the same request may be sent again.
    Retry,
    /// It may have been applied: read back, recognise the own write, then repeat idempotently.
    Unknown,
    /// The same request will fail again.
    Fatal,
}

/// An error of the store. `Display` names the operation; it repeats no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No endpoint answers.
    #[error("{operation}: the store is not reachable: {detail}")]
    Unreachable {
        /// What was asked.
        operation: &'static str,
        /// What the last endpoint said.
        detail: String,
    },
    /// The answer to something that changes nothing, or the same thing every time, was lost.
    #[error("{operation}: the answer was lost: {detail}")]
    Lost {
        /// What was asked.
        operation: &'static str,
        /// How.
        detail: String,
    },
    /// The answer to a write was lost.
    #[error("{operation}: the answer was lost, it may have been applied: {detail}")]
    Unknown {
        /// What was asked.
        operation: &'static str,
        /// How.
        detail: String,
    },
    /// The whole time was used up.
    #[error("{operation}: no answer within {}: {detail}", schema::time::format_duration(*.limit))]
    Deadline {
        /// What was asked.
        operation: &'static str,
        /// The limit.
        limit: Duration,
        /// What happened last.
        detail: String,
    },
    /// The store asks for less.
    #[error("{operation}: the store is busy (too many requests)")]
    Busy {
        /// What was asked.
        operation: &'static str,
    },
    /// The store is full.
    #[error(
        "{operation}: the store raised the alarm NOSPACE: it accepts no writes until it is compacted, defragmented and disarmed"
    )]
    NoSpace {
        /// What was asked.
        operation: &'static str,
    },
    /// The user may not do this.
    #[error("{operation}: permission denied for {user}")]
    PermissionDenied {
        /// What was asked, with its key.
        operation: &'static str,
        /// Who asked.
        user: String,
    },
    /// User or password are wrong, or the token is.
    #[error("{operation}: the store does not accept the user: {detail}")]
    Unauthenticated {
        /// What was asked.
        operation: &'static str,
        /// What it said.
        detail: String,
    },
    /// The history that was asked for is gone.
    #[error("{operation}: the revision was compacted")]
    Compacted {
        /// What was asked.
        operation: &'static str,
    },
    /// The lease does not exist (any more).
    #[error("{operation}: the lease is expired or revoked")]
    LeaseGone {
        /// What was asked.
        operation: &'static str,
    },
    /// The two sides do not accept each other.
    #[error("{operation}: TLS: {detail}")]
    Tls {
        /// What was asked.
        operation: &'static str,
        /// Who does not accept whom.
        detail: String,
    },
    /// The files for TLS cannot be used; nothing was tried.
    #[error("{detail}")]
    Certificate {
        /// Which file, and what is wrong with it.
        detail: String,
    },
    /// No endpoints could be found.
    #[error("endpoints: {detail}")]
    Endpoints {
        /// Where they were looked for and what was wrong.
        detail: String,
    },
    /// The store refused the request.
    #[error("{operation}: refused: {detail}")]
    Refused {
        /// What was asked.
        operation: &'static str,
        /// What it said.
        detail: String,
    },
    /// The answer is larger than what is read at once.
    #[error("{operation}: the answer is too large: {detail}")]
    TooLarge {
        /// What was asked.
        operation: &'static str,
        /// How large it is.
        detail: String,
    },
    /// The store answered with something that is not an answer to the question.
    #[error("{operation}: unusable answer: {detail}")]
    BadAnswer {
        /// What was asked.
        operation: &'static str,
        /// What was wrong with it.
        detail: String,
    },
}

impl StoreError {
    /// What this means for the caller.
    pub fn class(&self) -> Class {
        match self {
            Self::Unreachable { .. }
            | Self::Lost { .. }
            | Self::Busy { .. }
            | Self::Endpoints { .. }
            | Self::Tls { .. } => Class::Retry,
            Self::Unknown { .. } | Self::Deadline { .. } => Class::Unknown,
            _ => Class::Fatal,
        }
    }

    /// The answer was lost to something that may, or may not, be sent again.
    pub(crate) fn lost(operation: &'static str, repeat: Repeat, detail: String) -> Self {
        match repeat {
            Repeat::Freely => Self::Lost { operation, detail },
            Repeat::IfNotApplied => Self::Unknown { operation, detail },
        }
    }
}
