//! Connections: bounded in number, in the time that they may take to say what they want, and in size.

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

/// Connections at once; more wait to be taken.
const CONNECTIONS_MAX: usize = 512;
/// A client has so long to send the head of a request.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// How long nobody is let in after that failed.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// What connections come from.
pub(super) trait Source {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    async fn take(&self) -> io::Result<Self::Stream>;
}

impl Source for TcpListener {
    type Stream = tokio::net::TcpStream;
    async fn take(&self) -> io::Result<Self::Stream> {
        let (stream, _) = self.accept().await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

impl Source for UnixListener {
    type Stream = tokio::net::UnixStream;
    async fn take(&self) -> io::Result<Self::Stream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

/// Serves until `stop` says so; open requests may end.
pub(super) async fn serve(source: impl Source, router: Router, mut stop: watch::Receiver<bool>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let taken = tokio::select! {
            // Nothing is lost: a connection that was not taken waits for the next.
            () = stopped(&mut stop) => break,
            taken = async {
                // The semaphore is never closed.
                let place = room.clone().acquire_owned().await.ok()?;
                Some((source.take().await, place))
            } => taken,
        };
        let Some((taken, place)) = taken else { break };
        let stream = match taken {
            Ok(stream) => stream,
            Err(error) => {
                tracing::debug!(%error, "a connection could not be taken");
                tokio::time::sleep(AGAIN_AFTER).await;
                continue;
            }
        };
        let service = TowerToHyperService::new(router.clone());
        let mut stop = stop.clone();
        connections.spawn(async move {
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_WITHIN)
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades();
            tokio::pin!(connection);
            tokio::select! {
                // A client that goes away ends its connection, and nothing else.
                _ = connection.as_mut() => {}
                () = stopped(&mut stop) => {
                    connection.as_mut().graceful_shutdown();
                    let _ = connection.await;
                }
            }
            drop(place);
        });
    }
    while connections.join_next().await.is_some() {}
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone, which is the end as well.
    let _ = stop.wait_for(|stop| *stop).await;
}
