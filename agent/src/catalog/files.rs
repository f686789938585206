//! The catalog as files: the cache that survives a restart, and the YAML file for Hiera. They are
//! written only when their content changes. While the store confirms the catalog, the modification
//! time of the cache is updated at most once a minute, so it gives the age of the cache.

use super::reader::{CatalogSnapshot, Reader};
use crate::files::{Directory, replace_if_different};
use crate::reconcile::{Reconcile, Wake};
use catalog::{CachedCatalog, CachedNames, HieraFile};
use schema::codec;
use settings::Settings;
use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::{mpsc, oneshot, watch};

/// Name of the cache in the state directory.
const CACHE: &str = "catalog.json";
const CACHE_MAX_BYTES: u64 = 256 * 1024 * 1024;
const TOUCH_INTERVAL: Duration = Duration::from_secs(60);
/// Time to wait for further changes before the files are written.
const SETTLE: Duration = Duration::from_millis(200);
/// Pause after a write of the cache, as a multiple of the duration of that write. The pause is
/// needed because each change rewrites the whole cache. It does no harm, because only a restart and
/// steps read the cache, and before a step the cache is written without a pause.
const CACHE_PAUSE: u32 = 50;
/// Number of entries above which a cache is written at most twice a minute, however fast the disk
/// is.
const LARGE_CACHE: usize = 10_000;
const LARGE_CACHE_PAUSE: Duration = Duration::from_secs(30);

/// Reads the cache that an earlier agent left, with its age.
pub(crate) fn read_cache(directory: &Directory) -> Option<(CachedCatalog, Duration)> {
    let bytes = match directory.read(CACHE, CACHE_MAX_BYTES) {
        Ok(bytes) => bytes?,
        Err(error) => {
            tracing::warn!(%error, "the cached catalog cannot be read");
            return None;
        }
    };
    let written = std::fs::metadata(directory.path().join(CACHE)).and_then(|m| m.modified()).ok()?;
    match codec::read::<CachedCatalog>(&bytes) {
        Ok(cached) => Some((cached, SystemTime::now().duration_since(written).unwrap_or_default())),
        Err(error) => {
            tracing::warn!(%error, "the cached catalog is invalid and ignored");
            None
        }
    }
}

/// Longest time that a step waits for the files.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// A handle to have the files written now.
#[derive(Debug, Clone)]
pub(crate) struct FilesHandle(mpsc::Sender<oneshot::Sender<()>>);

impl FilesHandle {
    /// Waits until the files show the current catalog. Otherwise a step that a change triggered
    /// would read the content from before the change, and nothing would trigger the step again.
    pub(crate) async fn flush(&self) {
        let (done, is_done) = oneshot::channel();
        let first_read = async {
            // The task is gone when the agent stops.
            let _ = self.0.send(done).await;
            let _ = is_done.await;
        };
        if tokio::time::timeout(FLUSH_TIMEOUT, first_read).await.is_err() {
            tracing::warn!("a step starts although the files of the catalog are out of date");
        }
    }
}

/// The task that writes the files.
pub(crate) struct Files {
    directory: Directory,
    settings: watch::Receiver<Arc<Settings>>,
    changes: watch::Receiver<Arc<CatalogSnapshot>>,
    names: CachedNames,
    /// When the cache was last touched.
    touched: Instant,
    wanted: mpsc::Receiver<oneshot::Sender<()>>,
    cache: WriteRecord,
    hiera: WriteRecord,
    /// The lines of the Hiera file as it was last rendered.
    lines: HieraFile,
}

/// The last known content of a file on disk.
#[derive(Default)]
struct WriteRecord {
    /// Checksum of the content, because the content itself is large.
    text: Option<u64>,
    /// The generation of the catalog that the file shows.
    generation: Option<u64>,
    /// The time before which the file is not written again.
    not_before: Option<Instant>,
}

impl WriteRecord {
    /// True if the file is out of date and may be written now: its pause is over, or `at_once` is
    /// true.
    fn is_due(&self, generation: u64, at_once: bool) -> bool {
        let pause_is_over = || self.not_before.is_none_or(|at| at <= Instant::now());
        self.generation != Some(generation) && (at_once || pause_is_over())
    }
}

fn checksum(text: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(text);
    hasher.finish()
}

/// A writer that computes the checksum of all bytes that pass through it.
struct ChecksumWriter<W> {
    inner: W,
    hasher: DefaultHasher,
}

impl<W: Write> Write for ChecksumWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hasher.write(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// What wakes the task.
#[derive(Debug)]
pub(crate) enum FilesEvent {
    Catalog,
    Settings,
    /// A step waits for the files.
    Flush(oneshot::Sender<()>),
}

impl Reconcile for Files {
    type Event = FilesEvent;

    async fn next_event(&mut self) -> Option<FilesEvent> {
        tokio::select! {
            changed = self.changes.changed() => changed.ok().map(|()| FilesEvent::Catalog),
            changed = self.settings.changed() => changed.ok().map(|()| FilesEvent::Settings),
            Some(done) = self.wanted.recv() => Some(FilesEvent::Flush(done)),
        }
    }

    fn reason(event: &FilesEvent) -> &'static str {
        match event {
            FilesEvent::Catalog => "catalog",
            FilesEvent::Settings => "settings",
            FilesEvent::Flush(_) => "step",
        }
    }

    fn debounce(&self, event: &FilesEvent) -> Duration {
        match event {
            FilesEvent::Catalog => SETTLE,
            FilesEvent::Settings | FilesEvent::Flush(_) => Duration::ZERO,
        }
    }

    async fn pass(&mut self, wake: Wake<FilesEvent>) -> Option<tokio::time::Instant> {
        let shown = self.changes.borrow_and_update().clone();
        // A catalog that is not known yet must not replace a known one on disk.
        let is_known = shown.view.records_known() && shown.confirmed.is_some();
        let mut waiting = None;
        match wake {
            Wake::Event(FilesEvent::Settings) => self.hiera = WriteRecord::default(),
            Wake::Event(FilesEvent::Flush(done)) => waiting = Some(done),
            Wake::Started | Wake::TimeCame | Wake::Event(FilesEvent::Catalog) => {}
        }
        let at_once = waiting.is_some();
        if is_known && self.hiera.is_due(shown.generation, at_once) {
            self.write_hiera(&shown).await;
        }
        if is_known && self.cache.is_due(shown.generation, at_once) {
            self.write_cache(&shown).await;
        }
        if let Some(done) = waiting {
            // The step that waited may have given up.
            let _ = done.send(());
        }
        let is_behind = self.cache.generation != Some(shown.generation);
        // A cache that shows an older catalog must not look fresh.
        if shown.connected && !is_behind && self.touched.elapsed() >= TOUCH_INTERVAL {
            self.touched = Instant::now();
            self.touch();
        }
        let soon = Instant::now() + TOUCH_INTERVAL;
        let cache_due = if is_behind { self.cache.not_before } else { None };
        Some(cache_due.map_or(soon, |at| at.min(soon)).into())
    }
}

impl Files {
    /// Creates the task and the handle to it.
    pub(crate) fn new(
        directory: Directory,
        settings: watch::Receiver<Arc<Settings>>,
        reader: &Reader,
        names: CachedNames,
    ) -> (Self, FilesHandle) {
        let text = directory.read(CACHE, CACHE_MAX_BYTES).ok().flatten().map(|bytes| checksum(&bytes));
        let cache = WriteRecord { text, ..WriteRecord::default() };
        let (hiera, lines) = (WriteRecord::default(), HieraFile::default());
        let (sender, wanted) = mpsc::channel(1);
        let (changes, touched) = (reader.changes(), Instant::now());
        let task = Self { directory, settings, changes, names, touched, wanted, cache, hiera, lines };
        (task, FilesHandle(sender))
    }

    async fn write_cache(&mut self, shown: &Arc<CatalogSnapshot>) {
        let (begin, made) = (Instant::now(), shown.clone());
        let (known, directory) = (self.cache.text, self.directory.try_clone());
        let names = Some(self.names.clone());
        let write = move || {
            let cached = CachedCatalog::of(&made.view, made.revision, names);
            let entries: usize = cached.services.values().map(Vec::len).sum();
            let mut number = 0;
            directory?.replace_with(CACHE, 0o644, |file| {
                let mut numbered =
                    ChecksumWriter { inner: BufWriter::new(file), hasher: DefaultHasher::new() };
                codec::write_to(&cached, &mut numbered)?;
                numbered.flush()?;
                number = numbered.hasher.finish();
                Ok(known != Some(number))
            })?;
            io::Result::Ok((number, entries))
        };
        let Ok(written) = tokio::task::spawn_blocking(write).await else { return };
        let pause = match written {
            Ok((number, entries)) => {
                self.cache.text = Some(number);
                self.cache.generation = Some(shown.generation);
                let least = if entries > LARGE_CACHE { LARGE_CACHE_PAUSE } else { Duration::ZERO };
                least.max(begin.elapsed() * CACHE_PAUSE)
            }
            Err(error) => {
                tracing::warn!(%error, "the cache of the catalog could not be written");
                TOUCH_INTERVAL
            }
        };
        self.cache.not_before = Some(Instant::now() + pause);
    }

    async fn write_hiera(&mut self, shown: &Arc<CatalogSnapshot>) {
        let Some(path) = self.settings.borrow().catalog.hiera_file.clone() else { return };
        let (mut lines, view) = (std::mem::take(&mut self.lines), shown.view.clone());
        let made = move || {
            let text = lines.render(&view);
            (lines, text)
        };
        let Ok((lines, text)) = tokio::task::spawn_blocking(made).await else { return };
        self.lines = lines;
        let number = Some(checksum(text.as_bytes()));
        let written = if self.hiera.text == number { Ok(()) } else { replace_if_different(&path, &text) };
        match written {
            Ok(()) => {
                self.hiera =
                    WriteRecord { text: number, generation: Some(shown.generation), not_before: None };
            }
            Err(error) => {
                tracing::warn!(%error, "the file for Hiera could not be written");
                self.hiera.not_before = Some(Instant::now() + TOUCH_INTERVAL);
            }
        }
    }

    fn touch(&self) {
        let path = self.directory.path().join(CACHE);
        // If this fails, the cache seems older than it is, which is the safe side.
        let _ =
            std::fs::File::options().write(true).open(path).and_then(|f| f.set_modified(SystemTime::now()));
    }
}
