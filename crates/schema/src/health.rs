//! What is said of services and their checks.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What a host says of one of its services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// It works.
    Passing,
    /// It works, with something to look at.
    Warning,
    /// It does not work.
    Critical,
    /// It works and takes nothing new; an operator is emptying it.
    Draining,
    /// It is being taken away.
    Withdrawn,
}

impl Health {
    /// As it stands in the store.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Passing => "passing",
            Self::Warning => "warning",
            Self::Critical => "critical",
            Self::Draining => "draining",
            Self::Withdrawn => "withdrawn",
        }
    }

    /// Reads a value of the store; `None` if it is none of the words.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?.trim();
        [Self::Passing, Self::Warning, Self::Critical, Self::Draining, Self::Withdrawn]
            .into_iter()
            .find(|health| health.as_str() == text)
    }

    /// The service can be used.
    pub const fn is_functional(self) -> bool {
        matches!(self, Self::Passing | Self::Warning)
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How much of a service somebody needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Its address is known.
    Addressable,
    /// It works.
    #[default]
    Functional,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Addressable => "addressable",
            Self::Functional => "functional",
        })
    }
}

impl std::str::FromStr for Level {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "addressable" => Ok(Self::Addressable),
            "functional" => Ok(Self::Functional),
            other => Err(format!("{} is no level: addressable or functional", crate::names::quoted(other))),
        }
    }
}

/// What a check says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckStatus {
    /// Good.
    Passing,
    /// Good, with something to look at.
    Warning,
    /// Bad.
    Critical,
}

impl fmt::Display for CheckStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Passing => "passing",
            Self::Warning => "warning",
            Self::Critical => "critical",
        })
    }
}

impl From<CheckStatus> for Health {
    fn from(status: CheckStatus) -> Self {
        match status {
            CheckStatus::Passing => Self::Passing,
            CheckStatus::Warning => Self::Warning,
            CheckStatus::Critical => Self::Critical,
        }
    }
}
