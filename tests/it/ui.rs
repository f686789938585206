//! `ui`: an observer that lives as long as the command.

use rustix::process::Signal;
use std::path::Path;
use std::process::Command;
use tests::etcd::Etcd;
use tests::observer::ask;
use tests::process::{Running, binary};
use tests::wait;

const PASSWORD: &str = "a-canary-for-ui";

/// An `orchestrate ui` that runs.
struct Ui {
    running: Running,
    directory: tempfile::TempDir,
    address: String,
    token: String,
}

impl Ui {
    /// Starts the command for a store, in an environment with these variables, and waits for the address.
    fn start(etcd: &Etcd, variables: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut command = Command::new(binary("orchestrate"));
        command.arg("ui").env("ORCHESTRATE_ENDPOINTS", etcd.endpoints().join(","));
        command.env("TMPDIR", directory.path()).envs(variables.iter().copied());
        let log = directory.path().join("log");
        let running = Running::start(&mut command, &log);
        let read = || std::fs::read_to_string(&log).unwrap_or_default();
        let line = || read().lines().find(|line| line.starts_with("http://")).map(str::to_owned);
        let url = wait::until("the command prints an address", line, read);
        let (address, token) = url.split_once("/#t=").expect("an address with a token");
        let address = address.strip_prefix("http://").expect("an address").to_owned();
        Self { running, address, token: token.to_owned(), directory }
    }

    /// Returns the code and the text of a page.
    fn page(&self, token: &str) -> (u16, String) {
        let token = format!("Bearer {token}");
        let headers = [("Host", self.address.as_str()), ("Authorization", token.as_str())];
        let answer = ask(&self.address, "/", &headers).expect("an answer");
        (answer.code, answer.body)
    }

    /// Returns the process of its observer.
    fn observer(&self) -> String {
        let children = format!("/proc/{0}/task/{0}/children", self.running.pid().as_raw_nonzero());
        let children = std::fs::read_to_string(children).expect("readable");
        children.split_whitespace().next().expect("a child").to_owned()
    }

    fn wait_until_nobody_listens(&self) {
        let is_over = || std::net::TcpStream::connect(&self.address).is_err().then_some(());
        wait::until("the observer ends", is_over, || self.address.clone());
    }
}

#[test]
fn a_page_is_shown_while_the_command_runs_and_nothing_is_left_afterwards() {
    let etcd = Etcd::single();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut ui = Ui::start(&etcd, &[]);
        let fresh = || Some(ui.page(&ui.token)).filter(|(code, _)| *code == 200);
        let (_, text) = wait::until("the page is there", fresh, || format!("{:?}", ui.page(&ui.token)));
        assert!(text.contains("No host has joined this fleet yet."), "{text}");
        assert_eq!(ui.page("wrong").0, 401);
        ui.running.signal(signal);
        let code = wait::until("the command ends", || ui.running.ended(), String::new);
        assert_eq!(code, Some(0), "{signal:?}");
        ui.wait_until_nobody_listens();
        let left = std::fs::read_dir(ui.directory.path()).expect("a directory").flatten();
        let left: Vec<_> = left.map(|entry| entry.file_name()).filter(|name| name != "log").collect();
        assert!(left.is_empty(), "{left:?}");
    }
    let ui = Ui::start(&etcd, &[]);
    ui.running.signal(Signal::KILL);
    ui.wait_until_nobody_listens();
}

#[test]
fn the_password_reaches_the_observer_without_a_name() {
    let etcd = Etcd::single_real();
    for arguments in [
        &["user", "add", &format!("root:{PASSWORD}")][..],
        &["user", "grant-role", "root", "root"],
        &["auth", "enable"],
    ] {
        etcd.etcdctl(arguments, "");
    }
    let ui = Ui::start(&etcd, &[("ORCHESTRATE_USER", "root"), ("ORCHESTRATE_PASSWORD", PASSWORD)]);
    let fresh = || Some(ui.page(&ui.token)).filter(|(code, _)| *code == 200);
    wait::until("the observer reads the store", fresh, || format!("{:?}", ui.page(&ui.token)));
    let observer = ui.observer();
    for file in ["cmdline", "environ"] {
        let text = std::fs::read(Path::new("/proc").join(&observer).join(file)).expect("readable");
        assert!(!String::from_utf8_lossy(&text).contains(PASSWORD), "{file}");
    }
    let grep = Command::new("grep").args(["-r", PASSWORD]).arg(ui.directory.path()).output().expect("grep");
    assert_eq!(grep.status.code(), Some(1), "{}", String::from_utf8_lossy(&grep.stdout));
}
