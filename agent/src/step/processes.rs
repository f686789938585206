//! Finding and ending every process of a step: by its control group where there is one, else by
//! descent from the runner, which is a subreaper, and by session.

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, waitid};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A control group of its own for one run.
#[derive(Debug)]
pub(super) struct ControlGroup {
    path: PathBuf,
    parent: PathBuf,
}

impl ControlGroup {
    /// Makes a group below the one this process is in and moves into it. `None` where that is not allowed:
    /// descent and session do the work then.
    pub(super) fn enter(name: &str) -> Option<Self> {
        let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let relative = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let mount = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
            .into_iter()
            .map(Path::new)
            .find(|mount| mount.join("cgroup.procs").exists())?;
        let parent = mount.join(relative);
        let path = parent.join(name);
        std::fs::create_dir(&path).ok()?;
        let group = Self { path, parent };
        if std::fs::write(group.path.join("cgroup.procs"), getpid().as_raw_nonzero().to_string()).is_err() {
            group.remove();
            return None;
        }
        Some(group)
    }

    fn members(path: &Path) -> BTreeSet<i32> {
        let text = std::fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.trim().parse().ok()).collect()
    }

    fn remove(&self) {
        // Both are best effort: an empty group that stays does no harm.
        let _ = std::fs::write(self.parent.join("cgroup.procs"), getpid().as_raw_nonzero().to_string());
        let _ = std::fs::remove_dir(&self.path);
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        self.remove();
    }
}

/// What a runner leaves on disk so that its processes can be found after it was killed.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RunnerTrace {
    session: i32,
    started_ticks: u64,
    boot_id: String,
    control_group: Option<PathBuf>,
}

struct Process {
    pid: i32,
    parent: i32,
    session: i32,
    started_ticks: u64,
    zombie: bool,
}

/// One line of `/proc/<pid>/stat`; fields as in proc(5). The name may hold spaces and brackets.
fn parse_stat(pid: i32, text: &str) -> Option<Process> {
    let rest = &text[text.rfind(')')? + 2..];
    let fields: Vec<&str> = rest.split(' ').collect();
    Some(Process {
        pid,
        zombie: matches!(*fields.first()?, "Z" | "X"),
        parent: fields.get(1)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        started_ticks: fields.get(19)?.parse().ok()?,
    })
}

fn all() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        parse_stat(pid, &text).filter(|p| !p.zombie)
    })
    .collect()
}

/// True if this process has no child, so no descendant: to a subreaper, every orphan below it comes as a child. The
/// usual end of a step; reading every process of the machine would cost more than the step.
fn has_no_child() -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::All, look), Err(rustix::io::Errno::CHILD))
}

/// Every living process of this runner but itself.
pub(super) fn of_this_runner(group: Option<&ControlGroup>) -> BTreeSet<i32> {
    let me = getpid().as_raw_nonzero().get();
    let mut found = group.map(|g| ControlGroup::members(&g.path)).unwrap_or_default();
    found.remove(&me);
    if found.is_empty() && has_no_child() {
        return found;
    }
    let processes = all();
    let mut known = BTreeSet::from([me]);
    loop {
        let before = known.len();
        let children: Vec<i32> =
            processes.iter().filter(|p| known.contains(&p.parent)).map(|p| p.pid).collect();
        known.extend(children);
        if known.len() == before {
            break;
        }
    }
    found.extend(known);
    found.retain(|pid| *pid != me && processes.iter().any(|p| p.pid == *pid));
    found
}

/// Sends a signal to processes; one that is gone already is fine.
pub(super) fn signal(pids: &BTreeSet<i32>, signal: Signal) {
    for pid in pids.iter().filter_map(|pid| Pid::from_raw(*pid)) {
        let _ = kill_process(pid, signal);
    }
}

impl RunnerTrace {
    /// Of this process.
    pub(super) fn of_me(group: Option<&ControlGroup>) -> Self {
        let me = getpid().as_raw_nonzero().get();
        let started_ticks = std::fs::read_to_string("/proc/self/stat")
            .ok()
            .and_then(|text| parse_stat(me, &text))
            .map_or(0, |p| p.started_ticks);
        Self { session: me, started_ticks, boot_id: boot_id(), control_group: group.map(|g| g.path.clone()) }
    }

    /// Ends what a runner that was killed had started.
    pub(super) fn end_what_is_left(&self) {
        if self.boot_id != boot_id() {
            return;
        }
        for _ in 0..100 {
            let left = self.left();
            if left.is_empty() {
                break;
            }
            tracing::warn!(processes = left.len(), "ending processes of a run whose runner is gone");
            signal(&left, Signal::KILL);
            std::thread::sleep(Duration::from_millis(20));
        }
        if let Some(path) = &self.control_group {
            let _ = std::fs::remove_dir(path);
        }
    }

    fn left(&self) -> BTreeSet<i32> {
        let mut left = self.control_group.as_deref().map(ControlGroup::members).unwrap_or_default();
        let processes = all();
        // A living leader of that number is not our runner, whose lock is free: the number was used again.
        let used_again = processes.iter().any(|p| p.pid == self.session);
        if !used_again {
            let of_session =
                |p: &&Process| p.session == self.session && p.started_ticks >= self.started_ticks;
            left.extend(processes.iter().filter(of_session).map(|p| p.pid));
        }
        left.retain(|pid| processes.iter().any(|p| p.pid == *pid));
        left
    }
}

fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_with_spaces_and_brackets_is_read_past() {
        let text = "42 (a) b (c)) S 7 42 41 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 998877 0 0";
        let process = parse_stat(42, text).unwrap();
        assert_eq!((process.parent, process.session, process.started_ticks), (7, 41, 998_877));
        assert!(!process.zombie);
    }
}
