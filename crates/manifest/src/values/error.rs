//! The error of a value.

/// The error of a text that is no value of its kind: what is wrong, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}; {right}")]
pub struct ValueError {
    pub what: String,
    /// What would be right.
    pub right: String,
}

impl ValueError {
    pub(super) fn new(what: impl Into<String>, right: impl Into<String>) -> Self {
        Self { what: what.into(), right: right.into() }
    }
}
