//! The settings of the recorder of the observer.

use super::command::absolute_path;
use super::error::Problems;
use super::objects::{ObjectsFragment, ObjectsSettings};
use schema::time::Span;
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RecorderFragment {
    directory: Option<PathBuf>,
    keep: Option<Span>,
    max_mib: Option<u64>,
    upload: ObjectsFragment,
}

/// Where and for how long the observer records the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecorderSettings {
    /// The directory of the recording.
    pub directory: PathBuf,
    /// How long what was recorded is kept.
    pub keep: Duration,
    /// How much the segments of this recorder in the directory take at most, in bytes.
    pub max_bytes: u64,
    /// The object store to which segments are uploaded; `None` if they stay in the directory.
    pub upload: Option<ObjectsSettings>,
}

const MIB: u64 = 1024 * 1024;
/// How much a recording takes at most, unless the settings say it, in MiB.
pub(super) const RECORDING_MAX_MIB: u64 = 10 * 1024;
/// How long a recording is kept, unless the settings say it.
pub(super) const RECORDING_KEEP: Duration = Duration::from_secs(30 * 24 * 60 * 60);

impl RecorderFragment {
    pub(super) fn validate(self, problems: &mut Problems) -> Option<RecorderSettings> {
        let keep = self.keep.map_or(RECORDING_KEEP, |span| span.0);
        if keep.is_zero() {
            problems.add("recorder.keep", "must be more than 0");
        }
        let max_mib = self.max_mib.unwrap_or(RECORDING_MAX_MIB);
        if max_mib < 32 {
            problems.add("recorder.max_mib", "must be at least 32: one segment takes 8 or more");
        }
        let upload = self.upload.validate("recorder.upload", false, problems);
        let Some(directory) = self.directory else {
            let given = [("keep", self.keep.is_some()), ("max_mib", self.max_mib.is_some())];
            let given = given.into_iter().chain([("upload", upload.is_some())]);
            if let Some((setting, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
                problems.add(format!("recorder.{setting}"), "the setting `directory` is missing");
            }
            return None;
        };
        problems.check("recorder.directory", absolute_path(&directory));
        Some(RecorderSettings { directory, keep, max_bytes: max_mib.saturating_mul(MIB), upload })
    }
}
