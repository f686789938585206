//! An observer that records the store.

use crate::observer::Observer;
use crate::wait;
use std::path::PathBuf;

/// An observer that records into a directory.
pub struct RecordingObserver {
    pub observer: Observer,
    pub directory: PathBuf,
    _files: tempfile::TempDir,
}

impl RecordingObserver {
    /// Starts one with a directory of its own.
    pub fn start(endpoints: &[String]) -> Self {
        Self::start_with(endpoints, "")
    }

    /// Starts one with a directory of its own, and with these further settings of the recorder.
    pub fn start_with(endpoints: &[String], settings: &str) -> Self {
        let files = tempfile::tempdir().expect("a directory");
        let directory = files.path().join("recording");
        Self::open(endpoints, directory, files, settings)
    }

    /// Starts one that records into this directory.
    pub fn into_directory(endpoints: &[String], directory: PathBuf, files: tempfile::TempDir) -> Self {
        Self::open(endpoints, directory, files, "")
    }

    fn open(endpoints: &[String], directory: PathBuf, files: tempfile::TempDir, settings: &str) -> Self {
        let tables = format!("[recorder]\ndirectory = {directory:?}\n{settings}\n");
        let observer = Observer::start_with(&format!("endpoints = {endpoints:?}"), &tables);
        observer.wait_for_health("fresh");
        let recorder = Self { observer, directory, _files: files };
        recorder.wait_for(1);
        recorder
    }

    /// Returns the metric of the revision that is on the disk.
    pub fn recorded_revision(&self) -> i64 {
        self.metric("recorded_revision")
    }

    /// Returns a metric of the observer; 0 if it is not there.
    pub fn metric(&self, name: &str) -> i64 {
        let metrics = self.observer.get("/metrics").body;
        let name = format!("orchestrate_observer_{name} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
        line.and_then(|number| number.parse().ok()).unwrap_or_default()
    }

    /// Waits until everything up to a revision is on the disk.
    pub fn wait_for(&self, revision: i64) {
        let is_recorded = || (self.recorded_revision() >= revision).then_some(());
        wait::until("the revision is recorded", is_recorded, || self.observer.log());
    }
}
