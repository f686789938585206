//! Values of a manifest with their forms as text.

mod constraint;
mod duration;
mod error;
mod replicas;
mod size;

pub use constraint::{Constraint, Operator, Subject};
pub(crate) use duration::parse_duration;
pub use error::ValueError;
pub use replicas::{REPLICAS_MAX, Replicas};
pub use size::{Bytes, MilliCpus};
