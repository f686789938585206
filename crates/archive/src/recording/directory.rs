//! Recordings in a directory.

use super::error::PlaceError;
use super::name::{ListedSegment, SegmentName, object_name};
use super::past::Source;
use crate::objects::{self, Content, ObjectName};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Largest segment that is read, in bytes. Recorders close segments much earlier.
pub(super) const SEGMENT_FILE_MAX_BYTES: u64 = 256 * 1024 * 1024;
/// A directory of the file system, if the recording has one of its own. Others cannot read it.
const LOST_AND_FOUND: &str = "lost+found";
/// Directories above a segment: those of the lineage, the epoch, the branch and the recorder.
const LEVELS: usize = 4;

/// A directory with the segments of any number of recorders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    root: PathBuf,
}

impl Directory {
    /// Returns the directory with this path.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Returns the path of a segment.
    pub fn path_of(&self, name: &SegmentName) -> PathBuf {
        self.root.join(name.to_string())
    }

    /// Returns the names of all segments. Other files are ignored.
    ///
    /// # Errors
    /// Returns the error of a directory that cannot be read.
    pub fn names(&self) -> io::Result<Vec<SegmentName>> {
        let mut names = Vec::new();
        collect(&self.root, "", &mut names)?;
        Ok(names)
    }

    /// Returns all segments. One that is removed meanwhile is left out.
    ///
    /// # Errors
    /// Returns the error of a directory that cannot be read.
    pub fn list(&self) -> io::Result<Vec<ListedSegment>> {
        let length = |name: SegmentName| match fs::metadata(self.path_of(&name)) {
            Ok(metadata) => Ok(Some(ListedSegment { name, bytes: metadata.len() })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        self.names()?.into_iter().filter_map(|name| length(name).transpose()).collect()
    }

    /// Writes a segment in the place of one that is there, and keeps its owner. Others see one or the other as a whole. No
    /// symbolic link is followed: root may run this in the directory of another user.
    ///
    /// # Errors
    /// Returns why it cannot be written.
    pub fn replace(&self, name: &SegmentName, bytes: &[u8]) -> Result<(), PlaceError> {
        let object = object_name(name)?;
        Ok(objects::Directory::new(self.root.clone()).replace(&object, Content::Bytes(bytes))?)
    }

    /// Removes a segment, and the mark that it is uploaded. It is no error if they are not there.
    ///
    /// # Errors
    /// Returns why it cannot be removed.
    pub fn remove(&self, name: &SegmentName) -> Result<(), PlaceError> {
        let directory = objects::Directory::new(self.root.clone());
        directory.remove(&object_name(name)?)?;
        // The mark goes last: a mark alone says nothing.
        Ok(directory.remove(&mark_of(name).parse::<ObjectName>()?)?)
    }

    /// Notes that a segment is in the object store with this URL too.
    ///
    /// # Errors
    /// Returns the error of the file.
    pub fn note_uploaded(&self, name: &SegmentName, url: &str) -> io::Result<()> {
        let mut file = OpenOptions::new();
        file.write(true).create(true).truncate(true).mode(0o600);
        file.open(self.root.join(mark_of(name)))?.write_all(url.as_bytes())
    }

    /// True if it was noted that a segment is in the object store with this URL too.
    pub fn is_uploaded(&self, name: &SegmentName, url: &str) -> bool {
        fs::read(self.root.join(mark_of(name))).is_ok_and(|noted| noted == url.as_bytes())
    }
}

/// Returns the path of the file that says in which object store a segment is, from the root on.
fn mark_of(name: &SegmentName) -> String {
    format!("{name}.uploaded")
}

fn collect(directory: &Path, above: &str, names: &mut Vec<SegmentName>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let Ok(file) = entry.file_name().into_string() else { continue };
        let path = if above.is_empty() { file } else { format!("{above}/{file}") };
        if path.split('/').count() > LEVELS {
            names.extend(SegmentName::read(&path));
        } else if entry.file_type()?.is_dir() && path != LOST_AND_FOUND {
            collect(&entry.path(), &path, names)?;
        }
    }
    Ok(())
}

impl Source for Directory {
    fn load(&self, name: &SegmentName) -> Result<Vec<u8>, PlaceError> {
        let file = File::open(self.path_of(name))?;
        let length = file.metadata()?.len();
        if length > SEGMENT_FILE_MAX_BYTES {
            return Err(io::Error::other(format!("{length} bytes are too many for a segment")).into());
        }
        let mut bytes = Vec::new();
        file.take(SEGMENT_FILE_MAX_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}
