//! The embedded store as a process.

use crate::process::{Running, binary};
use crate::wait;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A running `solo-etcd`, on a port that the system chose; or one that is stopped.
pub struct Solo {
    directory: tempfile::TempDir,
    /// Where it keeps its data; nowhere if it does so in memory.
    data: Option<PathBuf>,
    /// Once it was chosen it is kept, so that a restarted store is found again.
    port: u16,
    running: Option<Running>,
}

impl Solo {
    /// Without a disk.
    pub fn in_memory() -> Self {
        Self::new(tempfile::tempdir().expect("a directory"), None)
    }

    /// In a directory of the test's.
    pub fn on_disk() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let data = directory.path().join("data");
        Self::new(directory, Some(data))
    }

    /// In a directory that is there already.
    pub fn on_disk_in(parent: &Path) -> Self {
        Self::new(tempfile::tempdir().expect("a directory"), Some(parent.join("data")))
    }

    fn new(directory: tempfile::TempDir, data: Option<PathBuf>) -> Self {
        let mut solo = Self { directory, data, port: 0, running: None };
        solo.start();
        solo
    }

    /// The command that starts it.
    pub fn command(&self) -> Command {
        let mut command = Command::new(binary("solo-etcd"));
        command.args(["--listen", &format!("127.0.0.1:{}", self.port)]);
        match &self.data {
            Some(data) => command.arg("--data-dir").arg(data),
            None => command.arg("--in-memory"),
        };
        command
    }

    /// Starts it where it is not running.
    pub fn start(&mut self) {
        let log = self.path("log");
        // It may not be there.
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

    /// Kills it, as `kill -9` does.
    pub fn kill(&mut self) {
        self.running = None;
    }

    /// The process.
    pub fn process(&mut self) -> &mut Running {
        self.running.as_mut().expect("it runs")
    }

    /// Where clients connect to.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Its data directory.
    pub fn data(&self) -> &Path {
        self.data.as_deref().expect("it is on disk")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The directory of the test.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }
}
