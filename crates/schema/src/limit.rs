//! Limits: how many hosts may be unavailable at the same time. Each place in a limit has a number; a
//! host that updates claims one, and nobody else can claim it meanwhile.

use crate::names::{LabelName, LimitValue, NameError};
use crate::records::RosterEntry;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// One more than the highest number of a claim. It bounds every limit too.
pub const CLAIM_NUMBERS: u32 = 99_999;

/// How many hosts of a queue watch the claims at most; the others watch the ticket so many places before theirs. So
/// a release wakes few hosts, and not the fleet.
pub const HEADS: u32 = 3;

/// The hosts that a limit counts together.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LimitBy {
    Fleet,
    /// The hosts of one role.
    Role,
    /// The hosts of one group.
    Group,
    /// The hosts with one value of this label.
    Label(LabelName),
}

/// What precedes the name of a label.
const LABELS: &str = "labels.";
/// The value that all hosts have.
const ALL: &str = "all";

/// Why a text does not say what hosts have in common.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitByError {
    #[error("{} is not fleet, role, group or labels.NAME", crate::names::quoted(.0))]
    Unknown(String),
    /// The name of the label breaks a rule.
    #[error(transparent)]
    Label(#[from] NameError),
}

impl LimitBy {
    /// Reads the text that [`fmt::Display`] writes.
    ///
    /// # Errors
    /// Returns an error that says which texts are valid, or the rule that the name of the label breaks.
    pub fn read(text: &str) -> Result<Self, LimitByError> {
        Ok(match text {
            "fleet" => Self::Fleet,
            "role" => Self::Role,
            "group" => Self::Group,
            _ => {
                let Some(label) = text.strip_prefix(LABELS) else {
                    return Err(LimitByError::Unknown(text.to_owned()));
                };
                Self::Label(LabelName::new(label)?)
            }
        })
    }

    /// Returns the limit that counts a host; `None` if the host has no such value. Role, group and labels
    /// are those of its roster entry.
    ///
    /// # Errors
    /// Returns an error if the label of the host has a value that no key can contain.
    pub fn of_host(&self, roster: &RosterEntry) -> Result<Option<Limit>, NameError> {
        let value = match self {
            Self::Fleet => Some(ALL),
            Self::Role => roster.role.as_ref().map(|role| role.as_str()),
            Self::Group => roster.group.as_ref().map(|group| group.as_str()),
            Self::Label(label) => roster.labels.get(label.as_str()).map(String::as_str),
        };
        let value = value.map(LimitValue::new).transpose()?;
        Ok(value.map(|value| Limit { by: self.clone(), value }))
    }
}

impl fmt::Display for LimitBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fleet => f.write_str("fleet"),
            Self::Role => f.write_str("role"),
            Self::Group => f.write_str("group"),
            Self::Label(label) => write!(f, "{LABELS}{label}"),
        }
    }
}

impl Serialize for LimitBy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LimitBy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::read(&text).map_err(serde::de::Error::custom)
    }
}

/// One limit: the hosts with one value are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Limit {
    /// What the hosts have in common.
    pub by: LimitBy,
    /// The value that they have.
    pub value: LimitValue,
}

impl Limit {
    /// Returns the part of a key that names the limit.
    pub fn path(&self) -> String {
        format!("{}/{}", self.by, self.value)
    }

    /// Reads the words that [`fmt::Display`] writes. A label with the name `role` or `group` is taken for a role or
    /// a group, which has the same words.
    ///
    /// # Errors
    /// Returns an error that names the words.
    pub(crate) fn read_words(words: &str) -> Result<Self, String> {
        let read = || {
            let (by, value) = match words.split_once(' ')? {
                ("the", "fleet") => (LimitBy::Fleet, ALL),
                ("role", value) => (LimitBy::Role, value),
                ("group", value) => (LimitBy::Group, value),
                (label, value) => (LimitBy::Label(LabelName::new(label).ok()?), value),
            };
            Some(Self { by, value: LimitValue::new(value).ok()? })
        };
        read().ok_or_else(|| format!("{} is no limit", crate::names::quoted(words)))
    }

    /// Reads the two parts of a path.
    pub(crate) fn read(by: &str, value: &str) -> Option<Self> {
        Some(Self { by: LimitBy::read(by).ok()?, value: LimitValue::new(value).ok()? })
    }
}

impl fmt::Display for Limit {
    /// Writes the limit as operators read it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.by {
            LimitBy::Fleet => f.write_str("the fleet"),
            LimitBy::Role => write!(f, "role {}", self.value),
            LimitBy::Group => write!(f, "group {}", self.value),
            LimitBy::Label(label) => write!(f, "{label} {}", self.value),
        }
    }
}

/// A place of a host among the hosts that wait for their turn. It is the same for the same host and
/// version, and differs for the next version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place(pub u32);

impl fmt::Display for Place {
    /// Writes the place as in a key, counted from the end: the keys after that of a host are those that come
    /// before it in the queue, and the store reads a few of them without a look at the others.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", u32::MAX - self.0)
    }
}

impl Place {
    /// Reads a place as [`fmt::Display`] writes it.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let place = u32::from_str_radix(text, 16).ok().map(|from_end| Self(u32::MAX - from_end))?;
        (place.to_string() == text).then_some(place)
    }
}
