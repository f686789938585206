//! Objects in a bucket of S3, or of a server that speaks like it.

use super::config::{Credentials, ObjectStoreConfig};
use super::copying::{Content, Created, copy};
use super::error::{ObjectProblem, code_in};
use super::name::{ListedObject, ObjectName};
use rusty_s3::actions::ListObjectsV2;
use rusty_s3::{S3Action, UrlStyle};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use ureq::http::{HeaderMap, Response, header};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, TlsProvider};
use ureq::{Body, SendBody};

/// The authorities of the system on Debian.
const SYSTEM_CA: &str = "/etc/ssl/certs/ca-certificates.crt";
/// Longest time for one TCP connect with its TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time for the head of an answer, and in which some byte of a body has to be sent or received.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a signature counts. S3 accepts clocks that differ by as much; see "Authenticating requests" of the Amazon S3 API
/// Reference.
const SIGNATURE_LIFETIME: Duration = Duration::from_secs(15 * 60);
/// How often an upload is tried that conflicts with other requests.
const CREATE_ATTEMPTS: u32 = 3;
/// Bytes of a page of a list that are read. It has at most 1,000 keys, each of at most 3 KiB with its escapes.
const PAGE_MAX_BYTES: u64 = 16 * 1024 * 1024;
/// Number of objects in a list.
const LIST_MAX: usize = 1_000_000;
/// Bytes of an error that are read. The code is at its beginning.
const ERROR_MAX_BYTES: u64 = 16 * 1024;

/// What S3 answers to a conditional PUT that another request disturbed.
const CONFLICT: &str = "ConditionalRequestConflict";

/// What to do about an object that has the name already.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Existing {
    Keep,
    Replace,
}

/// A bucket, and the prefix of the objects in it.
pub(super) struct Bucket {
    agent: ureq::Agent,
    bucket: rusty_s3::Bucket,
    prefix: String,
    credentials: Option<rusty_s3::Credentials>,
    timeout: Duration,
}

impl Bucket {
    /// Returns the bucket with this name.
    pub(super) fn open(name: &str, prefix: &str, config: &ObjectStoreConfig) -> Result<Self, ObjectProblem> {
        let (bucket, is_encrypted) = Self::check(name, config)?;
        // Plain text needs no authorities, and a machine without TLS may have none.
        let roots = is_encrypted.then(|| authorities(config.ca.as_deref().unwrap_or(Path::new(SYSTEM_CA))));
        Ok(Self {
            agent: agent(roots.transpose()?, config.timeout),
            bucket,
            prefix: prefix.to_owned(),
            credentials: config.credentials.as_ref().map(Credentials::reveal),
            timeout: config.timeout,
        })
    }

    /// Checks settings as far as their texts show. Returns the bucket of the library that signs, and whether its connections
    /// are encrypted.
    pub(super) fn check(
        name: &str,
        config: &ObjectStoreConfig,
    ) -> Result<(rusty_s3::Bucket, bool), ObjectProblem> {
        let endpoint = check_settings(config)?;
        let settings = |text: &str| ObjectProblem::Settings(text.to_owned());
        // The endpoint is parsed by the library that signs, so that what is checked is what is used.
        let url = endpoint.parse().ok().ok_or_else(|| settings(ENDPOINT_WANTED))?;
        let bucket = rusty_s3::Bucket::new(url, UrlStyle::Path, name.to_owned(), config.region.clone())
            .map_err(|_| settings(ENDPOINT_WANTED))?;
        let host = bucket.base_url().host_str().unwrap_or_default();
        let is_encrypted = bucket.base_url().scheme() == "https";
        if !is_encrypted && !is_loopback(host) {
            return Err(settings("the endpoint is plain text on a network; write https://"));
        }
        Ok((bucket, is_encrypted))
    }

    /// Creates an object. A conflict is the answer to a PUT during which the object was removed, or which S3 could not order
    /// among others: the Amazon S3 User Guide says that the upload may be repeated then. A server that does not know the
    /// condition refuses it with 501; there the object is looked for first, and two creations at once may both succeed.
    pub(super) fn create(&self, name: &ObjectName, content: Content) -> Result<Created, ObjectProblem> {
        let deadline = Instant::now() + self.timeout;
        let mut attempt = 1;
        loop {
            match self.put(name, content, Existing::Keep, deadline) {
                Err(ObjectProblem::Answer { status: 409, code })
                    if attempt < CREATE_ATTEMPTS && code.as_deref() == Some(CONFLICT) =>
                {
                    attempt += 1;
                }
                Err(ObjectProblem::Answer { status: 501, .. }) => {
                    return self.create_without_condition(name, content, deadline);
                }
                created => return created,
            }
        }
    }

    fn create_without_condition(
        &self,
        name: &ObjectName,
        content: Content,
        deadline: Instant,
    ) -> Result<Created, ObjectProblem> {
        match self.exists(name) {
            Ok(true) => return Ok(Created::Existed),
            // Who may not list a bucket is not told that an object is absent.
            Ok(false) | Err(ObjectProblem::Answer { status: 403, .. }) => {}
            Err(problem) => return Err(problem),
        }
        self.put(name, content, Existing::Replace, deadline)
    }

    /// Stores an object, also in the place of another one.
    pub(super) fn replace(&self, name: &ObjectName, content: Content) -> Result<(), ObjectProblem> {
        self.put(name, content, Existing::Replace, Instant::now() + self.timeout).map(|_| ())
    }

    fn put(
        &self,
        name: &ObjectName,
        content: Content,
        existing: Existing,
        deadline: Instant,
    ) -> Result<Created, ObjectProblem> {
        let rest = deadline.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Err(ObjectProblem::Timeout("the upload conflicted with other requests".to_owned()));
        }
        let key = self.key(name.as_str());
        let mut action = self.bucket.put_object(self.credentials.as_ref(), &key);
        if existing == Existing::Keep {
            // It is signed, so that nobody can make an upload that replaces out of one that does not.
            action.headers_mut().insert("if-none-match", "*");
        }
        let mut reader = content.reader();
        let mut request = self.agent.put(action.sign(SIGNATURE_LIFETIME).as_str());
        if existing == Existing::Keep {
            request = request.header(header::IF_NONE_MATCH, "*");
        }
        let request = request
            .header(header::CONTENT_LENGTH, content.length())
            .header(header::CONTENT_TYPE, "application/octet-stream")
            // The server can refuse the object before its bytes are sent.
            .header(header::EXPECT, "100-continue")
            .config()
            .timeout_global(Some(rest))
            .build();
        let sent = request.send(SendBody::from_reader(&mut reader));
        if let Some(problem) = reader.error {
            return Err(problem);
        }
        let mut answer = sent.map_err(problem_of)?;
        match answer.status().as_u16() {
            200 | 201 | 204 => Ok(Created::Now),
            412 => Ok(Created::Existed),
            _ => Err(refusal(&mut answer)),
        }
    }

    /// True if the object is there.
    pub(super) fn exists(&self, name: &ObjectName) -> Result<bool, ObjectProblem> {
        let key = self.key(name.as_str());
        let action = self.bucket.head_object(self.credentials.as_ref(), &key);
        let sent = self.agent.head(action.sign(SIGNATURE_LIFETIME).as_str()).call();
        let answer = sent.map_err(problem_of)?;
        match answer.status().as_u16() {
            200 => Ok(true),
            404 => Ok(false),
            status => Err(ObjectProblem::Answer { status, code: None }),
        }
    }

    /// Copies an object and returns its length in bytes; `None` if it is not there.
    pub(super) fn get(
        &self,
        name: &ObjectName,
        max: u64,
        into: &mut dyn Write,
    ) -> Result<Option<u64>, ObjectProblem> {
        let key = self.key(name.as_str());
        let action = self.bucket.get_object(self.credentials.as_ref(), &key);
        let sent = self.agent.get(action.sign(SIGNATURE_LIFETIME).as_str()).call();
        let mut answer = sent.map_err(problem_of)?;
        if answer.status() != 200 {
            // Another server than the one of the bucket answers 404 too, without this code.
            return match refusal(&mut answer) {
                ObjectProblem::Answer { status: 404, code } if code.as_deref() == Some("NoSuchKey") => {
                    Ok(None)
                }
                problem => Err(problem),
            };
        }
        let length = content_length(answer.headers());
        if length.is_some_and(|length| length > max) {
            return Err(ObjectProblem::TooLarge { max });
        }
        let of_read = |error: io::Error| problem_of(ureq::Error::from(error));
        let mut body = answer.body_mut().with_config().limit(u64::MAX).reader();
        let copied = copy(&mut body, max, into, of_read)?;
        match length {
            Some(length) if length != copied => Err(ObjectProblem::Connection(format!(
                "the connection ended after {copied} of {length} bytes"
            ))),
            _ => Ok(Some(copied)),
        }
    }

    /// Returns all objects below the prefix.
    pub(super) fn list(&self) -> Result<Vec<ListedObject>, ObjectProblem> {
        let prefix = self.key("");
        let (mut listed, mut next) = (Vec::new(), None::<String>);
        loop {
            let mut action = self.bucket.list_objects_v2(self.credentials.as_ref());
            action.with_prefix(prefix.as_str());
            if let Some(token) = &next {
                action.with_continuation_token(token.as_str());
            }
            let sent = self.agent.get(action.sign(SIGNATURE_LIFETIME).as_str()).call();
            let mut answer = sent.map_err(problem_of)?;
            if answer.status() != 200 {
                return Err(refusal(&mut answer));
            }
            let page = answer.body_mut().with_config().limit(PAGE_MAX_BYTES).read_to_string();
            let page = ListObjectsV2::parse_response(&page.map_err(problem_of)?)
                .map_err(|error| ObjectProblem::Connection(format!("the list cannot be read: {error}")))?;
            listed.extend(page.contents.into_iter().filter_map(|content| {
                let name = content.key.strip_prefix(&prefix)?.parse().ok()?;
                Some(ListedObject { name, bytes: content.size.unwrap_or_default() })
            }));
            if listed.len() > LIST_MAX {
                return Err(ObjectProblem::Settings(format!("there are more than {LIST_MAX} objects")));
            }
            match page.next_continuation_token {
                Some(token) if next.as_ref() != Some(&token) => next = Some(token),
                Some(_) => return Err(ObjectProblem::Connection("the list does not end".to_owned())),
                None => return Ok(listed),
            }
        }
    }

    /// Removes an object, if it is there.
    pub(super) fn remove(&self, name: &ObjectName) -> Result<(), ObjectProblem> {
        let key = self.key(name.as_str());
        let action = self.bucket.delete_object(self.credentials.as_ref(), &key);
        let sent = self.agent.delete(action.sign(SIGNATURE_LIFETIME).as_str()).call();
        let mut answer = sent.map_err(problem_of)?;
        match answer.status().as_u16() {
            200 | 204 => Ok(()),
            _ => match refusal(&mut answer) {
                ObjectProblem::Answer { status: 404, code } if code.as_deref() == Some("NoSuchKey") => Ok(()),
                problem => Err(problem),
            },
        }
    }

    /// Returns the key of the object with a name.
    fn key(&self, name: &str) -> String {
        if self.prefix.is_empty() { name.to_owned() } else { format!("{}/{name}", self.prefix) }
    }
}

const ENDPOINT_WANTED: &str = "the endpoint of S3 must be https://HOST or https://HOST:PORT";

/// Checks the settings as far as their texts show, and returns the endpoint. An error does not repeat the endpoint: somebody
/// may have written a password into it.
fn check_settings(config: &ObjectStoreConfig) -> Result<&str, ObjectProblem> {
    let check = |is_right: bool, text: &str| {
        if is_right { Ok(()) } else { Err(ObjectProblem::Settings(text.to_owned())) }
    };
    let endpoint = config.endpoint.as_deref().unwrap_or_default();
    check(!endpoint.is_empty(), "S3 needs an endpoint, for example https://s3.eu-west-1.amazonaws.com")?;
    check(endpoint.starts_with("https://") || endpoint.starts_with("http://"), ENDPOINT_WANTED)?;
    let is_plain =
        !endpoint.contains(['@', '?', '#', '\\']) && endpoint.bytes().all(|b| b.is_ascii_graphic());
    check(is_plain, "the endpoint must have no user, password, query or fragment; write https://HOST:PORT")?;
    let is_region = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    let region = (1..=64).contains(&config.region.len()) && config.region.bytes().all(is_region);
    check(region, "the region must have 1 to 64 letters, digits and '._-', for example eu-west-1")?;
    let usable = config.credentials.as_ref().is_none_or(Credentials::are_usable);
    check(
        usable,
        "the credentials of S3 must be visible ASCII characters; is one empty, or has a line end?",
    )?;
    check(!config.timeout.is_zero(), "the timeout must be longer than zero")?;
    Ok(endpoint)
}

/// True if a host is this machine. A name other than `localhost` may lead anywhere.
fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn agent(roots: Option<RootCerts>, timeout: Duration) -> ureq::Agent {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls =
        TlsConfig::builder().provider(TlsProvider::Rustls).unversioned_rustls_crypto_provider(provider);
    if let Some(roots) = roots {
        tls = tls.root_certs(roots);
    }
    let answer = Some(ANSWER_TIMEOUT.min(timeout));
    ureq::Agent::config_builder()
        .timeout_global(Some(timeout))
        .timeout_connect(Some(CONNECT_TIMEOUT.min(timeout)))
        .timeout_recv_response(answer)
        .timeout_per_read(answer)
        .timeout_per_write(answer)
        .http_status_as_error(false)
        // A redirect leads to a host that is not in the settings.
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(None)
        .user_agent(concat!("orchestrate/", env!("CARGO_PKG_VERSION")))
        .tls_config(tls.build())
        .build()
        .into()
}

fn authorities(path: &Path) -> Result<RootCerts, ObjectProblem> {
    let what = format!("the certificates in {}", path.display());
    let text = std::fs::read(path).map_err(|error| ObjectProblem::of_file(&what, &error))?;
    let mut all: Vec<Certificate<'static>> = Vec::new();
    for item in ureq::tls::parse_pem(&text) {
        match item {
            Ok(PemItem::Certificate(certificate)) => all.push(certificate),
            Ok(_) => {}
            Err(error) => return Err(ObjectProblem::Settings(format!("{what}: {error}"))),
        }
    }
    if all.is_empty() {
        return Err(ObjectProblem::Settings(format!("{what}: there is none")));
    }
    Ok(RootCerts::Specific(Arc::new(all)))
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Returns what an answer says that is not the wanted one.
fn refusal(answer: &mut Response<Body>) -> ObjectProblem {
    let status = answer.status().as_u16();
    let mut text = Vec::new();
    // Without a body, the status says enough.
    let _ = answer.body_mut().as_reader().take(ERROR_MAX_BYTES).read_to_end(&mut text);
    ObjectProblem::Answer { status, code: code_in(&String::from_utf8_lossy(&text)) }
}

/// Returns what an error of the HTTP client means.
fn problem_of(error: ureq::Error) -> ObjectProblem {
    match error {
        ureq::Error::Timeout(limit) => ObjectProblem::Timeout(limit.to_string()),
        ureq::Error::HostNotFound => {
            ObjectProblem::Connection("the host of the endpoint is not found".to_owned())
        }
        ureq::Error::Tls(text) => ObjectProblem::Untrusted(text.to_owned()),
        ureq::Error::Rustls(error) => of_tls(&error),
        ureq::Error::Io(error) => match error.get_ref().and_then(|inner| inner.downcast_ref()) {
            Some(tls) => of_tls(tls),
            None if error.kind() == io::ErrorKind::TimedOut => ObjectProblem::Timeout(error.to_string()),
            None => ObjectProblem::Connection(error.to_string()),
        },
        other => ObjectProblem::Connection(without_signature(&other.to_string())),
    }
}

fn of_tls(error: &rustls::Error) -> ObjectProblem {
    match error {
        rustls::Error::InvalidCertificate(_)
        | rustls::Error::NoCertificatesPresented
        | rustls::Error::UnsupportedNameType => ObjectProblem::Untrusted(error.to_string()),
        other => ObjectProblem::Connection(other.to_string()),
    }
}

/// Cuts a text before the signature of a request. The HTTP client shows URLs in some errors.
fn without_signature(text: &str) -> String {
    match text.split_once("X-Amz-") {
        Some((before, _)) => format!("{before}…"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
