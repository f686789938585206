//! The health of services and the results of their checks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The health of one service on one host, as that host reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// The service works.
    Passing,
    /// The service works, but an operator should look at it.
    Warning,
    /// The service does not work.
    Critical,
    /// The service works but takes no new work: an operator is draining it.
    Draining,
    /// The host says that it does not have the service any more.
    Withdrawn,
}

impl Health {
    /// Returns the text that represents the health in the store.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Passing => "passing",
            Self::Warning => "warning",
            Self::Critical => "critical",
            Self::Draining => "draining",
            Self::Withdrawn => "withdrawn",
        }
    }

    /// Reads a value of the store; `None` if it is not the text of any health.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?.trim();
        [Self::Passing, Self::Warning, Self::Critical, Self::Draining, Self::Withdrawn]
            .into_iter()
            .find(|health| health.as_str() == text)
    }

    /// True if the service can be used.
    pub const fn is_functional(self) -> bool {
        matches!(self, Self::Passing | Self::Warning)
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How much of a service is required.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, Default, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// The host is configured to have the service, so its address is known.
    Addressable,
    /// The service works.
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

/// A text that is no level.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} is no level: addressable or functional", crate::names::quoted(.0))]
pub struct NotALevel(String);

impl std::str::FromStr for Level {
    type Err = NotALevel;
    fn from_str(text: &str) -> Result<Self, NotALevel> {
        match text {
            "addressable" => Ok(Self::Addressable),
            "functional" => Ok(Self::Functional),
            other => Err(NotALevel(other.to_owned())),
        }
    }
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckStatus {
    /// The check succeeded.
    Passing,
    /// The check succeeded, but an operator should look at it.
    Warning,
    /// The check failed.
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
