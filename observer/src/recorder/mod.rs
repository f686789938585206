//! Records the store: everything that it holds, and each change, into segments of a recording
//! ([`archive::recording`]). The follower tells what it sees ([`RecorderFeed`]); a thread of its own writes it, so that
//! a slow disk holds up nothing. What cannot be written is a gap, which the next segment names.

mod feed;
mod place;
mod retention;
mod times;
mod upload;

use crate::metrics::RecorderMetrics;
use archive::recording::{Between, Branch, Header, SEGMENT_MAX_BYTES, SegmentName, SegmentWriter};
use feed::{FullSnapshot, Observation, Wants, bytes_of};
use place::{FoundBranch, RecordingDirectory};
use schema::snapshot::KeySnapshot;
use settings::RecorderSettings;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use upload::Uploader;

pub(crate) use feed::RecorderFeed;
pub(crate) use upload::{check_texts, open as open_store};

/// Time after which what was told is on the disk.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);
/// Time after which a segment with changes is closed.
const SEGMENT_TIME: Duration = Duration::from_secs(5 * 60);
/// Time after which a segment without changes is closed. It says that nothing changed, but it has all keys again.
const QUIET_SEGMENT_TIME: Duration = Duration::from_secs(60 * 60);
/// Time until a recorder that could not write tries again.
const RETRY_DELAY: Duration = Duration::from_secs(10);
/// Time between two looks at what the segments take.
const TIDY_INTERVAL: Duration = Duration::from_secs(10);
/// Bytes that are written at least between two looks at what the segments take.
const TIDY_MIN_BYTES: u64 = 1024 * 1024;
/// Number of observations that wait for the recorder.
const WAITING_MAX: usize = 4096;
/// Time between the two that enclose a revision, from which on it counts as learnt afterwards, in milliseconds.
const CONTACT_MAX_MILLIS: i64 = 10_000;

/// Starts the thread of the recorder. It ends after the feed is dropped, and closes its segment then. A directory that
/// cannot be used is tried again, because the observer has more to do than to record.
///
/// # Errors
/// Returns an error if the system has no more threads.
pub(crate) fn start(
    settings: RecorderSettings,
    state_directory: &Path,
    metrics: RecorderMetrics,
) -> io::Result<(RecorderFeed, JoinHandle<()>)> {
    let (sender, receiver) = sync_channel(WAITING_MAX);
    let wants = Arc::new(Wants::default());
    let feed = RecorderFeed::new(sender, wants.clone());
    let recorder = Recorder {
        settings,
        state_directory: state_directory.to_owned(),
        place: None,
        metrics,
        wants,
        open: None,
        latest: 0,
        failed_at: None,
        failing_because: None,
        tidied_at: None,
        tidied_from: u64::MAX,
        is_crowded: false,
        cannot_tidy: false,
        uploader: None,
    };
    let thread =
        std::thread::Builder::new().name("recorder".into()).spawn(move || recorder.run(&receiver))?;
    Ok((feed, thread))
}

struct Recorder {
    settings: RecorderSettings,
    state_directory: PathBuf,
    /// The directory, once it could be opened.
    place: Option<RecordingDirectory>,
    metrics: RecorderMetrics,
    wants: Arc<Wants>,
    open: Option<OpenSegment>,
    /// The latest time that was recorded. Times never go backwards, whatever the clock does.
    latest: i64,
    /// When it failed last, until it asks for everything.
    failed_at: Option<Instant>,
    /// The failure that was logged, until something is recorded again.
    failing_because: Option<String>,
    tidied_at: Option<Instant>,
    /// Length of the open segment from which on what the segments take is looked at before its time, in bytes.
    tidied_from: u64,
    /// True if it was logged that segments go before they are old.
    is_crowded: bool,
    /// True if it was logged that segments cannot be removed.
    cannot_tidy: bool,
    /// Its thread ends when this is dropped. It is not waited for: an upload may take a minute, and goes on at the next start.
    uploader: Option<Sender<()>>,
}

/// The segment that is being written.
struct OpenSegment {
    writer: SegmentWriter<File>,
    branch: Branch,
    begun: Instant,
    synced: Instant,
    /// True if something was added since it was synced.
    is_dirty: bool,
    has_changes: bool,
    /// Length from which on it is closed, in bytes.
    closed_from: u64,
    /// True if everything was asked for, for the next segment.
    has_asked: bool,
}

impl Recorder {
    fn run(mut self, observations: &Receiver<Observation>) {
        loop {
            match observations.recv_timeout(SYNC_INTERVAL) {
                Ok(observation) => {
                    self.wants.note_taken(bytes_of(&observation));
                    if let Err(error) = self.take(observation) {
                        self.fail(&error);
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.wants.note_idle(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if let Err(error) = self.go_on() {
                self.fail(&error);
            }
        }
        if let Err(error) = self.close() {
            self.fail(&error);
        }
    }

    fn take(&mut self, observation: Observation) -> io::Result<()> {
        match (observation, &mut self.open) {
            (Observation::FullSnapshot(whole), _) => self.begin(whole)?,
            (Observation::Revision { revision, between, changes, .. }, Some(open)) => {
                let is_afterwards = between.after.is_none_or(|after| between.by - after > CONTACT_MAX_MILLIS);
                open.writer.change(revision, between, is_afterwards, &changes)?;
                (open.is_dirty, open.has_changes) = (true, true);
            }
            (Observation::Still(revision, at), Some(open)) => {
                open.writer.mark(revision, at)?;
                open.is_dirty = true;
            }
            (Observation::Next(snapshot, between), Some(open)) => {
                let branch = open.branch.clone();
                open.writer.mark(snapshot.revision, between.by)?;
                self.close()?;
                let found = FoundBranch { branch, continues: true, restored: false, has_earlier: true };
                self.create(&found, between, None, &snapshot)?;
            }
            // It could not be written; everything will come.
            (_, None) => {}
        }
        Ok(())
    }

    /// Begins a segment of which is not known how the store came there.
    fn begin(&mut self, whole: FullSnapshot) -> io::Result<()> {
        self.close()?;
        let FullSnapshot { snapshot, identity, between, is_restored, gap } = whole;
        let place = self.place()?;
        place.close_left();
        let latest = place.latest();
        let found = place.branch_of(identity, &snapshot, is_restored, between.by)?;
        self.latest = self.latest.max(latest);
        let gap = gap.or_else(|| found.has_earlier.then(|| "the recorder did not run".to_owned()));
        let failure = self.failing_because.as_ref().map(|why| format!("it could not be written: {why}"));
        let gap = if found.continues { None } else { failure.or(gap) };
        let revision = snapshot.revision;
        self.create(&found, between, gap.clone(), &snapshot)?;
        self.failing_because = None;
        match &gap {
            Some(why) => {
                self.metrics.gaps.inc();
                tracing::warn!(revision, "the recording has a gap before this revision: {why}");
            }
            None => tracing::info!(revision, "recording the store"),
        }
        Ok(())
    }

    /// Returns the directory, which is opened first if it was not yet.
    fn place(&mut self) -> io::Result<&RecordingDirectory> {
        if self.place.is_none() {
            let opened = RecordingDirectory::open(&self.settings, &self.state_directory);
            let place = opened.map_err(|error| io::Error::other(format!("{error:#}")))?;
            if let Some(settings) = &self.settings.upload {
                let (sender, stop) = channel();
                let uploader = Uploader {
                    settings: settings.clone(),
                    directory: place.directory().clone(),
                    recorder: place.recorder().clone(),
                    bounds: place.bounds(),
                    metrics: self.metrics.clone(),
                };
                std::thread::Builder::new().name("uploader".into()).spawn(move || uploader.run(&stop))?;
                self.uploader = Some(sender);
            }
            self.place = Some(place);
        }
        self.place.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn create(
        &mut self,
        FoundBranch { branch, continues, restored, .. }: &FoundBranch,
        between: Between,
        gap: Option<String>,
        snapshot: &KeySnapshot,
    ) -> io::Result<()> {
        let between = Between { by: between.by.max(self.latest), ..between };
        let place = self.place()?;
        let recorder = place.recorder().clone();
        let name = SegmentName {
            branch: branch.clone(),
            recorder: recorder.clone(),
            revision: snapshot.revision,
            begun: between.by,
        };
        let header = Header {
            format: 0,
            program: env!("CARGO_PKG_VERSION").into(),
            lineage: branch.lineage.clone(),
            epoch: branch.epoch,
            branch: branch.branch.clone(),
            recorder,
            revision: snapshot.revision,
            keys: 0,
            between,
            restored: *restored,
            continues: *continues,
            gap,
            erased: Vec::new(),
        };
        let mut writer = SegmentWriter::begin(place.create(&name)?, header, snapshot, place.concealer())?;
        writer.flush()?;
        writer.file().sync_all()?;
        let now = Instant::now();
        self.latest = between.by;
        self.tidied_at = None;
        self.open = Some(OpenSegment {
            // Each segment has the keys at its beginning, so a short one is a waste.
            closed_from: SEGMENT_MAX_BYTES.max(2 * writer.written()),
            writer,
            branch: branch.clone(),
            begun: now,
            synced: now,
            is_dirty: false,
            has_changes: false,
            has_asked: false,
        });
        self.metrics.revision.set(snapshot.revision);
        Ok(())
    }

    /// Does what is due.
    fn go_on(&mut self) -> io::Result<()> {
        if let Some(open) = &mut self.open {
            if open.is_dirty && open.synced.elapsed() >= SYNC_INTERVAL {
                open.sync(&self.metrics)?;
            }
            let is_long = open.writer.written() >= open.closed_from || open.begun.elapsed() >= SEGMENT_TIME;
            let is_due = open.has_changes || open.begun.elapsed() >= QUIET_SEGMENT_TIME;
            if is_long && is_due && !open.has_asked {
                open.has_asked = true;
                self.wants.ask_for_next();
            }
        }
        let is_grown = self.open.as_ref().is_some_and(|open| open.writer.written() >= self.tidied_from);
        if is_grown || self.tidied_at.is_none_or(|at| at.elapsed() >= TIDY_INTERVAL) {
            self.tidied_at = Some(Instant::now());
            self.tidy()?;
        }
        if self.open.is_none() && self.failed_at.take_if(|at| at.elapsed() >= RETRY_DELAY).is_some() {
            self.wants.ask_for_whole();
        }
        Ok(())
    }

    /// Removes what is kept no longer. If what waits for its upload takes all room, nothing more is recorded.
    fn tidy(&mut self) -> io::Result<()> {
        let Some(place) = &self.place else { return Ok(()) };
        let (tidying, failed) = match place.tidy() {
            Ok((tidying, failed)) => (Some(tidying), failed),
            Err(error) => (None, Some(error.into())),
        };
        // Recording goes on, and what cannot be removed is tried again.
        let is_new = failed.is_some() && !self.cannot_tidy;
        self.cannot_tidy = failed.is_some();
        if let Some(error) = failed
            && is_new
        {
            tracing::warn!(%error, "old segments of the recording cannot be removed");
        }
        let Some(tidying) = tidying else { return Ok(()) };
        self.metrics.bytes.set(i64::try_from(tidying.bytes).unwrap_or(i64::MAX));
        let room = self.settings.max_bytes.saturating_sub(tidying.bytes).max(TIDY_MIN_BYTES);
        self.tidied_from = self.open.as_ref().map_or(0, |open| open.writer.written()) + room;
        let is_early = self.settings.upload.is_none() && !tidying.crowded_out.is_empty();
        if is_early && !std::mem::replace(&mut self.is_crowded, true) {
            tracing::warn!(
                "segments of the recording are removed before `recorder.keep`, because of `recorder.max_mib`"
            );
        }
        if tidying.is_full {
            self.close()?;
            let bytes = tidying.bytes / 1024;
            return Err(io::Error::other(format!(
                "{bytes} KiB wait in its directory for their upload, which is all that `recorder.max_mib` allows"
            )));
        }
        Ok(())
    }

    fn close(&mut self) -> io::Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let revision = open.writer.revision();
        self.latest = self.latest.max(open.writer.latest());
        open.writer.finish()?.sync_all()?;
        self.metrics.revision.set(revision);
        Ok(())
    }

    /// Leaves the segment as it is. What was synced can be read.
    fn fail(&mut self, error: &io::Error) {
        self.open = None;
        if self.failing_because.is_none() {
            tracing::error!(%error, "the store cannot be recorded; it is tried again");
            self.metrics.failures.inc();
            self.failing_because = Some(error.to_string());
        }
        self.failed_at = Some(Instant::now());
    }
}

impl OpenSegment {
    fn sync(&mut self, metrics: &RecorderMetrics) -> io::Result<()> {
        self.writer.flush()?;
        self.writer.file().sync_data()?;
        self.synced = Instant::now();
        self.is_dirty = false;
        metrics.revision.set(self.writer.revision());
        Ok(())
    }
}
