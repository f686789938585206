//! A TCP proxy in front of a store, which simulates network faults when a test asks for them.
//!
//! This file is long because it holds every network fault that tests ask for.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// What the proxy does with connections and with the chunks of bytes on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    Pass,
    /// Forwards everything, but holds each chunk for this time before it reads the next one.
    Delay(Duration),
    /// Forwards everything, with at most this many bytes per second in each direction.
    Narrow(u32),
    /// Accepts and reads connections, but forwards nothing in either direction.
    Swallow,
    /// Forwards the bytes of clients, but not those of the target.
    SwallowAnswers,
    /// Closes all connections, new ones as soon as they are made.
    Refuse,
    /// Answers everything that a client sends with meaningless bytes; the target receives nothing.
    Garbage,
}

/// Listens on loopback and forwards to one target. Dropping it closes everything.
///
/// A stream cannot continue with a gap in it: connections that lost bytes are closed when the
/// behaviour changes.
pub struct Proxy {
    shared: Arc<Shared>,
    address: SocketAddr,
    scheme: &'static str,
}

impl Proxy {
    /// Starts to forward to a target, given as `http://HOST:PORT`, `https://HOST:PORT` or
    /// `HOST:PORT`. The target need not be running yet.
    pub fn start(target: &str) -> Self {
        let (scheme, target) = match target.split_once("://") {
            Some(("https", address)) => ("https", address),
            Some((_, address)) => ("http", address),
            None => ("http", target),
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared {
            target: target.trim_end_matches('/').to_owned(),
            state: Mutex::new(State {
                behaviour: Behaviour::Pass,
                stopped: false,
                accepted: 0,
                lost: 0,
                trigger: None,
                connections: BTreeMap::new(),
            }),
            changed: Condvar::new(),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accepting.accept(&listener));
        Self { shared, address, scheme }
    }

    /// Returns the endpoint for clients, with the scheme of the target.
    pub fn endpoint(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// Changes the behaviour from the next chunk on; the decision on chunks that are being delayed
    /// is made again.
    pub fn set(&self, behaviour: Behaviour) {
        let mut state = self.shared.lock();
        state.trigger = None;
        state.change(behaviour);
        self.shared.changed.notify_all();
    }

    /// Changes the behaviour as soon as a client sends these bytes, starting with the chunk that
    /// contains them. gRPC carries keys and values as they are, so a test can tell one request from
    /// the others.
    pub fn set_on(&self, bytes: &[u8], behaviour: Behaviour) {
        self.shared.lock().trigger = Some((bytes.to_vec(), behaviour));
    }

    /// Returns the number of connections made so far, including refused ones.
    pub fn accepted(&self) -> usize {
        self.shared.lock().accepted
    }

    /// Returns the number of chunks that were read and not forwarded so far.
    pub fn lost(&self) -> usize {
        self.shared.lock().lost
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.set(Behaviour::Refuse);
        self.shared.lock().stopped = true;
        // Wakes the thread that accepts connections.
        let _ = TcpStream::connect(self.address);
    }
}

struct Shared {
    target: String,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    behaviour: Behaviour,
    stopped: bool,
    /// Number of accepted connections; also the number of the newest one.
    accepted: usize,
    lost: usize,
    /// The bytes of a client that trigger a change, and the new behaviour.
    trigger: Option<(Vec<u8>, Behaviour)>,
    connections: BTreeMap<usize, Connection>,
}

impl State {
    fn change(&mut self, behaviour: Behaviour) {
        self.behaviour = behaviour;
        let all = behaviour == Behaviour::Refuse;
        self.connections.retain(|_, connection| {
            let keep = !connection.broken && !all;
            if !keep {
                connection.close();
            }
            keep
        });
    }

    fn pull_trigger(&mut self, result: &[u8]) {
        let is_said = |(bytes, _): &(Vec<u8>, _)| result.windows(bytes.len()).any(|window| window == bytes);
        if let Some((_, behaviour)) = self.trigger.take_if(|trigger| is_said(trigger)) {
            self.change(behaviour);
        }
    }
}

/// The sockets of one connection: the client's, and the target's once something was forwarded.
struct Connection {
    sockets: Vec<TcpStream>,
    /// True if bytes of this connection were lost.
    broken: bool,
}

impl Connection {
    fn close(&self) {
        // The other side may have closed the socket already.
        self.sockets.iter().for_each(|socket| drop(socket.shutdown(Shutdown::Both)));
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Requests,
    Answers,
}

/// What the proxy does with one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Forward,
    Lose,
    AnswerGarbage,
    Close,
}

/// Neither HTTP of any version nor a TLS record.
const NOISE: &[u8] = b"\xff\x00\xfe%%% 418 no protocol at all \x01\x02\x03\r\n\r\n";

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming() {
            let mut state = self.lock();
            if state.stopped {
                return;
            }
            state.accepted += 1;
            let number = state.accepted;
            // A connection that failed on its way here, or that is refused, is closed by being
            // dropped.
            let Ok(client) = client else { continue };
            let Ok(socket) = client.try_clone() else { continue };
            if state.behaviour == Behaviour::Refuse {
                continue;
            }
            state.connections.insert(number, Connection { sockets: vec![socket], broken: false });
            drop(state);
            let shared = Arc::clone(self);
            thread::spawn(move || {
                shared.requests(number, client);
                shared.close(number);
            });
        }
    }

    fn close(&self, number: usize) {
        if let Some(connection) = self.lock().connections.remove(&number) {
            connection.close();
        }
        self.changed.notify_all();
    }

    /// Forwards the bytes of the client; connects to the target when the first chunk is forwarded.
    fn requests(self: &Arc<Self>, number: usize, mut client: TcpStream) {
        let mut target = None;
        let mut buffer = [0; 64 * 1024];
        while let Ok(length @ 1..) = client.read(&mut buffer) {
            self.lock().pull_trigger(&buffer[..length]);
            match self.fate(number, Direction::Requests, length) {
                Fate::Forward => {
                    if target.is_none() {
                        target = self.connect(number, &client);
                    }
                    let Some(target) = &mut target else { return };
                    if target.write_all(&buffer[..length]).is_err() {
                        return;
                    }
                }
                Fate::Lose => {}
                Fate::AnswerGarbage if client.write_all(NOISE).is_ok() => {}
                Fate::AnswerGarbage | Fate::Close => return,
            }
        }
    }

    fn connect(self: &Arc<Self>, number: usize, client: &TcpStream) -> Option<TcpStream> {
        let target = TcpStream::connect(&self.target).ok()?;
        target.set_nodelay(true).ok()?;
        client.set_nodelay(true).ok()?;
        let (from, to) = (target.try_clone().ok()?, client.try_clone().ok()?);
        self.lock().connections.get_mut(&number)?.sockets.push(target.try_clone().ok()?);
        let shared = Arc::clone(self);
        thread::spawn(move || {
            shared.answers(number, from, to);
            shared.close(number);
        });
        Some(target)
    }

    fn answers(&self, number: usize, mut target: TcpStream, mut client: TcpStream) {
        let mut buffer = [0; 64 * 1024];
        while let Ok(length @ 1..) = target.read(&mut buffer) {
            match self.fate(number, Direction::Answers, length) {
                Fate::Forward if client.write_all(&buffer[..length]).is_ok() => {}
                Fate::Lose => {}
                Fate::Forward | Fate::AnswerGarbage | Fate::Close => return,
            }
        }
    }

    /// Decides what to do with a chunk that was just read; a delay is over when this returns.
    fn fate(&self, number: usize, direction: Direction, length: usize) -> Fate {
        let read = Instant::now();
        let mut state = self.lock();
        loop {
            let behaviour = state.behaviour;
            let Some(connection) = state.connections.get_mut(&number) else { return Fate::Close };
            let fate = match (behaviour, direction) {
                (Behaviour::Refuse, _) => return Fate::Close,
                (Behaviour::Pass, _) | (Behaviour::SwallowAnswers, Direction::Requests) => {
                    return Fate::Forward;
                }
                (Behaviour::Delay(_) | Behaviour::Narrow(_), _) => {
                    let delay = match behaviour {
                        Behaviour::Delay(delay) => delay,
                        Behaviour::Narrow(rate) => Duration::from_secs_f64(length as f64 / f64::from(rate)),
                        _ => unreachable!("one of the two"),
                    };
                    let left = delay.saturating_sub(read.elapsed());
                    if left.is_zero() {
                        return Fate::Forward;
                    }
                    let waited = self.changed.wait_timeout(state, left);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                    continue;
                }
                (Behaviour::Garbage, Direction::Requests) => Fate::AnswerGarbage,
                (Behaviour::Swallow, _)
                | (Behaviour::SwallowAnswers | Behaviour::Garbage, Direction::Answers) => Fate::Lose,
            };
            connection.broken = true;
            state.lost += 1;
            return fate;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait;

    /// Starts a target that answers every chunk with the same chunk.
    fn echo() -> String {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("its address");
        thread::spawn(move || {
            for mut client in listener.incoming().flatten() {
                thread::spawn(move || {
                    let mut buffer = [0; 1024];
                    while let Ok(length @ 1..) = client.read(&mut buffer) {
                        if client.write_all(&buffer[..length]).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        format!("http://{address}")
    }

    fn connect(proxy: &Proxy) -> TcpStream {
        let client = TcpStream::connect(proxy.address).expect("connected");
        client.set_read_timeout(Some(wait::DEADLINE)).expect("set");
        client
    }

    fn say(client: &mut TcpStream, text: &str) {
        client.write_all(text.as_bytes()).expect("written");
    }

    fn hear(client: &mut TcpStream) -> Vec<u8> {
        let mut buffer = [0; 1024];
        let length = client.read(&mut buffer).unwrap_or(0);
        buffer[..length].to_vec()
    }

    #[test]
    fn everything_passes_at_once_or_late() {
        let proxy = Proxy::start(&echo());
        let mut client = connect(&proxy);
        say(&mut client, "a");
        assert_eq!(hear(&mut client), b"a");
        proxy.set(Behaviour::Delay(Duration::from_millis(60)));
        let before = Instant::now();
        say(&mut client, "b");
        assert_eq!(hear(&mut client), b"b");
        assert!(before.elapsed() >= Duration::from_millis(120), "both ways: {:?}", before.elapsed());
        proxy.set(Behaviour::Delay(Duration::from_secs(3600)));
        say(&mut client, "c");
        proxy.set(Behaviour::Pass);
        assert_eq!(hear(&mut client), b"c", "what waited goes on");
        assert_eq!((proxy.accepted(), proxy.lost()), (1, 0));
    }

    #[test]
    fn a_connection_that_lost_bytes_is_silent_and_closed_when_things_change() {
        let proxy = Proxy::start(&echo());
        for (behaviour, lost) in [(Behaviour::Swallow, 1), (Behaviour::SwallowAnswers, 2)] {
            proxy.set(behaviour);
            let mut client = connect(&proxy);
            say(&mut client, "a");
            wait::until("it is lost", || (proxy.lost() == lost).then_some(()), String::new);
            client.set_nonblocking(true).expect("set");
            assert_eq!(
                client.read(&mut [0]).map_err(|e| e.kind()),
                Err(std::io::ErrorKind::WouldBlock),
                "{behaviour:?}"
            );
            client.set_nonblocking(false).expect("set");
            proxy.set(Behaviour::Pass);
            assert_eq!(hear(&mut client), b"", "{behaviour:?}");
            let mut client = connect(&proxy);
            say(&mut client, "b");
            assert_eq!(hear(&mut client), b"b", "{behaviour:?}");
        }
    }

    #[test]
    fn a_word_of_the_client_changes_what_happens() {
        let proxy = Proxy::start(&echo());
        proxy.set_on(b"put", Behaviour::SwallowAnswers);
        let mut client = connect(&proxy);
        say(&mut client, "get");
        assert_eq!(hear(&mut client), b"get");
        say(&mut client, "a put");
        wait::until("the answer is lost", || (proxy.lost() == 1).then_some(()), String::new);
        proxy.set(Behaviour::Pass);
        assert_eq!(hear(&mut client), b"");
    }

    #[test]
    fn refusing_closes_what_is_there_and_what_comes() {
        let proxy = Proxy::start(&echo());
        let mut client = connect(&proxy);
        say(&mut client, "a");
        assert_eq!(hear(&mut client), b"a");
        proxy.set(Behaviour::Refuse);
        assert_eq!(hear(&mut client), b"");
        assert_eq!(hear(&mut connect(&proxy)), b"");
        proxy.set(Behaviour::Garbage);
        let mut client = connect(&proxy);
        say(&mut client, "a");
        assert_eq!(hear(&mut client), NOISE);
        drop(proxy);
        assert_eq!(hear(&mut client), b"", "dropping it closes everything");
    }
}
