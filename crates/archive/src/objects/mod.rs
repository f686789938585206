//! A client for object stores: a bucket of S3, or a directory. Agents create objects once, look for them and read them.
//! Recorders and operators also list, replace and remove objects.
//!
//! All calls block. A call to a bucket ends within the timeout of the settings. A call to a directory takes as long as its
//! file system does.

mod config;
mod copying;
mod directory;
mod error;
mod name;
mod s3;
mod store;
mod url;
mod written;

pub use config::{Credentials, CredentialsError, DEFAULT_REGION, ObjectStoreConfig};
pub(crate) use copying::Content;
pub use copying::Created;
pub(crate) use directory::Directory;
pub use error::{ObjectError, ObjectProblem, Operation};
pub use name::{ListedObject, NAME_MAX_BYTES, NameError, ObjectName};
pub use store::ObjectStore;
pub use url::{ObjectsUrl, PREFIX_MAX_BYTES, UrlError};
pub use written::{ConfigError, WrittenConfig};

#[cfg(test)]
mod tests;
