//! Objects in a directory. Writers on any number of hosts may share it.

use super::copying::{Content, Created, copy};
use super::error::ObjectProblem;
use super::name::{ListedObject, ObjectName};
use ring::rand::{SecureRandom, SystemRandom};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

/// Permissions of an object.
const OBJECT_MODE: Mode = Mode::from_raw_mode(0o640);
/// Permissions of a directory that is created for an object.
const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o750);

/// A directory of the file system, if the store has one of its own. Others cannot read it.
const LOST_AND_FOUND: &str = "lost+found";

/// A directory with objects. It has to exist: if it were created, objects would get below the mount point of a file system
/// that is not mounted.
pub(crate) struct Directory {
    root: PathBuf,
}

/// What to do about a directory of an object that is not there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    Create,
    Leave,
}

impl Directory {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// Creates an object. It gets its name when all of it is on the disk, so that nobody sees a part of it.
    pub(super) fn create(&self, name: &ObjectName, content: Content) -> Result<Created, ObjectProblem> {
        let (_, last) = name.parts();
        let Some(parent) = self.parent(name, Missing::Create)? else {
            return Err(of(name.as_str(), Errno::NOENT));
        };
        if is_object(parent.as_fd(), name)? {
            return Ok(Created::Existed);
        }
        let (temporary, file) = new_file(parent.as_fd())?;
        let created = write(file, content).and_then(|file| {
            match rustix::fs::linkat(&parent, &temporary, &parent, last, AtFlags::empty()) {
                Ok(()) => Ok(Created::Now),
                // NFS repeats a request whose answer got lost, and finds its own link: the file has two names then.
                Err(Errno::EXIST) if links(&file) == 2 => Ok(Created::Now),
                Err(Errno::EXIST) => is_object(parent.as_fd(), name).map(|_| Created::Existed),
                Err(errno) => Err(of(name.as_str(), errno)),
            }
        });
        // The name is one that no object has. If it stays, it only takes space.
        let _ = rustix::fs::unlinkat(&parent, &temporary, AtFlags::empty());
        if created == Ok(Created::Now) {
            rustix::fs::fsync(&parent).map_err(|errno| of("the directory of the object", errno))?;
        }
        created
    }

    /// Stores an object, also in the place of another one, whose owner and permissions it gets then: an operator may be
    /// another user than those who read it.
    pub(crate) fn replace(&self, name: &ObjectName, content: Content) -> Result<(), ObjectProblem> {
        let (_, last) = name.parts();
        let Some(parent) = self.parent(name, Missing::Create)? else {
            return Err(of(name.as_str(), Errno::NOENT));
        };
        let before = if is_object(parent.as_fd(), name)? {
            rustix::fs::statat(&parent, last, AtFlags::SYMLINK_NOFOLLOW).ok()
        } else {
            None
        };
        let (temporary, file) = new_file(parent.as_fd())?;
        let replaced = write(file, content).and_then(|file| {
            if let Some(before) = before {
                let (user, group) = (Uid::from_raw(before.st_uid), Gid::from_raw(before.st_gid));
                rustix::fs::fchown(&file, Some(user), Some(group))
                    .and_then(|()| rustix::fs::fchmod(&file, Mode::from_raw_mode(before.st_mode)))
                    .map_err(|errno| of(name.as_str(), errno))?;
            }
            rustix::fs::renameat(&parent, &temporary, &parent, last).map_err(|errno| of(name.as_str(), errno))
        });
        if replaced.is_err() {
            let _ = rustix::fs::unlinkat(&parent, &temporary, AtFlags::empty());
        }
        replaced?;
        rustix::fs::fsync(&parent).map_err(|errno| of("the directory of the object", errno))
    }

    /// Removes an object, if it is there.
    pub(crate) fn remove(&self, name: &ObjectName) -> Result<(), ObjectProblem> {
        let Some(parent) = self.parent(name, Missing::Leave)? else { return Ok(()) };
        if !is_object(parent.as_fd(), name)? {
            return Ok(());
        }
        let (_, last) = name.parts();
        rustix::fs::unlinkat(&parent, last, AtFlags::empty()).map_err(|errno| of(name.as_str(), errno))?;
        rustix::fs::fsync(&parent).map_err(|errno| of("the directory of the object", errno))
    }

    /// Returns all objects. Symbolic links are not followed.
    pub(super) fn list(&self) -> Result<Vec<ListedObject>, ObjectProblem> {
        let mut listed = Vec::new();
        let mut waiting = vec![(self.root.clone(), String::new())];
        while let Some((directory, above)) = waiting.pop() {
            let failed = |error: io::Error| ObjectProblem::of_file(&directory.display().to_string(), &error);
            for entry in std::fs::read_dir(&directory).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let Ok(file) = entry.file_name().into_string() else { continue };
                let path = if above.is_empty() { file } else { format!("{above}/{file}") };
                let Ok(name) = path.parse::<ObjectName>() else { continue };
                let kind = entry.file_type().map_err(failed)?;
                if kind.is_dir() && path != LOST_AND_FOUND {
                    waiting.push((entry.path(), path));
                } else if kind.is_file() {
                    match entry.metadata() {
                        Ok(metadata) => listed.push(ListedObject { name, bytes: metadata.len() }),
                        // It was removed meanwhile.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                        Err(error) => return Err(failed(error)),
                    }
                }
            }
        }
        Ok(listed)
    }

    /// True if the object is there.
    pub(super) fn exists(&self, name: &ObjectName) -> Result<bool, ObjectProblem> {
        match self.parent(name, Missing::Leave)? {
            Some(parent) => is_object(parent.as_fd(), name),
            None => Ok(false),
        }
    }

    /// Copies an object and returns its length in bytes; `None` if it is not there.
    pub(super) fn get(
        &self,
        name: &ObjectName,
        max: u64,
        into: &mut dyn Write,
    ) -> Result<Option<u64>, ObjectProblem> {
        let Some(parent) = self.parent(name, Missing::Leave)? else { return Ok(None) };
        if !is_object(parent.as_fd(), name)? {
            return Ok(None);
        }
        let (_, last) = name.parts();
        // Without NONBLOCK, a pipe that took the place of the object would be waited for.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&parent, last, flags, Mode::empty())
            .map_err(|errno| of(name.as_str(), errno))?;
        let mut file = File::from(file);
        let metadata = file.metadata().map_err(|error| ObjectProblem::of_file(name.as_str(), &error))?;
        if metadata.len() > max {
            return Err(ObjectProblem::TooLarge { max });
        }
        copy(&mut file, max, into, |error| ObjectProblem::of_file(name.as_str(), &error)).map(Some)
    }

    /// Opens the directory of an object, step by step, and follows no symbolic link below the root. Returns `None` if it is
    /// missing and is to be left so.
    fn parent(&self, name: &ObjectName, missing: Missing) -> Result<Option<OwnedFd>, ObjectProblem> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = rustix::fs::open(&self.root, flags, Mode::empty())
            .map_err(|errno| of("the directory of the store", errno))?;
        let (directories, _) = name.parts();
        for part in directories {
            let open = || rustix::fs::openat(&at, part, flags | OFlags::NOFOLLOW, Mode::empty());
            let next = match open() {
                Err(Errno::NOENT) if missing == Missing::Leave => return Ok(None),
                Err(Errno::NOENT) => make_directory(at.as_fd(), part).and_then(|()| open()),
                opened => opened,
            };
            at = next.map_err(|errno| match errno {
                Errno::NOTDIR | Errno::LOOP => ObjectProblem::File {
                    why: format!("{part} is a symbolic link or no directory"),
                    is_permanent: true,
                },
                errno => of(part, errno),
            })?;
        }
        Ok(Some(at))
    }
}

fn of(what: &str, errno: Errno) -> ObjectProblem {
    ObjectProblem::of_file(what, &io::Error::from(errno))
}

/// Creates a directory, unless another writer does so at the same time.
fn make_directory(at: BorrowedFd, part: &str) -> Result<(), Errno> {
    match rustix::fs::mkdirat(at, part, DIRECTORY_MODE) {
        Ok(()) => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let made = rustix::fs::openat(at, part, flags, Mode::empty())?;
            // The mask of the process does not count. The bit that passes on the group of a directory is kept.
            let inherited = Mode::from_raw_mode(rustix::fs::fstat(&made)?.st_mode) & Mode::SGID;
            rustix::fs::fchmod(&made, DIRECTORY_MODE | inherited)?;
            rustix::fs::fsync(at)
        }
        Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// True if the object is in this directory. Anything there but a regular file is an error.
fn is_object(parent: BorrowedFd, name: &ObjectName) -> Result<bool, ObjectProblem> {
    let (_, last) = name.parts();
    match rustix::fs::statat(parent, last, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => Ok(true),
        Ok(_) => Err(ObjectProblem::File {
            why: format!("{last} is a symbolic link or no regular file"),
            is_permanent: true,
        }),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(of(name.as_str(), errno)),
    }
}

/// Creates a file with a name that no object can have, because it contains `~`, and that no other writer has.
fn new_file(parent: BorrowedFd) -> Result<(String, File), ObjectProblem> {
    let mut random = [0; 16];
    SystemRandom::new().fill(&mut random).map_err(|_| ObjectProblem::File {
        why: "the system's random number generator failed".to_owned(),
        is_permanent: false,
    })?;
    let name = format!(".upload-{:032x}~", u128::from_le_bytes(random));
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(parent, &name, flags, OBJECT_MODE).map_err(|errno| of(&name, errno))?;
    Ok((name, File::from(file)))
}

/// Writes a file and waits until it is on the disk.
fn write(mut file: File, content: Content) -> Result<File, ObjectProblem> {
    let failed = |error: &io::Error| ObjectProblem::of_file("the new object", error);
    let mut reader = content.reader();
    match io::copy(&mut reader, &mut file) {
        Ok(_) => {}
        Err(error) => return Err(reader.error.unwrap_or_else(|| failed(&error))),
    }
    // The mask of the process does not count.
    rustix::fs::fchmod(&file, OBJECT_MODE).map_err(|errno| failed(&errno.into()))?;
    file.sync_all().map_err(|error| failed(&error))?;
    Ok(file)
}

/// Returns the number of names of a file; 0 if that is not known.
fn links(file: &File) -> u64 {
    use std::os::unix::fs::MetadataExt;
    file.metadata().map_or(0, |metadata| metadata.nlink())
}
