//! Files that hold a secret: the token, the key of cookies, the keys of webhooks.

use anyhow::{Context, Result, ensure};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Longest file, in bytes.
const FILE_MAX_BYTES: u64 = 64 * 1024;

/// Reads a file of secrets. `what` says in errors what the file is.
///
/// # Errors
/// Returns an error if the file cannot be read, if every user may read it, or if others than its owner may write it.
pub(crate) fn read(what: &str, path: &Path) -> Result<String> {
    let name = || format!("{what} {}", path.display());
    // Opening a pipe would wait for who writes into it.
    ensure!(std::fs::metadata(path).with_context(name)?.is_file(), "{}: it is not a regular file", name());
    let file = File::open(path).with_context(name)?;
    let metadata = file.metadata().with_context(name)?;
    ensure!(metadata.len() <= FILE_MAX_BYTES, "{}: larger than {FILE_MAX_BYTES} bytes", name());
    let mode = metadata.mode();
    ensure!(
        mode & 0o027 == 0,
        "{}: every user may read it, or others than its owner may write it; its mode must be 0640 or less",
        name()
    );
    let mut text = String::new();
    file.take(FILE_MAX_BYTES).read_to_string(&mut text).with_context(name)?;
    Ok(text)
}

/// Creates the directory of a file, if it is missing, as the service manager does.
///
/// # Errors
/// Returns the system's error.
pub(crate) fn create_directory(directory: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o750).create(directory)
}

/// Creates a file of one secret, for the user and the group of this process. It is there whole or not at all.
///
/// # Errors
/// Returns the system's error.
pub(crate) fn create(path: &Path, secret: &str, mode: u32) -> std::io::Result<()> {
    let new = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    writeln!(file, "{secret}")?;
    // The mode at the creation is subject to the umask.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.sync_all()?;
    std::fs::rename(&new, path)
}
