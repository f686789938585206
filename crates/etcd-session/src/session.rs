//! One connection to one member of the store, replaced by the next member's when it fails.
//!
//! `etcd-client` can balance over several members, but it goes on choosing dead ones and never leaves a
//! member that is cut off from its peers. So a session talks to one endpoint at a time and moves on
//! when a request fails for a reason that another member may not share.

use crate::classify::Caller;
use crate::config::{EndpointSource, SessionConfig};
use crate::error::{Class, StoreError};
use crate::marks::{Marks, SharedMarks};
use crate::random::jitter;
use crate::request::{Deadline, Repeat};
use crate::{certificates, discovery};
use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};
use schema::time::Backoff;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

/// HTTP/2 pings: a half-open connection is noticed within 15 s. etcd answers pings that come more often
/// than every 5 s with GOAWAY.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);
const TLS_FILES_LOOKED_AT_EVERY: Duration = Duration::from_secs(10);

struct Connection {
    endpoints: Vec<String>,
    index: usize,
    /// The endpoint of the newest client.
    in_use: Arc<str>,
    client: Option<Client>,
    /// Goes up with each new client.
    generation: u64,
    tls_stamp: Vec<Option<SystemTime>>,
    tls_looked_at: Instant,
}

/// A session with the store. Cheap to clone; clones share one connection.
#[derive(Clone)]
pub struct Session {
    inner: Arc<Inner>,
}

struct Inner {
    config: SessionConfig,
    connection: Mutex<Connection>,
    marks: SharedMarks,
    /// The generation of the newest client.
    generations: watch::Sender<u64>,
    /// The generation on which the host's claim was last found as it was written.
    proven: watch::Sender<u64>,
}

impl Session {
    /// A session; connects when it is first used.
    ///
    /// # Errors
    /// A setting that cannot work.
    pub fn new(config: SessionConfig) -> Result<Self, crate::ConfigError> {
        config.check()?;
        let connection = Connection {
            endpoints: Vec::new(),
            index: 0,
            in_use: Arc::default(),
            client: None,
            generation: 0,
            tls_stamp: Vec::new(),
            tls_looked_at: Instant::now(),
        };
        Ok(Self {
            inner: Arc::new(Inner {
                config,
                connection: Mutex::new(connection),
                marks: SharedMarks::default(),
                generations: watch::Sender::new(0),
                proven: watch::Sender::new(0),
            }),
        })
    }

    /// The settings.
    pub fn config(&self) -> &SessionConfig {
        &self.inner.config
    }

    /// A key as it stands in the store.
    pub(crate) fn full(&self, key: impl std::fmt::Display) -> String {
        format!("{}{key}", self.inner.config.namespace)
    }

    /// How far the store had come when it last answered.
    pub fn marks(&self) -> Marks {
        self.inner.marks.get()
    }

    pub(crate) fn note_revision(&self, revision: i64) {
        self.inner.marks.update(|marks| marks.revision = marks.revision.max(revision));
    }

    /// Takes note of an answer, or of what a host remembers: answers older than this are a store that went back.
    pub fn remember_marks(&self, revision: i64, raft_term: u64) {
        self.inner.marks.update(|marks| {
            marks.revision = marks.revision.max(revision);
            marks.raft_term = marks.raft_term.max(raft_term);
        });
    }

    /// Begins a new history with these marks: what was seen before is of a store that is no more.
    pub fn begin_history(&self, revision: i64, raft_term: u64) {
        self.inner.marks.update(|marks| *marks = Marks { history: marks.history + 1, revision, raft_term });
    }

    /// The generation of the newest client, and a way to wait for the next.
    pub(crate) fn generations(&self) -> watch::Receiver<u64> {
        self.inner.generations.subscribe()
    }

    /// Takes note that the host's claim stands as it was written on this connection.
    pub(crate) fn note_proven(&self, generation: u64) {
        self.inner.proven.send_replace(generation);
    }

    /// The generation on which it was found so last, and a way to wait for the next.
    pub(crate) fn proven(&self) -> watch::Receiver<u64> {
        self.inner.proven.subscribe()
    }

    /// The endpoints as they were found last; empty before the first use.
    pub async fn endpoints(&self) -> Vec<String> {
        self.inner.connection.lock().await.endpoints.clone()
    }

    /// An error of a watch, or of something else that changes nothing.
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

    /// The client for the endpoint in use, and its generation.
    pub(crate) async fn client(&self) -> Result<(Client, u64), StoreError> {
        self.connected().await.map(|(client, generation, _)| (client, generation))
    }

    /// The same, and the endpoint: another request may have moved on before this one is answered.
    async fn connected(&self) -> Result<(Client, u64, Arc<str>), StoreError> {
        let config = &self.inner.config;
        let mut connection = self.inner.connection.lock().await;
        if connection.endpoints.is_empty() {
            connection.endpoints = discovery::endpoints(&config.endpoints, !config.tls.is_empty()).await?;
            // Agents that share a list begin at different members.
            connection.index = (jitter() * connection.endpoints.len() as f64) as usize;
        }
        if !config.tls.is_empty() && connection.tls_looked_at.elapsed() > TLS_FILES_LOOKED_AT_EVERY {
            connection.tls_looked_at = Instant::now();
            if connection.tls_stamp != tls_stamp(config) {
                tracing::info!("TLS files changed, connecting anew");
                connection.client = None;
            }
        }
        if let Some(client) = &connection.client {
            return Ok((client.clone(), connection.generation, connection.in_use.clone()));
        }
        let endpoint = connection.endpoints[connection.index % connection.endpoints.len()].clone();
        connection.tls_stamp = tls_stamp(config);
        let options = connect_options(config)?;
        let connecting = Client::connect([endpoint.as_str()], Some(options));
        let client = match tokio::time::timeout(config.dial_timeout + PING_TIMEOUT, connecting).await {
            Ok(Ok(client)) => client,
            Ok(Err(error)) => {
                connection.index = connection.index.wrapping_add(1);
                return Err(self.error_at("connect", Repeat::Freely, Some(&endpoint), &error));
            }
            Err(_) => {
                connection.index = connection.index.wrapping_add(1);
                return Err(StoreError::Unreachable {
                    operation: "connect",
                    detail: format!("{endpoint}: timeout"),
                });
            }
        };
        connection.generation += 1;
        self.inner.generations.send_replace(connection.generation);
        connection.in_use = endpoint.as_str().into();
        connection.client = Some(client.clone());
        Ok((client, connection.generation, connection.in_use.clone()))
    }

    /// Moves on to the next endpoint, if the one of this generation is still in use. After a whole round
    /// the list of endpoints is looked up again.
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

    /// Sends a request, failing over and repeating it as far as that is safe, until the deadline.
    pub(crate) async fn call<T, F, Fut>(
        &self,
        operation: &'static str,
        repeat: Repeat,
        deadline: Deadline,
        request: F,
    ) -> Result<T, StoreError>
    where
        F: Fn(Client) -> Fut,
        Fut: Future<Output = Result<T, etcd_client::Error>>,
    {
        let backoff = Backoff::new(Duration::from_millis(40), Duration::from_secs(2));
        let mut failures = 0;
        let mut last = String::from("no attempt was made");
        loop {
            let left = deadline.left();
            if left.is_zero() {
                let limit = deadline.limit;
                return Err(StoreError::Deadline { operation, limit, detail: last });
            }
            let error = match tokio::time::timeout(left, self.connected()).await {
                // What was wrong before says more than that the time was over.
                Err(_) if failures > 0 => continue,
                Err(_) => StoreError::Unreachable { operation, detail: "connecting took too long".into() },
                Ok(Err(error)) => error,
                Ok(Ok((client, generation, endpoint))) => {
                    let limit = self.inner.config.attempt_timeout.min(deadline.left());
                    let error = match tokio::time::timeout(limit, request(client)).await {
                        Ok(Ok(answer)) => return Ok(answer),
                        Ok(Err(error)) => self.error_at(operation, repeat, Some(&endpoint), &error),
                        // As above; what may have been applied has to be said.
                        Err(_) if failures > 0 && repeat == Repeat::Freely && deadline.left().is_zero() => {
                            continue;
                        }
                        Err(_) => {
                            StoreError::lost(operation, repeat, format!("{endpoint}: no answer in time"))
                        }
                    };
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
            last = error.to_string();
            // The next member is asked at once, the first time round.
            let members = self.inner.connection.lock().await.endpoints.len();
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

fn connect_options(config: &SessionConfig) -> Result<ConnectOptions, StoreError> {
    let mut options = ConnectOptions::new()
        .with_connect_timeout(config.dial_timeout)
        .with_keep_alive(PING_EVERY, PING_TIMEOUT)
        .with_keep_alive_while_idle(true)
        .with_tcp_keepalive(PING_EVERY)
        .with_require_leader(true);
    if let Some((name, password)) = &config.user {
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
