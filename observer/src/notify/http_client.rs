//! The HTTP client. It follows no redirect, because the goal of one is not in the settings, and it uses no proxy.

use anyhow::{Context, Result, bail};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use ureq::http::Request;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, TlsProvider};

/// The authorities of the system on Debian.
const SYSTEM_CACERT: &str = "/etc/ssl/certs/ca-certificates.crt";
/// Time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Sends requests. Copies share their connections.
#[derive(Clone)]
pub(super) struct HttpClient(ureq::Agent);

impl HttpClient {
    /// Returns a client for these URLs. It trusts the authorities in the file, or those of the system.
    ///
    /// # Errors
    /// Returns an error if one of the URLs needs authorities, and their file cannot be used.
    pub(super) fn new<'a>(cacert: Option<&Path>, mut urls: impl Iterator<Item = &'a String>) -> Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls =
            TlsConfig::builder().provider(TlsProvider::Rustls).unversioned_rustls_crypto_provider(provider);
        if urls.any(|url| url.starts_with("https:")) {
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

    /// Sends a request. Every answer but a success is an error; the text holds neither the URL nor the body.
    pub(super) async fn send(
        &self,
        request: Result<Request<String>, ureq::http::Error>,
    ) -> Result<(), String> {
        let request = request.map_err(|error| error.to_string())?;
        let agent = self.0.clone();
        let sending = tokio::task::spawn_blocking(move || match agent.run(request) {
            Ok(answer) if answer.status().is_success() => Ok(()),
            Ok(answer) => Err(format!("the answer is {}", answer.status())),
            Err(error) => Err(error.to_string()),
        });
        sending.await.unwrap_or_else(|error| Err(error.to_string()))
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
