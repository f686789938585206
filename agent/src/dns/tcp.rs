//! DNS queries by TCP (RFC 7766): several on one connection, answered in order.

use super::cache::{AnswerCache, CacheResult};
use super::codec::{Transport, refused};
use super::forward::Forwarders;
use super::limit::{CONNECTIONS_MAX, Connections};
use super::udp::answer_with_reads;
use crate::catalog::Reader;
use crate::metrics::QueryMetrics;
use catalog::Zone;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Time limit for the next query of a client, and for sending answers to it. Then the connection is
/// closed.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// Pause after a connection could not be accepted.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// Size of the read buffer, in bytes: queries that arrive together are read together.
const READ_BYTES: usize = 4096;
/// Size of pending answers at which they are sent, in bytes.
const WRITE_BYTES: usize = 64 * 1024;
/// Size of the length in front of each message, in bytes (RFC 1035, section 4.2.2).
const LENGTH_BYTES: usize = 2;

pub(super) async fn serve(
    listener: TcpListener,
    zone: Arc<Zone>,
    forwarders: Arc<Forwarders>,
    reader: Reader,
    queries: QueryMetrics,
) {
    let answers = AnswerCache::new(zone.clone(), Transport::Tcp, !forwarders.is_empty(), reader.clone());
    let answers = Arc::new(Mutex::new(answers));
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let clients = Connections::default();
    // The connections end with this task.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        // The semaphore is never closed.
        let Ok(place) = permits.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, client)) => {
                // A connection above the client's limit is closed at once, so that others need not
                // wait for it.
                let Some(part) = clients.acquire(client.ip()) else { continue };
                let connection = Connection {
                    stream: BufReader::with_capacity(READ_BYTES, stream),
                    // Clients on other machines get no recursion.
                    is_local: client.ip().is_loopback(),
                    answers: answers.clone(),
                    zone: zone.clone(),
                    forwarders: forwarders.clone(),
                    reader: reader.clone(),
                    queries: queries.clone(),
                    out: Vec::new(),
                };
                connections.spawn(async move {
                    // A client that goes away ends only its own connection.
                    let _ = connection.serve().await;
                    drop((place, part));
                });
            }
            Err(error) => {
                tracing::debug!(%error, "DNS: a connection could not be accepted");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

struct Connection {
    stream: BufReader<TcpStream>,
    is_local: bool,
    answers: Arc<Mutex<AnswerCache>>,
    zone: Arc<Zone>,
    forwarders: Arc<Forwarders>,
    reader: Reader,
    queries: QueryMetrics,
    /// The answers that are not sent yet, each after its length.
    out: Vec<u8>,
}

impl Connection {
    async fn serve(mut self) -> io::Result<()> {
        self.stream.get_ref().set_nodelay(true)?;
        let mut packet = Vec::new();
        loop {
            if !is_complete(self.stream.buffer()) || self.out.len() >= WRITE_BYTES {
                self.send().await?;
            }
            let reading = async {
                let length = self.stream.read_u16().await?;
                packet.resize(usize::from(length), 0);
                self.stream.read_exact(&mut packet).await
            };
            let Ok(read) = tokio::time::timeout(IDLE_MAX, reading).await else { return Ok(()) };
            read?;
            if !self.answer(&packet).await? {
                return self.send().await;
            }
        }
    }

    /// Answers a packet. Returns false if the packet gets no answer.
    async fn answer(&mut self, packet: &[u8]) -> io::Result<bool> {
        let begin = self.out.len();
        self.out.extend_from_slice(&[0; LENGTH_BYTES]);
        // No code panics while it holds the lock.
        let answered =
            self.answers.lock().unwrap_or_else(PoisonError::into_inner).answer(packet, &mut self.out);
        if answered == CacheResult::Written {
            self.queries.note(Some(&self.out[begin + LENGTH_BYTES..]));
            return Ok(self.write_length(begin));
        }
        self.out.truncate(begin);
        let bytes = match answered {
            CacheResult::Written | CacheResult::Never => None,
            CacheResult::Foreign if !self.is_local => refused(packet).bytes(),
            CacheResult::Later | CacheResult::Foreign => {
                // The answers that are ready do not wait for this one.
                self.send().await?;
                let (zone, reader) = (self.zone.clone(), self.reader.clone());
                answer_with_reads(packet, Transport::Tcp, zone, &self.forwarders, reader).await
            }
        };
        self.queries.note(bytes.as_deref());
        let Some(bytes) = bytes else { return Ok(false) };
        let begin = self.out.len();
        self.out.extend_from_slice(&[0; LENGTH_BYTES]);
        self.out.extend_from_slice(&bytes);
        Ok(self.write_length(begin))
    }

    /// Writes the length of an answer in front of it. If the answer is longer than any message can
    /// be, removes it and returns false.
    fn write_length(&mut self, begin: usize) -> bool {
        let length = u16::try_from(self.out.len() - begin - LENGTH_BYTES);
        match length {
            Ok(length) => self.out[begin..begin + LENGTH_BYTES].copy_from_slice(&length.to_be_bytes()),
            Err(_) => self.out.truncate(begin),
        }
        length.is_ok()
    }

    async fn send(&mut self) -> io::Result<()> {
        if !self.out.is_empty() {
            tokio::time::timeout(IDLE_MAX, self.stream.get_mut().write_all(&self.out)).await??;
            self.out.clear();
        }
        Ok(())
    }
}

/// True if the buffer holds a complete query.
fn is_complete(buffer: &[u8]) -> bool {
    let Some(length) = buffer.first_chunk::<LENGTH_BYTES>() else { return false };
    buffer.len() >= LENGTH_BYTES + usize::from(u16::from_be_bytes(*length))
}
