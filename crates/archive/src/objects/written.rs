//! The settings of an object store as a person writes them.

use super::config::{Credentials, CredentialsError, DEFAULT_REGION, ObjectStoreConfig};
use super::error::ObjectError;
use super::store::ObjectStore;
use super::url::UrlError;
use std::path::Path;
use std::time::Duration;

/// The settings of an object store as a person writes them.
#[derive(Debug, Clone, Copy)]
pub struct WrittenConfig<'a> {
    /// Where the objects are.
    pub url: &'a str,
    /// [`ObjectStoreConfig::endpoint`].
    pub endpoint: Option<&'a str>,
    /// [`ObjectStoreConfig::region`]; [`DEFAULT_REGION`] if it is not given.
    pub region: Option<&'a str>,
    /// The file with the access key.
    pub credentials: Option<&'a Path>,
    /// [`ObjectStoreConfig::ca`].
    pub ca: Option<&'a Path>,
    /// [`ObjectStoreConfig::timeout`]; one minute if it is not given.
    pub timeout: Option<Duration>,
}

/// Which written setting cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The file with the access key.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The URL.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// Another one, or several together.
    #[error(transparent)]
    Store(#[from] ObjectError),
}

impl WrittenConfig<'_> {
    /// Opens the store, which is not contacted.
    ///
    /// # Errors
    /// Returns an error if a setting cannot be used, or a file cannot be read.
    pub fn open(self) -> Result<ObjectStore, ConfigError> {
        let credentials = self.credentials.map(Credentials::read_file).transpose()?;
        let default = ObjectStoreConfig::new(self.url.parse()?);
        let config = ObjectStoreConfig {
            endpoint: self.endpoint.map(str::to_owned),
            region: self.region.unwrap_or(DEFAULT_REGION).to_owned(),
            credentials,
            ca: self.ca.map(Path::to_owned),
            timeout: self.timeout.unwrap_or(default.timeout),
            ..default
        };
        Ok(ObjectStore::open(config)?)
    }
}
