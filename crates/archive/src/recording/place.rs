//! Where a recording is: in a directory, or in an object store.

use super::directory::{Directory, SEGMENT_FILE_MAX_BYTES};
use super::error::PlaceError;
use super::name::{ListedSegment, SegmentName, object_name};
use super::past::Source;
use crate::objects::{ListedObject, ObjectStore};

/// Where the segments of a recording are.
#[derive(Debug)]
pub enum RecordingPlace {
    /// In a directory, into which a recorder may be writing.
    Directory(Directory),
    /// In an object store, to which recorders upload closed segments.
    Objects(ObjectStore),
}

impl RecordingPlace {
    /// Returns all segments.
    ///
    /// # Errors
    /// Returns why they cannot be listed.
    pub fn list(&self) -> Result<Vec<ListedSegment>, PlaceError> {
        match self {
            Self::Directory(directory) => Ok(directory.list()?),
            Self::Objects(store) => list_objects(store),
        }
    }

    /// Writes a segment in the place of one that is there.
    ///
    /// # Errors
    /// Returns why it cannot be written.
    pub fn replace(&self, name: &SegmentName, bytes: &[u8]) -> Result<(), PlaceError> {
        match self {
            Self::Directory(directory) => directory.replace(name, bytes),
            Self::Objects(store) => Ok(store.replace(&object_name(name)?, bytes)?),
        }
    }

    /// Removes a segment. It is no error if it is not there.
    ///
    /// # Errors
    /// Returns why it cannot be removed.
    pub fn remove(&self, name: &SegmentName) -> Result<(), PlaceError> {
        match self {
            Self::Directory(directory) => directory.remove(name),
            Self::Objects(store) => Ok(store.remove(&object_name(name)?)?),
        }
    }
}

impl Source for RecordingPlace {
    fn load(&self, name: &SegmentName) -> Result<Vec<u8>, PlaceError> {
        match self {
            Self::Directory(directory) => directory.load(name),
            Self::Objects(store) => store.load(name),
        }
    }
}

impl Source for ObjectStore {
    fn load(&self, name: &SegmentName) -> Result<Vec<u8>, PlaceError> {
        let mut bytes = Vec::new();
        match self.get(&object_name(name)?, SEGMENT_FILE_MAX_BYTES, &mut bytes)? {
            Some(_) => Ok(bytes),
            None => Err(PlaceError::Gone),
        }
    }
}

/// Returns all segments in an object store. Other objects are ignored.
///
/// # Errors
/// Returns why they cannot be listed.
pub fn list_objects(store: &ObjectStore) -> Result<Vec<ListedSegment>, PlaceError> {
    let listed = store.list()?;
    let segment = |object: ListedObject| {
        let name = SegmentName::read(object.name.as_str())?;
        Some(ListedSegment { name, bytes: object.bytes })
    };
    Ok(listed.into_iter().filter_map(segment).collect())
}
