//! An object store of either kind.

use super::config::ObjectStoreConfig;
use super::copying::{Content, Created};
use super::directory::Directory;
use super::error::{ObjectError, ObjectProblem, Operation};
use super::name::{ListedObject, ObjectName};
use super::s3::Bucket;
use super::url::{ObjectLocation, ObjectsUrl};
use std::fmt;
use std::fs::File;
use std::io::Write;

/// An object store. Threads may share it. `Debug` shows only the URL.
pub struct ObjectStore {
    url: ObjectsUrl,
    backend: Backend,
}

enum Backend {
    Directory(Directory),
    Bucket(Box<Bucket>),
}

impl ObjectStore {
    /// Checks these settings without the file with the certificates.
    pub(super) fn check(config: &ObjectStoreConfig) -> Result<(), ObjectError> {
        let ObjectLocation::Bucket { bucket, .. } = config.url.place() else { return Ok(()) };
        let of_url = |problem| ObjectError::new(Operation::Open, config.url.to_string(), problem);
        Bucket::check(bucket, config).map(drop).map_err(of_url)
    }

    /// Returns the store of these settings. It is not contacted.
    ///
    /// # Errors
    /// Returns an error if a setting cannot be used, or the file with the certificates cannot be read.
    pub fn open(config: ObjectStoreConfig) -> Result<Self, ObjectError> {
        let url = config.url.clone();
        let backend = match url.place() {
            ObjectLocation::Directory(directory) => {
                Backend::Directory(Directory::new(ObjectLocation::path(directory)))
            }
            ObjectLocation::Bucket { bucket, prefix } => {
                let opened = Bucket::open(bucket, prefix, &config);
                let of_url = |problem| ObjectError::new(Operation::Open, url.to_string(), problem);
                Backend::Bucket(Box::new(opened.map_err(of_url)?))
            }
        };
        Ok(Self { url, backend })
    }

    /// Returns the URL of the store.
    pub fn url(&self) -> &ObjectsUrl {
        &self.url
    }

    /// Creates an object with these bytes if there is none with this name. An object is seen by others either as a whole
    /// or not at all. S3 does so for a PUT with `If-None-Match: *`, by "How to prevent object overwrites with conditional
    /// writes" of the Amazon S3 User Guide.
    ///
    /// After an error that is not permanent, the object may exist.
    ///
    /// # Errors
    /// Returns an error if it is not known that the object is stored.
    pub fn create(&self, name: &ObjectName, body: &[u8]) -> Result<Created, ObjectError> {
        self.create_from(name, Content::Bytes(body)).map_err(|p| self.error(Operation::Create, name, p))
    }

    /// Creates an object with the content of a regular file, from its beginning, as [`create`](Self::create) does. The
    /// position of the file is neither used nor changed. The file must not change.
    ///
    /// # Errors
    /// Returns an error if it is not known that the object is stored, or the file cannot be read.
    pub fn create_file(&self, name: &ObjectName, file: &File) -> Result<Created, ObjectError> {
        let created = Content::of_file(file).and_then(|content| self.create_from(name, content));
        created.map_err(|problem| self.error(Operation::Create, name, problem))
    }

    /// True if there is an object with this name. S3 says no about a missing bucket too, because its answer to a HEAD request
    /// has no code. Credentials without `s3:ListBucket` get 403 for an object that is not there.
    ///
    /// # Errors
    /// Returns an error if it is not known.
    pub fn exists(&self, name: &ObjectName) -> Result<bool, ObjectError> {
        let found = match &self.backend {
            Backend::Directory(directory) => directory.exists(name),
            Backend::Bucket(bucket) => bucket.exists(name),
        };
        found.map_err(|problem| self.error(Operation::Exists, name, problem))
    }

    /// Copies an object into a writer, in pieces, and returns its length in bytes; `None` if there is no object with this
    /// name. After an error, the writer may have a part of the object.
    ///
    /// # Errors
    /// Returns an error if the object has more than `max_bytes` bytes, cannot be read, or cannot be written to the writer.
    pub fn get(
        &self,
        name: &ObjectName,
        max_bytes: u64,
        into: &mut dyn Write,
    ) -> Result<Option<u64>, ObjectError> {
        let length = match &self.backend {
            Backend::Directory(directory) => directory.get(name, max_bytes, into),
            Backend::Bucket(bucket) => bucket.get(name, max_bytes, into),
        };
        length.map_err(|problem| self.error(Operation::Get, name, problem))
    }

    /// Returns all objects of the store, in no order. What has no name of an object is left out, as are uploads that are not
    /// complete.
    ///
    /// # Errors
    /// Returns an error if the list may not be complete.
    pub fn list(&self) -> Result<Vec<ListedObject>, ObjectError> {
        let listed = match &self.backend {
            Backend::Directory(directory) => directory.list(),
            Backend::Bucket(bucket) => bucket.list(),
        };
        listed.map_err(|problem| ObjectError::new(Operation::List, self.url.to_string(), problem))
    }

    /// Stores an object with these bytes, also in the place of another one. Others see one or the other as a whole.
    ///
    /// # Errors
    /// Returns an error if it is not known that the object is stored.
    pub fn replace(&self, name: &ObjectName, body: &[u8]) -> Result<(), ObjectError> {
        let replaced = match &self.backend {
            Backend::Directory(directory) => directory.replace(name, Content::Bytes(body)),
            Backend::Bucket(bucket) => bucket.replace(name, Content::Bytes(body)),
        };
        replaced.map_err(|problem| self.error(Operation::Replace, name, problem))
    }

    /// Removes an object. It is no error if there is none with this name.
    ///
    /// # Errors
    /// Returns an error if the object may still be there.
    pub fn remove(&self, name: &ObjectName) -> Result<(), ObjectError> {
        let removed = match &self.backend {
            Backend::Directory(directory) => directory.remove(name),
            Backend::Bucket(bucket) => bucket.remove(name),
        };
        removed.map_err(|problem| self.error(Operation::Remove, name, problem))
    }

    fn create_from(&self, name: &ObjectName, content: Content) -> Result<Created, ObjectProblem> {
        match &self.backend {
            Backend::Directory(directory) => directory.create(name, content),
            Backend::Bucket(bucket) => bucket.create(name, content),
        }
    }

    fn error(&self, operation: Operation, name: &ObjectName, problem: ObjectProblem) -> ObjectError {
        ObjectError::new(operation, self.url.join(name), problem)
    }
}

impl fmt::Debug for ObjectStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectStore").field("url", &self.url.to_string()).finish_non_exhaustive()
    }
}
