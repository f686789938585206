//! Errors of the store, classified in one place: which requests may be repeated, which errors are
//! final, and when it is not known whether a write was applied.

use crate::config::EndpointSource;
use crate::request::Repeat;
use std::time::Duration;

/// What an error means for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The request was not applied, or repeating it is harmless: it may be sent again.
    Retry,
    /// The request may have been applied: read back, recognise the own write, then repeat
    /// idempotently.
    Unknown,
    /// A repeated request fails again.
    Fatal,
}

/// An error of the store. `Display` names the operation and contains no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store could not be reached.
    #[error("{operation}: the store is not reachable: {detail}")]
    Unreachable {
        operation: &'static str,
        /// Error of the endpoint that was tried last.
        detail: String,
    },
    /// The name of the endpoint is not found.
    #[error("{operation}: {detail}")]
    NoSuchName {
        operation: &'static str,
        /// The endpoint, and what the system's resolver says.
        detail: String,
    },
    /// The answer was lost, for a request that changes nothing or has the same effect every time.
    #[error("{operation}: the answer was lost: {detail}")]
    Lost {
        operation: &'static str,
        /// How the answer was lost.
        detail: String,
    },
    /// The answer to a write was lost, and the write may have been applied.
    #[error("{operation}: the answer was lost, it may have been applied: {detail}")]
    Unknown {
        operation: &'static str,
        /// How the answer was lost.
        detail: String,
    },
    /// The deadline of the request passed before an attempt succeeded.
    #[error("{operation}: no answer within {}: {detail}", schema::time::format_duration(*.limit))]
    Deadline {
        operation: &'static str,
        /// Time that the request was allowed to take.
        limit: Duration,
        /// Error of the last attempt.
        detail: String,
    },
    /// The store received too many requests and asks clients to slow down.
    #[error("{operation}: the store is busy (too many requests)")]
    Busy { operation: &'static str },
    /// The store is full: its alarm NOSPACE is raised.
    #[error(
        "{operation}: the store raised the alarm NOSPACE: it accepts no writes until it is compacted, defragmented and disarmed"
    )]
    NoSpace { operation: &'static str },
    /// The user lacks the permission for the request.
    #[error("{operation}: permission denied for {user}")]
    PermissionDenied {
        operation: &'static str,
        /// User that sent the request, as etcd knows it.
        user: String,
    },
    /// The user name, the password or the token is wrong.
    #[error("{operation}: the store does not accept the user {user}: {detail}")]
    Unauthenticated {
        operation: &'static str,
        /// User that sent the request.
        user: String,
        /// What the store does not accept, and what would be right.
        detail: String,
    },
    /// The requested revision was compacted, so its history is gone.
    #[error("{operation}: the revision was compacted")]
    Compacted { operation: &'static str },
    /// The store answered with an earlier revision than before, or its history is another one: it was
    /// restored or wiped. It has to be judged before anything is written by what it answers.
    #[error("{operation}: the store went back: its answer is older than an earlier one")]
    WentBack { operation: &'static str },
    /// The lease does not exist, or no longer exists.
    #[error("{operation}: the lease is expired or revoked")]
    LeaseGone { operation: &'static str },
    /// The TLS handshake failed: one side does not accept the other.
    #[error("{operation}: TLS: {detail}")]
    Tls {
        operation: &'static str,
        /// Which side does not accept the other, and why.
        detail: String,
    },
    /// The files for TLS cannot be used. No connection was tried.
    #[error("{detail}")]
    Certificate {
        /// The file, and what is wrong with it.
        detail: String,
    },
    /// No endpoints could be found.
    #[error("endpoints: {detail}")]
    Endpoints {
        /// Where they were looked up, and what went wrong.
        detail: String,
    },
    /// The store refused the request.
    #[error("{operation}: refused: {detail}")]
    Refused {
        operation: &'static str,
        /// Error text of the store.
        detail: String,
    },
    /// The answer is larger than the limit for one answer.
    #[error("{operation}: the answer is too large: {detail}")]
    TooLarge {
        operation: &'static str,
        /// Message of the client library, with the size of the answer and the limit.
        detail: String,
    },
    /// The store sent an answer that does not fit the request.
    #[error("{operation}: unusable answer: {detail}")]
    BadAnswer {
        operation: &'static str,
        /// What is wrong with the answer.
        detail: String,
    },
}

impl StoreError {
    /// Returns what this error means for the caller.
    pub fn class(&self) -> Class {
        match self {
            Self::Unreachable { .. }
            | Self::NoSuchName { .. }
            | Self::Lost { .. }
            | Self::Busy { .. }
            | Self::Endpoints { .. }
            | Self::Tls { .. } => Class::Retry,
            Self::Unknown { .. } | Self::Deadline { .. } => Class::Unknown,
            _ => Class::Fatal,
        }
    }

    /// Returns the kind of the error in one word, for metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "unreachable",
            Self::NoSuchName { .. } => "no_such_name",
            Self::Lost { .. } => "lost",
            Self::Unknown { .. } => "unknown",
            Self::Deadline { .. } => "deadline",
            Self::Busy { .. } => "busy",
            Self::NoSpace { .. } => "no_space",
            Self::PermissionDenied { .. } => "permission_denied",
            Self::Unauthenticated { .. } => "unauthenticated",
            Self::Compacted { .. } => "compacted",
            Self::WentBack { .. } => "went_back",
            Self::LeaseGone { .. } => "lease_gone",
            Self::Tls { .. } => "tls",
            Self::Certificate { .. } => "certificate",
            Self::Endpoints { .. } => "endpoints",
            Self::Refused { .. } => "refused",
            Self::TooLarge { .. } => "too_large",
            Self::BadAnswer { .. } => "bad_answer",
        }
    }

    /// True if another attempt will hardly help: somebody has to change a setting, a certificate or a name
    /// first. A look-up of endpoints in the network may only be disturbed.
    pub(crate) fn needs_somebody(&self, source: &EndpointSource) -> bool {
        match self {
            Self::NoSuchName { .. } | Self::Tls { .. } => true,
            Self::Endpoints { .. } => matches!(source, EndpointSource::List(_) | EndpointSource::File(_)),
            _ => false,
        }
    }

    /// True if the store could not be asked at all, so that the settings that say where it is may be wrong.
    pub fn is_about_connecting(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. }
                | Self::NoSuchName { .. }
                | Self::Deadline { .. }
                | Self::Lost { .. }
                | Self::Tls { .. }
                | Self::Endpoints { .. }
        )
    }

    /// Returns the error without the operation, for a message that names it already.
    pub(crate) fn cause(&self, operation: &str) -> String {
        let text = self.to_string();
        text.strip_prefix(operation)
            .and_then(|text| text.strip_prefix(": "))
            .map(str::to_owned)
            .unwrap_or(text)
    }

    /// Returns the error for a lost answer, according to whether the request may be repeated
    /// freely.
    pub(crate) fn lost(operation: &'static str, repeat: Repeat, detail: String) -> Self {
        match repeat {
            Repeat::Freely => Self::Lost { operation, detail },
            Repeat::IfNotApplied => Self::Unknown { operation, detail },
        }
    }
}
