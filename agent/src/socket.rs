//! The Unix socket on which programs of this machine tell the agent something.

use anyhow::{Context, Result};
use rustix::fs::{Gid, Mode};
use std::io;
use std::path::Path;
use tokio::net::UnixListener;

/// Listens on a path, for this user and a group.
///
/// # Errors
/// The path cannot be used, or there is no such group.
pub fn bind(path: &Path, group: Option<&str>) -> Result<UnixListener> {
    let shown = || format!("the socket {}", path.display());
    // One that an agent left behind; the state directory's lock says that none is running. Anything else stays.
    let left_over = std::fs::symlink_metadata(path)
        .is_ok_and(|m| std::os::unix::fs::FileTypeExt::is_socket(&m.file_type()));
    if left_over {
        std::fs::remove_file(path).with_context(shown)?;
    }
    let gid = group.map(gid_of).transpose().with_context(shown)?;
    // Nobody may come in before the group is set.
    let old = rustix::process::umask(Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(path);
    rustix::process::umask(old);
    let listener = bound.with_context(shown)?;
    if let Some(gid) = gid {
        rustix::fs::chown(path, None, Some(gid)).with_context(shown)?;
    }
    let mode = if gid.is_some() { 0o660 } else { 0o600 };
    rustix::fs::chmod(path, Mode::from_raw_mode(mode)).with_context(shown)?;
    Ok(listener)
}

/// By number, or by name in /etc/group (group(5)).
fn gid_of(group: &str) -> io::Result<Gid> {
    if let Ok(number) = group.parse() {
        return Ok(Gid::from_raw(number));
    }
    let groups = std::fs::read_to_string("/etc/group")?;
    let line =
        groups.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|l| l.first() == Some(&group));
    let number = line.and_then(|fields| fields.get(2)?.parse().ok());
    number
        .map(Gid::from_raw)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("there is no group {group:?}")))
}
