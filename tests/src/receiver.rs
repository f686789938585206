//! An HTTP server that keeps what it receives, as a receiver of messages would.

use crate::wait;
use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// A request that was received.
#[derive(Debug, Clone)]
pub struct Received {
    /// The method and the path.
    pub line: String,
    /// The headers, with names in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

impl Received {
    /// Returns the JSON of the body.
    ///
    /// # Panics
    /// Panics if it is no JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

#[derive(Default)]
struct State {
    received: Vec<Received>,
    answers: VecDeque<u16>,
}

/// An HTTP server. It answers with 200, except to the requests for which other answers are given.
pub struct HttpReceiver {
    port: u16,
    state: Arc<Mutex<State>>,
}

impl HttpReceiver {
    /// Starts a server.
    ///
    /// # Panics
    /// Panics if there is no free port.
    pub fn start() -> Self {
        Self::start_at(0)
    }

    /// Starts a server at a port.
    ///
    /// # Panics
    /// Panics if the port is in use.
    pub fn start_at(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let state: Arc<Mutex<State>> = Arc::default();
        let served = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let served = served.clone();
                // A client that goes away in between is no matter of the test.
                std::thread::spawn(move || _ = serve(&stream, &served));
            }
        });
        Self { port, state }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Answers to the next requests with these codes.
    pub fn answer_next(&self, codes: &[u16]) {
        lock(&self.state).answers.extend(codes);
    }

    /// Returns what was received.
    pub fn received(&self) -> Vec<Received> {
        lock(&self.state).received.clone()
    }

    /// Waits until so many requests were received that fulfil a condition, and returns them.
    pub fn wait_for(
        &self,
        what: &str,
        count: usize,
        holds: impl Fn(&Received) -> bool,
        log: impl Fn() -> String,
    ) -> Vec<Received> {
        let found = || {
            let found: Vec<Received> = self.received().into_iter().filter(|one| holds(one)).collect();
            (found.len() >= count).then_some(found)
        };
        wait::until_within(wait::DEADLINE * 2, what, found, || format!("{:#?}\n{}", self.received(), log()))
    }
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(stream: &TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut headers = BTreeMap::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        let Some((name, value)) = header.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let body = String::from_utf8_lossy(&body).into_owned();
    let line = line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let code = {
        let mut state = lock(state);
        state.received.push(Received { line, headers, body });
        state.answers.pop_front().unwrap_or(200)
    };
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.1 {code} x\r\nLocation: /elsewhere\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
}
