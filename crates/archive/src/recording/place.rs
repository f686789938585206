//! Where a recording is: in a directory, or in an object store.

use super::directory::{Directory, SEGMENT_FILE_MAX_BYTES};
use super::name::{ListedSegment, SegmentName, object_name};
use super::past::Source;
use crate::objects::{ListedObject, ObjectName, ObjectStore};

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
    /// Returns why they cannot be listed, for people.
    pub fn list(&self) -> Result<Vec<ListedSegment>, String> {
        match self {
            Self::Directory(directory) => directory.list().map_err(|error| error.to_string()),
            Self::Objects(store) => list_objects(store),
        }
    }

    /// Writes a segment in the place of one that is there.
    ///
    /// # Errors
    /// Returns why it cannot be written, for people.
    pub fn replace(&self, name: &SegmentName, bytes: &[u8]) -> Result<(), String> {
        match self {
            Self::Directory(directory) => directory.replace(name, bytes),
            Self::Objects(store) => store.replace(&object(name)?, bytes).map_err(|error| error.to_string()),
        }
    }

    /// Removes a segment. It is no error if it is not there.
    ///
    /// # Errors
    /// Returns why it cannot be removed, for people.
    pub fn remove(&self, name: &SegmentName) -> Result<(), String> {
        match self {
            Self::Directory(directory) => directory.remove(name),
            Self::Objects(store) => store.remove(&object(name)?).map_err(|error| error.to_string()),
        }
    }
}

impl Source for RecordingPlace {
    fn load(&self, name: &SegmentName) -> Result<Vec<u8>, String> {
        match self {
            Self::Directory(directory) => directory.load(name),
            Self::Objects(store) => store.load(name),
        }
    }
}

impl Source for ObjectStore {
    fn load(&self, name: &SegmentName) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        match self.get(&object(name)?, SEGMENT_FILE_MAX_BYTES, &mut bytes) {
            Ok(Some(_)) => Ok(bytes),
            Ok(None) => Err("it does not exist any more".into()),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn object(name: &SegmentName) -> Result<ObjectName, String> {
    object_name(name).map_err(|error| error.to_string())
}

/// Returns all segments in an object store. Other objects are ignored.
///
/// # Errors
/// Returns why they cannot be listed, for people.
pub fn list_objects(store: &ObjectStore) -> Result<Vec<ListedSegment>, String> {
    let listed = store.list().map_err(|error| error.to_string())?;
    let segment = |object: ListedObject| {
        let name = SegmentName::read(object.name.as_str())?;
        Some(ListedSegment { name, bytes: object.bytes })
    };
    Ok(listed.into_iter().filter_map(segment).collect())
}
