//! The embedded store solo-etcd as a process.

use crate::process::{Running, binary};
use crate::wait;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A `solo-etcd` process, running or stopped, on a port that the system chose.
pub struct Solo {
    directory: tempfile::TempDir,
    /// The data directory; `None` if the store is in memory only.
    data: Option<PathBuf>,
    /// The port. It is kept once it was chosen, so that clients find a restarted store again.
    port: u16,
    running: Option<Running>,
}

impl Solo {
    /// Starts a store that keeps its data in memory.
    pub fn in_memory() -> Self {
        Self::new(tempfile::tempdir().expect("a directory"), None)
    }

    /// Starts a store that keeps its data in a directory of the test.
    pub fn on_disk() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let data = directory.path().join("data");
        Self::new(directory, Some(data))
    }

    /// Starts a store that keeps its data below an existing directory.
    pub fn on_disk_in(parent: &Path) -> Self {
        Self::new(tempfile::tempdir().expect("a directory"), Some(parent.join("data")))
    }

    fn new(directory: tempfile::TempDir, data: Option<PathBuf>) -> Self {
        let mut solo = Self { directory, data, port: 0, running: None };
        solo.start();
        solo
    }

    /// Returns the command that starts the store.
    pub fn command(&self) -> Command {
        let mut command = Command::new(binary("solo-etcd"));
        command.args(["--listen", &format!("127.0.0.1:{}", self.port)]);
        match &self.data {
            Some(data) => command.arg("--data-dir").arg(data),
            None => command.arg("--in-memory"),
        };
        command
    }

    /// Starts the store; it must not be running.
    pub fn start(&mut self) {
        let log = self.path("log");
        // The file may not exist.
        let _ = std::fs::remove_file(&log);
        self.running = Some(Running::start(&mut self.command(), &log));
        let port = || {
            let text = std::fs::read_to_string(&log).ok()?;
            let line = text.lines().find_map(|l| l.strip_prefix("listening on "))?.to_owned();
            line.rsplit(':').next()?.parse().ok()
        };
        self.port =
            wait::until("solo-etcd listens", port, || std::fs::read_to_string(&log).unwrap_or_default());
    }

    /// Kills the store, as `kill -9` does.
    pub fn kill(&mut self) {
        self.running = None;
    }

    /// Returns the running process.
    pub fn process(&mut self) -> &mut Running {
        self.running.as_mut().expect("it runs")
    }

    /// Returns the endpoint for clients.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns the data directory.
    pub fn data(&self) -> &Path {
        self.data.as_deref().expect("it is on disk")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the temporary directory of this value.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }
}
