//! Settings that say where an object store is and how to reach it.

use super::url::ObjectsUrl;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Region in the signatures of requests, if none is given. Most stores other than AWS accept it.
pub const DEFAULT_REGION: &str = "us-east-1";
/// Time limit of a whole request, if none is given.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// All settings of an object store. Only the URL counts for a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectStoreConfig {
    /// Where the objects are.
    pub url: ObjectsUrl,
    /// The server of S3, without the bucket: `https://HOST` or `https://HOST:PORT`, with a path if the server has one.
    /// `http://` only for a loopback address. S3 needs it.
    pub endpoint: Option<String>,
    /// Region in the signatures of requests.
    pub region: String,
    /// Who signs requests. Without, requests are not signed.
    pub credentials: Option<Credentials>,
    /// File with the certificates of the authorities that may sign the certificate of the server, in PEM. Without, those
    /// of the system.
    pub ca: Option<PathBuf>,
    /// Longest time for one call, with all its attempts.
    pub timeout: Duration,
}

impl ObjectStoreConfig {
    /// Returns the default settings for a URL: no endpoint, no credentials, the authorities of the system, one minute.
    pub fn new(url: ObjectsUrl) -> Self {
        Self {
            url,
            endpoint: None,
            region: DEFAULT_REGION.to_owned(),
            credentials: None,
            ca: None,
            timeout: DEFAULT_TIMEOUT,
        }
    }
}

/// The access key of S3: its id and its secret. `Debug` shows stars.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    key_id: String,
    secret: String,
}

impl Credentials {
    /// Wraps the id and the secret of an access key.
    pub fn new(key_id: impl Into<String>, secret: impl Into<String>) -> Self {
        Self { key_id: key_id.into(), secret: secret.into() }
    }

    /// True if neither part is empty and both consist of visible ASCII characters. An id has no slash, because the
    /// signature separates it by one.
    pub(super) fn are_usable(&self) -> bool {
        let is_visible = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
        is_visible(&self.key_id) && is_visible(&self.secret) && !self.key_id.contains('/')
    }

    /// Returns the credentials for the library that signs.
    pub(super) fn reveal(&self) -> rusty_s3::Credentials {
        rusty_s3::Credentials::new(self.key_id.clone(), self.secret.clone())
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_never_printed() {
        let mut config = ObjectStoreConfig::new("s3://bundles".parse().unwrap());
        config.credentials = Some(Credentials::new("id-canary", "secret-canary"));
        assert!(!format!("{config:?}").contains("canary"));
    }
}
