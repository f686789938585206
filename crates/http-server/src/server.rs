//! Connections, with limits on their number, on the time for a request and its answer, and on
//! sizes.

use axum::Router;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How many connections a server has at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Open connections; further ones wait to be accepted.
    pub connections: usize,
    /// Open connections whose clients wait for a change, and on which no time limit holds meanwhile.
    pub waiting: usize,
}

/// Time limit for what comes before the first request, and for the head of each.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit from the end of the head to the last byte of the answer, without the time that the
/// client asked to wait.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Time after which a request may be ended while other connections wait to be accepted.
const ANSWER_TIMEOUT_IF_FULL: Duration = Duration::from_secs(1);
/// Time between two searches for a request to end, while other connections wait to be accepted.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Longest head of a request, and size of the read and write buffers, in bytes.
const BUFFER_MAX_BYTES: usize = 32 * 1024;
/// Pause after a connection could not be accepted.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// A listener that accepts connections.
pub trait Source: Send + Sync + 'static {
    /// A connection as it was accepted.
    type Accepted: Send + 'static;
    /// A connection over which requests come.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    /// Waits for the next connection. It may be cancelled without losing one.
    ///
    /// # Errors
    /// Returns the system's error if the connection cannot be accepted.
    fn accept(&self) -> impl Future<Output = io::Result<Self::Accepted>> + Send;
    /// Does what comes before the first request, for instance a handshake. Others are accepted meanwhile.
    ///
    /// # Errors
    /// Returns why no request can come.
    fn open(&self, accepted: Self::Accepted) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Source for TcpListener {
    type Accepted = tokio::net::TcpStream;
    type Stream = tokio::net::TcpStream;
    async fn accept(&self) -> io::Result<Self::Accepted> {
        let (stream, _) = self.accept().await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
    async fn open(&self, accepted: Self::Accepted) -> io::Result<Self::Stream> {
        Ok(accepted)
    }
}

impl Source for UnixListener {
    type Accepted = tokio::net::UnixStream;
    type Stream = tokio::net::UnixStream;
    async fn accept(&self) -> io::Result<Self::Accepted> {
        self.accept().await.map(|(stream, _)| stream)
    }
    async fn open(&self, accepted: Self::Accepted) -> io::Result<Self::Stream> {
        Ok(accepted)
    }
}

/// An open connection. A handler gets it as an extension of the request: `Extension<Arc<Connection<P>>>`.
#[derive(Debug)]
pub struct Connection<P = ()> {
    /// The time at which the last request began; `None` while its client waits for a change.
    since: watch::Sender<Option<Instant>>,
    let_go: Notify,
    waits: Arc<Semaphore>,
    /// What the listener knows of the program at the other end.
    pub peer: P,
}

/// A request whose client waits for a change; the wait ends when this is dropped.
pub struct Waiting<P = ()> {
    connection: Arc<Connection<P>>,
    _place: OwnedSemaphorePermit,
}

/// As many clients wait already as may wait at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyWait;

impl<P> Drop for Waiting<P> {
    fn drop(&mut self) {
        self.connection.begin();
    }
}

impl<P> Connection<P> {
    fn begin(&self) {
        self.since.send_replace(Some(Instant::now()));
    }

    /// Marks the connection as waiting because its client wants to wait, so that this time does not count.
    ///
    /// # Errors
    /// Returns an error if as many clients wait as may.
    pub fn wait(self: Arc<Self>) -> Result<Waiting<P>, TooManyWait> {
        let place = self.waits.clone().try_acquire_owned().map_err(|_| TooManyWait)?;
        self.since.send_replace(None);
        Ok(Waiting { connection: self, _place: place })
    }

    /// Resolves when the client has used up its time, or when the connection must make room.
    async fn is_over(&self) {
        let mut since = self.since.subscribe();
        let out_of_time = async {
            loop {
                let until = since.borrow_and_update().map(|since| since + ANSWER_TIMEOUT);
                let changed = since.changed();
                match until {
                    Some(until) => match tokio::time::timeout_at(until, changed).await {
                        Ok(_) => {}
                        Err(_) => return,
                    },
                    // The sender is in `self`, so it cannot be gone.
                    None => _ = changed.await,
                }
            }
        };
        tokio::select! {
            () = out_of_time => {}
            () = self.let_go.notified() => {}
        }
    }
}

struct OpenConnections<P> {
    places: Arc<Semaphore>,
    waits: Arc<Semaphore>,
    all: Vec<Weak<Connection<P>>>,
}

impl<P> OpenConnections<P> {
    fn new(limits: Limits) -> Self {
        let (places, waits) = (Semaphore::new(limits.connections), Semaphore::new(limits.waiting));
        Self { places: Arc::new(places), waits: Arc::new(waits), all: Vec::new() }
    }

    /// Returns a permit for one more connection. If all are taken, the oldest request that exceeds
    /// its time is ended to make room.
    async fn permit(&mut self) -> Option<OwnedSemaphorePermit> {
        self.all.retain(|connection| connection.strong_count() > 0);
        loop {
            if let Ok(place) = self.places.clone().try_acquire_owned() {
                return Some(place);
            }
            self.close_longest_idle();
            let place = self.places.clone().acquire_owned();
            match tokio::time::timeout(POLL_INTERVAL, place).await {
                // The semaphore is never closed.
                Ok(place) => return place.ok(),
                Err(_) => continue,
            }
        }
    }

    fn close_longest_idle(&mut self) {
        let began = self.all.iter().enumerate().filter_map(|(index, connection)| {
            let since = (*connection.upgrade()?.since.borrow())?;
            Some((since, index))
        });
        if let Some((since, index)) = began.min()
            && since.elapsed() >= ANSWER_TIMEOUT_IF_FULL
            && let Some(connection) = self.all.swap_remove(index).upgrade()
        {
            connection.let_go.notify_one();
        }
    }

    fn add(&mut self, peer: P) -> Arc<Connection<P>> {
        let connection = Arc::new(Connection {
            since: watch::channel(Some(Instant::now())).0,
            let_go: Notify::new(),
            waits: self.waits.clone(),
            peer,
        });
        self.all.push(Arc::downgrade(&connection));
        connection
    }
}

/// Serves until `stop` is true. Open requests may finish. `peer` returns what a connection tells of the program at
/// the other end.
pub async fn serve<S: Source, P: Send + Sync + 'static>(
    source: S,
    limits: Limits,
    peer: impl Fn(&S::Accepted) -> P + Send,
    router: Router,
    mut stop: watch::Receiver<bool>,
) {
    let source = Arc::new(source);
    let mut open = OpenConnections::new(limits);
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let taken = tokio::select! {
            // Only the end of the server cancels the second branch; a connection that has no permit
            // yet is closed then.
            () = stopped(&mut stop) => break,
            taken = async { Some((source.accept().await, open.permit().await?)) } => taken,
        };
        let Some((taken, place)) = taken else { break };
        let accepted = match taken {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            }
        };
        let (connection, router, mut stop) = (open.add(peer(&accepted)), router.clone(), stop.clone());
        let source = source.clone();
        connections.spawn(async move {
            let opened = tokio::select! {
                opened = tokio::time::timeout(HEAD_TIMEOUT, source.open(accepted)) => opened.ok(),
                () = connection.is_over() => None,
                () = stopped(&mut stop) => None,
            };
            match opened {
                Some(Ok(stream)) => serve_connection(stream, router, &connection, &mut stop).await,
                Some(Err(error)) => tracing::debug!(%error, "a connection could not be opened"),
                None => tracing::debug!("a client took too long: its connection is closed"),
            }
            drop(place);
        });
    }
    while connections.join_next().await.is_some() {}
}

async fn serve_connection<P: Send + Sync + 'static>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    connection: &Arc<Connection<P>>,
    stop: &mut watch::Receiver<bool>,
) {
    let routed = TowerToHyperService::new(router);
    let service = service_fn(|mut request: hyper::Request<hyper::body::Incoming>| {
        connection.begin();
        request.extensions_mut().insert(connection.clone());
        routed.call(request)
    });
    let talking = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(BUFFER_MAX_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(talking);
    tokio::select! {
        // A client that goes away ends only its own connection.
        _ = talking.as_mut() => {}
        () = connection.is_over() => tracing::debug!("a client took too long: its connection is closed"),
        () = stopped(stop) => {
            talking.as_mut().graceful_shutdown();
            let _ = talking.await;
        }
    }
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone, which also means the end.
    let _ = stop.wait_for(|stop| *stop).await;
}
