//! Recordings in a directory.

use super::name::SegmentName;
use super::past::Source;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Largest segment that is read, in bytes. Recorders close segments much earlier.
const SEGMENT_FILE_MAX_BYTES: u64 = 256 * 1024 * 1024;
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
    fn load(&self, name: &SegmentName) -> Result<Vec<u8>, String> {
        let read = || {
            let file = File::open(self.path_of(name))?;
            let length = file.metadata()?.len();
            if length > SEGMENT_FILE_MAX_BYTES {
                return Err(io::Error::other(format!("{length} bytes are too many for a segment")));
            }
            let mut bytes = Vec::new();
            file.take(SEGMENT_FILE_MAX_BYTES).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        read().map_err(|error| error.to_string())
    }
}
