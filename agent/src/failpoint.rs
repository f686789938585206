//! Faults that a test causes: named points at which the process is killed like `kill -9`, and tasks
//! that end. They exist in debug builds only.

/// All points, in the order in which an update passes them. The crash tests use the same list.
#[cfg(debug_assertions)]
pub(crate) const ALL: [&str; 12] = [
    "agent-before-journal",
    "agent-after-journal",
    "agent-before-start-transaction",
    "agent-after-start-transaction",
    "agent-before-spawn",
    "agent-after-spawn",
    "runner-before-step",
    "runner-after-step",
    "runner-after-result",
    "agent-after-result",
    "agent-after-version-file",
    "agent-after-done-transaction",
];

/// Waits until a test wants this task to end, then returns or panics. `ORCHESTRATE_FAILPOINT` is
/// `task-returns:TASK:FILE` or `task-panics:TASK:FILE`; it happens when FILE exists.
#[cfg(debug_assertions)]
pub(crate) async fn task_fault(task: &str) {
    let wanted = std::env::var("ORCHESTRATE_FAILPOINT").unwrap_or_default();
    let mut parts = wanted.splitn(3, ':');
    let (kind, name, file) = (parts.next(), parts.next(), parts.next());
    if name != Some(task) {
        return std::future::pending().await;
    }
    let Some(file) = file else { return std::future::pending().await };
    while !std::path::Path::new(file).exists() {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_ne!(kind, Some("task-panics"), "ended by ORCHESTRATE_FAILPOINT");
}

/// Never returns in release builds.
#[cfg(not(debug_assertions))]
pub(crate) async fn task_fault(_task: &str) {
    std::future::pending().await
}

/// Kills this process if the test requested it at this point. `ORCHESTRATE_FAILPOINT` is `NAME`, or
/// `NAME:FILE` to do it once: FILE is created before, and nothing happens if it exists already.
#[cfg(debug_assertions)]
pub(crate) fn reach(name: &str) {
    debug_assert!(ALL.contains(&name), "{name} is not in the list");
    let Ok(wanted) = std::env::var("ORCHESTRATE_FAILPOINT") else { return };
    let (wanted, once) = match wanted.split_once(':') {
        Some((wanted, file)) => (wanted.to_owned(), Some(file.to_owned())),
        None => (wanted, None),
    };
    if wanted != name {
        return;
    }
    if let Some(file) = once
        && std::fs::OpenOptions::new().write(true).create_new(true).open(file).is_err()
    {
        return;
    }
    let me = rustix::process::getpid();
    // This does not return, because the signal cannot be caught.
    let _ = rustix::process::kill_process(me, rustix::process::Signal::KILL);
}

/// Does nothing in release builds.
#[cfg(not(debug_assertions))]
pub(crate) fn reach(_name: &str) {}
