//! What is read from the store in one transaction, and what is followed or granted as a whole.

use crate::keys::{Key, Prefix};
use std::fmt;

/// A key, or all keys of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keys {
    One(Key),
    /// All keys with this prefix.
    Below(Prefix),
}

impl Keys {
    /// Returns everything that this program keeps in the store, in as few parts as possible.
    pub fn all() -> [Self; 7] {
        [
            Self::One(Key::CurrentVersion),
            Self::Below(Prefix::Own),
            Self::Below(Prefix::RunningVersions),
            Self::Below(Prefix::Statuses),
            Self::Below(Prefix::Services),
            Self::Below(Prefix::ConfigState),
            Self::Below(Prefix::ConfigVersion),
        ]
    }
}

impl From<Prefix> for Keys {
    fn from(prefix: Prefix) -> Self {
        Self::Below(prefix)
    }
}

impl fmt::Display for Keys {
    /// Writes the key, or what all keys of the range begin with.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(key) => key.fmt(f),
            Self::Below(prefix) => prefix.fmt(f),
        }
    }
}

/// One read of the store, with values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    Key(Key),
    /// All keys of a range.
    Range(Prefix),
    /// The next keys of a range after a key of it. The store sorts nothing for it.
    NextAfter {
        range: Prefix,
        /// The key, which is not read itself.
        key: Key,
        /// How many keys are read at most.
        count: u32,
    },
}

impl Read {
    /// Returns the reads of these keys and ranges.
    pub fn all(keys: &[Key], ranges: &[Prefix]) -> Vec<Self> {
        let keys = keys.iter().cloned().map(Self::Key);
        keys.chain(ranges.iter().cloned().map(Self::Range)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_keys_are_in_exactly_one_part() {
        let parts = Keys::all().map(|keys| keys.to_string());
        let ranges = Prefix::WHOLE.iter().map(Prefix::to_string);
        for key in Key::singles().iter().map(Key::to_string).chain(ranges) {
            assert_eq!(parts.iter().filter(|part| key.starts_with(part.as_str())).count(), 1, "{key}");
        }
    }
}
