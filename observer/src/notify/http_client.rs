//! The HTTP client. It follows no redirect, because the goal of one is not in the settings, and it uses no proxy.

use anyhow::{Context, Result, bail};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use ureq::http::{Request, StatusCode, Uri};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, TlsProvider};

/// The authorities of the system on Debian.
const SYSTEM_CACERT: &str = "/etc/ssl/certs/ca-certificates.crt";
/// Time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Answers that may concern one message alone. Others concern the time, the URL or the key.
const OF_MESSAGE: [StatusCode; 5] = [
    StatusCode::BAD_REQUEST,
    StatusCode::FORBIDDEN,
    StatusCode::PAYLOAD_TOO_LARGE,
    StatusCode::UNSUPPORTED_MEDIA_TYPE,
    StatusCode::UNPROCESSABLE_ENTITY,
];

/// Why a receiver does not have a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SendError {
    /// It cannot be reached, or cannot take messages now.
    Failed(String),
    /// It does not accept this message.
    Refused(String),
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Failed(why) | Self::Refused(why)) = self;
        f.write_str(why)
    }
}

/// Sends requests. Copies share their connections.
#[derive(Clone)]
pub(super) struct HttpClient(ureq::Agent);

impl HttpClient {
    /// Returns a client for these URLs. It trusts the authorities in the file, or those of the system.
    ///
    /// # Errors
    /// Returns an error if a URL cannot be read, or if one needs authorities and their file cannot be used.
    pub(super) fn new<'a>(cacert: Option<&Path>, urls: impl Iterator<Item = &'a String>) -> Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls =
            TlsConfig::builder().provider(TlsProvider::Rustls).unversioned_rustls_crypto_provider(provider);
        let mut needs_authorities = false;
        for url in urls {
            let uri: Uri = url.parse().context("the URL of a receiver")?;
            needs_authorities |= uri.scheme_str() == Some("https");
        }
        if needs_authorities {
            tls = tls.root_certs(authorities(cacert.unwrap_or_else(|| Path::new(SYSTEM_CACERT)))?);
        }
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .user_agent(concat!("orchestrate-observer/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls.build());
        Ok(Self(config.build().into()))
    }

    /// Sends a request, for which files may have to be read. Every answer but a success is an error, which names neither the
    /// URL nor the body.
    pub(super) async fn send(
        &self,
        request: impl FnOnce() -> Result<Request<String>> + Send + 'static,
    ) -> Result<(), SendError> {
        let agent = self.0.clone();
        let sending = tokio::task::spawn_blocking(move || {
            let request = request().map_err(|error| SendError::Failed(format!("{error:#}")))?;
            let answer = agent.run(request).map_err(|error| SendError::Failed(error.to_string()))?;
            let status = answer.status();
            let why = format!("the answer is {status}");
            match status {
                _ if status.is_success() => Ok(()),
                _ if OF_MESSAGE.contains(&status) => Err(SendError::Refused(why)),
                _ => Err(SendError::Failed(why)),
            }
        });
        sending.await.unwrap_or_else(|error| Err(SendError::Failed(error.to_string())))
    }
}

fn authorities(path: &Path) -> Result<RootCerts> {
    let name = || format!("the certificates in {}", path.display());
    let text = std::fs::read(path).with_context(name)?;
    let mut all: Vec<Certificate<'static>> = Vec::new();
    for item in ureq::tls::parse_pem(&text) {
        if let PemItem::Certificate(certificate) = item.with_context(name)? {
            all.push(certificate);
        }
    }
    if all.is_empty() {
        bail!("{}: there is none", name());
    }
    Ok(RootCerts::Specific(Arc::new(all)))
}
