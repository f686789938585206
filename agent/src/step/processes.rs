//! Finds and ends every process of a step: by its control group where there is one, by descent from
//! the runner, which is a subreaper, by session, and by the run id in its environment.

use crate::clock::boot_millis;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, waitid};
use schema::names::Token;
use schema::time::BootMillis;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The environment variable of a step that holds the id of its run.
pub(crate) const RUN_ID_VARIABLE: &str = "ORCHESTRATE_STEP_RUN_ID";

/// The control group of one run.
#[derive(Debug)]
pub(super) struct ControlGroup {
    path: PathBuf,
    parent: PathBuf,
}

impl ControlGroup {
    /// Creates a group below the group of this process and moves this process into it. `None` where
    /// that is not allowed; processes are then found by descent and session.
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
        // Both are best effort: an empty group that remains does no harm.
        let _ = std::fs::write(self.parent.join("cgroup.procs"), getpid().as_raw_nonzero().to_string());
        let _ = std::fs::remove_dir(&self.path);
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        self.remove();
    }
}

/// The record that a runner writes, so that its processes can be found after it was killed.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RunnerTrace {
    run_id: Token,
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

/// Parses `/proc/<pid>/stat` (proc(5)). The process name may contain spaces and brackets.
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

/// True if this process has no child and so no descendant: every orphan below a subreaper becomes
/// its child. This is the usual case at the end of a step, and reading every process of the machine
/// would cost more than the step.
fn has_no_child() -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::All, options), Err(rustix::io::Errno::CHILD))
}

/// Returns every living process of this runner except the runner itself.
pub(super) fn of_this_runner(group: Option<&ControlGroup>) -> BTreeSet<i32> {
    let me = getpid().as_raw_nonzero().get();
    let mut found = group.map(|g| ControlGroup::members(&g.path)).unwrap_or_default();
    found.remove(&me);
    if found.is_empty() && has_no_child() {
        return found;
    }
    let processes = all();
    let known = with_descendants(BTreeSet::from([me]), &processes);
    found.extend(known);
    found.retain(|pid| *pid != me && processes.iter().any(|p| p.pid == *pid));
    found
}

/// Sends a signal to processes. Processes that have ended already are ignored.
pub(super) fn signal(pids: &BTreeSet<i32>, signal: Signal) {
    for pid in pids.iter().filter_map(|pid| Pid::from_raw(*pid)) {
        let _ = kill_process(pid, signal);
    }
}

/// Delay between two checks whether killed processes, or a busy control group, are gone.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Interval at which processes that do not end are logged again.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Longest time that a control group may stay busy after its last process has ended.
const GROUP_BUSY: Duration = Duration::from_millis(200);

impl RunnerTrace {
    /// Returns the trace of this process, which is the runner.
    pub(super) fn for_current_process(run_id: &Token, group: Option<&ControlGroup>) -> io::Result<Self> {
        let me = getpid().as_raw_nonzero().get();
        let stat = std::fs::read_to_string("/proc/self/stat")?;
        let started_ticks = parse_stat(me, &stat)
            .ok_or_else(|| io::Error::other(format!("/proc/self/stat cannot be read: {stat:?}")))?
            .started_ticks;
        let control_group = group.map(|g| g.path.clone());
        Ok(Self { run_id: run_id.clone(), session: me, started_ticks, boot_id: boot_id(), control_group })
    }

    /// Kills the processes that a killed runner had started, and blocks until none is left. None of
    /// them may go on beside the next run, not even a process that cannot be killed because it
    /// waits for a disk.
    pub(super) fn kill_remaining(&self) {
        if self.boot_id != boot_id() {
            return;
        }
        let mut logged_at: Option<BootMillis> = None;
        loop {
            let left = self.remaining();
            if left.is_empty() {
                break;
            }
            if logged_at.is_none_or(|at| boot_millis().since(at) >= LOG_INTERVAL) {
                tracing::warn!(run = %self.run_id, processes = ?left, "ending processes of a run whose runner is gone");
                logged_at = Some(boot_millis());
            }
            signal(&left, Signal::KILL);
            std::thread::sleep(POLL_INTERVAL);
        }
        self.remove_group();
    }

    /// Removes the control group if the runner could not do so.
    pub(super) fn remove_group(&self) {
        if self.boot_id != boot_id() {
            return;
        }
        let Some(path) = self.control_group.as_deref() else { return };
        let begin = boot_millis();
        loop {
            match std::fs::remove_dir(path) {
                Ok(()) => return,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return,
                Err(_) if boot_millis().since(begin) < GROUP_BUSY => std::thread::sleep(POLL_INTERVAL),
                Err(error) => {
                    tracing::warn!(group = %path.display(), %error, "the control group of a run cannot be removed");
                    return;
                }
            }
        }
    }

    fn remaining(&self) -> BTreeSet<i32> {
        let mut left = self.control_group.as_deref().map(ControlGroup::members).unwrap_or_default();
        let processes = all();
        // The runner may still exist, because its lock becomes free first. But a process with its
        // pid that started at another time means that the pid was used again, for another session.
        let used_again = |p: &Process| p.pid == self.session && p.started_ticks != self.started_ticks;
        if !processes.iter().any(used_again) {
            let of_session =
                |p: &&Process| p.session == self.session && p.started_ticks >= self.started_ticks;
            left.extend(processes.iter().filter(of_session).map(|p| p.pid));
        }
        // A step may have restarted the agent, whose environment then holds the id of the run too.
        let mine = own_ancestry(&processes);
        let is_marked = |p: &&Process| p.started_ticks >= self.started_ticks && !mine.contains(&p.pid);
        let marked = processes.iter().filter(is_marked).filter(|p| names_run(p.pid, &self.run_id));
        left.extend(marked.map(|p| p.pid));
        left = with_descendants(left, &processes);
        left.retain(|pid| !mine.contains(pid) && processes.iter().any(|p| p.pid == *pid));
        left
    }
}

fn own_ancestry(processes: &[Process]) -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    let mut next = Some(getpid().as_raw_nonzero().get());
    while let Some(pid) = next.filter(|pid| found.insert(*pid)) {
        next = processes.iter().find(|p| p.pid == pid).map(|p| p.parent);
    }
    found
}

/// True if the environment of a process holds the id of this run. All processes that a step starts
/// inherit it, even those that leave the session. An unreadable environment counts as another run.
fn names_run(pid: i32, run_id: &Token) -> bool {
    let wanted = format!("{RUN_ID_VARIABLE}={run_id}");
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
}

fn with_descendants(mut known: BTreeSet<i32>, processes: &[Process]) -> BTreeSet<i32> {
    loop {
        let before = known.len();
        let children: Vec<i32> =
            processes.iter().filter(|p| known.contains(&p.parent)).map(|p| p.pid).collect();
        known.extend(children);
        if known.len() == before {
            return known;
        }
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
