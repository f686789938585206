//! Files that hold a secret: the token, and the keys of webhooks.

use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Longest file, in bytes.
const FILE_MAX_BYTES: u64 = 4096;

/// Reads a file of one secret, without blanks at its ends. `what` says in errors what the file is.
///
/// # Errors
/// Returns an error if the file cannot be read, or if every user may read or write it.
pub(crate) fn read(what: &str, path: &Path) -> Result<String> {
    let name = || format!("{what} {}", path.display());
    // Opening a pipe would wait for who writes into it.
    ensure!(std::fs::metadata(path).with_context(name)?.is_file(), "{}: it is not a regular file", name());
    let file = File::open(path).with_context(name)?;
    let mode = file.metadata().with_context(name)?.mode();
    ensure!(mode & 0o007 == 0, "{}: every user may read or write it; its mode must be 0640 or less", name());
    let mut text = String::new();
    file.take(FILE_MAX_BYTES).read_to_string(&mut text).with_context(name)?;
    Ok(text.trim().to_owned())
}
