//! Questions by TCP (RFC 7766): several on one connection, answered in order.

use super::codec::Transport;
use super::udp::slowly;
use crate::catalog::Reader;
use model::catalog::Zone;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Connections at once; more wait to be taken.
const CONNECTIONS_MAX: usize = 256;
/// A client that asks nothing for so long is let go.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// How long nobody is let in after that failed.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

pub(super) async fn serve(
    listener: TcpListener,
    zone: Arc<Zone>,
    forwarders: Arc<[SocketAddr]>,
    reader: Reader,
) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // Connections end with this task.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        // The semaphore is never closed.
        let Ok(place) = room.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, client)) => {
                // Who is not of this machine gets no recursion.
                let forwarders: Arc<[SocketAddr]> =
                    if client.ip().is_loopback() { forwarders.clone() } else { Arc::default() };
                let (zone, reader) = (zone.clone(), reader.clone());
                connections.spawn(async move {
                    // A client that goes away ends its connection, and nothing else.
                    let _ = talk(stream, zone, &forwarders, reader).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "DNS: a connection could not be taken");
                tokio::time::sleep(AGAIN_AFTER).await;
            }
        }
    }
}

async fn talk(
    mut stream: TcpStream,
    zone: Arc<Zone>,
    forwarders: &[SocketAddr],
    reader: Reader,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    loop {
        let question = tokio::time::timeout(IDLE_MAX, async {
            let length = stream.read_u16().await?;
            let mut packet = vec![0; usize::from(length)];
            stream.read_exact(&mut packet).await?;
            io::Result::Ok(packet)
        });
        let Ok(packet) = question.await else { return Ok(()) };
        let Some(bytes) = slowly(&packet?, Transport::Tcp, zone.clone(), forwarders, reader.clone()).await
        else {
            return Ok(());
        };
        let Ok(length) = u16::try_from(bytes.len()) else { return Ok(()) };
        let mut framed = length.to_be_bytes().to_vec();
        framed.extend_from_slice(&bytes);
        tokio::time::timeout(IDLE_MAX, stream.write_all(&framed)).await??;
    }
}
