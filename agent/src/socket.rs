//! The Unix socket on which programs of this machine report results to the agent.

use anyhow::{Context, Result};
use rustix::fs::{Gid, Mode};
use std::io;
use std::path::Path;
use tokio::net::UnixListener;

/// The group that the package creates. It may use the socket if the settings name no other group.
const GROUP: &str = "orchestrate";

/// Listens on a path, for this user and a group. Returns the listener and the group, if any.
///
/// # Errors
/// Returns an error if the path cannot be used or if the group of the settings does not exist.
pub(crate) fn bind(path: &Path, group: Option<&str>) -> Result<(UnixListener, Option<Gid>)> {
    let shown = || format!("the socket {}", path.display());
    // A socket here was left behind by an earlier agent: the lock of the state directory shows that
    // no other agent is running. Any other kind of file is not removed.
    let left_over = std::fs::symlink_metadata(path)
        .is_ok_and(|m| std::os::unix::fs::FileTypeExt::is_socket(&m.file_type()));
    if left_over {
        std::fs::remove_file(path).with_context(shown)?;
    }
    let gid = match group {
        Some(group) => Some(gid_of(group).with_context(shown)?),
        None => gid_of(GROUP).ok(),
    };
    // Nobody else may connect before the group is set.
    let old = rustix::process::umask(Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(path);
    rustix::process::umask(old);
    let listener = bound.with_context(shown)?;
    let gid = match gid.map(|gid| rustix::fs::chown(path, None, Some(gid)).map(|()| gid)).transpose() {
        Ok(gid) => gid,
        // An agent that is not root can give the socket only to its own groups. This is no error
        // here, because the settings did not ask for the default group.
        Err(_) if group.is_none() => None,
        Err(error) => return Err(error).with_context(shown),
    };
    let mode = if gid.is_some() { 0o660 } else { 0o600 };
    rustix::fs::chmod(path, Mode::from_raw_mode(mode)).with_context(shown)?;
    Ok((listener, gid))
}

/// The user and groups of the process at the other end, as reported by the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peer {
    uid: u32,
    groups: Vec<u32>,
}

impl Peer {
    /// Returns the peer of a connection; `None` if the kernel does not report it.
    pub(crate) fn of(stream: &tokio::net::UnixStream) -> Option<Self> {
        let credentials = stream.peer_cred().ok()?;
        let uid = credentials.uid();
        let mut groups = vec![credentials.gid()];
        // Only /proc lists the supplementary groups. If another process has the same pid by now,
        // its groups count only if it belongs to the same user.
        let status =
            credentials.pid().and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/status")).ok());
        groups.extend(status.map(|status| groups_of(&status, uid)).unwrap_or_default());
        Some(Self { uid, groups })
    }

    /// True if the peer may report results: it is root, the agent's own user or a member of the
    /// socket's group. The mode of the socket does not matter.
    pub(crate) fn may_report(&self, own: u32, group: Option<Gid>) -> bool {
        let is_member = group.is_some_and(|group| self.groups.contains(&group.as_raw()));
        self.uid == 0 || self.uid == own || is_member
    }

    pub(crate) fn uid(&self) -> u32 {
        self.uid
    }
}

/// Returns the groups in `/proc/PID/status` (proc_pid_status(5)); none if the process has another
/// user.
fn groups_of(status: &str, uid: u32) -> Vec<u32> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    // The ids are: real, effective, saved, file system.
    let users = field("Uid:").unwrap_or_default();
    if !users.split_whitespace().nth(1).is_some_and(|effective| effective.parse() == Ok(uid)) {
        return Vec::new();
    }
    field("Groups:").unwrap_or_default().split_whitespace().filter_map(|group| group.parse().ok()).collect()
}

/// Returns the id of a group that is given as a number or as a name in /etc/group (group(5)).
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_the_agents_user_and_members_of_the_group_tell() {
        let status = "Name:\tx\nUid:\t1000\t1000\t1000\t1000\nGid:\t100\t100\t100\t100\nGroups:\t4 24 77 \n";
        assert_eq!(groups_of(status, 1000), [4, 24, 77]);
        assert_eq!(groups_of(status, 1001), [0; 0], "a process of another user");
        let check = |uid: u32, groups: &[u32], group: Option<u32>, expected: bool| {
            let peer = Peer { uid, groups: groups.to_vec() };
            assert_eq!(peer.may_report(500, group.map(Gid::from_raw)), expected, "{peer:?} {group:?}");
        };
        check(0, &[0], None, true);
        check(500, &[500], None, true);
        check(1000, &[77], None, false);
        check(1000, &[100, 77], Some(77), true);
        check(1000, &[100], Some(77), false);
    }
}
