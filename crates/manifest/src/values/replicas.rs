//! How often a service runs.

use super::error::ValueError;
use schema::names::quoted;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Most slots of one service.
pub const REPLICAS_MAX: u32 = 10_000;

/// The number of slots of a replicated service. Zero keeps the service without an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Replicas(u32);

impl Replicas {
    /// What a file means that gives no number.
    pub const ONE: Self = Self(1);

    /// Reads a number as text.
    ///
    /// # Errors
    /// Returns what would be right if the text is no number in the range.
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        let number = text.parse::<u32>().ok().and_then(|number| Self::try_from(number).ok());
        number.ok_or_else(|| Self::error(&quoted(text)))
    }

    pub fn get(self) -> u32 {
        self.0
    }

    fn error(found: &str) -> ValueError {
        ValueError::new(
            format!("{found} is no number of replicas"),
            format!("write a whole number from 0 to {REPLICAS_MAX}"),
        )
    }
}

impl TryFrom<u32> for Replicas {
    type Error = ValueError;
    fn try_from(number: u32) -> Result<Self, ValueError> {
        if number <= REPLICAS_MAX { Ok(Self(number)) } else { Err(Self::error(&number.to_string())) }
    }
}

impl From<Replicas> for u32 {
    fn from(replicas: Replicas) -> Self {
        replicas.0
    }
}

impl fmt::Display for Replicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
