//! Forwards queries for other names, if forwarders are configured, as a stub resolver's user expects:
//! the next forwarder is asked when one fails or is slow, and one that does not answer rests for a
//! while. Only the id of a query is replaced, and the answer is passed on as it is.

use super::codec::{ForwardedAnswer, Transport, classify};
use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout, timeout_at};

/// Time limit for the answer to a client. Clients wait for 5 s, and then ask again.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(4);
/// How long one forwarder is waited for before the next one is asked too. The answer of either counts.
const NEXT_AFTER: Duration = Duration::from_millis(500);
/// How long an answer by UDP is waited for before the query is sent to the same forwarder again.
const RESEND_INTERVAL: Duration = Duration::from_secs(1);
/// The first rest of a forwarder that did not answer. Each further one is twice as long.
const FIRST_REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(30);
/// Maximum number of queries that wait for forwarders at the same time. Each has a socket.
const ATTEMPTS_MAX: usize = 256;

/// The forwarders in the order of the settings, with what is known about them.
pub(super) struct Forwarders {
    udp: Vec<Arc<Forwarder>>,
    /// Apart from those by UDP, because a firewall may let only one of the transports pass.
    tcp: Vec<Arc<Forwarder>>,
    attempts: Arc<Semaphore>,
}

struct Forwarder {
    address: SocketAddr,
    transport: Transport,
    health: Mutex<Health>,
}

/// Whether a forwarder answers.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Health {
    /// Number of rests since the last answer.
    rests: u32,
    rests_until: Option<Instant>,
}

/// When a forwarder is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// In the order of the settings.
    InOrder,
    /// At the same time as others, to learn whether it answers again.
    Probe,
    /// Only if all others rest too.
    Rests,
}

impl Health {
    fn choose(&mut self, now: Instant) -> Use {
        match self.rests_until {
            None => Use::InOrder,
            Some(until) if now < until => Use::Rests,
            Some(_) => {
                // Until the probe is answered, no other query is one.
                self.rest(now);
                Use::Probe
            }
        }
    }

    /// Notes that the forwarder did not answer in time. Queries that were sent before a rest do not
    /// make it longer.
    fn missed(&mut self, now: Instant) {
        if self.rests_until.is_none_or(|until| until <= now) {
            self.rest(now);
        }
    }

    fn rest(&mut self, now: Instant) {
        let rest = FIRST_REST.saturating_mul(1 << self.rests.min(16)).min(LONGEST_REST);
        self.rests = self.rests.saturating_add(1);
        self.rests_until = Some(now + rest);
    }

    /// True if more than one query had no answer: the first one may only have been slow.
    fn is_silent(self) -> bool {
        self.rests > 1
    }
}

/// The result of one attempt.
enum Outcome {
    Answer(Vec<u8>),
    /// The forwarder gave no answer, or one that says that it has none.
    Failure(Option<Vec<u8>>),
}

impl Forwarders {
    pub(super) fn new(addresses: &[SocketAddr]) -> Self {
        let by = |transport| {
            let forwarder = |address: &SocketAddr| {
                Arc::new(Forwarder { address: *address, transport, health: Mutex::default() })
            };
            addresses.iter().map(forwarder).collect()
        };
        let attempts = Arc::new(Semaphore::new(ATTEMPTS_MAX));
        Self { udp: by(Transport::Udp), tcp: by(Transport::Tcp), attempts }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.udp.is_empty()
    }

    /// Returns the first good answer. If no forwarder has one, returns the answer of one that failed,
    /// if there is any: it may say why.
    pub(super) async fn ask(&self, packet: &[u8], transport: Transport) -> Option<Vec<u8>> {
        let packet: Arc<[u8]> = packet.into();
        let begin = Instant::now();
        let (mut at_once, mut in_order) = self.uses(transport, begin);
        let (sender, mut outcomes) = mpsc::channel(at_once.len() + in_order.len() + 1);
        at_once.extend(in_order.pop_front());
        let (mut waiting, mut failure) = (0_usize, None);
        loop {
            for forwarder in at_once.drain(..) {
                waiting += 1;
                let (attempts, packet, sender) = (self.attempts.clone(), packet.clone(), sender.clone());
                // It goes on when the client has another answer, and so learns whether the forwarder is
                // only slow.
                tokio::spawn(async move {
                    // The semaphore is never closed. The client waits no longer than this for a place, so that
                    // the attempts that wait are bounded as the clients are.
                    let place = timeout_at(begin + TOTAL_TIMEOUT, attempts.acquire_owned()).await;
                    let Ok(Ok(_place)) = place else { return };
                    // The client may have its answer already.
                    let _ = sender.try_send(forwarder.attempt(&packet).await);
                });
            }
            if waiting == 0 {
                return failure;
            }
            let now = Instant::now();
            let deadline = begin + TOTAL_TIMEOUT;
            let until = if in_order.is_empty() { deadline } else { deadline.min(now + NEXT_AFTER) };
            match timeout_at(until, outcomes.recv()).await {
                Ok(Some(Outcome::Answer(bytes))) => return Some(bytes),
                Ok(Some(Outcome::Failure(bytes))) => {
                    waiting -= 1;
                    failure = failure.or(bytes);
                }
                Ok(None) => return failure,
                Err(_) if until == deadline => return failure,
                Err(_) => {}
            }
            at_once.extend(in_order.pop_front());
        }
    }

    /// Returns the forwarders that are asked at once, and those that are asked one after the other. If
    /// all rest, all are asked at once.
    fn uses(&self, transport: Transport, now: Instant) -> (Vec<Arc<Forwarder>>, VecDeque<Arc<Forwarder>>) {
        let all = match transport {
            Transport::Udp => &self.udp,
            Transport::Tcp => &self.tcp,
        };
        let uses: Vec<Use> =
            all.iter().map(|forwarder| forwarder.update(|health| health.choose(now))).collect();
        let of = |choose: Use| {
            all.iter().zip(&uses).filter(move |(_, is)| **is == choose).map(|(one, _)| one.clone())
        };
        let in_order: VecDeque<_> = of(Use::InOrder).collect();
        let at_once = if in_order.is_empty() { all.clone() } else { of(Use::Probe).collect() };
        (at_once, in_order)
    }
}

impl Forwarder {
    /// Changes what is known about the forwarder, and logs whether it answers.
    fn update<T>(&self, change: impl FnOnce(&mut Health) -> T) -> T {
        // No code panics while it holds the lock.
        let mut health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        let was_silent = health.is_silent();
        let result = change(&mut health);
        let is_silent = health.is_silent();
        drop(health);
        let (forwarder, transport) = (self.address, self.transport);
        match (was_silent, is_silent) {
            (false, true) => tracing::warn!(%forwarder, ?transport, "DNS: a forwarder does not answer"),
            (true, false) => tracing::info!(%forwarder, ?transport, "DNS: a forwarder answers again"),
            _ => {}
        }
        result
    }

    async fn attempt(&self, packet: &[u8]) -> Outcome {
        let asking = async {
            match self.transport {
                Transport::Udp => by_udp(packet, self.address).await,
                Transport::Tcp => by_tcp(packet, self.address).await,
            }
        };
        tokio::pin!(asking);
        let mut is_noted = false;
        let answered = match timeout(NEXT_AFTER, &mut asking).await {
            Ok(answered) => answered,
            Err(_) => {
                // One query is one miss, whatever becomes of it.
                is_noted = true;
                self.update(|health| health.missed(Instant::now()));
                let rest = TOTAL_TIMEOUT.saturating_sub(NEXT_AFTER);
                timeout(rest, asking).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            }
        };
        match answered {
            Ok((answer, kind)) => {
                self.update(|health| *health = Health::default());
                let answer = with_id_of(&answer, packet);
                match kind {
                    ForwardedAnswer::Good => Outcome::Answer(answer),
                    _ => Outcome::Failure(Some(answer)),
                }
            }
            Err(error) => {
                tracing::debug!(%error, forwarder = %self.address, "DNS: a forwarder failed");
                if !is_noted {
                    self.update(|health| health.missed(Instant::now()));
                }
                Outcome::Failure(None)
            }
        }
    }
}

/// Asks a forwarder by UDP, from a new port and with a new id, so that nobody can forge the answer
/// by guessing them (RFC 5452). What is no answer to this query is ignored.
async fn by_udp(packet: &[u8], forwarder: SocketAddr) -> io::Result<(Vec<u8>, ForwardedAnswer)> {
    let local: SocketAddr = match forwarder {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(local).await?;
    // The socket receives from this address only.
    socket.connect(forwarder).await?;
    let question = with_own_id(packet)?;
    let mut resend = tokio::time::interval(RESEND_INTERVAL);
    let mut buffer = vec![0; 65_535];
    loop {
        tokio::select! {
            _ = resend.tick() => drop(socket.send(&question).await?),
            length = socket.recv(&mut buffer) => {
                let answer = &buffer[..length?];
                match classify(answer, &question, Transport::Udp) {
                    ForwardedAnswer::Unrelated => {}
                    kind => return Ok((answer.to_vec(), kind)),
                }
            }
        }
    }
}

async fn by_tcp(packet: &[u8], forwarder: SocketAddr) -> io::Result<(Vec<u8>, ForwardedAnswer)> {
    let mut stream = TcpStream::connect(forwarder).await?;
    let question = with_own_id(packet)?;
    let length = u16::try_from(question.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    stream.write_all(&[&length.to_be_bytes()[..], &question].concat()).await?;
    let length = stream.read_u16().await?;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await?;
    match classify(&answer, &question, Transport::Tcp) {
        ForwardedAnswer::Unrelated => Err(io::Error::new(io::ErrorKind::InvalidData, "it is no answer")),
        kind => Ok((answer, kind)),
    }
}

fn with_own_id(packet: &[u8]) -> io::Result<Vec<u8>> {
    let own = ((etcd_session::jitter() * f64::from(u16::MAX)) as u16).to_be_bytes();
    let rest = packet.get(2..).ok_or(io::ErrorKind::InvalidInput)?;
    Ok([&own[..], rest].concat())
}

fn with_id_of(answer: &[u8], packet: &[u8]) -> Vec<u8> {
    let mut answer = answer.to_vec();
    answer[..2].copy_from_slice(&packet[..2]);
    answer
}

#[cfg(test)]
mod tests;
