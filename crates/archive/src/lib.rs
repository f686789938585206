//! What is kept for later: recordings of the store, the cause of a failure, which is equal on all hosts that fail in the
//! same way, text from which the secrets are removed, and objects in a bucket or a directory.

pub mod bundle;
mod cause;
pub mod objects;
pub mod recording;
mod redaction;

pub use cause::{OwnWords, cause_of};
pub use redaction::{CUT_LINE, Cut, Redactor, SHORTEST_SECRET, in_form, unescaped_url};
