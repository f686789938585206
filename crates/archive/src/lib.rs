//! What is kept of a failure: its cause, which is equal on all hosts that fail in the same way.

mod cause;

pub use cause::{OwnWords, cause_of};
