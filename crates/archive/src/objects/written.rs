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
        self.check()?;
        let credentials = self.credentials.map(Credentials::read_file).transpose()?;
        Ok(ObjectStore::open(ObjectStoreConfig { credentials, ..self.config()? })?)
    }

    /// Checks the settings without the files that they name, which may be those of another machine.
    ///
    /// # Errors
    /// Returns an error if a setting cannot be used.
    pub fn check(self) -> Result<(), ConfigError> {
        Ok(ObjectStore::check(&self.config()?)?)
    }

    fn config(self) -> Result<ObjectStoreConfig, ConfigError> {
        let default = ObjectStoreConfig::new(self.url.parse()?);
        Ok(ObjectStoreConfig {
            endpoint: self.endpoint.map(str::to_owned),
            region: self.region.unwrap_or(DEFAULT_REGION).to_owned(),
            ca: self.ca.map(Path::to_owned),
            timeout: self.timeout.unwrap_or(default.timeout),
            ..default
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_checked_without_the_files_that_they_name() {
        let check = |url, endpoint, region| {
            let (credentials, ca) = (Some(Path::new("/nowhere/key")), Some(Path::new("/nowhere/ca")));
            WrittenConfig { url, endpoint, region, credentials, ca, timeout: None }
                .check()
                .map_err(|e| e.to_string())
        };
        let endpoint = Some("https://s3.example.org");
        assert_eq!(check("s3://bucket/prod", endpoint, None), Ok(()));
        assert_eq!(check("file:///srv/bundles", None, None), Ok(()));
        for (url, endpoint, region, part) in [
            ("s3://bucket/prod env", endpoint, None, "the prefix of the URL cannot be used"),
            ("ftp://bucket", endpoint, None, "is s3://BUCKET/PREFIX"),
            ("s3://bucket", Some("ftp://s3.example.org"), None, "must be https://HOST"),
            ("s3://bucket", Some("http://s3.example.org"), None, "write https://"),
            ("s3://bucket", endpoint, Some("eu/west"), "the region must have"),
        ] {
            let error = check(url, endpoint, region).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
