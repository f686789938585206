//! The service files on disk. They are read again when something changes, each on its own. If a
//! file becomes invalid, its last good content stays in use.

use crate::files::read_trusted;
use crate::reconcile::{Reconcile, Wake};
use catalog::definitions::{Definitions, FILE_KINDS, Parsed, assemble, parse_file, parse_profile_list};
use notify::{RecursiveMode, Watcher};
use settings::{ServicesSettings, Settings};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Largest accepted service file, in bytes.
const FILE_MAX_BYTES: u64 = 256 * 1024;
/// Time between two reads of the files when no change was notified.
const POLL_INTERVAL: Duration = Duration::from_secs(30);
/// Time to wait for further changes before the files are read again.
const SETTLE: Duration = Duration::from_millis(50);

/// The content of the service files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Loaded {
    /// The services and checks of the host.
    pub definitions: Arc<Definitions>,
    /// The errors in the files.
    pub errors: Vec<String>,
}

/// Reads the service files and follows their changes.
pub(crate) struct Loader {
    settings: watch::Receiver<Arc<Settings>>,
    sender: watch::Sender<Arc<Loaded>>,
    /// The last good content of each file.
    good: BTreeMap<PathBuf, Parsed>,
    changed: mpsc::Sender<()>,
    changes: mpsc::Receiver<()>,
    /// Watches the files while it exists; `None` if that is not possible.
    watcher: Option<notify::RecommendedWatcher>,
}

/// What wakes the loader.
#[derive(Debug)]
pub(crate) enum LoaderEvent {
    Files,
    Settings,
}

impl Reconcile for Loader {
    type Event = LoaderEvent;

    async fn next_event(&mut self) -> Option<LoaderEvent> {
        tokio::select! {
            Some(()) = self.changes.recv() => Some(LoaderEvent::Files),
            changed = self.settings.changed() => changed.ok().map(|()| LoaderEvent::Settings),
        }
    }

    fn reason(event: &LoaderEvent) -> &'static str {
        match event {
            LoaderEvent::Files => "files",
            LoaderEvent::Settings => "settings",
        }
    }

    fn debounce(&self, event: &LoaderEvent) -> Duration {
        match event {
            LoaderEvent::Files => SETTLE,
            LoaderEvent::Settings => Duration::ZERO,
        }
    }

    async fn pass(&mut self, wake: Wake<LoaderEvent>) -> Option<Instant> {
        if matches!(wake, Wake::Started | Wake::Event(LoaderEvent::Settings)) {
            self.watcher = None;
            self.watcher = watch_files(&self.settings.borrow().services.clone(), self.changed.clone());
        }
        self.load();
        Some(Instant::now() + POLL_INTERVAL)
    }
}

impl Loader {
    /// Creates the loader and reads the files once.
    pub(crate) fn new(settings: watch::Receiver<Arc<Settings>>) -> (Self, watch::Receiver<Arc<Loaded>>) {
        let (sender, receiver) = watch::channel(Arc::new(Loaded::default()));
        let (changed, changes) = mpsc::channel(1);
        let mut loader = Self { settings, sender, good: BTreeMap::new(), changed, changes, watcher: None };
        loader.load();
        (loader, receiver)
    }

    fn load(&mut self) {
        let settings = self.settings.borrow().services.clone();
        let Listing { mut files, unreadable } = list(&settings);
        let mut errors: Vec<String> = unreadable
            .iter()
            .map(|(directory, error)| format!("directory {}: {error}", directory.display()))
            .collect();
        // The known files of a directory that cannot be read now stay in use.
        let known = self
            .good
            .keys()
            .filter(|path| unreadable.iter().any(|(directory, _)| path.parent() == Some(directory)));
        files.extend(known.cloned().collect::<Vec<_>>());
        self.good.retain(|path, _| files.contains(path));
        for path in &files {
            match read(path, &settings) {
                Ok(parsed) => {
                    if self.good.get(path) != Some(&parsed) {
                        parsed.notes.iter().for_each(|note| tracing::warn!(note, "service file"));
                        self.good.insert(path.clone(), parsed);
                    }
                }
                Err(error) => errors.push(format!("{error:#}")),
            }
        }
        let in_order: Vec<(String, &Parsed)> = files
            .iter()
            .filter_map(|path| Some((path.display().to_string(), self.good.get(path)?)))
            .collect();
        let (definitions, misfits) = assemble(in_order.iter().map(|(file, parsed)| (file.as_str(), *parsed)));
        errors.extend(misfits.iter().map(ToString::to_string));
        self.sender.send_if_modified(|loaded| {
            for error in errors.iter().filter(|error| !loaded.errors.contains(error)) {
                tracing::error!(error, "a service file is wrong; its last good content stays in use");
            }
            let new = Loaded { definitions: Arc::new(definitions), errors };
            let differs = **loaded != new;
            if differs {
                *loaded = Arc::new(new);
            }
            differs
        });
    }
}

fn watch_files(settings: &ServicesSettings, changed: mpsc::Sender<()>) -> Option<notify::RecommendedWatcher> {
    let on_event = move |event: notify::Result<notify::Event>| {
        if event.map_or(true, |event| !event.kind.is_access()) {
            // If the queue is full, it already holds the same request.
            let _ = changed.try_send(());
        }
    };
    let mut watcher = match notify::recommended_watcher(on_event) {
        Ok(watcher) => watcher,
        Err(error) => {
            tracing::warn!(%error, "files cannot be watched; they are read again every 30 seconds");
            return None;
        }
    };
    // The directory is watched, not the file, because an editor replaces the file by another one.
    let list = settings.profile_list.as_deref().and_then(Path::parent);
    for directory in settings.directories.iter().map(PathBuf::as_path).chain(list) {
        if directory.exists()
            && let Err(error) = watcher.watch(directory, RecursiveMode::NonRecursive)
        {
            tracing::warn!(%error, directory = %directory.display(), "the directory cannot be watched");
        }
    }
    Some(watcher)
}

/// The service files that exist.
#[derive(Default)]
struct Listing {
    /// Sorted by name within each directory, and the profile list at the end.
    files: Vec<PathBuf>,
    /// The directories that cannot be read.
    unreadable: Vec<(PathBuf, io::Error)>,
}

fn list(settings: &ServicesSettings) -> Listing {
    let Listing { mut files, mut unreadable } = Listing::default();
    for directory in &settings.directories {
        let entries = match std::fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => {
                unreadable.push((directory.clone(), error));
                continue;
            }
        };
        let mut of_directory: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| {
                let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
                let kind = path.extension().is_some_and(|kind| FILE_KINDS.iter().any(|known| kind == *known));
                kind && name.is_some_and(|name| !name.starts_with('.'))
            })
            .collect();
        of_directory.sort();
        files.extend(of_directory);
    }
    let is_there = |path: &PathBuf| {
        std::fs::symlink_metadata(path).map_or_else(|e| e.kind() != io::ErrorKind::NotFound, |_| true)
    };
    files.extend(settings.profile_list.clone().filter(is_there));
    Listing { files, unreadable }
}

fn read(path: &Path, settings: &ServicesSettings) -> anyhow::Result<Parsed> {
    let shown = path.display().to_string();
    // Whoever can write the file can make the agent run commands.
    let text = read_trusted(path, FILE_MAX_BYTES)?;
    if settings.profile_list.as_deref() == Some(path) {
        return Ok(parse_profile_list(&shown, &text));
    }
    Ok(parse_file(&shown, &text)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile::Passes;
    use schema::names::ServiceName;

    fn settings(directory: &Path) -> Arc<Settings> {
        let text = format!(
            "[services]\ndirectories = [\"{0}\"]\nprofile_list = \"{0}/list.txt\"\n",
            directory.display()
        );
        Arc::new(settings::read(&[("a".into(), text)]).unwrap())
    }

    fn names(loaded: &Loaded) -> Vec<&str> {
        loaded.definitions.services.keys().map(ServiceName::as_str).collect()
    }

    #[test]
    fn a_wrong_file_breaks_only_itself_and_its_last_good_content_stays() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        write("a.json", r#"{"service": {"name": "a"}}"#);
        write("b.toml", "[[service]]\nname = \"b\"\n");
        write("list.txt", "c\n");
        write("ignored.txt", "x");
        write(".hidden.json", "x");
        let (_settings, receiver) = watch::channel(settings(directory.path()));
        let (mut loader, loaded) = Loader::new(receiver);
        assert_eq!(names(&loaded.borrow()), ["a", "b", "c"]);
        assert_eq!(loaded.borrow().errors, Vec::<String>::new());
        write("a.json", "{\n\"service\": {\"name\": \"a\", \"port\": \"x\"}}");
        write("b.toml", "[[service]]\nname = \"b2\"\n");
        write("n.json", "[]");
        loader.load();
        assert_eq!(names(&loaded.borrow()), ["a", "b2", "c"]);
        let errors = loaded.borrow().errors.join("\n");
        assert!(errors.contains("a.json:2: port must be a whole number"), "{errors}");
        assert!(errors.contains("n.json:1: the file must hold one JSON object"), "{errors}");
        std::fs::remove_file(directory.path().join("a.json")).unwrap();
        std::fs::remove_file(directory.path().join("n.json")).unwrap();
        loader.load();
        assert_eq!((names(&loaded.borrow()), loaded.borrow().errors.len()), (vec!["b2", "c"], 0));
    }

    #[test]
    fn a_directory_that_cannot_be_read_has_what_it_had() {
        let base = tempfile::tempdir().unwrap();
        let directory = base.path().join("services");
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("a.json"), r#"{"service": {"name": "a"}}"#).unwrap();
        let (_settings, receiver) = watch::channel(settings(&directory));
        let (mut loader, loaded) = Loader::new(receiver);
        // A file in place of the directory stands for every error other than "not found".
        std::fs::rename(&directory, base.path().join("aside")).unwrap();
        std::fs::write(&directory, "").unwrap();
        loader.load();
        assert_eq!(names(&loaded.borrow()), ["a"]);
        assert!(!loaded.borrow().errors.is_empty());
        std::fs::remove_file(&directory).unwrap();
        loader.load();
        assert_eq!(names(&loaded.borrow()).len(), 0, "it is not there");
    }

    #[tokio::test]
    async fn a_change_is_seen_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let (_settings, receiver) = watch::channel(settings(directory.path()));
        let (loader, mut loaded) = Loader::new(receiver);
        let task = tokio::spawn(crate::reconcile::run(loader, Passes::default()));
        std::fs::write(directory.path().join("a.json"), r#"{"service": {"name": "a"}}"#).unwrap();
        let seen = loaded.wait_for(|loaded| !loaded.definitions.services.is_empty());
        tokio::time::timeout(Duration::from_secs(20), seen).await.expect("in time").unwrap();
        task.abort();
    }

    #[test]
    fn a_file_that_others_can_write_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.json");
        std::fs::write(&path, r#"{"service": {"name": "a"}}"#).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        let (_settings, receiver) = watch::channel(settings(directory.path()));
        let (_, loaded) = Loader::new(receiver);
        assert!(loaded.borrow().errors[0].contains("writable by others"), "{:?}", loaded.borrow().errors);
        assert_eq!(loaded.borrow().definitions.services.len(), 0);
    }
}
