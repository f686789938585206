//! Exit codes, and the failures that end a command with one.

use etcd_session::{ConfigError, StoreError};
use std::process::ExitCode;

/// The outcome of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Yes, or done.
    Yes,
    /// No. Also if a deadline passed and the last linearizable read answered no.
    No,
    /// Cannot tell: the store is unreachable, or its content cannot be read.
    CannotTell,
    /// Refused by a guard.
    Refused,
    /// Wrong usage.
    Usage,
    /// A code with a meaning of the verb's own, as `pending_update` and `local_health` have.
    Own(u8),
}

impl Exit {
    /// The exit codes that mean the same for every verb.
    pub const ALL: [Self; 5] = [Self::Yes, Self::No, Self::CannotTell, Self::Refused, Self::Usage];

    /// Returns [`Exit::Yes`] or [`Exit::No`].
    pub fn of(yes: bool) -> Self {
        if yes { Self::Yes } else { Self::No }
    }

    /// Returns the word for the code in errors as JSON.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No | Self::Own(_) => "no",
            Self::CannotTell => "cannot_tell",
            Self::Refused => "refused",
            Self::Usage => "usage",
        }
    }

    /// Returns the code as a number.
    pub fn code(self) -> u8 {
        match self {
            Self::Yes => 0,
            Self::No => 1,
            Self::CannotTell => 2,
            Self::Refused => 3,
            Self::Usage => 64,
            Self::Own(code) => code,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

/// The reason why a command could not answer, and its exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) error: anyhow::Error,
    /// What the user may look at.
    pub(crate) hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        Self { exit, error: error.into(), hint: None }
    }

    /// Returns a failure for wrong usage.
    pub(crate) fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self::new(Exit::Usage, error)
    }

    /// Returns a failure for a request that a guard refused.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self::new(Exit::Refused, anyhow::Error::msg(message.into()))
    }

    /// Returns a failure for a no that needs an explanation.
    pub(crate) fn no(message: impl Into<String>) -> Self {
        Self::new(Exit::No, anyhow::Error::msg(message.into()))
    }

    /// Returns a failure for an answer that is not known.
    pub(crate) fn cannot_tell(message: impl Into<String>) -> Self {
        Self::new(Exit::CannotTell, anyhow::Error::msg(message.into()))
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::new(Exit::CannotTell, error)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::new(Exit::CannotTell, error)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::usage(error)
    }
}
