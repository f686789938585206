//! Uploads closed segments to an object store, and removes those from it that are kept no longer. A thread of its own does so,
//! because a store may be slow. What is not uploaded stays in the directory.

use super::retention::Bounds;
use crate::clock::now_millis;
use crate::metrics::RecorderMetrics;
use archive::objects::{ConfigError, ObjectStore, WrittenConfig};
use archive::recording::{
    Directory, ListedSegment, Recording, Segment, SegmentName, list_objects, object_name,
};
use schema::names::Token;
use settings::ObjectsSettings;
use std::fs::File;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Time between two looks for closed segments.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// Time until a store that failed is tried again, at first and at most.
const RETRY: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));
/// Longest time for one upload. A segment has some 10 MiB, and links may be slow.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// Time between two looks for objects that are kept no longer.
const PRUNE_INTERVAL: Duration = Duration::from_secs(10 * 60);

/// Opens the object store of a recording, with this limit for one request, or one minute. It is not contacted.
///
/// # Errors
/// Returns an error if a setting cannot be used.
pub(crate) fn open(
    settings: &ObjectsSettings,
    timeout: Option<Duration>,
) -> Result<ObjectStore, ConfigError> {
    written(settings, timeout).open()
}

/// Checks the settings without the files that they name.
///
/// # Errors
/// Returns an error if a setting cannot be used.
pub(crate) fn check_texts(settings: &ObjectsSettings) -> Result<(), ConfigError> {
    written(settings, None).check()
}

fn written(settings: &ObjectsSettings, timeout: Option<Duration>) -> WrittenConfig<'_> {
    let ObjectsSettings { to, endpoint, region, credentials, cacert } = settings;
    WrittenConfig {
        url: to,
        endpoint: endpoint.as_deref(),
        region: region.as_deref(),
        credentials: credentials.as_deref(),
        ca: cacert.as_deref(),
        timeout,
    }
}

/// Uploads the segments of one recorder.
pub(super) struct Uploader {
    pub(super) settings: ObjectsSettings,
    pub(super) directory: Directory,
    pub(super) recorder: Token,
    pub(super) bounds: Bounds,
    pub(super) metrics: RecorderMetrics,
}

impl Uploader {
    /// Uploads until the other end of `stop` is dropped.
    pub(super) fn run(self, stop: &Receiver<()>) {
        let (mut delay, mut is_failing) = (RETRY.0, false);
        let (mut store, mut pruned_at) = (None, None);
        loop {
            let wait = match self.go_on(&mut store, &mut pruned_at) {
                Ok(()) => {
                    if std::mem::take(&mut is_failing) {
                        tracing::info!("segments of the recording are uploaded again");
                    }
                    delay = RETRY.0;
                    LOOK_INTERVAL
                }
                Err(error) => {
                    if !std::mem::replace(&mut is_failing, true) {
                        tracing::error!(%error, "segments of the recording cannot be uploaded; it is tried again");
                    }
                    // Its access key may be another one when it is opened again.
                    store = None;
                    let longer = (delay * 2).min(RETRY.1);
                    std::mem::replace(&mut delay, longer)
                }
            };
            if stop.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    /// Uploads what is closed, the oldest first, and removes objects that are kept no longer.
    fn go_on(&self, store: &mut Option<ObjectStore>, pruned_at: &mut Option<Instant>) -> Result<(), String> {
        let store = match store {
            Some(store) => store,
            None => {
                store.insert(open(&self.settings, Some(UPLOAD_TIMEOUT)).map_err(|error| error.to_string())?)
            }
        };
        let mut waiting = self.directory.list().map_err(|error| error.to_string())?;
        waiting.retain(|segment| {
            segment.name.recorder == self.recorder
                && !self.directory.is_uploaded(&segment.name, &self.settings.to)
        });
        waiting.sort_by_key(|segment| (segment.name.begun, segment.name.revision));
        let mut left = waiting.iter().map(|segment| segment.bytes).sum::<u64>();
        self.show_waiting(left);
        for ListedSegment { name, bytes } in waiting {
            if self.upload(&name, store)? {
                left = left.saturating_sub(bytes);
                self.show_waiting(left);
            }
        }
        if pruned_at.is_none_or(|at| at.elapsed() >= PRUNE_INTERVAL) {
            *pruned_at = Some(Instant::now());
            // That objects stay too long keeps nothing from being uploaded.
            if let Err(error) = self.prune(store) {
                tracing::warn!(%error, "old segments of the recording cannot be removed from the object store");
            }
        }
        Ok(())
    }

    fn show_waiting(&self, bytes: u64) {
        self.metrics.waiting_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Uploads a segment and returns true, unless it still grows or is kept no longer.
    fn upload(&self, name: &SegmentName, store: &ObjectStore) -> Result<bool, String> {
        let failed = |error: io::Error| format!("{}: {error}", self.directory.path_of(name).display());
        let file = match File::open(self.directory.path_of(name)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(failed(error)),
        };
        if !Segment::is_closed(&file).map_err(failed)? {
            return Ok(false);
        }
        let object = object_name(name).map_err(|error| format!("{name}: {error}"))?;
        // Nobody else creates objects of this recorder, so one that exists is this one.
        store.create_file(&object, &file).map_err(|error| error.to_string())?;
        self.directory.note_uploaded(name, &self.settings.to).map_err(failed)?;
        Ok(true)
    }

    /// Removes objects of this recorder that are kept no longer, the oldest first.
    fn prune(&self, store: &ObjectStore) -> Result<(), String> {
        let listed =
            list_objects(store).map_err(|error| error.to_string())?.into_iter().map(|segment| segment.name);
        let own: Vec<SegmentName> = listed.filter(|name| name.recorder == self.recorder).collect();
        let oldest = self.bounds.oldest(own.iter(), now_millis());
        for name in Recording::new(own).ended_before(oldest) {
            let object = object_name(&name).map_err(|error| format!("{name}: {error}"))?;
            store.remove(&object).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}
