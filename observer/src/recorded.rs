//! What the recorder of this observer has recorded, in its directory and in its object store.

use crate::recorder;
use archive::objects::ObjectStore;
use archive::recording::{At, Directory, Past, Recording, RecordingError, SegmentName, Source, list_objects};
use planning::settings::{ObjectsSettings, RecorderSettings};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longest time for one request for a question. Others wait for it.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a list of objects is used. Segments that are younger are in the directory.
const LIST_LIFETIME: Duration = Duration::from_secs(60);

/// Where the recorder records.
pub(crate) struct Recorded {
    path: PathBuf,
    upload: Option<ObjectsSettings>,
    listed: Mutex<Option<Listed>>,
}

/// Why a question about the past has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoAnswer {
    /// The directory cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// The recording does not say it.
    #[error(transparent)]
    Unknown(#[from] RecordingError),
}

/// The segments in the object store.
struct Listed {
    at: Instant,
    names: Vec<SegmentName>,
}

impl Recorded {
    /// Returns the recording of these settings.
    pub(crate) fn new(settings: &RecorderSettings) -> Self {
        Self { path: settings.directory.clone(), upload: settings.upload.clone(), listed: Mutex::default() }
    }

    /// Returns what the store held at a moment, and where that is recorded: in the directory, and for what is not there in the
    /// object store.
    ///
    /// # Errors
    /// Returns why nobody can say what the store held.
    pub(crate) fn at(&self, at: &At) -> Result<(Past, String), NoAnswer> {
        let directory = Directory::new(&self.path);
        let names = directory.names().map_err(|error| NoAnswer::Unreadable(error.to_string()))?;
        let mut names: BTreeSet<SegmentName> = names.into_iter().collect();
        let mut place = self.path.display().to_string();
        let Some(upload) = &self.upload else {
            return Ok((Recording::new(names).at(at, &directory)?, place));
        };
        let store = recorder::open_store(upload, Some(QUESTION_TIMEOUT)).map_err(|error| error.to_string());
        // Another history that has the same revision may be in the object store alone.
        let more = store.and_then(|store| Ok((self.names_in(&store)?, store)));
        let found = match more {
            Ok((more, store)) => {
                names.extend(more);
                place = format!("{place} and {}", upload.to);
                Recording::new(names).at(at, &Both { directory, store })
            }
            Err(error) => {
                tracing::warn!(%error, "the object store of the recording cannot be read; its directory answers alone");
                Recording::new(names).at(at, &directory)
            }
        };
        Ok((found?, place))
    }

    fn names_in(&self, store: &ObjectStore) -> Result<Vec<SegmentName>, String> {
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(listed) = listed.as_ref().filter(|listed| listed.at.elapsed() < LIST_LIFETIME) {
            return Ok(listed.names.clone());
        }
        let names: Vec<SegmentName> = list_objects(store)?.into_iter().map(|segment| segment.name).collect();
        *listed = Some(Listed { at: Instant::now(), names: names.clone() });
        Ok(names)
    }
}

/// The directory, and the object store for what is not in it.
struct Both {
    directory: Directory,
    store: ObjectStore,
}

impl Source for Both {
    fn load(&self, name: &SegmentName) -> Result<Vec<u8>, String> {
        self.directory.load(name).or_else(|_| self.store.load(name))
    }
}
