//! Runs programs: the binaries of this workspace, found in the directory of the test's own binary,
//! and others.

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Mutex, PoisonError};

/// Returns the path of a binary of this workspace. `make` builds the workspace before it runs
/// tests.
pub fn binary(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("the path of this test");
    let directory = own.ancestors().nth(2).expect("target/<profile>/deps/<test>");
    let path = directory.join(name);
    assert!(path.exists(), "{} is not built: run `cargo build --workspace` first", path.display());
    path
}

/// A process that is killed when the value is dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
}

impl Running {
    /// Starts the command with its output appended to a file.
    pub fn start(command: &mut Command, log: &Path) -> Self {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(log).expect("the log file");
        let errors = file.try_clone().expect("the log file, twice");
        let child = command.stdin(Stdio::null()).stdout(file).stderr(errors).spawn();
        Self { child: child.unwrap_or_else(|e| panic!("{command:?}: {e}")) }
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("the process is there");
    }

    /// Kills the process and waits for its end.
    pub fn kill(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Returns how the process ended, if it did.
    pub fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("waiting")
    }

    /// Returns the exit code if the process ended; the inner `None` is an end by a signal.
    pub fn ended(&mut self) -> Option<Option<i32>> {
        self.status().map(|status| status.code())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs a command to its end with this standard input.
pub fn run(command: &mut Command, input: &str) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    // Writing fails if the program closes its standard input without reading it.
    let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
    child.wait_with_output().expect("its output")
}

/// The ports that tests listen on. They are below those that the kernel gives to outgoing connections:
/// one of these could take a port between the choice and its use.
const PORTS: std::ops::Range<u16> = 10_000..32_768;

/// Returns ports on which nobody listens, and which no other test chooses as long as this process lives.
pub fn free_ports<const N: usize>() -> [u16; N] {
    static RESERVED: Mutex<Vec<File>> = Mutex::new(Vec::new());
    let user = rustix::process::geteuid().as_raw();
    let directory = std::env::temp_dir().join(format!("orchestrate-test-ports-{user}"));
    std::fs::create_dir_all(&directory).expect("a directory");
    let mut reserved = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
    let count = u32::from(PORTS.end - PORTS.start);
    // Tests that run at the same time begin far from each other.
    let first = std::process::id().wrapping_mul(997) % count;
    let mut candidates = (0..count).map(|n| PORTS.start + ((first + n) % count) as u16);
    [(); N].map(|()| {
        let is_free = |port: &u16| {
            let lock = File::create(directory.join(port.to_string())).expect("a lock");
            let is_ours = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
            // DNS listens on both.
            let is_free = is_ours
                && std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok()
                && std::net::UdpSocket::bind(("127.0.0.1", *port)).is_ok();
            if is_free {
                reserved.push(lock);
            }
            is_free
        };
        candidates.find(is_free).expect("a free port")
    })
}

/// True if the process is alive; a zombie is dead. The first thread of a process that is killed can
/// be a zombie while other threads still hold its files and locks; such a process is alive.
pub fn lives(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let threads = || std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    !stat.is_empty() && (!stat.contains(") Z") || threads() > 1)
}

/// Runs one test of this binary again, as root, in its own network and mount namespaces. Returns
/// true inside these namespaces. Outside, it returns false: after the test inside has passed, or
/// after recording why the test was skipped.
pub fn in_own_network(test: &str) -> bool {
    const INSIDE: &str = "ORCHESTRATE_TEST_INSIDE";
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let works = Command::new("unshare")
        .args(["-n", "-m", "sh", "-c", "ip link set lo up && iptables -L -n"])
        .output();
    if !works.is_ok_and(|output| output.status.success()) {
        crate::skip(test, "a network namespace with a firewall needs root, unshare, ip and iptables");
        return false;
    }
    let own = std::env::current_exe().expect("the path of this test");
    let output = Command::new("unshare")
        .args(["-n", "-m", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"])
        .arg(own)
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .expect("unshare");
    let result = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{result}");
    // A wrong test name would match no test, and the run would still succeed.
    assert!(String::from_utf8_lossy(&output.stdout).contains(" 1 passed"), "there is no test {test}");
    false
}
