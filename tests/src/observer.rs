//! An observer as a process.

use crate::process::{Running, binary, free_ports};
use crate::wait;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// An answer: its code, its headers in lower case, and its body.
#[derive(Debug, Clone)]
pub struct Answer {
    pub code: u16,
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

impl Answer {
    /// Returns the JSON of the body.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the time for which changes may be missing, in seconds; `None` if the answer does not say.
    pub fn age(&self) -> Option<u64> {
        self.headers.get("age").map(|age| age.parse().expect("a number"))
    }
}

/// An `orchestrate-observer` with its files in a directory of the test.
pub struct Observer {
    directory: tempfile::TempDir,
    port: u16,
    running: Option<Running>,
}

impl Observer {
    /// Starts an observer with this table `[store]`, and waits until it has a token.
    pub fn start(store: &str) -> Self {
        Self::start_with(store, "")
    }

    /// Same as [`Observer::start`], with further tables.
    pub fn start_with(store: &str, tables: &str) -> Self {
        let [port] = free_ports();
        let observer = Self { directory: tempfile::tempdir().expect("a directory"), port, running: None };
        let text = format!(
            "state_directory = {:?}\n[store]\n{store}\n[http]\nlisten = \"127.0.0.1:{port}\"\n{tables}",
            observer.directory.path()
        );
        std::fs::write(observer.path("observer.toml"), text).expect("written");
        observer.again()
    }

    /// Starts an observer of a store, and waits until it shows something fresh.
    pub fn of(endpoints: &[String]) -> Self {
        let observer = Self::start(&format!("endpoints = {endpoints:?}"));
        observer.wait_for_health("fresh");
        observer
    }

    /// Starts it again with the same files.
    pub fn again(mut self) -> Self {
        self.running = None;
        let mut command = Command::new(binary("orchestrate-observer"));
        command.arg("--config").arg(self.path("observer.toml"));
        self.running = Some(Running::start(&mut command, &self.path("log")));
        let listens = || TcpStream::connect(("127.0.0.1", self.port)).ok();
        wait::until("the observer listens", listens, || self.log());
        self
    }

    /// Returns the path of a file of the observer.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns what it logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    pub fn token(&self) -> String {
        std::fs::read_to_string(self.path("token")).expect("a token").trim().to_owned()
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: Signal) {
        self.process().signal(signal);
    }

    pub fn process(&self) -> &Running {
        self.running.as_ref().expect("it runs")
    }

    /// Returns the exit code if the process ended.
    pub fn ended(&mut self) -> Option<Option<i32>> {
        self.running.as_mut().expect("it was started").ended()
    }

    /// Returns the address at which it listens.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Sends a GET request with the token.
    pub fn get(&self, path: &str) -> Answer {
        let token = self.token();
        self.ask(path, &[("Host", &self.address()), ("Authorization", &format!("Bearer {token}"))])
    }

    /// Sends a GET request with these headers.
    pub fn ask(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.try_ask(path, headers).unwrap_or_else(|error| panic!("{path}: {error}\n{}", self.log()))
    }

    fn try_ask(&self, path: &str, headers: &[(&str, &str)]) -> std::io::Result<Answer> {
        ask(&self.address(), path, headers)
    }

    /// Waits until its health has this state, and returns the answer.
    pub fn wait_for_health(&self, state: &str) -> Value {
        let health = || Some(self.get("/v1/health").json()).filter(|health| health["state"] == state);
        let limit = wait::DEADLINE * 2;
        wait::until_within(limit, &format!("the observer is {state}"), health, || self.log())
    }

    /// Waits until what it shows at a path fulfils a condition, and returns it.
    pub fn wait_for(&self, path: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let state = || format!("{:?}\n{}", self.get(path), self.log());
        let shown =
            || Some(self.get(path)).filter(|a| a.code == 200).map(|a| a.json()).filter(|json| holds(json));
        wait::until(what, shown, state)
    }
}

/// Sends a GET request with these headers.
///
/// # Errors
/// Returns an error if there is no complete answer.
pub fn ask(address: &str, path: &str, headers: &[(&str, &str)]) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    write!(stream, "GET {path} HTTP/1.0\r\n{headers}\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let incomplete = || std::io::Error::other(format!("no answer: {text:?}"));
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(incomplete)?;
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(incomplete)?;
    let headers = head.lines().filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    Ok(Answer { code, headers, body: body.to_owned() })
}

/// Sends a GET request; returns the body if the answer is a success.
pub fn http_get(address: &str, path: &str) -> Option<String> {
    let answer = ask(address, path, &[("Host", address)]).ok()?;
    (answer.code == 200).then_some(answer.body)
}
