//! The freezes that stand in the store.
use crate::freeze::FreezeScope;
use crate::keys::{self, read_freeze};
use crate::names::Token;
use crate::records::Freeze;
use crate::snapshot::KeySnapshot;
use std::fmt;

/// A freeze that stands in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrozenBy {
    /// The hosts that it matches.
    pub scope: FreezeScope,
    /// The token in its key; `None` if the key has no valid one.
    pub token: Option<Token>,
    /// Its value; `None` if it cannot be read. It still holds.
    pub freeze: Option<Freeze>,
}

impl FrozenBy {
    /// Returns the freezes of a snapshot, in the order of their keys.
    pub fn all(found: &KeySnapshot) -> impl Iterator<Item = Self> {
        found.entries.iter().filter_map(|(key, entry)| {
            let (scope, token) = read_freeze(key)?;
            Some(Self { scope, token, freeze: keys::Freeze::read(&entry.value).ok() })
        })
    }
}

impl fmt::Display for FrozenBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.scope {
            FreezeScope::Pause => f.write_str("updates are paused")?,
            scope => write!(f, "{scope} is frozen")?,
        }
        let Some(freeze) = &self.freeze else { return f.write_str("; why cannot be read") };
        write!(f, " by {}", freeze.by)?;
        if freeze.reason.is_empty() { Ok(()) } else { write!(f, ": {}", freeze.reason) }
    }
}
