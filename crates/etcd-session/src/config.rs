//! Settings that say how to reach a store.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Text that must not be printed. `Debug` and `Display` show stars, so the text never gets into an
/// output from which it would have to be removed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps the secret text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the bytes, for what removes them from the output of programs.
    pub fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Reads a file that holds nothing but the secret, with or without a line end.
    ///
    /// # Errors
    /// Returns an error that names the file if it cannot be read, is no text or is longer than a secret can be.
    pub fn read_file(path: &Path) -> Result<Self, SecretFileError> {
        let failed = |why: String| SecretFileError { path: path.to_owned(), why };
        let file = std::fs::File::open(path).map_err(|error| failed(error.to_string()))?;
        let mut text = String::new();
        let read = file.take(SECRET_MAX_BYTES + 1).read_to_string(&mut text);
        let length = read.map_err(|error| failed(error.to_string()))?;
        if u64::try_from(length).is_ok_and(|length| length > SECRET_MAX_BYTES) {
            return Err(failed(format!("longer than {SECRET_MAX_BYTES} bytes")));
        }
        Ok(Self::new(text.trim_end_matches('\n')))
    }

    /// Returns the length of the text in bytes.
    pub fn length(&self) -> usize {
        self.0.len()
    }

    /// True if the secret equals this text.
    pub fn is(&self, text: &str) -> bool {
        self.0 == text
    }

    /// Writes the text to a file. The caller must make sure that only the owner can read the file.
    ///
    /// # Errors
    /// Returns the I/O error of the write.
    pub fn write_to(&self, file: &mut impl std::io::Write) -> std::io::Result<()> {
        file.write_all(self.0.as_bytes())
    }

    /// Returns the plain text, for a library that needs it.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Longest secret that is read from a file, in bytes.
const SECRET_MAX_BYTES: u64 = 64 * 1024;

/// Why the file of a secret cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {why}", .path.display())]
pub struct SecretFileError {
    path: PathBuf,
    why: String,
}

/// Source of the list of endpoints. A source other than a list is looked up again after requests
/// have failed on every endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndpointSource {
    /// A fixed list of endpoints.
    List(Vec<String>),
    /// A file with one endpoint per line; `#` begins a comment.
    File(PathBuf),
    /// A DNS domain with SRV records under `_etcd-client-ssl._tcp` and `_etcd-client._tcp`.
    Srv(String),
    /// An etcd discovery URL with its token. An endpoint is the host part of a registered URL with
    /// this port.
    Discovery {
        /// URL of the discovery service, including the token.
        url: String,
        /// Client port of the members. It replaces the peer port of the registered URLs.
        port: u16,
    },
}

impl EndpointSource {
    /// Returns the source that settings name: a file, a domain, or a discovery URL with the port of the members, else the
    /// list. The store of this machine if they name none.
    pub fn named(
        file: Option<PathBuf>,
        domain: Option<String>,
        discovery: Option<(String, u16)>,
        list: Option<Vec<String>>,
    ) -> Self {
        if let Some(path) = file {
            return Self::File(path);
        }
        if let Some(domain) = domain {
            return Self::Srv(domain);
        }
        if let Some((url, port)) = discovery {
            return Self::Discovery { url, port };
        }
        Self::List(list.unwrap_or_else(|| vec!["127.0.0.1:2379".into()]))
    }
}

/// Paths of the TLS files. The files are read again when they change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificates of the authorities that may sign the certificate of the store.
    pub cacert: Option<PathBuf>,
    /// Certificate chain of the client.
    pub cert: Option<PathBuf>,
    /// Private key of the client.
    pub key: Option<PathBuf>,
}

impl TlsFiles {
    /// True if no file is configured.
    pub fn is_empty(&self) -> bool {
        self.cacert.is_none() && self.cert.is_none() && self.key.is_none()
    }
}

/// A setting that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// `--user` is given without a password.
    #[error("--user wants NAME:PASSWORD, or the password in ORCHESTRATE_PASSWORD or ETCDCTL_PASSWORD")]
    NoPassword,
    /// Only one of certificate and key is given; the field names the missing option.
    #[error("--cert and --key go together: {0} is missing")]
    HalfIdentity(&'static str),
    /// The namespace does not separate its keys from others: it must begin with a slash and not end
    /// with one.
    #[error("the namespace {0} must be empty or begin with a slash, without a slash at its end")]
    Namespace(String),
    /// An endpoint uses plain text although TLS files are configured.
    #[error("the endpoint {0} is plain text, but TLS files are configured; write https://")]
    PlainText(String),
    /// The list of endpoints is empty.
    #[error("the list of endpoints is empty; name one, for example http://127.0.0.1:2379")]
    NoEndpoints,
    /// An endpoint has another scheme than http and https.
    #[error("the endpoint {0} begins with neither http:// nor https://")]
    Scheme(String),
}

/// All settings of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionConfig {
    /// Source of the endpoints.
    pub endpoints: EndpointSource,
    /// Files for TLS; without any, connections may use plain text.
    pub tls: TlsFiles,
    /// User name and password; `None` for no authentication by password.
    pub user: Option<(String, Secret)>,
    /// The file of the password. It is read again for each connection, and when the store does not accept the
    /// password any more, so that a password can be changed while a program runs.
    pub password_file: Option<PathBuf>,
    /// Prefix of every key in the store; empty for none.
    pub namespace: String,
    /// Longest time for one TCP connect with its TLS handshake.
    pub dial_timeout: Duration,
    /// Longest time for one attempt of one request. The whole request is bounded by its own
    /// deadline.
    pub attempt_timeout: Duration,
    /// Whether a request is repeated until its deadline though somebody has to change a name, a certificate or a
    /// setting first. An agent waits for that; a command says at once what is wrong.
    pub waits_for_repair: bool,
}

impl SessionConfig {
    /// Returns the default settings for these endpoints.
    pub fn new(endpoints: EndpointSource) -> Self {
        Self {
            endpoints,
            tls: TlsFiles::default(),
            user: None,
            password_file: None,
            namespace: String::new(),
            dial_timeout: Duration::from_secs(2),
            attempt_timeout: Duration::from_secs(5),
            waits_for_repair: true,
        }
    }

    /// Parses `NAME:PASSWORD`, or a name with a separate password, as etcdctl does.
    ///
    /// # Errors
    /// Returns [`ConfigError::NoPassword`] if no password is given.
    pub fn parse_user(user: &str, password: Option<Secret>) -> Result<(String, Secret), ConfigError> {
        match (user.split_once(':'), password) {
            (_, Some(password)) => Ok((user.to_owned(), password)),
            (Some((name, password)), None) => Ok((name.to_owned(), Secret::new(password))),
            (None, None) => Err(ConfigError::NoPassword),
        }
    }

    /// Checks the settings as far as that is possible without I/O.
    ///
    /// # Errors
    /// Returns the first setting that cannot be used, with the reason.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.problems().into_iter().next().map_or(Ok(()), Err)
    }

    /// Returns every setting that cannot be used, as far as that is known without I/O.
    pub fn problems(&self) -> Vec<ConfigError> {
        let mut problems = Vec::new();
        let namespace = &self.namespace;
        if !namespace.is_empty() && (!namespace.starts_with('/') || namespace.ends_with('/')) {
            problems.push(ConfigError::Namespace(namespace.clone()));
        }
        match (&self.tls.cert, &self.tls.key) {
            (Some(_), None) => problems.push(ConfigError::HalfIdentity("--key")),
            (None, Some(_)) => problems.push(ConfigError::HalfIdentity("--cert")),
            _ => {}
        }
        let EndpointSource::List(list) = &self.endpoints else { return problems };
        if list.is_empty() {
            problems.push(ConfigError::NoEndpoints);
        }
        for endpoint in list {
            match endpoint.split_once("://") {
                Some((scheme, _)) if !["http", "https"].contains(&scheme) => {
                    problems.push(ConfigError::Scheme(endpoint.clone()));
                }
                Some(("http", _)) if !self.tls.is_empty() => {
                    problems.push(ConfigError::PlainText(endpoint.clone()));
                }
                _ => {}
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_printed() {
        let mut config = SessionConfig::new(EndpointSource::List(vec!["http://h:2379".into()]));
        config.user = Some(SessionConfig::parse_user("root:canary", None).unwrap());
        assert!(!format!("{config:?}").contains("canary"));
        let secret = config.user.unwrap().1;
        assert_eq!(secret.to_string(), "***");
    }

    #[test]
    fn a_secret_is_read_from_a_file_without_its_line_end() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("password");
        std::fs::write(&file, "hush \n").unwrap();
        assert!(Secret::read_file(&file).unwrap().is("hush "));
        std::fs::write(&file, "x".repeat(70_000)).unwrap();
        let error = Secret::read_file(&file).unwrap_err().to_string();
        assert_eq!(error, format!("{}: longer than 65536 bytes", file.display()));
        assert!(Secret::read_file(&directory.path().join("none")).is_err());
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        let fine = SessionConfig::new(EndpointSource::List(vec!["http://h:2379".into()]));
        fine.check().unwrap();
        let check = |change: fn(&mut SessionConfig), part: &str| {
            let mut config = fine.clone();
            change(&mut config);
            let error = config.check().unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        check(|c| c.namespace = "site".into(), "begin with a slash");
        check(|c| c.namespace = "/site/".into(), "without a slash at its end");
        check(|c| c.tls.cert = Some("c".into()), "--key is missing");
        check(|c| c.tls.key = Some("k".into()), "--cert is missing");
        check(|c| c.tls.cacert = Some("ca".into()), "write https://");
        check(|c| c.endpoints = EndpointSource::List(Vec::new()), "the list of endpoints is empty");
        check(|c| c.endpoints = EndpointSource::List(vec!["ftp://x".into()]), "ftp://x begins with neither");
        assert_eq!(SessionConfig::parse_user("root", None), Err(ConfigError::NoPassword));
    }
}
