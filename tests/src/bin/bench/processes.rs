//! The measured programs, each as its own process.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A single etcd on disk. Dropping the value ends it.
pub(crate) struct Etcd {
    /// The process; `None` after [`Etcd::into_parts`] or while etcd is stopped.
    child: Option<Child>,
    pub(crate) endpoint: String,
    peer: u16,
    directory: Option<tempfile::TempDir>,
}

impl Etcd {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let [client, peer] = tests::process::free_ports();
        let endpoint = format!("http://127.0.0.1:{client}");
        let mut etcd = Self { child: None, endpoint, peer, directory: Some(directory) };
        etcd.serve();
        etcd
    }

    fn serve(&mut self) {
        let directory = self.directory.as_ref().expect("nobody took it").path();
        let log = std::fs::File::create(directory.join("log")).expect("a log");
        let child = Command::new("etcd")
            .arg("--data-dir")
            .arg(directory.join("data"))
            .args(["--listen-client-urls", &self.endpoint, "--advertise-client-urls", &self.endpoint])
            .args(["--listen-peer-urls", &format!("http://127.0.0.1:{}", self.peer), "--log-level", "error"])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("etcd");
        self.child = Some(child);
        wait(Duration::from_secs(30), || self.metrics().is_some().then_some(()));
    }

    /// Stops etcd for this time, then starts it again for all clients at once.
    pub(crate) fn be_away(&mut self, time: Duration) {
        self.end();
        std::thread::sleep(time);
        self.serve();
    }

    fn end(&mut self) {
        if let Some(mut child) = self.child.take() {
            // The process may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Returns the process, its endpoint and its directory; the caller must end and delete them.
    pub(crate) fn into_parts(mut self) -> (Child, String, tempfile::TempDir) {
        let (child, directory) = (self.child.take(), self.directory.take());
        (child.expect("it runs"), self.endpoint.clone(), directory.expect("its directory"))
    }

    fn metrics(&self) -> Option<String> {
        http_get(self.endpoint.trim_start_matches("http://"), "/metrics")
    }

    /// Returns the number of requests answered so far, from etcd's own metrics.
    pub(crate) fn requests(&self) -> f64 {
        let text = self.metrics().expect("metrics");
        let handled = text.lines().filter(|l| l.starts_with("grpc_server_handled_total"));
        let unary = |l: &&str| {
            l.contains("etcdserverpb.KV") || l.contains("LeaseGrant") || l.contains("LeaseKeepAlive")
        };
        handled.filter(unary).filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    /// Returns the number of events delivered to watches so far, from etcd's own metrics.
    pub(crate) fn events(&self) -> f64 {
        let text = self.metrics().expect("metrics");
        let line = text.lines().find(|line| line.starts_with("etcd_debugging_mvcc_events_total "));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).expect("the number of events")
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.end();
    }
}

pub(crate) fn http_get(address: &str, path: &str) -> Option<String> {
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.starts_with("HTTP/1.0 200").then_some(()).or(text.starts_with("HTTP/1.1 200").then_some(()))?;
    Some(text.split_once("\r\n\r\n")?.1.to_owned())
}

pub(crate) fn wait<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {limit:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn beside(name: &str) -> PathBuf {
    std::env::current_exe().expect("this program").with_file_name(name)
}

pub(crate) fn orchestrate(endpoint: &str, words: &[&str]) -> Command {
    let mut command = Command::new(beside("orchestrate"));
    command.args(words).env_clear().env("ORCHESTRATE_ENDPOINTS", endpoint).env("ORCHESTRATE_TIMEOUT", "60s");
    command.stdin(Stdio::null());
    command
}

pub(crate) fn bench(words: &[&str]) -> Command {
    let mut command = Command::new(beside("bench"));
    command.args(words).stdin(Stdio::null());
    command
}

pub(crate) fn load(words: &[&str]) -> Vec<f64> {
    let output = bench(&[&["load"], words].concat()).stderr(Stdio::inherit()).output().expect("the load");
    assert!(output.status.success(), "{words:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().filter_map(|w| w.parse().ok()).collect()
}

pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// An agent process with one trivial step.
pub(crate) struct Agent {
    pub(crate) child: Child,
    pub(crate) address: String,
    pub(crate) directory: tempfile::TempDir,
    pub(crate) started: Instant,
}

/// Settings of a measured agent.
#[derive(Default)]
pub(crate) struct Setup<'a> {
    /// Interval of validation; by default the 60 seconds of the agent.
    pub(crate) validates_every: Option<&'a str>,
    /// True for one of many agents, to which no requests are sent.
    pub(crate) in_crowd: bool,
    /// Settings before the first table.
    pub(crate) top: &'a str,
    /// Additional settings, given the agent's directory. Without `[dns]` and `[services]` tables in
    /// them, no names are served and no service files are read.
    pub(crate) settings: Option<&'a dyn Fn(&Path) -> String>,
}

impl Agent {
    pub(crate) fn start(name: &str, endpoint: &str, setup: &Setup<'_>) -> Self {
        Self::start_in(tempfile::tempdir().expect("a directory"), name, endpoint, setup)
    }

    /// Starts an agent in the directory of an earlier one, with its state.
    pub(crate) fn start_in(
        directory: tempfile::TempDir,
        name: &str,
        endpoint: &str,
        setup: &Setup<'_>,
    ) -> Self {
        let at = |name: &str| directory.path().join(name);
        // With a thousand ports chosen beforehand, some would be taken by the time they are used.
        let [port] = if setup.in_crowd { [0] } else { tests::process::free_ports() };
        let address = format!("127.0.0.1:{port}");
        std::fs::write(at("machine-id"), directory.path().display().to_string()).expect("written");
        let more = setup.settings.map(|settings| settings(directory.path())).unwrap_or_default();
        let mut text = format!(
            "{}host = \"{name}\"\nstate_directory = {:?}\nversion_file = {:?}\n[identity]\nmachine_id_file = {:?}\n\
             [http]\nlisten = \"{address}\"\nsocket = {:?}\n[store]\nendpoints = [\"{endpoint}\"]\n[validation]\nevery = \"{}\"\n",
            setup.top,
            at("state"),
            at("version"),
            at("machine-id"),
            at("socket"),
            setup.validates_every.unwrap_or("60s"),
        );
        for (table, default) in [("[dns]", "listen = []"), ("[services]", "directories = []")] {
            if !more.contains(table) {
                let _ = writeln!(text, "{table}\n{default}");
            }
        }
        let _ = writeln!(
            text,
            "[[apply]]\nname = \"a\"\ncommand = [\"/usr/bin/touch\", {:?}]\n\
             [[validate]]\nname = \"v\"\ncommand = [\"/bin/true\"]\n{more}",
            at("applied")
        );
        std::fs::write(at("agent.toml"), text).expect("written");
        let log = std::fs::File::create(at("log")).expect("a log");
        let started = Instant::now();
        let child = Command::new(beside("orchestrate-agent"))
            .env_clear()
            .arg("--config")
            .arg(at("agent.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("an agent");
        Self { child, address, directory, started }
    }

    pub(crate) fn is_ready(&self) -> Option<()> {
        http_get(&self.address, "/ready").map(|_| ())
    }

    pub(crate) fn installed(&self, version: &str) -> Option<()> {
        (std::fs::read_to_string(self.directory.path().join("version")).ok()? == version).then_some(())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
