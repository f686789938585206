//! Files that survive a power cut and are safe against what others put in their place. All access
//! is relative to a directory that was opened once, follows no links and is bounded in size. A file
//! is replaced by write, fsync, rename and fsync of the directory.

use rustix::fs::{AtFlags, Mode, OFlags};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(crate) struct Directory {
    fd: OwnedFd,
    path: PathBuf,
}

/// Replaces a file that others read, unless it already has this content.
///
/// # Errors
/// Returns the system's error, also if the path does not name a file.
pub(crate) fn replace_if_different(path: &Path, text: &str) -> io::Result<()> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str())) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the name of a file"));
    };
    let directory = Directory::open(directory)?;
    // Anything that `read` refuses is replaced: a file that is larger or not a regular file, such
    // as a FIFO, which is not read because that could block for ever.
    let old = directory.read(name, text.len() as u64).unwrap_or_default();
    if old.is_some_and(|old| old == text.as_bytes()) {
        return Ok(());
    }
    directory.replace(name, text.as_bytes(), 0o644)
}

/// Reads a text that only root or this user could have written, also through links.
///
/// # Errors
/// Returns which part of the path is not trusted, or why the text cannot be read.
pub(crate) fn read_trusted(path: &Path, max: u64) -> anyhow::Result<String> {
    let shown = path.display();
    let real = commands::trust::check_file(path)?;
    let (Some(directory), Some(name)) = (real.parent(), real.file_name().and_then(|n| n.to_str())) else {
        anyhow::bail!("{shown}: not the name of a file");
    };
    let bytes = Directory::open(directory).and_then(|directory| directory.read(name, max))?;
    let bytes = bytes.ok_or_else(|| anyhow::anyhow!("{shown}: no such file"))?;
    String::from_utf8(bytes).map_err(|_| anyhow::anyhow!("{shown}: not UTF-8 text"))
}

impl Directory {
    /// Opens a directory. Creates it with mode 0700 if it does not exist.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(crate) fn open_or_create(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        Self::open(path)
    }

    /// Opens a directory.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| in_path(path, e.into()))?;
        Ok(Self { fd, path: path.to_owned() })
    }

    /// Returns the path, for messages and for programs that expect one.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that only root and this user could have put files into the directory.
    ///
    /// # Errors
    /// Returns an error if the directory belongs to another user or if others can write it.
    pub(crate) fn check_private(&self) -> io::Result<()> {
        let stat = rustix::fs::fstat(&self.fd)?;
        let me = rustix::process::geteuid().as_raw();
        if stat.st_uid != 0 && stat.st_uid != me {
            return Err(refused(&self.path, format!("it belongs to user {}", stat.st_uid)));
        }
        if stat.st_mode & 0o022 != 0 {
            return Err(refused(
                &self.path,
                format!("it is writable by others (mode {:o})", stat.st_mode & 0o7777),
            ));
        }
        Ok(())
    }

    /// Opens a file for a lock. Creates it if it does not exist.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(crate) fn open_lock(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, name, flags, Mode::from_raw_mode(0o600))
            .map_err(|e| in_path(&self.path.join(name), e.into()))?;
        Ok(File::from(fd))
    }

    /// Opens a file, which must exist, without reading it.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(crate) fn open_existing(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        Ok(File::from(rustix::fs::openat(&self.fd, name, flags, Mode::empty())?))
    }

    /// Reads a file of at most `max` bytes; `None` if it does not exist.
    ///
    /// # Errors
    /// Returns the system's error. Refuses a file that is larger, that is not a regular file, or
    /// that belongs to a user other than root and this user.
    pub(crate) fn read(&self, name: &str, max: u64) -> io::Result<Option<Vec<u8>>> {
        let path = self.path.join(name);
        // NONBLOCK, because opening a FIFO must not wait for its other end.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = match rustix::fs::openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(rustix::io::Errno::LOOP) => return Err(refused(&path, "it is a symbolic link".into())),
            Err(error) => return Err(in_path(&path, error.into())),
        };
        let mut file = File::from(fd);
        let metadata = file.metadata().map_err(|e| in_path(&path, e))?;
        let me = rustix::process::geteuid().as_raw();
        if !metadata.is_file() {
            return Err(refused(&path, "it is not a regular file".into()));
        }
        if metadata.uid() != 0 && metadata.uid() != me {
            return Err(refused(&path, format!("it belongs to user {}", metadata.uid())));
        }
        if metadata.len() > max {
            return Err(refused(&path, format!("it has {} bytes, at most {max} are read", metadata.len())));
        }
        let mut bytes = Vec::new();
        (&mut file).take(max).read_to_end(&mut bytes).map_err(|e| in_path(&path, e))?;
        Ok(Some(bytes))
    }

    /// Replaces a file. Even after a power cut it has either the old content or the new one.
    ///
    /// # Errors
    /// Returns the system's error. The old file is still in place then, unless only the final fsync
    /// of the directory failed.
    pub(crate) fn replace(&self, name: &str, content: &[u8], mode: u32) -> io::Result<()> {
        self.replace_with(name, mode, |file| file.write_all(content).map(|()| true))
    }

    /// Replaces a file at once for readers, but not for a power cut: after one it may be empty.
    ///
    /// # Errors
    /// Returns the system's error. The old file is still in place then.
    pub(crate) fn replace_soon(&self, name: &str, content: &[u8], mode: u32) -> io::Result<()> {
        let temporary = format!(".{name}.new");
        let written = self.create_new(&temporary, mode).and_then(|mut file| file.write_all(content));
        let renamed = written.and_then(|()| Ok(rustix::fs::renameat(&self.fd, &temporary, &self.fd, name)?));
        renamed.map_err(|e| in_path(&self.path.join(name), e))
    }

    /// Replaces a file by what `write` writes. The old file is kept if `write` returns false.
    ///
    /// # Errors
    /// Returns the error of the system or of `write`. The old file is then in place as after
    /// [`Self::replace`].
    pub(crate) fn replace_with(
        &self,
        name: &str,
        mode: u32,
        write: impl FnOnce(&mut File) -> io::Result<bool>,
    ) -> io::Result<()> {
        let temporary = format!(".{name}.new");
        let path = self.path.join(name);
        let written = self.write_new(&temporary, mode, write).and_then(|is_wanted| {
            if is_wanted {
                rustix::fs::renameat(&self.fd, &temporary, &self.fd, name)?;
                rustix::fs::fsync(&self.fd)?;
            }
            Ok(is_wanted)
        });
        if !matches!(written, Ok(true)) {
            // Best effort: the next write removes the temporary file as well.
            let _ = rustix::fs::unlinkat(&self.fd, &temporary, AtFlags::empty());
        }
        written.map(|_| ()).map_err(|e| in_path(&path, e))
    }

    fn write_new(
        &self,
        name: &str,
        mode: u32,
        write: impl FnOnce(&mut File) -> io::Result<bool>,
    ) -> io::Result<bool> {
        let mut file = self.create_new(name, mode)?;
        let is_wanted = write(&mut file)?;
        if is_wanted {
            file.sync_all()?;
        }
        Ok(is_wanted)
    }

    /// Creates a file in place of one that an interrupted write left behind.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(crate) fn create_new(&self, name: &str, mode: u32) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let create = || rustix::fs::openat(&self.fd, name, flags, Mode::from_raw_mode(mode));
        let fd = match create() {
            Err(rustix::io::Errno::EXIST) => {
                rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())?;
                create()?
            }
            other => other?,
        };
        // The mode is set explicitly, because the umask must not decide who may read the file.
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode))?;
        Ok(File::from(fd))
    }

    /// Removes a file.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())
            .map_err(|e| in_path(&self.path.join(name), e.into()))
    }

    /// Duplicates the descriptor, so that another owner can use the same directory.
    ///
    /// # Errors
    /// Returns the system's error if no descriptor is left.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { fd: self.fd.try_clone()?, path: self.path.clone() })
    }

    /// Renames a file to `<name>.<why>`, so that it is kept for inspection by a person.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(crate) fn set_aside(&self, name: &str, why: &str) -> io::Result<()> {
        let aside = format!("{name}.{why}");
        rustix::fs::renameat(&self.fd, name, &self.fd, aside)
            .map_err(|e| in_path(&self.path.join(name), e.into()))
    }
}

fn in_path(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn refused(path: &Path, why: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("{} is refused: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_file_reads_back_and_keeps_its_mode() {
        let directory = tempfile::tempdir().unwrap();
        let state = Directory::open_or_create(directory.path()).unwrap();
        assert_eq!(state.read("f", 10).unwrap(), None);
        state.replace("f", b"one", 0o644).unwrap();
        state.replace("f", b"two", 0o600).unwrap();
        assert_eq!(state.read("f", 10).unwrap().unwrap(), b"two");
        let mode = std::fs::metadata(directory.path().join("f")).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "no temporary file stays");
    }

    #[test]
    fn what_is_not_a_small_regular_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let state = Directory::open_or_create(directory.path()).unwrap();
        let at = |name: &str| directory.path().join(name);
        std::os::unix::fs::symlink("/etc/passwd", at("link")).unwrap();
        std::fs::create_dir(at("directory")).unwrap();
        std::fs::write(at("large"), vec![0; 100]).unwrap();
        let status = std::process::Command::new("mkfifo").arg(at("fifo")).status().unwrap();
        assert!(status.success());
        for (name, why) in [
            ("link", "symbolic link"),
            ("directory", "not a regular file"),
            ("fifo", "not a regular file"),
            ("large", "at most 10 are read"),
        ] {
            let error = state.read(name, 10).unwrap_err().to_string();
            assert!(error.contains(why), "{name}: {error}");
        }
    }

    #[test]
    fn a_file_takes_the_place_of_whatever_else_stands_there_and_is_not_written_twice() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::os::unix::fs::symlink("/etc/passwd", at("link")).unwrap();
        let status = std::process::Command::new("mkfifo").arg(at("fifo")).status().unwrap();
        assert!(status.success());
        std::fs::write(at("longer"), "text and more").unwrap();
        for name in ["link", "fifo", "longer", "new"] {
            replace_if_different(&at(name), "text").unwrap();
            assert!(std::fs::symlink_metadata(at(name)).unwrap().is_file(), "{name}");
            assert_eq!(std::fs::read_to_string(at(name)).unwrap(), "text", "{name}");
            let before = std::fs::metadata(at(name)).unwrap().ino();
            replace_if_different(&at(name), "text").unwrap();
            assert_eq!(std::fs::metadata(at(name)).unwrap().ino(), before, "{name}");
        }
    }

    #[test]
    fn a_directory_that_others_can_write_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("open");
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
        let error = Directory::open(&path).unwrap().check_private().unwrap_err().to_string();
        assert!(error.contains("writable by others"), "{error}");
    }
}
