//! Exit codes, and the errors that end a command with one.

use etcd_session::{ConfigError, StoreError};
use std::process::ExitCode;

/// How a command ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Yes, or done.
    Yes,
    /// No; also when a deadline passed while a linearizable "no" was held.
    No,
    /// Cannot tell: the store is unreachable, or what is there cannot be read.
    CannotTell,
    /// Refused by a guard.
    Refused,
    /// Wrong usage.
    Usage,
    /// A code of the verb's own: `pending_update` and `local_health` have them.
    Own(u8),
}

impl Exit {
    /// The exit codes that mean the same for every verb.
    pub const ALL: [Self; 5] = [Self::Yes, Self::No, Self::CannotTell, Self::Refused, Self::Usage];

    /// Yes or no.
    pub fn of(yes: bool) -> Self {
        if yes { Self::Yes } else { Self::No }
    }

    /// The number.
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

/// Why a command could not answer, and the exit code that goes with it.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) error: anyhow::Error,
}

impl Failure {
    /// Wrong usage.
    pub(crate) fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self { exit: Exit::Usage, error: error.into() }
    }

    /// Refused by a guard.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self { exit: Exit::Refused, error: anyhow::Error::msg(message.into()) }
    }

    /// The answer is no, for a reason worth words.
    pub(crate) fn no(message: impl Into<String>) -> Self {
        Self { exit: Exit::No, error: anyhow::Error::msg(message.into()) }
    }

    /// Nobody can tell.
    pub(crate) fn cannot_tell(message: impl Into<String>) -> Self {
        Self { exit: Exit::CannotTell, error: anyhow::Error::msg(message.into()) }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self { exit: Exit::CannotTell, error: error.into() }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self { exit: Exit::CannotTell, error }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::usage(error)
    }
}
