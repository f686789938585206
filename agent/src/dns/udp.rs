//! DNS queries by UDP.

use super::cache::{AnswerCache, CacheResult};
use super::codec::{PendingRead, QUESTION_MAX_BYTES, Reply, Transport, failed, refused};
use super::forward::Forwarders;
use super::limit::Limit;
use crate::catalog::Reader;
use crate::metrics::QueryMetrics;
use catalog::Zone;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};

/// Time after which a thread that receives nothing looks whether it must stop.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of queries of one thread that wait for the catalog, and of those that wait for
/// forwarders. Further ones get no answer, and their clients ask again.
const WAITING_MAX: usize = 128;
/// How long the first query for a service waits for the health of the service.
pub(super) const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);

/// A thread that answers queries.
pub(super) struct Thread {
    stops: Arc<AtomicBool>,
}

impl Thread {
    /// Starts a thread. The receiver resolves when the thread has ended.
    pub(super) fn start(
        socket: UdpSocket,
        zone: Arc<Zone>,
        forwarders: Arc<Forwarders>,
        reader: Reader,
        queries: QueryMetrics,
        is_open: bool,
    ) -> io::Result<(Self, oneshot::Receiver<()>)> {
        socket.set_read_timeout(Some(STOP_POLL_INTERVAL))?;
        let stops = Arc::new(AtomicBool::new(false));
        let worker = Worker {
            socket: Arc::new(socket),
            answers: AnswerCache::new(zone.clone(), Transport::Udp, !forwarders.is_empty(), reader.clone()),
            zone,
            forwarders,
            reader,
            queries,
            waiting: Arc::new(Semaphore::new(WAITING_MAX)),
            forwarded: Arc::new(Semaphore::new(WAITING_MAX)),
            runtime: Handle::current(),
            limit: is_open.then(Limit::new),
        };
        let stopping = stops.clone();
        let (alive, ended) = oneshot::channel();
        let run = move || {
            // Dropped when the thread ends, also by a panic.
            let _alive = alive;
            worker.run(&stopping);
        };
        std::thread::Builder::new().name("dns-udp".into()).spawn(run)?;
        Ok((Self { stops }, ended))
    }

    pub(super) fn stop(&self) {
        // The thread ends by itself within half a second; nothing waits for it.
        self.stops.store(true, Ordering::Relaxed);
    }
}

struct Worker {
    socket: Arc<UdpSocket>,
    answers: AnswerCache,
    zone: Arc<Zone>,
    forwarders: Arc<Forwarders>,
    reader: Reader,
    queries: QueryMetrics,
    waiting: Arc<Semaphore>,
    /// Apart from those that wait for the catalog, so that silent forwarders do not hold them up.
    forwarded: Arc<Semaphore>,
    runtime: Handle,
    limit: Option<Limit>,
}

impl Worker {
    fn run(mut self, stops: &AtomicBool) {
        let mut question = vec![0; QUESTION_MAX_BYTES];
        let mut answer = Vec::with_capacity(QUESTION_MAX_BYTES);
        while !stops.load(Ordering::Relaxed) {
            let (length, client) = match self.socket.recv_from(&mut question) {
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(error) => {
                    // An answer to a client that is gone comes back as an error here.
                    tracing::debug!(%error, "DNS: a packet could not be received");
                    continue;
                }
            };
            if self.limit.as_mut().is_some_and(|limit| !limit.permits(client.ip())) {
                self.queries.note(None);
                continue;
            }
            let packet = &question[..length];
            answer.clear();
            match self.answers.answer(packet, &mut answer) {
                CacheResult::Written => self.send(&answer, client),
                CacheResult::Never => self.queries.note(None),
                // Clients on other machines get no recursion.
                CacheResult::Foreign if !client.ip().is_loopback() => match refused(packet).bytes() {
                    Some(bytes) => self.send(&bytes, client),
                    None => self.queries.note(None),
                },
                CacheResult::Later => self.answer_later(packet.to_vec(), client, &self.waiting),
                CacheResult::Foreign => self.answer_later(packet.to_vec(), client, &self.forwarded),
            }
        }
    }

    fn send(&self, bytes: &[u8], client: SocketAddr) {
        self.queries.note(Some(bytes));
        if let Err(error) = self.socket.send_to(bytes, client) {
            tracing::debug!(%error, %client, "DNS: an answer could not be sent");
        }
    }

    /// Answers a query that has to wait, in a task. Drops the query if too many are waiting.
    fn answer_later(&self, packet: Vec<u8>, client: SocketAddr, places: &Arc<Semaphore>) {
        let Ok(place) = places.clone().try_acquire_owned() else {
            self.queries.note(None);
            return;
        };
        let (socket, zone, forwarders, reader) =
            (self.socket.clone(), self.zone.clone(), self.forwarders.clone(), self.reader.clone());
        let queries = self.queries.clone();
        self.runtime.spawn(async move {
            let bytes = answer_with_reads(&packet, Transport::Udp, zone, &forwarders, reader).await;
            queries.note(bytes.as_deref());
            if let Some(bytes) = bytes {
                // The client may be gone.
                let _ = socket.send_to(&bytes, client);
            }
            drop(place);
        });
    }
}

/// Answers a packet that may have to wait for the catalog or for another server.
pub(super) async fn answer_with_reads(
    packet: &[u8],
    transport: Transport,
    zone: Arc<Zone>,
    forwarders: &Forwarders,
    reader: Reader,
) -> Option<Vec<u8>> {
    let mut answers = AnswerCache::new(zone, transport, !forwarders.is_empty(), reader.clone());
    let reply = match answers.compute(packet, true).0 {
        Reply::Later(awaited) => {
            match awaited {
                PendingRead::Health(service) => drop(reader.with_health(&service, HEALTH_TIMEOUT).await),
                PendingRead::Claim(host) => drop(reader.claim(&host).await),
            }
            answers.compute(packet, false).0
        }
        reply => reply,
    };
    let reply = match reply {
        Reply::Foreign => match forwarders.ask(packet, transport).await {
            Some(bytes) => Reply::Bytes(bytes),
            None => failed(packet),
        },
        reply => reply,
    };
    reply.bytes()
}
