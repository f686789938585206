//! A number of hosts, or a part of them.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// A number of hosts, or a percentage of the hosts with the same value. It is written `3` or `"25%"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[schemars(with = "Either")]
pub enum LimitSize {
    /// A number of hosts; 0 lets none update.
    Hosts(u32),
    /// A percentage from 0 to 100, rounded down. At least one host, unless it is 0.
    Percent(u32),
}

impl LimitSize {
    /// Returns the number of hosts, of so many.
    pub fn of(self, hosts: u32) -> u32 {
        match self {
            Self::Hosts(number) => number,
            Self::Percent(0) => 0,
            Self::Percent(percent) => (u64::from(hosts) * u64::from(percent) / 100).max(1) as u32,
        }
    }
}

impl fmt::Display for LimitSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hosts(number) => write!(f, "{number}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// A text that is no size of a limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} is not a number of hosts, nor a percentage such as \"25%\"", crate::names::quoted(.0))]
pub struct NotALimitSize(String);

impl FromStr for LimitSize {
    type Err = NotALimitSize;

    fn from_str(text: &str) -> Result<Self, NotALimitSize> {
        let number = |text: &str| {
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
            if is_number { text.parse().ok() } else { None }
        };
        let size = match text.strip_suffix('%') {
            Some(percent) => number(percent).filter(|percent| *percent <= 100).map(Self::Percent),
            None => number(text).map(Self::Hosts),
        };
        size.ok_or_else(|| NotALimitSize(text.to_owned()))
    }
}

/// How it is written.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a number of hosts or a percentage such as \"25%\"")]
enum Either {
    Number(u32),
    Text(String),
}

impl Serialize for LimitSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Hosts(number) => serializer.serialize_u32(*number),
            Self::Percent(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for LimitSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = match Either::deserialize(deserializer)? {
            Either::Number(number) => return Ok(Self::Hosts(number)),
            Either::Text(text) => text,
        };
        let percent = text.strip_suffix('%').and_then(|number| number.parse().ok());
        percent.filter(|percent| *percent <= 100).map(Self::Percent).ok_or_else(|| {
            let shown = crate::names::quoted(&text);
            serde::de::Error::custom(format!("{shown} is not a percentage from \"0%\" to \"100%\""))
        })
    }
}
