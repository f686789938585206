//! A client for object stores: a bucket of S3, or a directory. Objects are created once, looked for and read. Nothing is
//! listed, replaced or removed.
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

pub use config::{Credentials, CredentialsError, DEFAULT_REGION, ObjectStoreConfig};
pub use copying::Created;
pub use error::{ObjectError, ObjectProblem, Operation};
pub use name::{NAME_MAX_BYTES, NameError, ObjectName};
pub use store::ObjectStore;
pub use url::{ObjectsUrl, PREFIX_MAX_BYTES, UrlError};

#[cfg(test)]
mod tests;
