//! The HTTP client. It follows no redirect, because the goal of one is not in the settings, and it uses no proxy.

use crate::clock::now;
use anyhow::{Context, Result, bail};
use planning::calendar::read_http_date;
use schema::time::EpochSeconds;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use ureq::http::{Request, StatusCode, Uri, header};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, TlsProvider};

/// The authorities of the system on Debian.
const SYSTEM_CACERT: &str = "/etc/ssl/certs/ca-certificates.crt";
/// Time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Longest wait that a receiver may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60 * 60);

/// Answers of 4xx that are about the time or the key. The same message may be accepted later.
const OF_NOW: [StatusCode; 8] = [
    StatusCode::UNAUTHORIZED,
    StatusCode::PROXY_AUTHENTICATION_REQUIRED,
    StatusCode::REQUEST_TIMEOUT,
    StatusCode::CONFLICT,
    StatusCode::MISDIRECTED_REQUEST,
    StatusCode::LOCKED,
    StatusCode::TOO_EARLY,
    StatusCode::TOO_MANY_REQUESTS,
];

/// Why a receiver does not have a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SendError {
    /// The receiver cannot be reached, or cannot take messages now.
    Failed(String),
    /// The receiver cannot take messages for so long, as it says.
    Busy(String, Duration),
    /// The receiver does not accept this message.
    Refused(String),
    /// The receiver is no receiver any more.
    Gone(String),
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Failed(why) | Self::Busy(why, _) | Self::Refused(why) | Self::Gone(why)) = self;
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
            let retry_after = answer.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
            result_of(answer.status(), retry_after.and_then(|text| wait_of(text, now())))
        });
        sending.await.unwrap_or_else(|error| Err(SendError::Failed(error.to_string())))
    }
}

/// Returns what an answer means. `wait` is the wait that it asks for.
fn result_of(status: StatusCode, wait: Option<Duration>) -> Result<(), SendError> {
    let why = format!("the answer is {status}");
    match (status, wait) {
        _ if status.is_success() => Ok(()),
        (StatusCode::GONE, _) => Err(SendError::Gone(why)),
        _ if status.is_client_error() && !OF_NOW.contains(&status) => Err(SendError::Refused(why)),
        (_, Some(wait)) => Err(SendError::Busy(why, wait.min(RETRY_AFTER_MAX))),
        (_, None) => Err(SendError::Failed(why)),
    }
}

/// Reads the header `Retry-After`: a number of seconds or a date (RFC 9110, section 10.2.3).
fn wait_of(text: &str, now: EpochSeconds) -> Option<Duration> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that is too large is longer than any wait.
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let seconds = read_http_date(text)?.0.saturating_sub(now.0);
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_whether_and_when_a_message_is_sent_again() {
        let why = |code: u16| format!("the answer is {}", StatusCode::from_u16(code).unwrap());
        let check = |code: u16, wait: Option<u64>, expected: Result<(), SendError>| {
            let status = StatusCode::from_u16(code).unwrap();
            assert_eq!(result_of(status, wait.map(Duration::from_secs)), expected, "{code}");
        };
        check(204, None, Ok(()));
        check(410, Some(5), Err(SendError::Gone(why(410))));
        for code in [400, 403, 404, 405, 413, 415, 422] {
            check(code, Some(5), Err(SendError::Refused(why(code))));
        }
        for code in [302, 401, 408, 429, 500, 503] {
            check(code, None, Err(SendError::Failed(why(code))));
            check(code, Some(30), Err(SendError::Busy(why(code), Duration::from_secs(30))));
            check(code, Some(u64::MAX), Err(SendError::Busy(why(code), RETRY_AFTER_MAX)));
        }
    }

    #[test]
    fn a_wait_is_a_number_of_seconds_or_a_date() {
        let now = EpochSeconds(1_792_567_680);
        for (text, expected) in [
            ("120", Some(120)),
            (" 0 ", Some(0)),
            ("99999999999999999999999", Some(u64::MAX)),
            ("Wed, 21 Oct 2026 07:29:00 GMT", Some(60)),
            ("Wed, 21 Oct 2026 07:00:00 GMT", Some(0)),
            ("", None),
            ("-1", None),
            ("soon", None),
        ] {
            assert_eq!(wait_of(text, now).map(|wait| wait.as_secs()), expected, "{text}");
        }
    }
}
