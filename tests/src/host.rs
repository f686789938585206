//! A host of a test: a directory with the settings of an agent, its state, and steps that log their
//! runs.
//!
//! This file is long because it is the one harness that starts and observes a host.

use crate::answers;
use crate::checker::{StepLine, parse_steps};
use crate::network::HostNetwork;
use crate::process::{self, Running, binary, free_ports, run};
use crate::store::Store;
use crate::wait;
use rustix::process::Signal;
use schema::names::HostName;
use serde_json::Value;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// A host with its own agent.
pub struct Host {
    pub name: HostName,
    directory: tempfile::TempDir,
    endpoints: Vec<String>,
    agent: Option<Running>,
    http_port: u16,
    dns_port: u16,
    extra: String,
    environment: Vec<(String, String)>,
    place: Option<HostNetwork>,
    programs: Option<PathBuf>,
}

/// Exit code and output of a command.
#[derive(Debug, PartialEq, Eq)]
pub struct CommandOutput {
    /// Exit code; -1 if a signal ended the command.
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl From<Output> for CommandOutput {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }
}

/// Script of each step: it logs its start and its end, and follows the files `do-*`, `hold-*` and
/// `code-*` in the host's directory.
const STEP: &str = r#"#!/bin/sh
D=@DIRECTORY@
phase=$ORCHESTRATE_STEP_PHASE
log() { read -r up _ < /proc/uptime; echo "$phase @NAME@ ${ORCHESTRATE_STEP_VERSION:--} $1 $up" >> "$D/steps.log"; }
log start
echo "@NAME@ of $ORCHESTRATE_STEP_VERSION, attempt $ORCHESTRATE_STEP_ATTEMPT"
if [ -f "$D/do-@NAME@" ]; then . "$D/do-@NAME@"; fi
while [ -f "$D/hold-@NAME@" ]; do sleep 0.02; done
code=0
if [ -f "$D/code-@NAME@" ]; then read -r code < "$D/code-@NAME@"; fi
if [ -f "$D/code-@NAME@-$ORCHESTRATE_STEP_VERSION" ]; then read -r code < "$D/code-@NAME@-$ORCHESTRATE_STEP_VERSION"; fi
if [ $phase = apply ] && [ $code = 0 ]; then echo "$ORCHESTRATE_STEP_VERSION" > "$D/installed"; fi
log $code
exit $code
"#;

/// Phase and name of each step that every test host has.
pub const STEPS: [(&str, &str); 5] = [
    ("prefetch", "fetch"),
    ("apply", "packages"),
    ("apply", "configuration"),
    ("converge", "render"),
    ("validate", "check"),
];

impl Host {
    /// Creates a host; its agent is not started yet.
    pub fn new(name: &str, endpoints: &[String]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let [http_port, dns_port] = free_ports();
        let host = Self {
            name: HostName::new(name).expect("a host name"),
            directory,
            endpoints: endpoints.to_vec(),
            agent: None,
            http_port,
            dns_port,
            extra: String::new(),
            environment: Vec::new(),
            place: None,
            programs: None,
        };
        for (_, step) in STEPS {
            let text =
                STEP.replace("@DIRECTORY@", &host.path("").display().to_string()).replace("@NAME@", step);
            host.write_executable(&format!("step-{step}"), &text);
        }
        // The machine id is unique, because tests run in parallel on one machine.
        let unique = host.directory.path().file_name().expect("a name").to_string_lossy().into_owned();
        host.write("machine-id", &format!("{unique}\n"));
        host.write("boot-id", "boot-1\n");
        host
    }

    /// Returns the path of a file in the host's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file in the host's directory.
    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("written");
    }

    /// Writes an executable file in the host's directory.
    pub fn write_executable(&self, name: &str, text: &str) {
        self.write(name, text);
        std::fs::set_permissions(self.path(name), std::fs::Permissions::from_mode(0o755))
            .expect("executable");
    }

    /// Removes a file of the host's directory if it exists.
    pub fn remove(&self, name: &str) {
        // The file may not exist.
        let _ = std::fs::remove_file(self.path(name));
    }

    /// Reads a file of the host's directory; returns an empty string if the file does not exist.
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Adds lines to the settings of the agent.
    #[must_use]
    pub fn with(mut self, extra: &str) -> Self {
        self.extra.push_str(extra);
        self.extra.push('\n');
        self
    }

    /// Puts the host into its own network namespace.
    #[must_use]
    pub fn at(mut self, place: &HostNetwork) -> Self {
        self.place = Some(place.clone());
        self
    }

    /// Returns the address at which the host is reachable.
    fn address(&self) -> &str {
        self.place.as_ref().map_or("127.0.0.1", |place| &place.address)
    }

    /// Returns a command that runs a program on this host.
    pub fn program(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        match &self.place {
            Some(place) => place.command(program),
            None => Command::new(program),
        }
    }

    /// Sets a variable in the environment of the agent and of the operator's commands.
    pub fn set_environment(&mut self, name: &str, value: &str) {
        self.environment.retain(|(n, _)| n != name);
        self.environment.push((name.into(), value.into()));
    }

    /// Removes a variable from this environment.
    pub fn unset_environment(&mut self, name: &str) {
        self.environment.retain(|(n, _)| n != name);
    }

    /// Sets the store endpoints for the next start of the agent and for the operator's commands.
    pub fn set_endpoints(&mut self, endpoints: &[String]) {
        self.endpoints = endpoints.to_vec();
    }

    /// Sets the directory of the programs for the next start of the agent and for the operator's commands; `None`
    /// stands for those of this workspace.
    pub fn set_programs(&mut self, directory: Option<&Path>) {
        self.programs = directory.map(Path::to_owned);
    }

    fn binary(&self, name: &str) -> PathBuf {
        self.programs.as_ref().map_or_else(|| binary(name), |directory| directory.join(name))
    }

    /// Returns the path of the agent's state directory.
    pub fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// Returns what the journal of the stopped agent says.
    pub fn journal(&self) -> Value {
        let text = std::fs::read_to_string(self.state().join("journal")).expect("a journal");
        serde_json::from_str(text.split_once('\n').expect("a header").1).expect("JSON")
    }

    /// Replaces the journal by one of the format before that says the same about this host.
    pub fn write_older_journal(&self) {
        let state = self.journal();
        let body = serde_json::json!({
            "host": self.name,
            "boot_id": state["boot_id"],
            "machine_id": state["machine_id"],
            "store": state["store"],
            "installed": state["versions"]["installed"],
            "dirty": state["versions"]["in_progress"]["version"],
            "hold": state["rollout"]["hold"],
            "running": state["steps"]["running"],
        });
        let body = body.to_string();
        let sum = crc32fast::hash(body.as_bytes());
        let text = format!("orchestrate-journal 1 {} {sum:08x}\n{body}", body.len());
        std::fs::write(self.state().join("journal"), text).expect("written");
    }

    fn write_settings(&self) -> PathBuf {
        let at = |name: &str| self.path(name).display().to_string();
        let mut text = format!(
            "host = \"{}\"\nstate_directory = \"{}\"\nversion_file = \"{}\"\n",
            self.name,
            at("state"),
            at("current_version")
        );
        // Top-level settings must come before tables.
        let of_table =
            if self.extra.starts_with('[') { Some(0) } else { self.extra.find("\n[").map(|n| n + 1) };
        let (top, tables) = self.extra.split_at(of_table.unwrap_or(self.extra.len()));
        text.push_str(top);
        let given = |table: &str| tables.contains(table);
        let _ = writeln!(
            text,
            "[identity]\nmachine_id_file = \"{}\"\nboot_id_file = \"{}\"",
            at("machine-id"),
            at("boot-id")
        );
        let (port, socket) = (self.http_port, at("agent.sock"));
        let address = self.address();
        let _ = writeln!(text, "[http]\nlisten = \"{address}:{port}\"\nsocket = \"{socket}\"");
        if !given("[store]") {
            let _ = writeln!(text, "[store]\nendpoints = {:?}\nbackstop = \"1s\"", self.endpoints);
        }
        if !given("[dns]") {
            let _ = writeln!(text, "[dns]\nlisten = [\"127.0.0.1:{}\"]", self.dns_port);
        }
        if !given("[services]") {
            let _ = writeln!(
                text,
                "[services]\ndirectories = [\"{}\"]\naddresses = [\"{address}\"]",
                at("services.d")
            );
        }
        if !given("[validation]") {
            let _ = writeln!(text, "[validation]\nevery = \"500ms\"");
        }
        if !given("[attempts]") {
            let _ = writeln!(
                text,
                "[attempts]\nnot_yet_retry = \"200ms\"\nbackoff_min = \"300ms\"\nbackoff_max = \"1s\""
            );
        }
        if !given("[[apply]]") {
            for (phase, step) in STEPS {
                let command = at(&format!("step-{step}"));
                let _ = writeln!(
                    text,
                    "[[{phase}]]\nname = \"{step}\"\ncommand = [\"{command}\"]\ntimeout = \"300s\"\ngrace = \"1s\""
                );
            }
        }
        text.push_str(tables);
        self.write("agent.toml", &text);
        self.path("agent.toml")
    }

    pub fn start(&mut self) {
        let settings = self.write_settings();
        let mut command = self.program(self.binary("orchestrate-agent"));
        command.arg("--config").arg(settings).env_clear();
        command.env("ORCHESTRATE_LOG", "warn,agent=debug,etcd_session=debug");
        command.envs(self.environment.iter().cloned());
        self.agent = Some(Running::start(&mut command, &self.path("agent.log")));
    }

    /// Creates a host and starts its agent.
    pub fn started(name: &str, endpoints: &[String]) -> Self {
        let mut host = Self::new(name, endpoints);
        host.start();
        host
    }

    /// Kills the agent, as `kill -9` does.
    pub fn kill(&mut self) {
        self.agent = None;
    }

    /// Stops the agent as the service manager does, and waits for its end. An agent that lives ends
    /// with exit code 0.
    pub fn stop(&mut self) {
        if self.agent.is_some() {
            let lives = !self.is_dead();
            self.signal(Signal::TERM);
            let dead = || self.is_dead().then_some(());
            wait::until("the agent stops", dead, || self.describe());
            let status = self.agent.as_mut().and_then(Running::status);
            assert!(!lives || status.is_some_and(|s| s.success()), "{status:?}\n{}", self.describe());
            self.agent = None;
        }
    }

    /// Sends a signal to the agent.
    pub fn signal(&self, signal: Signal) {
        self.agent.as_ref().expect("started").signal(signal);
    }

    /// Returns the process id of the agent.
    pub fn pid(&self) -> i32 {
        self.agent.as_ref().expect("started").pid().as_raw_nonzero().get()
    }

    /// Returns the exit code of the agent if it ended; the inner `None` is an end by a signal.
    pub fn ended(&mut self) -> Option<Option<i32>> {
        self.agent.as_mut().and_then(Running::ended)
    }

    /// True if the agent ended, even if nobody has read its exit status yet.
    pub fn is_dead(&self) -> bool {
        !process::lives(self.pid())
    }

    /// Simulates a reboot of the machine: the agent is killed and the boot id changes.
    pub fn reboot(&mut self, boot_id: &str) {
        self.kill();
        self.write("boot-id", boot_id);
    }

    /// Returns the JSON of the agent's `/status`.
    pub fn status(&self) -> Option<Value> {
        serde_json::from_str(&self.http_get("/status")?.1).ok()
    }

    /// Opens a connection to the agent's HTTP port without sending anything.
    pub fn connect_http(&self) -> std::net::TcpStream {
        std::net::TcpStream::connect((self.address(), self.http_port)).expect("it listens")
    }

    /// Sends a GET request to the agent's HTTP port; returns status code and body.
    pub fn http_get(&self, path: &str) -> Option<(u16, String)> {
        self.http_get_within(Duration::from_secs(3), path)
    }

    /// Same as [`Host::http_get`], with its own limit for each part of the answer.
    pub fn http_get_within(&self, limit: Duration, path: &str) -> Option<(u16, String)> {
        let mut stream = std::net::TcpStream::connect((self.address(), self.http_port)).ok()?;
        stream.set_read_timeout(Some(limit)).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let code = text.split(' ').nth(1)?.parse().ok()?;
        Some((code, text.split_once("\r\n\r\n")?.1.to_owned()))
    }

    /// Sends a request to the agent's socket; returns the whole answer with its head.
    pub fn socket_answer(&self, method: &str, path: &str, body: &str) -> Option<String> {
        let mut stream = std::os::unix::net::UnixStream::connect(self.path("agent.sock")).ok()?;
        let head =
            format!("{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all((head + body).as_bytes()).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        Some(text)
    }

    /// Returns the lines that `dig +short` prints, sorted.
    pub fn dig(&self, arguments: &[&str]) -> Vec<String> {
        let mut command = self.program("dig");
        command.args(["@127.0.0.1", "-p", &self.dns_port.to_string(), "+tries=1", "+time=3", "+short"]);
        let result = run(command.args(arguments), "");
        let mut lines: Vec<String> =
            String::from_utf8_lossy(&result.stdout).lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }

    /// Returns the port on which the agent serves HTTP.
    pub fn http_port(&self) -> u16 {
        self.http_port
    }

    /// Returns the port on which the agent serves DNS.
    pub fn dns_port(&self) -> u16 {
        self.dns_port
    }

    /// Waits until `dig` prints exactly the expected lines for a name.
    pub fn wait_for_name(&self, arguments: &[&str], expected: &[&str]) {
        let what = format!("{} answers {arguments:?} with {expected:?}", self.name);
        let is = || (self.dig(arguments) == expected).then_some(());
        wait::until(&what, is, || format!("{:?}\n{}", self.dig(arguments), self.describe()));
    }

    /// Writes a file into the directory of service files atomically.
    pub fn write_service(&self, name: &str, text: &str) {
        let directory = self.path("services.d");
        std::fs::create_dir_all(&directory).expect("a directory");
        let temporary = self.path("service.new");
        std::fs::write(&temporary, text).expect("written");
        std::fs::rename(&temporary, directory.join(name)).expect("in place");
    }

    /// Writes a service whose check passes while the file `<name>-works` exists.
    pub fn write_switched_service(&self, name: &str, port: u16) {
        let file = self.path(&format!("{name}-works")).display().to_string();
        self.write_service(
            &format!("{name}.json"),
            &format!(
                r#"{{"service": {{"name": "{name}", "port": {port}, "tags": ["t-{port}"], "check":
                    {{"script": "test -e '{file}' || {{ echo {name} does not work; exit 2; }}", "interval": "200ms"}}}}}}"#
            ),
        );
    }

    /// Waits until the agent reports this verdict; returns its status.
    pub fn wait_for_verdict(&self, word: &str) -> Value {
        let is = |s: &Value| s["verdict"] == word;
        wait::until(&format!("{} is {word}", self.name), || self.status().filter(is), || self.describe())
    }

    /// Waits until the host is listed under a version. After an outage an agent may wait 45 s before it connects again.
    pub fn wait_for_listing(&self, store: &Store, version: &str) {
        let key = format!("/running_version/{version}/{}", self.name.to_lower());
        let listed = || store.try_get(&key).ok().flatten();
        wait::until_within(wait::DEADLINE * 2, &format!("{key} is there"), listed, || self.describe());
    }

    /// Waits until the host has this status in the store; returns the status record.
    pub fn wait_for_status(&self, store: &Store, kind: &str, state: &str) -> Value {
        let key = format!("/status/{kind}/{state}/{}", self.name.to_lower());
        let text = wait::until(
            &format!("{key} is there"),
            || store.try_get(&key).ok().flatten(),
            || self.describe(),
        );
        serde_json::from_str(&text).expect("JSON")
    }

    /// Returns the lines that the steps logged.
    pub fn steps(&self) -> Vec<StepLine> {
        parse_steps(&self.read("steps.log"))
    }

    /// Returns how often a step ended, with any exit code, for a version.
    pub fn runs(&self, step: &str, version: &str) -> usize {
        self.steps().iter().filter(|s| s.step == step && s.version == version && s.code.is_some()).count()
    }

    /// Returns how often a step started for a version.
    pub fn begins(&self, step: &str, version: &str) -> usize {
        self.steps().iter().filter(|s| s.step == step && s.version == version && s.code.is_none()).count()
    }

    /// Waits until a step has started for a version; it may have ended already.
    pub fn wait_for_begin(&self, step: &str, version: &str) {
        wait::until(
            &format!("{step} of {version} begins"),
            || (self.begins(step, version) > 0).then_some(()),
            || self.describe(),
        );
    }

    /// Runs the operator's command as this host.
    pub fn command(&self, arguments: &[&str], input: &str) -> CommandOutput {
        self.command_in(&self.state(), arguments, input)
    }

    /// Same as [`Host::command`], with another state directory.
    pub fn command_in(&self, state_directory: &Path, arguments: &[&str], input: &str) -> CommandOutput {
        let output: CommandOutput = run(&mut self.orchestrate(state_directory, arguments), input).into();
        if arguments.contains(&"json") && !output.out.is_empty() {
            let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
            assert_eq!(answers::wrong(&arguments, &output.out), None, "{arguments:?}: {output:?}");
        }
        output
    }

    /// Starts the operator's command as this host; its output goes to a file in the host's directory.
    pub fn start_command(&self, arguments: &[&str], log: &str) -> Running {
        Running::start(&mut self.orchestrate(&self.state(), arguments), &self.path(log))
    }

    fn orchestrate(&self, state_directory: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.binary("orchestrate"));
        command
            .args(arguments)
            .env_clear()
            .envs(self.environment.iter().cloned())
            .env("ORCHESTRATE_ENDPOINTS", self.endpoints.join(","))
            .env("ORCHESTRATE_HOSTNAME", self.name.as_str())
            .env("ORCHESTRATE_STATE_DIR", state_directory)
            .env("ORCHESTRATE_LOCAL_VERSION_FILE", self.path("current_version"))
            .env("ORCHESTRATE_SOCKET", self.path("agent.sock"));
        command
    }

    /// Returns status, step log and agent log of the host, for the message of a failed wait.
    pub fn describe(&self) -> String {
        let tail = |text: String, lines: usize| {
            let all: Vec<&str> = text.lines().collect();
            all[all.len().saturating_sub(lines)..].join("\n")
        };
        let status = self.status().map(|s| format!("{s:#}")).unwrap_or_else(|| "no answer".into());
        format!(
            "== {}\n-- status\n{status}\n-- steps\n{}\n-- agent\n{}",
            self.name,
            tail(self.read("steps.log"), 30),
            tail(self.read("agent.log"), 40)
        )
    }

    /// Returns the host's directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }
}
