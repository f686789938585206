//! Records the store: everything that it holds, and each change, into segments of a recording
//! ([`archive::recording`]). The follower tells what it sees ([`RecorderFeed`]); a thread of its own writes it, so that
//! a slow disk holds up nothing. What cannot be written is a gap, which the next segment names.

mod feed;
mod place;
mod times;

use crate::metrics::RecorderMetrics;
use anyhow::{Context, Result};
use archive::recording::{Between, Branch, Header, SEGMENT_MAX_BYTES, SegmentName, SegmentWriter};
use feed::{Observation, Wants, Whole};
use place::Place;
use planning::settings::RecorderSettings;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub(crate) use feed::RecorderFeed;

/// Time after which what was told is on the disk.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);
/// Time after which a segment with changes is closed.
const SEGMENT_TIME: Duration = Duration::from_secs(5 * 60);
/// Time until a recorder that could not write tries again.
const RETRY_DELAY: Duration = Duration::from_secs(10);
/// Time between two looks for segments that are kept no longer.
const PRUNE_INTERVAL: Duration = Duration::from_secs(10 * 60);
/// Number of observations that wait for the recorder.
const WAITING_MAX: usize = 4096;
/// Time between the two that enclose a revision, from which on it counts as learnt afterwards, in milliseconds.
const CONTACT_MAX_MILLIS: i64 = 10_000;

/// Starts the thread of the recorder. It ends after the feed is dropped, and closes its segment then.
///
/// # Errors
/// Returns an error if the directory cannot be used.
pub(crate) fn start(
    settings: RecorderSettings,
    state_directory: &Path,
    metrics: RecorderMetrics,
) -> Result<(RecorderFeed, JoinHandle<()>)> {
    let name = settings.directory.display().to_string();
    let place =
        Place::open(settings, state_directory).with_context(|| format!("recorder.directory {name}"))?;
    let (sender, receiver) = sync_channel(WAITING_MAX);
    let wants = Arc::new(Wants::default());
    let feed = RecorderFeed::new(sender, wants.clone());
    let recorder = Recorder { place, metrics, wants, open: None, failed_at: None, pruned_at: None };
    let thread =
        std::thread::Builder::new().name("recorder".into()).spawn(move || recorder.run(&receiver))?;
    Ok((feed, thread))
}

struct Recorder {
    place: Place,
    metrics: RecorderMetrics,
    wants: Arc<Wants>,
    open: Option<OpenSegment>,
    failed_at: Option<Instant>,
    pruned_at: Option<Instant>,
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
}

impl Recorder {
    fn run(mut self, observations: &Receiver<Observation>) {
        loop {
            match observations.recv_timeout(SYNC_INTERVAL) {
                Ok(observation) => {
                    if let Err(error) = self.take(observation) {
                        self.fail(&error);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
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
            (Observation::Whole(whole), _) => self.begin(whole)?,
            (Observation::Revision(revision, between, changes), Some(open)) => {
                let is_afterwards = between.after.is_none_or(|after| between.by - after > CONTACT_MAX_MILLIS);
                open.writer.change(revision, between, is_afterwards, &changes)?;
                (open.is_dirty, open.has_changes) = (true, true);
            }
            (Observation::Still(at), Some(open)) => {
                open.writer.mark(at)?;
                open.is_dirty = true;
            }
            (Observation::Next(snapshot, between), Some(open)) => {
                let branch = open.branch.clone();
                self.close()?;
                let (header, name) = self.header(branch, snapshot.revision, (between, true, None));
                self.create(header, name, &snapshot)?;
            }
            // It could not be written; everything will come.
            (_, None) => {}
        }
        Ok(())
    }

    /// Begins a segment of which is not known how the store came there.
    fn begin(&mut self, whole: Whole) -> io::Result<()> {
        self.close()?;
        let Whole { snapshot, identity, between, is_restored, gap } = whole;
        let found = self.place.branch_of(identity, &snapshot, is_restored, between.by)?;
        let kind = (between, found.continues, gap.filter(|_| !found.continues));
        let (header, name) = self.header(found.branch, snapshot.revision, kind);
        self.create(header, name, &snapshot)?;
        tracing::info!(revision = snapshot.revision, "recording the store");
        self.failed_at = None;
        Ok(())
    }

    fn header(
        &self,
        branch: Branch,
        revision: i64,
        (between, continues, gap): (Between, bool, Option<String>),
    ) -> (Header, SegmentName) {
        let recorder = self.place.recorder().clone();
        let header = Header {
            format: 0,
            program: env!("CARGO_PKG_VERSION").into(),
            lineage: branch.lineage.clone(),
            epoch: branch.epoch,
            branch: branch.branch.clone(),
            recorder: recorder.clone(),
            revision,
            keys: 0,
            between,
            continues,
            gap,
            erased: Vec::new(),
        };
        (header, SegmentName { branch, recorder, revision, begun: between.by })
    }

    fn create(
        &mut self,
        header: Header,
        name: SegmentName,
        snapshot: &schema::snapshot::KeySnapshot,
    ) -> io::Result<()> {
        let file = self.place.create(&name)?;
        let mut writer = SegmentWriter::begin(file, header, snapshot, self.place.concealer())?;
        writer.flush()?;
        writer.file().sync_all()?;
        let now = Instant::now();
        self.open = Some(OpenSegment {
            writer,
            branch: name.branch,
            begun: now,
            synced: now,
            is_dirty: false,
            has_changes: false,
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
            let is_long = open.writer.written() >= SEGMENT_MAX_BYTES || open.begun.elapsed() >= SEGMENT_TIME;
            if is_long && open.has_changes {
                self.wants.ask_for_next();
            }
        } else if self.failed_at.is_some_and(|at| at.elapsed() >= RETRY_DELAY) {
            self.failed_at = Some(Instant::now());
            self.wants.ask_for_whole();
        }
        if self.pruned_at.is_none_or(|at| at.elapsed() >= PRUNE_INTERVAL) {
            self.pruned_at = Some(Instant::now());
            self.place.prune();
        }
        Ok(())
    }

    fn close(&mut self) -> io::Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let revision = open.writer.revision();
        open.writer.finish()?.sync_all()?;
        self.metrics.revision.set(revision);
        Ok(())
    }

    /// Leaves the segment as it is. What was synced can be read.
    fn fail(&mut self, error: &io::Error) {
        self.open = None;
        self.metrics.gaps.inc();
        if self.failed_at.is_none() {
            tracing::error!(%error, "the store cannot be recorded; it is tried again");
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
