//! The catalog as files: the cache that survives a restart, and the YAML that Hiera reads. Written only when
//! their content changes. The cache is touched at most once a minute while the store confirms it, so its age
//! is its time of modification.

use super::{Reader, Shown};
use crate::files::Directory;
use model::catalog::{CachedCatalog, hiera_yaml};
use model::settings::Settings;
use model::values;
use std::hash::{Hash, Hasher};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::watch;

/// The cache, in the state directory.
const CACHE: &str = "catalog.json";
const CACHE_MAX_BYTES: u64 = 256 * 1024 * 1024;
const TOUCH_EVERY: Duration = Duration::from_secs(60);
/// Changes within this time are one file.
const SETTLE: Duration = Duration::from_millis(200);

/// Reads the cache that an earlier agent left, with its age.
pub fn read_cache(directory: &Directory) -> Option<(CachedCatalog, Duration)> {
    let bytes = match directory.read(CACHE, CACHE_MAX_BYTES) {
        Ok(bytes) => bytes?,
        Err(error) => {
            tracing::warn!(%error, "the cached catalog cannot be read");
            return None;
        }
    };
    let written = std::fs::metadata(directory.path().join(CACHE)).and_then(|m| m.modified()).ok()?;
    match values::read::<CachedCatalog>(&bytes) {
        Ok(cached) => Some((cached, SystemTime::now().duration_since(written).unwrap_or_default())),
        Err(error) => {
            tracing::warn!(%error, "the cached catalog is passed over");
            None
        }
    }
}

/// The task that writes the files.
pub struct Files {
    directory: Directory,
    settings: watch::Receiver<Arc<Settings>>,
    reader: Reader,
    /// What the files hold; large, so only a number that stands for it.
    cache: Option<u64>,
    hiera: Option<u64>,
}

fn number_of(text: &[u8]) -> u64 {
    let mut hasher = std::collections::hash_map::DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

impl Files {
    /// Prepares to write.
    pub fn new(directory: Directory, settings: watch::Receiver<Arc<Settings>>, reader: Reader) -> Self {
        let cache = directory.read(CACHE, CACHE_MAX_BYTES).ok().flatten().map(|bytes| number_of(&bytes));
        Self { directory, settings, reader, cache, hiera: None }
    }

    /// Runs until it is dropped.
    pub async fn run(mut self) {
        let mut shown = self.reader.changes();
        let mut touched = Instant::now();
        let mut minute = tokio::time::interval(TOUCH_EVERY);
        let mut generation = None;
        loop {
            let now = shown.borrow_and_update().clone();
            // What is not known yet must not take the place of what was known.
            if now.view.records_known() && now.confirmed.is_some() && generation != Some(now.generation) {
                // What could not be written is tried again within a minute.
                generation = self.write(&now).await.then_some(now.generation);
            }
            // A file that says something else is not made to look new.
            if now.connected && generation == Some(now.generation) && touched.elapsed() >= TOUCH_EVERY {
                touched = Instant::now();
                self.touch();
            }
            tokio::select! {
                // Channels and timers lose nothing when another is ready first.
                changed = shown.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    tokio::time::sleep(SETTLE).await;
                }
                changed = self.settings.changed() => if changed.is_err() { return } else { generation = None },
                _ = minute.tick() => {}
            }
        }
    }

    /// Writes what differs; false if something could not be written.
    async fn write(&mut self, shown: &Arc<Shown>) -> bool {
        let text = {
            let shown = shown.clone();
            let made = move || values::write(&CachedCatalog::of(&shown.view, shown.revision));
            match tokio::task::spawn_blocking(made).await {
                Ok(text) => text,
                Err(_) => return false,
            }
        };
        let number = number_of(text.as_bytes());
        if self.cache != Some(number) {
            match self.directory.replace(CACHE, text.as_bytes(), 0o644) {
                Ok(()) => self.cache = Some(number),
                Err(error) => {
                    tracing::warn!(%error, "the catalog could not be kept on disk");
                    return false;
                }
            }
        }
        let Some(path) = self.settings.borrow().catalog.hiera_file.clone() else { return true };
        let text = hiera_yaml(&shown.view);
        let number = number_of(text.as_bytes());
        if self.hiera == Some(number) {
            return true;
        }
        match replace_if_different(&path, &text) {
            Ok(()) => {
                self.hiera = Some(number);
                true
            }
            Err(error) => {
                tracing::warn!(%error, "the file for Hiera could not be written");
                false
            }
        }
    }

    fn touch(&self) {
        let path = self.directory.path().join(CACHE);
        // Its age would be too large, which is the safe side.
        let _ =
            std::fs::File::options().write(true).open(path).and_then(|f| f.set_modified(SystemTime::now()));
    }
}

/// Replaces a file that others read, unless it says the same.
fn replace_if_different(path: &Path, text: &str) -> std::io::Result<()> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str())) else {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "not the name of a file"));
    };
    if std::fs::read(path).is_ok_and(|old| old == text.as_bytes()) {
        return Ok(());
    }
    Directory::open(directory)?.replace(name, text.as_bytes(), 0o644)
}
