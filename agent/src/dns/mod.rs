//! The DNS server of this host. Dedicated threads answer UDP from memory and never wait. Tasks
//! answer TCP, and every query that has to wait.

mod cache;
mod codec;
mod forward;
mod limit;
mod tcp;
#[cfg(test)]
mod tests;
mod udp;

pub use codec::QUESTION_MAX_BYTES;

use crate::catalog::Reader;
use crate::metrics::Metrics;
use catalog::{CachedNames, Claim, View, Zone};
use schema::names::HostName;
use settings::DnsSettings;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use tokio::net::TcpListener;

/// Receive buffer of a UDP socket, in bytes: room for queries that arrive while the threads of the
/// server get no processor time. The system's default loses the 300th query.
const BURST_BYTES: usize = 1024 * 1024;

/// Answers a packet like a server that forwards nothing and knows only the catalog. Returns `None`
/// if nothing is sent back.
pub fn answer_packet(packet: &[u8], view: &View, zone: &Zone, by_tcp: bool) -> Option<Vec<u8>> {
    let transport = if by_tcp { codec::Transport::Tcp } else { codec::Transport::Udp };
    let reply = match codec::read(packet, transport) {
        Ok(parsed) => {
            let known = codec::AnswerSource { view, zone, serial: 1, claim: &|_| Some(Claim::Nobody) };
            parsed.answer(&known, &mut 1, false, false).0
        }
        Err(reply) => reply,
    };
    reply.bytes()
}

/// A server that is bound and not yet running.
pub struct Dns {
    sockets: Vec<(UdpSocket, TcpListener)>,
    zone: Arc<Zone>,
    forwarders: Arc<forward::Forwarders>,
}

/// A running server; it stops when this is dropped.
pub struct Serving {
    threads: Vec<udp::Thread>,
    tasks: tokio::task::JoinSet<()>,
}

impl Dns {
    /// Binds every address in the settings, by UDP and TCP.
    ///
    /// # Errors
    /// An address cannot be bound; the error names it.
    pub async fn bind(settings: &DnsSettings, host: HostName) -> io::Result<Self> {
        let mut sockets = Vec::new();
        for address in &settings.listen {
            let named = |error: io::Error| io::Error::new(error.kind(), format!("DNS on {address}: {error}"));
            // If the system chooses the port, UDP and TCP must have the same one.
            let tcp = TcpListener::bind(address).await.map_err(named)?;
            let udp = UdpSocket::bind(tcp.local_addr()?).map_err(named)?;
            // The buffer becomes as large as the system allows (net.core.rmem_max).
            let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&udp, BURST_BYTES);
            sockets.push((udp, tcp));
        }
        let seconds = |duration: std::time::Duration| u32::try_from(duration.as_secs()).unwrap_or(u32::MAX);
        let zone = Zone {
            domain: settings.domain.clone(),
            datacenter: settings.datacenter.clone(),
            host,
            ttl: seconds(settings.ttl),
            negative_ttl: seconds(settings.negative_ttl),
        };
        let forwarders = Arc::new(forward::Forwarders::new(&settings.forwarders));
        Ok(Self { sockets, zone: Arc::new(zone), forwarders })
    }

    /// Returns the names that the server answers for, for readers of the cached catalog.
    pub fn names(&self) -> CachedNames {
        let zone = &self.zone;
        CachedNames {
            domain: zone.domain.clone(),
            datacenter: zone.datacenter.clone(),
            host: zone.host.clone(),
        }
    }

    /// Returns the addresses that the server listens on.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.sockets.iter().filter_map(|(udp, _)| udp.local_addr().ok()).collect()
    }

    /// Serves until the returned value is dropped.
    ///
    /// # Errors
    /// A socket cannot be prepared, or a thread cannot be started.
    pub(crate) fn serve(self, reader: Reader, metrics: &Metrics) -> io::Result<Serving> {
        let mut serving = Serving { threads: Vec::new(), tasks: tokio::task::JoinSet::new() };
        let (by_udp, by_tcp) = (metrics.queries("udp"), metrics.queries("tcp"));
        for (udp, tcp) in self.sockets {
            let is_open = !udp.local_addr()?.ip().is_loopback();
            // More threads would only wait for each other on the one socket.
            let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4);
            let (zone, forwarders) = (self.zone.clone(), self.forwarders.clone());
            for _ in 0..threads {
                let (thread, ended) = udp::Thread::start(
                    udp.try_clone()?,
                    zone.clone(),
                    forwarders.clone(),
                    reader.clone(),
                    by_udp.clone(),
                    is_open,
                )?;
                serving.threads.push(thread);
                // An error means the same: the thread has ended.
                serving.tasks.spawn(async { drop(ended.await) });
            }
            serving.tasks.spawn(tcp::serve(tcp, zone, forwarders, reader.clone(), by_tcp.clone()));
        }
        Ok(serving)
    }
}

impl Serving {
    /// Serves until a thread or task of the server ends, which only a fault can cause.
    pub async fn run(mut self) {
        if self.tasks.join_next().await.is_none() {
            // There is no address to listen on.
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.tasks.abort_all();
        self.threads.iter().for_each(udp::Thread::stop);
    }
}
