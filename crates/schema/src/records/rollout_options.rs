//! What one trigger says instead of the rollout policy.

use super::limit_size::{LimitSize, NotALimitSize};
use super::rollout::OnHalt;
use crate::limit::{LimitBy, LimitByError};
use crate::names::{LimitValue, NameError, quoted};
use crate::time::Span;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What holds for one rollout, in the place of what the rollout policy says. It stands in `/orchestrate/trigger`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RolloutOptions {
    /// Limits, in the place of those of the same hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitOption>,
    /// How many hosts of each role update first, in the place of the stage `canary`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<u32>,
    /// Number of failed hosts that the rollout tolerates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<LimitSize>,
    /// How long the hosts of each stage are observed before the next one opens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soak: Option<Span>,
    /// What happens when too many hosts failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_halt: Option<OnHalt>,
}

impl RolloutOptions {
    /// True if the policy holds as it is.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A limit of one rollout. It is written `3` for the fleet, `role=2` for every role, `role/web=2` for one of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitOption {
    /// What the hosts have in common.
    pub by: LimitBy,
    /// The value that they have; `None` for every value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<LimitValue>,
    /// How many of them may be unavailable.
    pub max: LimitSize,
}

/// Why a text is no limit of a rollout.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitOptionError {
    /// What follows the last `=` is no size.
    #[error("{}: {error}", quoted(text))]
    Size {
        text: String,
        /// What is wrong with the size.
        error: NotALimitSize,
    },
    /// The value breaks a rule of names.
    #[error(transparent)]
    Value(#[from] NameError),
    #[error(transparent)]
    By(#[from] LimitByError),
    #[error("{}: the fleet has no values; write fleet=SIZE", quoted(.0))]
    ValueOfFleet(String),
}

impl FromStr for LimitOption {
    type Err = LimitOptionError;

    fn from_str(text: &str) -> Result<Self, LimitOptionError> {
        let (hosts, size) = text.rsplit_once('=').unwrap_or(("fleet", text));
        let max = size.parse().map_err(|error| LimitOptionError::Size { text: text.to_owned(), error })?;
        let (by, value) = match hosts.split_once('/') {
            Some((by, value)) => (by, Some(LimitValue::new(value)?)),
            None => (hosts, None),
        };
        let by = LimitBy::read(by)?;
        if by == LimitBy::Fleet && value.is_some() {
            return Err(LimitOptionError::ValueOfFleet(text.to_owned()));
        }
        Ok(Self { by, value, max })
    }
}

impl fmt::Display for LimitOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{}/{value}={}", self.by, self.max),
            None => write!(f, "{}={}", self.by, self.max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_operators_write_them() {
        let check = |text: &str, expected: Result<&str, &str>| {
            let read = text.parse::<LimitOption>().map(|limit| limit.to_string());
            match (read, expected) {
                (Ok(read), Ok(expected)) => assert_eq!(read, expected, "{text}"),
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{text}: {error}"),
                (read, expected) => panic!("{text}: {read:?}, expected {expected:?}"),
            }
        };
        check("3", Ok("fleet=3"));
        check("10%", Ok("fleet=10%"));
        check("role=2", Ok("role=2"));
        check("role/web=25%", Ok("role/web=25%"));
        check("labels.rack/r1=1", Ok("labels.rack/r1=1"));
        check("", Err("is not a number of hosts"));
        check("101%", Err("is not a number of hosts"));
        check("role/web=", Err("is not a number of hosts"));
        check("rack=1", Err("is not fleet, role, group or labels.NAME"));
        check("fleet/all=1", Err("the fleet has no values"));
        check("role/=1", Err("must be 1 to 128"));
    }
}
