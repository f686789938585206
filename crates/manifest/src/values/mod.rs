//! Values of a manifest with their forms as text.

mod constraint;
mod duration;
mod replicas;
mod size;

pub use constraint::{Constraint, Operator, Subject};
pub(crate) use duration::parse_duration;
pub use replicas::{REPLICAS_MAX, Replicas};
pub use size::{Bytes, MilliCpus};

/// The error of a text that is no value of its kind: what is wrong, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}; {right}")]
pub struct ValueError {
    /// What is wrong.
    pub what: String,
    /// What would be right.
    pub right: String,
}

impl ValueError {
    fn new(what: impl Into<String>, right: impl Into<String>) -> Self {
        Self { what: what.into(), right: right.into() }
    }
}
