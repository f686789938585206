//! How to reach a store.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Text that must not be printed: `Debug` and `Display` show stars, and it is wiped from no output because
/// it never gets there.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes the text in.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Text from a program that may have printed the secret, with stars in its place.
    pub fn redact(&self, text: &str) -> String {
        if self.0.is_empty() { text.to_owned() } else { text.replace(&self.0, "***") }
    }

    /// In bytes.
    pub fn length(&self) -> usize {
        self.0.len()
    }

    /// Whether this is the text.
    pub fn is(&self, text: &str) -> bool {
        self.0 == text
    }

    /// Writes the text to where only its owner reads it.
    ///
    /// # Errors
    /// It cannot be written there.
    pub fn write_to(&self, file: &mut impl std::io::Write) -> std::io::Result<()> {
        file.write_all(self.0.as_bytes())
    }

    /// Hands the text to the library that needs it.
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

/// Where the list of endpoints comes from. It is looked up again whenever every endpoint failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndpointSource {
    /// Given as it is.
    List(Vec<String>),
    /// A file, one endpoint per line; `#` begins a comment.
    File(PathBuf),
    /// A DNS domain: `_etcd-client-ssl._tcp` and `_etcd-client._tcp` SRV records under it.
    Srv(String),
    /// An etcd discovery URL with its token; the host part of every registered URL, on this port.
    Discovery {
        /// The URL.
        url: String,
        /// The client port.
        port: u16,
    },
}

/// Files for TLS. They are read again when they change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificates of the authorities that may sign the store's certificate.
    pub cacert: Option<PathBuf>,
    /// The client's certificate.
    pub cert: Option<PathBuf>,
    /// The client's key.
    pub key: Option<PathBuf>,
}

impl TlsFiles {
    /// True if no file is named.
    pub fn is_empty(&self) -> bool {
        self.cacert.is_none() && self.cert.is_none() && self.key.is_none()
    }
}

/// A setting that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// `--user` without a password.
    #[error("--user wants NAME:PASSWORD, or the password in ORCHESTRATE_PASSWORD or ETCDCTL_PASSWORD")]
    NoPassword,
    /// One of certificate and key without the other.
    #[error("--cert and --key go together: {0} is missing")]
    HalfIdentity(&'static str),
    /// The namespace would not keep keys apart.
    #[error("the namespace {0} must be empty or begin with a slash, without a slash at its end")]
    Namespace(String),
    /// A plain endpoint together with TLS files.
    #[error("the endpoint {0} is plain text, but TLS files are configured; write https://")]
    PlainText(String),
}

/// Everything that a session needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionConfig {
    /// Where the endpoints come from.
    pub endpoints: EndpointSource,
    /// TLS.
    pub tls: TlsFiles,
    /// User and password.
    pub user: Option<(String, Secret)>,
    /// Put in front of every key.
    pub namespace: String,
    /// Most time for one TCP and TLS connect.
    pub dial_timeout: Duration,
    /// Most time for one attempt of one request; the whole request is bounded by its own deadline.
    pub attempt_timeout: Duration,
}

impl SessionConfig {
    /// The default settings for these endpoints.
    pub fn new(endpoints: EndpointSource) -> Self {
        Self {
            endpoints,
            tls: TlsFiles::default(),
            user: None,
            namespace: String::new(),
            dial_timeout: Duration::from_secs(2),
            attempt_timeout: Duration::from_secs(5),
        }
    }

    /// Reads `NAME:PASSWORD`, or a name with its password apart, as etcdctl does.
    ///
    /// # Errors
    /// No password.
    pub fn parse_user(user: &str, password: Option<&str>) -> Result<(String, Secret), ConfigError> {
        match (user.split_once(':'), password) {
            (_, Some(password)) => Ok((user.to_owned(), Secret::new(password))),
            (Some((name, password)), None) => Ok((name.to_owned(), Secret::new(password))),
            (None, None) => Err(ConfigError::NoPassword),
        }
    }

    /// Checks what can be checked without IO.
    ///
    /// # Errors
    /// Says which setting and why.
    pub fn check(&self) -> Result<(), ConfigError> {
        let namespace = &self.namespace;
        if !namespace.is_empty() && (!namespace.starts_with('/') || namespace.ends_with('/')) {
            return Err(ConfigError::Namespace(namespace.clone()));
        }
        match (&self.tls.cert, &self.tls.key) {
            (Some(_), None) => return Err(ConfigError::HalfIdentity("--key")),
            (None, Some(_)) => return Err(ConfigError::HalfIdentity("--cert")),
            _ => {}
        }
        if let (EndpointSource::List(list), false) = (&self.endpoints, self.tls.is_empty())
            && let Some(plain) = list.iter().find(|e| e.starts_with("http://"))
        {
            return Err(ConfigError::PlainText(plain.clone()));
        }
        Ok(())
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
        assert_eq!(secret.redact("login root:canary ok"), "login root:*** ok");
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
        assert_eq!(SessionConfig::parse_user("root", None), Err(ConfigError::NoPassword));
    }
}
