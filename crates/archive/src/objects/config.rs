//! Settings that say where an object store is and how to reach it.

use super::url::ObjectsUrl;
use std::fmt;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
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

/// Largest file with an access key, in bytes.
const FILE_MAX_BYTES: u64 = 4096;

/// Why a file with an access key cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct CredentialsError {
    path: PathBuf,
    why: String,
}

/// The access key of S3: its id and its secret, and a token if it is a temporary one. `Debug` shows stars.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    key_id: String,
    secret: String,
    session_token: Option<String>,
}

impl Credentials {
    /// Wraps the id and the secret of an access key.
    pub fn new(key_id: impl Into<String>, secret: impl Into<String>) -> Self {
        Self { key_id: key_id.into(), secret: secret.into(), session_token: None }
    }

    /// Reads a file with the id on its first line, the secret on its second, and the session token of a temporary key on its
    /// third.
    ///
    /// # Errors
    /// Returns an error that names the file if it cannot be read, has another form or can be read by everybody.
    pub fn read_file(path: &Path) -> Result<Self, CredentialsError> {
        let failed = |why: String| CredentialsError { path: path.to_owned(), why };
        let system = |error: io::Error| failed(error.to_string());
        let file = std::fs::File::open(path).map_err(system)?;
        if file.metadata().map_err(system)?.mode() & 0o007 != 0 {
            return Err(failed("it is readable by everyone; set its mode to 0600 or 0640".into()));
        }
        let mut text = String::new();
        file.take(FILE_MAX_BYTES).read_to_string(&mut text).map_err(system)?;
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let credentials = match lines[..] {
            [id, secret] => Some(Self::new(id, secret)),
            [id, secret, token] => {
                Some(Self { session_token: Some(token.to_owned()), ..Self::new(id, secret) })
            }
            _ => None,
        };
        let form = "it has to have the id of an access key on its first line and the secret on its second; a temporary \
                    key has its session token on the third";
        credentials.filter(Self::are_usable).ok_or_else(|| failed(form.into()))
    }

    /// Returns what is secret, for what removes it from text.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.secret.as_str()).chain(self.session_token.as_deref())
    }

    /// True if neither part is empty and both consist of visible ASCII characters. An id has no slash, because the
    /// signature separates it by one.
    pub(super) fn are_usable(&self) -> bool {
        let is_visible = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
        let are_visible = is_visible(&self.key_id) && self.secrets().all(is_visible);
        are_visible && !self.key_id.contains('/')
    }

    /// Returns the credentials for the library that signs.
    pub(super) fn reveal(&self) -> rusty_s3::Credentials {
        let (id, secret) = (self.key_id.clone(), self.secret.clone());
        match &self.session_token {
            Some(token) => rusty_s3::Credentials::new_with_token(id, secret, token.clone()),
            None => rusty_s3::Credentials::new(id, secret),
        }
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
    fn an_access_key_is_read_from_a_file_that_others_cannot_read() {
        use std::os::unix::fs::PermissionsExt;
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |text: &str, mode: u32| {
            std::fs::write(file.path(), text).unwrap();
            std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            Credentials::read_file(file.path()).map_err(|error| error.to_string())
        };
        assert_eq!(read("id\n secret \n", 0o640), Ok(Credentials::new("id", "secret")));
        let temporary = read("id\nsecret\ntoken\n", 0o600).unwrap();
        assert_eq!(temporary.secrets().collect::<Vec<_>>(), ["secret", "token"]);
        assert_eq!(temporary.reveal().token(), Some("token"));
        for (text, mode, expected) in [
            ("id\nsecret\n", 0o644, "it is readable by everyone"),
            ("id\n", 0o600, "on its first line"),
            ("id\n\n", 0o600, "on its first line"),
            ("id\ncanary\n\n", 0o600, "on its first line"),
            ("id\ncanary\ntoken\nmore\n", 0o600, "on its first line"),
        ] {
            let error = read(text, mode).unwrap_err();
            assert!(error.contains(expected) && !error.contains("canary"), "{error}");
        }
    }

    #[test]
    fn credentials_are_never_printed() {
        let mut config = ObjectStoreConfig::new("s3://bundles".parse().unwrap());
        config.credentials = Some(Credentials::new("id-canary", "secret-canary"));
        assert!(!format!("{config:?}").contains("canary"));
    }
}
