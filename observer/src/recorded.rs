//! What the recorder of this observer has recorded, in its directory and in its object store.

use crate::recorder;
use archive::objects::ObjectStore;
use archive::recording::{
    At, Directory, History, Moment, Past, PlaceError, Recording, RecordingError, SegmentName, Source,
    list_objects,
};
use schema::time::EpochSeconds;
use settings::{ObjectsSettings, RecorderSettings};
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
        let Opened { names, source, place, problem } = self.open()?;
        match (Recording::new(names).at(at, &source), problem) {
            // It may be in the object store.
            (Err(RecordingError::NotRecorded(mut why)), Some(problem)) => {
                why.is_unreadable = true;
                why.nearest.push(problem);
                Err(RecordingError::NotRecorded(why).into())
            }
            (found, _) => Ok((found?, place)),
        }
    }

    fn open(&self) -> Result<Opened, NoAnswer> {
        let directory = Directory::new(&self.path);
        let names = directory.names().map_err(|error| NoAnswer::Unreadable(error.to_string()))?;
        let mut names: BTreeSet<SegmentName> = names.into_iter().collect();
        let mut place = self.path.display().to_string();
        let Some(upload) = &self.upload else {
            return Ok(Opened {
                names,
                source: DirectoryAndStore { directory, store: None },
                place,
                problem: None,
            });
        };
        let store = recorder::open_store(upload, Some(QUESTION_TIMEOUT)).map_err(anyhow::Error::from);
        // Another history that has the same revision may be in the object store alone.
        let (store, problem) = match store.and_then(|store| Ok((self.names_in(&store)?, store))) {
            Ok((more, store)) => {
                names.extend(more);
                place = format!("{place} and {}", upload.to);
                (Some(store), None)
            }
            Err(error) => {
                tracing::warn!(%error, "the object store of the recording cannot be read; its directory answers alone");
                (None, Some(format!("{} cannot be read: {error}", upload.to)))
            }
        };
        Ok(Opened { names, source: DirectoryAndStore { directory, store }, place, problem })
    }

    /// Returns what changed about some keys between a time and a moment.
    ///
    /// # Errors
    /// Returns why nobody can say it.
    pub(crate) fn history(
        &self,
        from: EpochSeconds,
        moment: &Moment,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<History, NoAnswer> {
        let from = from.0.saturating_mul(1000);
        let Opened { names, source, .. } = self.open()?;
        let history = Recording::new(names).history(from, moment, is_wanted, &source);
        history.ok_or_else(|| NoAnswer::Unreadable("no recorder knows what was before the moment".into()))
    }

    fn names_in(&self, store: &ObjectStore) -> Result<Vec<SegmentName>, PlaceError> {
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(listed) = listed.as_ref().filter(|listed| listed.at.elapsed() < LIST_LIFETIME) {
            return Ok(listed.names.clone());
        }
        let names: Vec<SegmentName> = list_objects(store)?.into_iter().map(|segment| segment.name).collect();
        *listed = Some(Listed { at: Instant::now(), names: names.clone() });
        Ok(names)
    }
}

/// All segments that could be found.
struct Opened {
    names: BTreeSet<SegmentName>,
    source: DirectoryAndStore,
    /// The name of what they are read from.
    place: String,
    /// Why there may be others.
    problem: Option<String>,
}

/// The directory, and the object store for what is not in it.
struct DirectoryAndStore {
    directory: Directory,
    store: Option<ObjectStore>,
}

impl Source for DirectoryAndStore {
    fn load(&self, name: &SegmentName) -> Result<Vec<u8>, PlaceError> {
        let loaded = self.directory.load(name);
        match &self.store {
            Some(store) => loaded.or_else(|_| store.load(name)),
            None => loaded,
        }
    }
}
