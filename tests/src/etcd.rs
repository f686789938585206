//! Real etcd members on loopback, each with its data in a directory of the test.
//!
//! This file is long because every kind of store that tests start is in one place.

use crate::process::{Running, binary, free_ports};
use crate::recorder::Change;
use crate::store::Store;
use crate::wait;
use rustix::process::Signal;
use std::path::PathBuf;
use std::process::Command;

/// Files with which a member requires client certificates.
#[derive(Debug, Clone)]
pub struct Tls {
    /// Certificate of the authority.
    pub cacert: PathBuf,
    /// Certificate of the member; etcdctl uses it as well.
    pub cert: PathBuf,
    /// Private key of the member's certificate.
    pub key: PathBuf,
}

/// One or three members of a real etcd, or the embedded store where one member is enough.
pub struct Etcd {
    is_solo: bool,
    directory: tempfile::TempDir,
    members: Vec<Member>,
    token: String,
    quota_bytes: Option<u64>,
    tls: Option<Tls>,
    /// True if each member runs as its own user, so that a firewall can tell the members apart.
    own_users: bool,
    /// Further options of each member.
    options: Vec<String>,
    /// Number in the names of data directories: a member that is wiped or restored gets a new
    /// directory.
    generation: usize,
}

/// Returns the program of etcd: the one that the environment variable names, or `etcd` on the PATH.
fn program() -> String {
    std::env::var("ORCHESTRATE_TEST_ETCD").unwrap_or_else(|_| "etcd".into())
}

fn single_is_solo() -> bool {
    std::env::var("ORCHESTRATE_TEST_STORE").map_or(true, |store| store != "etcd")
}

/// User id of the first member; a number that no other user of a test machine has.
const FIRST_USER: u32 = 60_100;

struct Member {
    client_port: u16,
    peer_port: u16,
    data: PathBuf,
    running: Option<Running>,
}

impl Etcd {
    /// Starts a single member of the embedded store, which starts faster, or of a real etcd if the
    /// environment has `ORCHESTRATE_TEST_STORE=etcd`, as for the long tests.
    pub fn single() -> Self {
        Self::start(single_is_solo(), 1, None, None, false)
    }

    /// Starts a single member of a real etcd, for features that only etcd has.
    pub fn single_real() -> Self {
        Self::start(false, 1, None, None, false)
    }

    /// Starts a cluster of three members.
    pub fn cluster() -> Self {
        Self::start(false, 3, None, None, false)
    }

    /// Starts a cluster of three members with a limit on the size of their databases.
    pub fn cluster_with_quota(bytes: u64) -> Self {
        Self::start(false, 3, Some(bytes), None, false)
    }

    /// Starts a single member with a limit on the size of its database.
    pub fn with_quota(bytes: u64) -> Self {
        Self::start(single_is_solo(), 1, Some(bytes), None, false)
    }

    /// Starts a single member that requires client certificates.
    pub fn with_tls(tls: Tls) -> Self {
        Self::start(false, 1, None, Some(tls), false)
    }

    /// Starts a cluster of three members that can be cut off from each other; only for a test in
    /// its own network namespace.
    pub fn separable() -> Self {
        Self::start(false, 3, None, None, true)
    }

    fn start(
        is_solo: bool,
        count: usize,
        quota_bytes: Option<u64>,
        tls: Option<Tls>,
        own_users: bool,
    ) -> Self {
        Self::start_with((is_solo, count), quota_bytes, tls, own_users, |_| Vec::new())
    }

    fn start_with(
        (is_solo, count): (bool, usize),
        quota_bytes: Option<u64>,
        tls: Option<Tls>,
        own_users: bool,
        options: impl FnOnce(&std::path::Path) -> Vec<String>,
    ) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        if own_users {
            let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(directory.path(), open).expect("set");
        }
        let members = (0..count)
            .map(|index| {
                let [client_port, peer_port] = free_ports();
                Member {
                    client_port,
                    peer_port,
                    data: directory.path().join(format!("m{index}-0")),
                    running: None,
                }
            })
            .collect();
        let mut etcd = Self {
            is_solo,
            directory,
            members,
            token: "test".into(),
            quota_bytes,
            tls,
            own_users,
            options: Vec::new(),
            generation: 0,
        };
        etcd.options = options(etcd.directory.path());
        (0..count).for_each(|index| etcd.start_member(index));
        etcd.wait_until_serving();
        etcd
    }

    /// Starts a single member of a real etcd whose tokens are signed and end after 5 s.
    pub fn with_signed_tokens() -> Self {
        Self::start_with((false, 1), None, None, false, |directory| {
            let openssl = |arguments: &[&str]| {
                let done = Command::new("openssl").args(arguments).current_dir(directory).output();
                assert!(done.expect("openssl").status.success(), "openssl {arguments:?}");
            };
            openssl(&["genrsa", "-out", "token.key", "2048"]);
            openssl(&["rsa", "-in", "token.key", "-pubout", "-out", "token.pub"]);
            let [private, public] = ["token.key", "token.pub"].map(|name| directory.join(name));
            let (private, public) = (private.display(), public.display());
            let tokens = format!("jwt,pub-key={public},priv-key={private},sign-method=RS256,ttl=5s");
            vec!["--auth-token".to_owned(), tokens]
        })
    }

    fn initial_cluster(&self) -> String {
        let names = self.members.iter().enumerate();
        let parts = names.map(|(i, m)| format!("m{i}=http://127.0.0.1:{}", m.peer_port));
        parts.collect::<Vec<_>>().join(",")
    }

    /// Starts a member that is not running.
    pub fn start_member(&mut self, index: usize) {
        let cluster = self.initial_cluster();
        let log = self.directory.path().join(format!("m{index}.log"));
        let member = &mut self.members[index];
        if self.is_solo {
            let mut command = Command::new(binary("solo-etcd"));
            command.args(["--listen", &format!("127.0.0.1:{}", member.client_port)]);
            command.arg("--data-dir").arg(&member.data);
            if let Some(bytes) = self.quota_bytes {
                command.args(["--quota-backend-bytes", &bytes.to_string()]);
            }
            member.running = Some(Running::start(&mut command, &log));
            return;
        }
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let client = format!("{scheme}://127.0.0.1:{}", member.client_port);
        let peer = format!("http://127.0.0.1:{}", member.peer_port);
        let mut command = if self.own_users {
            let mut command = Command::new("setpriv");
            let user = FIRST_USER + u32::try_from(index).expect("few");
            std::fs::create_dir_all(&member.data).expect("made");
            std::os::unix::fs::chown(&member.data, Some(user), None).expect("root");
            command.args([&format!("--reuid={user}"), "--clear-groups", &program()]);
            command
        } else {
            Command::new(program())
        };
        command.args(["--name", &format!("m{index}"), "--data-dir"]).arg(&member.data);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &cluster, "--initial-cluster-token", &self.token]);
        command.args(["--heartbeat-interval", "50", "--election-timeout", "500"]);
        command.args(&self.options);
        if let Some(bytes) = self.quota_bytes {
            command.args(["--quota-backend-bytes", &bytes.to_string()]);
        }
        if let Some(tls) = &self.tls {
            command.arg("--cert-file").arg(&tls.cert).arg("--key-file").arg(&tls.key);
            command
                .arg("--trusted-ca-file")
                .arg(&tls.cacert)
                .args(["--client-cert-auth", "--enable-grpc-gateway=false"]);
        }
        command.env_remove("ETCDCTL_API");
        member.running = Some(Running::start(&mut command, &log));
    }

    /// Kills a member, as `kill -9` does.
    pub fn kill_member(&mut self, index: usize) {
        self.members[index].running = None;
    }

    /// Restarts the only member with its data on another client port.
    pub fn move_member(&mut self, index: usize) {
        self.kill_member(index);
        [self.members[index].client_port] = free_ports();
        self.start_member(index);
        self.wait_until_serving();
    }

    /// Sends a signal to a member, for example to stop and continue it.
    pub fn signal_member(&self, index: usize, signal: Signal) {
        self.members[index].running.as_ref().expect("running").signal(signal);
    }

    /// Waits for a leader and returns its index.
    pub fn leader(&self) -> usize {
        wait::until("a leader", || (0..self.members.len()).find(|i| self.is_leader(*i)), || self.log_tails())
    }

    fn is_leader(&self, index: usize) -> bool {
        if self.members[index].running.is_none() {
            return false;
        }
        let store = Store::connect(&[self.endpoint(index)]);
        store.status().is_some_and(|(leader, own)| leader == own)
    }

    /// Waits until a linearizable read is answered.
    pub fn wait_until_serving(&self) {
        let serves = || match &self.tls {
            None => self.store().try_get("/").is_ok(),
            Some(_) => self.run_etcdctl(&["--command-timeout", "2s", "get", "/"], "").status.success(),
        };
        wait::until("etcd serves", || serves().then_some(()), || self.log_tails());
    }

    /// Returns the endpoint of one member.
    pub fn endpoint(&self, index: usize) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.members[index].client_port)
    }

    /// Returns the endpoints of all members.
    pub fn endpoints(&self) -> Vec<String> {
        (0..self.members.len()).map(|i| self.endpoint(i)).collect()
    }

    /// Returns a client that is independent of the code under test.
    pub fn store(&self) -> Store {
        Store::connect(&self.endpoints())
    }

    /// Runs etcdctl against the members and returns its standard output.
    pub fn etcdctl(&self, arguments: &[&str], input: &str) -> String {
        let output = self.run_etcdctl(arguments, input);
        assert!(output.status.success(), "etcdctl {arguments:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn run_etcdctl(&self, arguments: &[&str], input: &str) -> std::process::Output {
        self.run_etcdctl_at(&self.endpoints(), arguments, input)
    }

    fn run_etcdctl_at(&self, endpoints: &[String], arguments: &[&str], input: &str) -> std::process::Output {
        let mut command = Command::new("etcdctl");
        // The scheme is not part of an HTTP/2 authority, and the embedded store is strict about
        // that.
        let endpoints = endpoints.join(",").replace("http://", "");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &endpoints]);
        if let Some(tls) = &self.tls {
            command.arg("--cacert").arg(&tls.cacert).arg("--cert").arg(&tls.cert).arg("--key").arg(&tls.key);
        }
        crate::process::run(command.args(arguments), input)
    }

    /// Cuts a member off from its peers; clients reach it as before.
    pub fn isolate(&self, index: usize) {
        let user = (FIRST_USER + u32::try_from(index).expect("few")).to_string();
        let drop = |arguments: &[&str]| {
            let rule = ["-A", "OUTPUT", "-p", "tcp"];
            let status = Command::new("iptables").args(rule).args(arguments).args(["-j", "DROP"]).status();
            assert!(status.expect("iptables").success());
        };
        for (other, member) in self.members.iter().enumerate() {
            let port = member.peer_port.to_string();
            if other == index {
                drop(&["--dport", &port, "-m", "owner", "!", "--uid-owner", &user]);
            } else {
                drop(&["--dport", &port, "-m", "owner", "--uid-owner", &user]);
            }
        }
    }

    /// Saves a snapshot of one member and returns its path.
    pub fn save_snapshot(&self) -> PathBuf {
        let path = self.directory.path().join("snapshot");
        let save = ["--command-timeout", "10s", "snapshot", "save", &path.display().to_string()];
        let output = self.run_etcdctl_at(&[self.endpoint(0)], &save, "");
        assert!(output.status.success(), "{output:?}");
        path
    }

    /// Replaces the data of all members with a snapshot; the cluster id stays the same.
    pub fn restore_snapshot(&mut self, snapshot: &std::path::Path) {
        let count = self.members.len();
        (0..count).for_each(|index| self.kill_member(index));
        self.generation += 1;
        for index in 0..count {
            self.restore_member(index, snapshot);
        }
        (0..count).for_each(|index| self.start_member(index));
        self.wait_until_serving();
    }

    fn restore_member(&mut self, index: usize, snapshot: &std::path::Path) {
        let data = self.directory.path().join(format!("m{index}-{}", self.generation));
        let peer = format!("http://127.0.0.1:{}", self.members[index].peer_port);
        let output = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["snapshot", "restore"])
            .arg(snapshot)
            .args(["--name", &format!("m{index}"), "--initial-cluster", &self.initial_cluster()])
            .args([
                "--initial-cluster-token",
                &self.token,
                "--initial-advertise-peer-urls",
                &peer,
                "--data-dir",
            ])
            .arg(&data)
            .output()
            .expect("etcdctl");
        assert!(output.status.success(), "{output:?}");
        self.members[index].data = data;
    }

    /// Restarts the only member with an empty store.
    pub fn wipe(&mut self) {
        assert_eq!(self.members.len(), 1);
        self.kill_member(0);
        self.generation += 1;
        self.members[0].data = self.directory.path().join(format!("m0-{}", self.generation));
        self.start_member(0);
        self.wait_until_serving();
    }

    /// Restarts the only member in its state at revision `to`, like a restored snapshot: the same
    /// keys at the same revisions, under leases with the same ids, the same cluster id, and a raft
    /// term that starts again. Before other clients can reach the store, `further` writes of
    /// somebody else are added.
    pub fn rewind(&mut self, changes: &[Change], to: i64, lease_seconds: i64, further: usize) {
        assert_eq!(self.members.len(), 1);
        self.kill_member(0);
        self.generation += 1;
        self.members[0].data = self.directory.path().join(format!("m0-{}", self.generation));
        let port = self.members[0].client_port;
        [self.members[0].client_port] = free_ports();
        self.start_member(0);
        self.wait_until_serving();
        let store = self.store();
        store.replay(changes, to, lease_seconds);
        for number in 0..further {
            store.put("/elsewhere", &number.to_string());
        }
        drop(store);
        self.kill_member(0);
        self.members[0].client_port = port;
        self.start_member(0);
        self.wait_until_serving();
    }

    fn log_tails(&self) -> String {
        let tail = |index: usize| {
            let path = self.directory.path().join(format!("m{index}.log"));
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(8)..].join("\n")
        };
        (0..self.members.len()).map(tail).collect::<Vec<_>>().join("\n--\n")
    }
}
