//! One connection to one member of the store. When it fails, the next member is used.
//!
//! `etcd-client` can balance over several members, but it keeps choosing dead ones and never leaves
//! a member that is cut off from its peers. So a session uses one endpoint at a time, and moves on
//! when a request fails for a reason that may not apply to another member.
//!
//! This file is long because connecting, failover and logging in again change one state.

use crate::classify::{Caller, is_outdated_token};
use crate::config::{EndpointSource, Secret, SessionConfig};
use crate::error::{Class, StoreError};
use crate::observer::{RequestKind, RequestObserver};
use crate::pace::request_backoff;
use crate::random::jitter;
use crate::request::{Deadline, Repeat};
use crate::{certificates, discovery};
use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};
use schema::store_marks::Marks;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

/// Interval of HTTP/2 pings. A half-open connection is noticed within 15 s. etcd answers pings that
/// come more often than every 5 s with GOAWAY.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);
const TLS_FILES_POLL_INTERVAL: Duration = Duration::from_secs(10);

struct Connection {
    endpoints: Vec<String>,
    index: usize,
    /// Endpoint of the newest client.
    in_use: Arc<str>,
    client: Option<Client>,
    /// Number of the newest client; increases with each new one.
    generation: u64,
    tls_stamp: Vec<Option<SystemTime>>,
    tls_looked_at: Instant,
    /// The password of the newest client, if it is that of a file.
    password: Option<Secret>,
}

/// A session with the store. It is cheap to clone; clones share one connection.
#[derive(Clone)]
pub struct Session {
    inner: Arc<Inner>,
}

/// Makes the client of an endpoint.
type Connect = Box<
    dyn Fn(String, ConnectOptions) -> Pin<Box<dyn Future<Output = Result<Client, etcd_client::Error>> + Send>>
        + Send
        + Sync,
>;

struct Inner {
    config: SessionConfig,
    connect: Connect,
    connection: Mutex<Connection>,
    marks: watch::Sender<Marks>,
    /// Generation of the newest client.
    generations: watch::Sender<u64>,
    /// Generation of the connection on which the host's claim was last found unchanged.
    proven: watch::Sender<u64>,
    observer: OnceLock<RequestObserver>,
}

impl Session {
    /// Returns a session, which connects when it is first used.
    ///
    /// # Errors
    /// Returns the setting that cannot be used.
    pub fn new(config: SessionConfig) -> Result<Self, crate::ConfigError> {
        let connect: Connect = Box::new(|endpoint, options| {
            Box::pin(async move { Client::connect([endpoint], Some(options)).await })
        });
        Self::connecting_by(config, connect)
    }

    /// Returns a session with a store in this process, behind such a channel.
    ///
    /// # Panics
    /// Never: the settings of such a session can be used.
    pub fn through<C>(channel: C) -> Self
    where
        C: etcd_client::BalancedChannelBuilder<Error = etcd_client::Error> + Clone + Send + Sync + 'static,
    {
        let config = SessionConfig::new(EndpointSource::List(vec!["store".to_owned()]));
        let connect: Connect = Box::new(move |endpoint, options| {
            Box::pin(Client::connect_with_balanced_channel([endpoint], Some(options), channel.clone()))
        });
        Self::connecting_by(config, connect).expect("settings that can be used")
    }

    /// Returns a session that makes its clients by `connect`.
    fn connecting_by(config: SessionConfig, connect: Connect) -> Result<Self, crate::ConfigError> {
        config.check()?;
        let connection = Connection {
            endpoints: Vec::new(),
            index: 0,
            in_use: Arc::default(),
            client: None,
            generation: 0,
            tls_stamp: Vec::new(),
            tls_looked_at: Instant::now(),
            password: None,
        };
        Ok(Self {
            inner: Arc::new(Inner {
                config,
                connect,
                connection: Mutex::new(connection),
                marks: watch::Sender::default(),
                generations: watch::Sender::new(0),
                proven: watch::Sender::new(0),
                observer: OnceLock::new(),
            }),
        })
    }

    /// Returns the settings of the session.
    pub fn config(&self) -> &SessionConfig {
        &self.inner.config
    }

    /// Has each request from now on observed. Only the first observer counts.
    pub fn observe_requests(&self, observer: RequestObserver) {
        let _ = self.inner.observer.set(observer);
    }

    fn observed(&self, kind: RequestKind, error: Option<&StoreError>, begun: Instant) {
        if let Some(observer) = self.inner.observer.get() {
            observer(kind, error, begun.elapsed());
        }
    }

    /// Returns a key as it is stored, with the namespace.
    pub(crate) fn full(&self, key: impl std::fmt::Display) -> String {
        format!("{}{key}", self.inner.config.namespace)
    }

    /// Returns the highest revision and raft term that the store has answered with.
    pub fn marks(&self) -> Marks {
        *self.inner.marks.borrow()
    }

    pub(crate) fn note_revision(&self, revision: i64) {
        self.inner.marks.send_modify(|marks| marks.raise(revision, 0));
    }

    /// Raises the marks to those of an answer, or to those that a host remembers: an answer below
    /// them comes from a store that went back.
    pub fn remember_marks(&self, revision: i64, raft_term: u64) {
        self.inner.marks.send_modify(|marks| marks.raise(revision, raft_term));
    }

    /// Begins a new history with these marks, because the earlier marks belong to a store that does
    /// not exist any more.
    pub fn begin_history(&self, revision: i64, raft_term: u64) {
        self.inner.marks.send_modify(|marks| marks.begin_history(revision, raft_term));
    }

    /// Returns a receiver of the generation of the newest client, which can also wait for the next
    /// one.
    pub(crate) fn generations(&self) -> watch::Receiver<u64> {
        self.inner.generations.subscribe()
    }

    /// Records that the host's claim was found unchanged on the connection of this generation.
    pub(crate) fn note_proven(&self, generation: u64) {
        self.inner.proven.send_replace(generation);
    }

    /// Returns a receiver of the generation on which the claim was last found unchanged, which can
    /// also wait for the next one.
    pub(crate) fn proven(&self) -> watch::Receiver<u64> {
        self.inner.proven.subscribe()
    }

    /// Returns the endpoints found by the last look-up; empty before the first use.
    pub async fn endpoints(&self) -> Vec<String> {
        self.inner.connection.lock().await.endpoints.clone()
    }

    /// Classifies an error of a watch, or of another operation that changes nothing.
    pub(crate) fn error(&self, operation: &'static str, error: &etcd_client::Error) -> StoreError {
        self.error_at(operation, Repeat::Freely, None, error)
    }

    fn error_at(
        &self,
        operation: &'static str,
        repeat: Repeat,
        endpoint: Option<&str>,
        error: &etcd_client::Error,
    ) -> StoreError {
        let config = &self.inner.config;
        let mut error = StoreError::of(operation, repeat, &Caller { config, endpoint }, error);
        if let StoreError::Unreachable { detail, .. }
        | StoreError::Lost { detail, .. }
        | StoreError::Unknown { detail, .. }
        | StoreError::Tls { detail, .. } = &mut error
            && let Some(ended) = certificates::ended(&config.tls)
        {
            detail.push_str("; ");
            detail.push_str(&ended);
        }
        error
    }

    /// Returns the client of the endpoint in use, and its generation.
    pub(crate) async fn client(&self) -> Result<(Client, u64), StoreError> {
        self.connected().await.map(|(client, generation, _)| (client, generation))
    }

    /// Like [`Self::client`], but also returns the endpoint, because another request may move on to
    /// the next one before this request is answered.
    async fn connected(&self) -> Result<(Client, u64, Arc<str>), StoreError> {
        let config = &self.inner.config;
        let mut connection = self.inner.connection.lock().await;
        if connection.endpoints.is_empty() {
            connection.endpoints = discovery::endpoints(&config.endpoints, !config.tls.is_empty()).await?;
            // Agents that share a list begin with different members.
            connection.index = (jitter() * connection.endpoints.len() as f64) as usize;
        }
        if !config.tls.is_empty() && connection.tls_looked_at.elapsed() > TLS_FILES_POLL_INTERVAL {
            connection.tls_looked_at = Instant::now();
            if connection.tls_stamp != tls_stamp(config) {
                tracing::info!("TLS files changed, reconnecting");
                connection.client = None;
            }
        }
        if let Some(client) = &connection.client {
            return Ok((client.clone(), connection.generation, connection.in_use.clone()));
        }
        let endpoint = connection.endpoints[connection.index % connection.endpoints.len()].clone();
        connection.tls_stamp = tls_stamp(config);
        if let Some(file) = &config.password_file {
            // Without the file the last password may still be right; the store says if it is not.
            connection.password = Secret::read_file(file).ok().or(connection.password.take());
        }
        let options = connect_options(config, connection.password.as_ref())?;
        let (connecting, begun) = ((self.inner.connect)(endpoint.clone(), options), Instant::now());
        let connected = match tokio::time::timeout(config.dial_timeout + PING_TIMEOUT, connecting).await {
            Ok(Ok(client)) => Ok(client),
            Ok(Err(error)) => Err(self.error_at("connect", Repeat::Freely, Some(&endpoint), &error)),
            Err(_) => {
                let detail = format!("{endpoint}: timeout");
                Err(StoreError::Unreachable { operation: "connect", detail })
            }
        };
        // The client may connect only with its first request, so that a success says nothing.
        let client = connected.inspect_err(|error| {
            self.observed(RequestKind::Connect, Some(error), begun);
            connection.index = connection.index.wrapping_add(1);
        })?;
        connection.generation += 1;
        self.inner.generations.send_replace(connection.generation);
        connection.in_use = endpoint.as_str().into();
        connection.client = Some(client.clone());
        Ok((client, connection.generation, connection.in_use.clone()))
    }

    /// Has the next request log in again, if that may help after the store did not accept the user of the client of this
    /// generation: the file of the password has another one by now, or only the token is outdated. Else the error says
    /// why the file cannot be read.
    async fn logs_in_again(&self, generation: u64, error: &mut StoreError) -> bool {
        let StoreError::Unauthenticated { detail, .. } = error else { return false };
        let mut connection = self.inner.connection.lock().await;
        if connection.generation != generation {
            return true;
        }
        let file = self.inner.config.password_file.as_deref();
        let helps = match file.map(Secret::read_file) {
            Some(Ok(password)) if connection.password.as_ref() != Some(&password) => {
                tracing::info!("the file of the password changed, logging in again");
                true
            }
            Some(Err(why)) => {
                detail.push_str(&format!("; the password cannot be read: {why}"));
                false
            }
            _ => is_outdated_token(detail),
        };
        if helps {
            connection.client = None;
        }
        helps
    }

    /// Moves on to the next endpoint, if the client of this generation is still in use. After a
    /// whole round the endpoints are looked up again, unless they are a fixed list.
    pub(crate) async fn move_on(&self, generation: u64) {
        let mut connection = self.inner.connection.lock().await;
        if connection.generation != generation {
            return;
        }
        connection.client = None;
        connection.index = connection.index.wrapping_add(1);
        let looked_up = !matches!(self.inner.config.endpoints, EndpointSource::List(_));
        if looked_up && connection.index.is_multiple_of(connection.endpoints.len().max(1)) {
            connection.endpoints.clear();
        }
    }

    /// Sends a request. Fails over and repeats it as far as that is safe, until the deadline.
    pub(crate) async fn call<T, F, Fut>(
        &self,
        kind: RequestKind,
        operation: &'static str,
        repeat: Repeat,
        deadline: Deadline,
        request: F,
    ) -> Result<T, StoreError>
    where
        F: Fn(Client) -> Fut,
        Fut: Future<Output = Result<T, etcd_client::Error>>,
    {
        let backoff = request_backoff();
        let mut failures = 0;
        // Members in a row that answered that somebody has to help.
        let mut hopeless = 0;
        let mut has_logged_in = false;
        let mut last = String::from("no attempt was made");
        loop {
            let left = deadline.left();
            if left.is_zero() {
                let limit = deadline.limit;
                return Err(StoreError::Deadline { operation, limit, detail: last });
            }
            let error = match tokio::time::timeout(left, self.connected()).await {
                // The earlier error is more useful than the fact that the time is over.
                Err(_) if failures > 0 => continue,
                Err(_) => StoreError::Unreachable { operation, detail: "connecting took too long".into() },
                Ok(Err(error)) => error,
                Ok(Ok((client, generation, endpoint))) => {
                    let limit = self.inner.config.attempt_timeout.min(deadline.left());
                    let begun = Instant::now();
                    let mut error = match tokio::time::timeout(limit, request(client)).await {
                        Ok(Ok(answer)) => {
                            self.observed(kind, None, begun);
                            return Ok(answer);
                        }
                        Ok(Err(error)) => self.error_at(operation, repeat, Some(&endpoint), &error),
                        // As above. But if the request may have been applied, the error must say
                        // so.
                        Err(_) if failures > 0 && repeat == Repeat::Freely && deadline.left().is_zero() => {
                            continue;
                        }
                        Err(_) => {
                            StoreError::lost(operation, repeat, format!("{endpoint}: no answer in time"))
                        }
                    };
                    self.observed(kind, Some(&error), begun);
                    if !has_logged_in && self.logs_in_again(generation, &mut error).await {
                        has_logged_in = true;
                        continue;
                    }
                    if error.class() != Class::Fatal && !matches!(error, StoreError::Busy { .. }) {
                        self.move_on(generation).await;
                    }
                    error
                }
            };
            match (error.class(), repeat) {
                (Class::Fatal, _) | (Class::Unknown, Repeat::IfNotApplied) => return Err(error),
                _ => {}
            }
            failures += 1;
            let members = self.inner.connection.lock().await.endpoints.len();
            let config = &self.inner.config;
            hopeless = if error.needs_somebody(&config.endpoints) { hopeless + 1 } else { 0 };
            if !config.waits_for_repair && hopeless >= members.max(1) {
                return Err(error);
            }
            last = error.cause(operation);
            // The first round tries every member without delay.
            if failures as usize >= members {
                tokio::time::sleep(backoff.delay(failures, jitter()).min(deadline.left())).await;
            }
        }
    }
}

fn tls_stamp(config: &SessionConfig) -> Vec<Option<SystemTime>> {
    let modified = |p: &Path| std::fs::metadata(p).and_then(|m| m.modified()).ok();
    [&config.tls.cacert, &config.tls.cert, &config.tls.key]
        .into_iter()
        .flatten()
        .map(|p| modified(p))
        .collect()
}

fn connect_options(
    config: &SessionConfig,
    password_of_file: Option<&Secret>,
) -> Result<ConnectOptions, StoreError> {
    let mut options = ConnectOptions::new()
        .with_connect_timeout(config.dial_timeout)
        .with_keep_alive(PING_INTERVAL, PING_TIMEOUT)
        .with_keep_alive_while_idle(true)
        .with_tcp_keepalive(PING_INTERVAL)
        .with_require_leader(true);
    if let Some((name, password)) = &config.user {
        let password = password_of_file.unwrap_or(password);
        options = options.with_user(name, password.reveal()).with_auto_token_refresh(true);
    }
    if !config.tls.is_empty() {
        let pem = certificates::read(&config.tls)?;
        let mut tls = TlsOptions::new().timeout(config.dial_timeout);
        if let Some(authorities) = pem.authorities {
            tls = tls.ca_certificate(Certificate::from_pem(authorities));
        }
        if let Some((cert, key)) = pem.identity {
            tls = tls.identity(Identity::from_pem(cert, key));
        }
        options = options.with_tls(tls);
    }
    Ok(options)
}
