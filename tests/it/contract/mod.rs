//! The contract of the command line as a table: the output and exit code of every verb, with an
//! empty, a filled, an unreachable and a slow store, and with one that names a bundle.
//!
//! A row is one invocation on its own host: arguments, standard input and the host's files, and the
//! expected standard output, exit code and store entries. Every row also checks that the command
//! does not panic and takes at most its time-out plus a margin.

mod away;
pub(crate) mod bundled;
mod empty;
mod filled;
pub(crate) mod fleet;
mod garbage;
mod json;
mod local;
mod lost;
mod rows;
mod store_errors;
mod usage;
