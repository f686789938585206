//! Moments: points in the history of a store.

use super::name::Branch;
use std::fmt;

/// A revision of a history. Revisions of different histories cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moment {
    pub branch: Branch,
    /// The revision.
    pub revision: i64,
}

impl fmt::Display for Moment {
    /// Writes `lineage/epoch/branch/revision`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.branch, self.revision)
    }
}
