//! The few file operations that the journal needs. Tests replace the disk by one that loses, tears
//! and fails writes.

use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A directory with files.
pub(crate) trait Disk: Send {
    type File: DiskFile;

    /// Returns the names of the files.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Opens a file for reading from its beginning.
    fn read(&self, name: &str) -> io::Result<Box<dyn Read + '_>>;
    /// Opens an existing file for writing.
    fn open(&self, name: &str) -> io::Result<Self::File>;
    /// Creates an empty file, or empties the existing file of this name.
    fn create(&self, name: &str) -> io::Result<Self::File>;
    /// Renames a file durably. After an error the rename may or may not have happened.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&self, name: &str) -> io::Result<()>;
}

/// A file that is written at given offsets.
pub(crate) trait DiskFile: Send {
    /// Writes all bytes at the offset.
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Returns when everything written before is on disk.
    fn sync(&mut self) -> io::Result<()>;
}

/// A real directory, opened once.
pub(crate) struct Directory {
    path: std::path::PathBuf,
    descriptor: OwnedFd,
}

impl Directory {
    /// Opens a directory. Creates it, accessible only by its owner, if it does not exist.
    pub(crate) fn open_or_create(path: &Path) -> io::Result<Self> {
        let mut builder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        let is_new = !path.exists();
        builder.recursive(true).create(path)?;
        if is_new && let Some(parent) = path.canonicalize()?.parent() {
            // Acknowledged data must not be lost because the name of a new directory is not yet on
            // disk.
            File::open(parent)?.sync_all()?;
        }
        let descriptor =
            rustix::fs::open(path, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { path: path.to_owned(), descriptor })
    }

    /// Opens the file that only one process at a time may lock, and creates it if it does not
    /// exist.
    pub(crate) fn lock_file(&self) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(rustix::fs::openat(&self.descriptor, "lock", flags, Mode::RUSR | Mode::WUSR)?.into())
    }
}

impl Disk for Directory {
    type File = File;

    fn list(&self) -> io::Result<Vec<String>> {
        let entries = std::fs::read_dir(&self.path)?;
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn Read + '_>> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = File::from(rustix::fs::openat(&self.descriptor, name, flags, Mode::empty())?);
        Ok(Box::new(file))
    }

    fn open(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(rustix::fs::openat(&self.descriptor, name, flags, Mode::empty())?.into())
    }

    fn create(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(rustix::fs::openat(&self.descriptor, name, flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        rustix::fs::renameat(&self.descriptor, from, &self.descriptor, to)?;
        Ok(rustix::fs::fsync(&self.descriptor)?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.descriptor, name, rustix::fs::AtFlags::empty())?)
    }
}

impl DiskFile for File {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}
