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
        let files = tempfile::tempdir().expect("a directory");
        let directory = files.path().join("recording");
        Self::into_directory(endpoints, directory, files)
    }

    /// Starts one that records into this directory.
    pub fn into_directory(endpoints: &[String], directory: PathBuf, files: tempfile::TempDir) -> Self {
        let tables = format!("[recorder]\ndirectory = {directory:?}\n");
        let observer = Observer::start_with(&format!("endpoints = {endpoints:?}"), &tables);
        observer.wait_for_health("fresh");
        let recorder = Self { observer, directory, _files: files };
        recorder.wait_for(1);
        recorder
    }

    /// Returns the metric of the revision that is on the disk.
    pub fn recorded_revision(&self) -> i64 {
        let metrics = self.observer.get("/metrics").body;
        let line =
            metrics.lines().find_map(|line| line.strip_prefix("orchestrate_observer_recorded_revision "));
        line.and_then(|number| number.parse().ok()).unwrap_or_default()
    }

    /// Waits until everything up to a revision is on the disk.
    pub fn wait_for(&self, revision: i64) {
        let is_recorded = || (self.recorded_revision() >= revision).then_some(());
        wait::until("the revision is recorded", is_recorded, || self.observer.log());
    }
}
