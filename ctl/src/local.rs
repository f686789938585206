//! Files of this host: the installed version, the last known desired version, and remembered
//! leases.

use crate::settings::Settings;
use schema::names::{HostName, Version};
use settings::EntryKind;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Largest small file that is read, in bytes; more than any of these files holds.
const FILE_MAX_BYTES: u64 = 64 * 1024;
/// Largest file of settings or services that is read, in bytes.
pub(crate) const SETTINGS_MAX_BYTES: u64 = 1024 * 1024;
/// Largest file of services that is read, in bytes; more than any catalog needs.
pub(crate) const CATALOG_MAX_BYTES: u64 = 256 * 1024 * 1024;

/// Returns the version installed on this host: its text without surrounding white space, empty if
/// there is none.
pub(crate) fn installed_version(settings: &Settings) -> io::Result<String> {
    Ok(read(&settings.local_version_file)?.map(|text| text.trim().to_owned()).unwrap_or_default())
}

/// Records the version installed on this host. Returns false if the directory does not exist.
pub(crate) fn record_installed_version(settings: &Settings, version: &Version) -> io::Result<bool> {
    match replace(&settings.local_version_file, version.as_str().as_bytes()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// What this host remembers between invocations. Nothing depends on it: if the directory does not
/// exist or cannot be written, nothing is remembered.
#[derive(Debug, Clone)]
pub(crate) struct LocalState {
    /// `None` if nothing is remembered, because the question is about the past.
    directory: Option<PathBuf>,
}

impl LocalState {
    /// Returns the memory in the state directory.
    pub(crate) fn of(settings: &Settings) -> Self {
        Self { directory: settings.past.is_none().then(|| settings.state_directory.clone()) }
    }

    fn read(&self, file: &str) -> Option<String> {
        read(&self.directory.as_ref()?.join(file)).ok()?
    }

    fn keep(&self, file: &str, text: &str) {
        if let Some(directory) = &self.directory {
            let _ = replace(&directory.join(file), text.as_bytes());
        }
    }

    /// Returns the desired version that was last read from the store, or written to it, on this
    /// host.
    pub(crate) fn current_version(&self) -> Option<Version> {
        Version::new(self.read("current_version")?.trim()).ok()
    }

    /// Remembers the desired version.
    pub(crate) fn keep_current_version(&self, version: &Version) {
        if self.current_version().as_ref() != Some(version) {
            self.keep("current_version", version.as_str());
        }
    }

    /// Returns the lease that an earlier invocation made for this purpose and host.
    pub(crate) fn lease(&self, name: &LeaseName) -> Option<i64> {
        self.read(&name.0)?.trim().parse().ok()
    }

    pub(crate) fn keep_lease(&self, name: &LeaseName, lease: i64) {
        if self.lease(name) != Some(lease) {
            self.keep(&name.0, &lease.to_string());
        }
    }
}

/// The name of the file that remembers a lease. Keys under one lease end together, so each host and
/// each purpose has its own lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeaseName(String);

impl LeaseName {
    /// Returns the name for a purpose and a host; `own` is true if that is this host.
    pub(crate) fn new(purpose: Option<&str>, host: &HostName, own: bool) -> Self {
        let mut name = String::from("one_shot_lease");
        for part in purpose.into_iter().chain((!own).then_some(host.as_str())) {
            name.push('.');
            name.push_str(part);
        }
        Self(name)
    }
}

/// Reads a small file; `None` if it does not exist.
pub(crate) fn read(path: &Path) -> io::Result<Option<String>> {
    read_up_to(path, FILE_MAX_BYTES)
}

/// Reads a file of at most `most` bytes; `None` if it does not exist.
pub(crate) fn read_up_to(path: &Path, most: u64) -> io::Result<Option<String>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    file.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most {
        return Err(io::Error::new(ErrorKind::FileTooLarge, format!("larger than {most} bytes")));
    }
    Ok(Some(text))
}

/// Length of the end of a long file that [`tail`] reads, in bytes.
const TAIL_MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Returns the last lines of a file, which may be long and in any encoding.
pub(crate) fn tail(path: &Path, lines: usize) -> io::Result<Vec<String>> {
    let mut file = File::open(path)?;
    let end = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(end.saturating_sub(TAIL_MAX_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_MAX_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let mut kept: Vec<String> = text.lines().rev().take(lines).map(str::to_owned).collect();
    kept.reverse();
    Ok(kept)
}

/// Returns the settings files of an agent in this directory, in the order in which the agent reads
/// them.
pub(crate) fn settings_files(directory: &Path) -> Vec<PathBuf> {
    let first = directory.join("agent.toml");
    let mut files: Vec<PathBuf> = first.exists().then_some(first).into_iter().collect();
    files.extend(entries(&directory.join("agent.d"), &["toml"]));
    files
}

/// Returns the files with these extensions in a directory, by name; none if it cannot be read.
pub(crate) fn entries(directory: &Path, kinds: &[&str]) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let is_wanted = |path: &PathBuf| path.extension().is_some_and(|kind| kinds.iter().any(|k| kind == *k));
    let mut paths: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_wanted).collect();
    paths.sort();
    paths
}

/// Returns all entries of a directory, as a validation directory is read; `None` if it cannot be
/// read.
pub(crate) fn all_entries(directory: &Path) -> Option<Vec<(Option<String>, EntryKind)>> {
    let kind = |path: &Path| {
        fs::metadata(path).map_or(EntryKind::Other, |file| EntryKind::of(file.is_file(), file.mode()))
    };
    let entries = fs::read_dir(directory).ok()?.flatten();
    Some(entries.map(|entry| (entry.file_name().into_string().ok(), kind(&entry.path()))).collect())
}

/// Replaces a file so that readers see the old or the new content, also after a power cut.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_by(path, 0o644, true, |file| file.write_all(content))
}

/// Replaces a file whose content may be lost in a power cut.
pub(crate) fn keep(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_by(path, 0o644, false, |file| file.write_all(content))
}

/// Replaces a file that only its owner may read, and whose content may be lost in a power cut.
pub(crate) fn keep_private(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_by(path, 0o600, false, |file| file.write_all(content))
}

/// Replaces a file that only its owner may read.
pub(crate) fn replace_secret(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    replace_by(path, 0o600, true, write)
}

fn replace_by(
    path: &Path,
    mode: u32,
    durable: bool,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(ErrorKind::InvalidInput, "not the name of a file"));
    };
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let temporary = directory.join(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
    // An earlier process with the same id may have left a file behind; a new file replaces it.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&temporary)
        .and_then(|mut file| write(&mut file).and_then(|()| if durable { file.sync_all() } else { Ok(()) }))
        .and_then(|()| fs::rename(&temporary, path))
        .and_then(|()| if durable { File::open(directory)?.sync_all() } else { Ok(()) });
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("orchestrate-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_is_replaced_and_nothing_is_left_over() {
        let directory = Directory::new("replace");
        let path = directory.0.join("file");
        replace(&path, b"one").unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(read(&path).unwrap().as_deref(), Some("two"));
        assert_eq!(fs::read_dir(&directory.0).unwrap().count(), 1);
    }

    #[test]
    fn the_end_of_a_long_file_is_read() {
        let directory = Directory::new("tail");
        let path = directory.0.join("file");
        fs::write(&path, (0..100_000).map(|n| format!("{n}\n")).collect::<String>()).unwrap();
        assert_eq!(tail(&path, 2).unwrap(), ["99998", "99999"]);
    }

    #[test]
    fn a_missing_directory_only_costs_the_memory() {
        let memory = LocalState { directory: Some("/nonexistent/orchestrate".into()) };
        memory.keep_current_version(&Version::new("v1").unwrap());
        assert_eq!(memory.current_version(), None);
        assert_eq!(read(Path::new("/nonexistent/file")).unwrap(), None);
    }

    #[test]
    fn what_is_remembered_is_checked_when_it_is_read() {
        let directory = Directory::new("memory");
        let memory = LocalState { directory: Some(directory.0.clone()) };
        memory.keep_current_version(&Version::new("v1").unwrap());
        assert_eq!(memory.current_version().unwrap().as_str(), "v1");
        fs::write(directory.0.join("current_version"), "rm -rf /").unwrap();
        assert_eq!(memory.current_version(), None);
        let name = LeaseName::new(Some("validation"), &HostName::new("h").unwrap(), false);
        assert_eq!(name.0, "one_shot_lease.validation.h");
        memory.keep_lease(&name, -7);
        assert_eq!(memory.lease(&name), Some(-7));
    }

    #[test]
    fn a_file_that_is_too_large_is_refused() {
        let directory = Directory::new("large");
        let path = directory.0.join("file");
        fs::write(&path, vec![b'x'; FILE_MAX_BYTES as usize + 1]).unwrap();
        read(&path).unwrap_err();
    }
}
