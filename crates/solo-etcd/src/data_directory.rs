//! The data directory of a store, which only one process at a time may use.

use crate::journal::{Directory, OpenError};
use rustix::fs::{FlockOperation, flock};
use std::path::Path;

/// Opens and locks the directory, so that no other process can use it.
pub(crate) fn lock(path: &Path) -> Result<(Directory, std::fs::File), OpenError> {
    let io = |source| OpenError::Io { path: path.to_owned(), source };
    if is_of_etcd(path) {
        return Err(OpenError::OfEtcd(path.to_owned()));
    }
    let directory = Directory::open_or_create(path).map_err(io)?;
    let file = directory.lock_file().map_err(io)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
        rustix::io::Errno::WOULDBLOCK => OpenError::InUse(path.to_owned()),
        other => io(other.into()),
    })?;
    Ok((directory, file))
}

/// True if the directory holds the data of an etcd. If it also holds a store of solo-etcd, an
/// earlier version of solo-etcd took the directory for empty; it is then used, because that store
/// holds the newer writes.
fn is_of_etcd(path: &Path) -> bool {
    let has_store = std::fs::read_dir(path).is_ok_and(|entries| {
        entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("store-"))
    });
    path.join("member").is_dir() && !has_store
}
