//! A failure bundle: what a host kept of an attempt that failed, without the secrets that it knows. It is a tar archive
//! (POSIX ustar) compressed with Zstandard (RFC 8878). It begins with `bundle.json` ([`About`]) and ends with
//! `contents.json`, which names each part, and what was left out and why.

mod contents;
mod digest;
mod pack;
mod runs;
#[cfg(test)]
mod tests;
mod unpack;

pub use contents::{
    About, BUNDLE_MAX_BYTES, Contents, FORMAT, LeftOut, PART_MAX_BYTES, Part, UNPACKED_MAX_BYTES,
    UNPACKED_MAX_FILES,
};
pub use digest::Digested;
pub use pack::BundleWriter;
pub use runs::{FailedRun, REPORT, RunFile, RunName};
pub use unpack::{UnpackError, unpack};
