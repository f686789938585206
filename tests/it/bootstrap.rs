//! `orchestrate bootstrap`: an agent works with the files that it writes.

use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use tests::etcd::Etcd;
use tests::host::CommandOutput;
use tests::process::{Running, binary, in_own_network, run};
use tests::wait;

const FRAGMENT: &str = "etc/agent.d/00-bootstrap.toml";

/// A machine on which nothing is set up yet; a directory stands in for its file system.
struct Fresh {
    directory: tempfile::TempDir,
    environment: Vec<(&'static str, String)>,
}

impl Fresh {
    fn new(name: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name).display().to_string();
        let environment = vec![
            ("ORCHESTRATE_HOSTNAME", name.to_owned()),
            ("ORCHESTRATE_STATE_DIR", path("state")),
            ("ORCHESTRATE_LOCAL_VERSION_FILE", path("current_version")),
        ];
        Self { directory, environment }
    }

    fn orchestrate(&self, arguments: &[&str]) -> CommandOutput {
        let mut command = Command::new(binary("orchestrate"));
        command.env_clear().envs(self.environment.iter().map(|(name, value)| (*name, value)));
        run(command.args(arguments), "").into()
    }

    fn bootstrap(&self, arguments: &[&str]) -> CommandOutput {
        let directory = self.directory.path().join("etc").display().to_string();
        self.orchestrate(&[&["bootstrap", "--directory", &directory], arguments].concat())
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.directory.path().join(name)).unwrap_or_default()
    }

    /// Starts the agent that the printed commands would start.
    fn start_agent(&self) -> Running {
        let mut command = Command::new(binary("orchestrate-agent"));
        let own = |(name, _): &&(&str, String)| *name != "ORCHESTRATE_HOSTNAME";
        command.env_clear().envs(self.environment.iter().filter(own).map(|(name, value)| (*name, value)));
        command.arg("--config").arg(self.directory.path().join("etc/agent.toml"));
        Running::start(&mut command, &self.directory.path().join("agent.log"))
    }

    fn wait_until_verified(&self, version: &str, host: &str, options: &[&str]) {
        let verified = || {
            (self.orchestrate(&[options, &["verify_hosts", version, host]].concat()).code == 0).then_some(())
        };
        wait::until("the host is at the version", verified, || self.read("agent.log"));
    }
}

/// Returns the index of the password in the environment.
fn place_of_password(machine: &Fresh) -> usize {
    machine.environment.iter().position(|(name, _)| *name == "ORCHESTRATE_PASSWORD").expect("a password")
}

fn etcd_at(directory: &Path, endpoint: &str) -> Running {
    let mut command = Command::new(binary("solo-etcd"));
    command.args(["--in-memory", "--listen", endpoint]);
    Running::start(&mut command, &directory.join("store.log"))
}

#[test]
fn a_first_host_works_with_what_was_written_and_grows_into_a_fleet_elsewhere() {
    let name = "bootstrap::a_first_host_works_with_what_was_written_and_grows_into_a_fleet_elsewhere";
    // A first host uses the default ports.
    if !in_own_network(name) {
        return;
    }
    let machine = Fresh::new("web-1");
    let result = machine.bootstrap(&[]);
    assert_eq!(result.code, 64, "where the store is was not said: {result:?}");
    let result = machine.bootstrap(&["--first", "--user", "a:b"]);
    assert_eq!(result.code, 64, "the embedded store has no users: {result:?}");
    assert_eq!(machine.read("etc/agent.toml"), "");
    let first: &[&str] = &["--first", "--role", "web", "--label", "rack=r1"];
    let result = machine.bootstrap(first);
    assert_eq!(
        (result.code, result.out.as_str()),
        (
            0,
            format!(
                "systemctl enable --now solo-etcd\norchestrate-agent --config '{}'\n",
                machine.path("etc/agent.toml")
            )
            .as_str()
        ),
        "{result:?}"
    );
    let fragment = machine.read(FRAGMENT);
    let _store = etcd_at(machine.directory.path(), "127.0.0.1:2379");
    let ping = || (machine.orchestrate(&["ping"]).code == 0).then_some(());
    wait::until("the store answers", ping, || machine.read("store.log"));
    let mut agent = machine.start_agent();
    assert_eq!(machine.orchestrate(&["trigger_update", "1"]).code, 0);
    machine.wait_until_verified("1", "web-1", &[]);
    let roster = machine.orchestrate(&["hosts", "--wide"]).out;
    assert!(roster.contains("web") && roster.contains("rack=r1"), "{roster}");

    // The second run finds nothing to change, and the store runs.
    let result = machine.bootstrap(first);
    assert_eq!((result.code, result.out.contains("solo-etcd")), (0, false), "{result:?}");
    assert!(result.err.contains("unchanged") && result.err.contains("desired version is 1"), "{result:?}");
    assert_eq!(machine.read(FRAGMENT), fragment);

    // Another store is accepted only with `--replace`, and only if it answers.
    let elsewhere = ["--endpoints", "127.0.0.1:4379", "--timeout", "2s"];
    assert_eq!(machine.bootstrap(&elsewhere).code, 3);
    let replace = [&elsewhere[..], &["--replace"]].concat();
    assert_eq!(machine.bootstrap(&replace).code, 2);
    assert_eq!(machine.read(FRAGMENT), fragment, "nothing was written");
    let _elsewhere = etcd_at(machine.directory.path(), "127.0.0.1:4379");
    let at: &[&str] = &["--endpoints", "127.0.0.1:4379"];
    let ping = || (machine.orchestrate(&[at, &["ping"]].concat()).code == 0).then_some(());
    wait::until("the other store answers", ping, || machine.read("store.log"));
    let result = machine.bootstrap(&replace);
    assert_eq!(result.code, 0, "{result:?}");
    let replaced = machine.read(FRAGMENT);
    assert_eq!(replaced, fragment.replace(":2379", ":4379"), "what was said of the host stays");
    agent.kill();
    let _agent = machine.start_agent();
    // The agent saw another store before, so an operator must accept this one.
    let accept = [at, &["store", "accept", "--version", "1"]].concat();
    let blocked =
        || machine.orchestrate(&[at, &["why", "web-1"]].concat()).out.contains("blocked").then_some(());
    wait::until("it is blocked", blocked, || machine.read("agent.log"));
    assert_eq!(machine.orchestrate(&accept).code, 0);
    machine.wait_until_verified("1", "web-1", at);
}

#[test]
fn a_host_joins_through_a_member_of_the_fleets_store_on_itself() {
    let name = "bootstrap::a_host_joins_through_a_member_of_the_fleets_store_on_itself";
    if !in_own_network(name) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let check = |options: &[&str], variable: Option<(&'static str, &str)>, expected: i32| {
        let mut machine = Fresh::new("web-1");
        machine.environment.extend(variable.map(|(name, value)| (name, value.to_owned())));
        let result = machine.bootstrap(&[&["--timeout", "2s"], options].concat());
        assert_eq!(result.code, expected, "{options:?} {variable:?}: {result:?}");
        assert_eq!(machine.read(FRAGMENT).contains("127.0.0.1:2379"), expected == 0, "{options:?}");
    };
    let ways: [(&[&str], _); 5] = [
        (&["--endpoints", "127.0.0.1:2379"], None),
        (&["--host", "127.0.0.1"], None),
        (&["--port", "2379"], None),
        (&[], Some(("ORCHESTRATE_ENDPOINTS", "127.0.0.1:2379"))),
        (&[], Some(("ETCDCTL_ENDPOINTS", "127.0.0.1:2379"))),
    ];
    check(ways[0].0, None, 2);
    let _store = etcd_at(directory.path(), "127.0.0.1:2379");
    let machine = Fresh::new("web-1");
    let ping = || (machine.orchestrate(&["ping"]).code == 0).then_some(());
    wait::until("the store answers", ping, String::new);
    for (options, variable) in ways {
        check(options, variable, 0);
    }
    check(&[], None, 64);
}

#[test]
fn a_host_joins_with_its_password_and_not_under_the_name_of_another_machine() {
    let etcd = Etcd::single_real();
    for arguments in [
        &["user", "add", "root:root-password"][..],
        &["user", "grant-role", "root", "root"],
        &["auth", "enable"],
    ] {
        etcd.etcdctl(arguments, "");
    }
    let claim = json!({ "format": 1, "instance": "other", "machine_id": "another", "boot_id": "b" });
    let put = ["--user", "root:root-password", "put", "/orchestrate/live/web-1", &claim.to_string()];
    etcd.etcdctl(&put, "");
    let mut machine = Fresh::new("web-1");
    let endpoint = etcd.endpoint(0);
    let join = ["--endpoints", &endpoint];
    let result = machine.bootstrap(&join);
    assert_eq!(result.code, 2, "without a user nothing can be read: {result:?}");
    machine.environment.push(("ORCHESTRATE_USER", "root".into()));
    machine.environment.push(("ORCHESTRATE_PASSWORD", "root-password".into()));
    let result = machine.bootstrap(&join);
    assert_eq!(result.code, 3, "{result:?}");
    assert!(result.err.contains("another") && result.err.contains("--hostname"), "{result:?}");
    assert!(!machine.directory.path().join("etc").exists(), "nothing was written");

    let result = machine.bootstrap(&[&join[..], &["--hostname", "web-2", "-o", "json"]].concat());
    assert_eq!(result.code, 0, "{result:?}");
    let password = machine.directory.path().join("etc/store-password-root");
    assert_eq!(std::fs::metadata(&password).expect("a file").permissions().mode() & 0o777, 0o600);
    let everything =
        format!("{}{}{}{}", result.out, result.err, machine.read(FRAGMENT), machine.read("etc/agent.toml"));
    assert!(!everything.contains("root-password"), "{everything}");
    // Another password is a change, and a password that the store refuses is not written.
    let (known, wrong) = (place_of_password(&machine), ("ORCHESTRATE_PASSWORD", "wrong".to_owned()));
    machine.environment[known] = wrong;
    let again = [&join[..], &["--hostname", "web-2"]].concat();
    assert_eq!(machine.bootstrap(&again).code, 3);
    assert_eq!(machine.bootstrap(&[&again[..], &["--replace"]].concat()).code, 2);
    assert_eq!(machine.read("etc/store-password-root"), "root-password");
    machine.environment[known].1 = "root-password".into();
    assert!(machine.bootstrap(&again).err.contains("unchanged"));
    // The agent reads the password only from the file.
    machine.environment.retain(|(name, _)| !["ORCHESTRATE_USER", "ORCHESTRATE_PASSWORD"].contains(name));
    let [http, dns] = tests::process::free_ports();
    let site = format!("[http]\nlisten = \"127.0.0.1:{http}\"\n[dns]\nlisten = [\"127.0.0.1:{dns}\"]\n");
    std::fs::write(machine.directory.path().join("etc/agent.d/50-site.toml"), site).expect("written");
    let _agent = machine.start_agent();
    let at = ["--endpoints", &endpoint, "--user", "root:root-password"];
    assert_eq!(machine.orchestrate(&[&at[..], &["trigger_update", "1"]].concat()).code, 0);
    machine.wait_until_verified("1", "web-2", &at);
}

#[test]
fn settings_of_the_site_that_say_something_else_are_named_before_anything_is_written() {
    let etcd = Etcd::single();
    let machine = Fresh::new("web-1");
    let directory = machine.directory.path().join("etc/agent.d");
    std::fs::create_dir_all(&directory).expect("made");
    std::fs::write(directory.join("50-site.toml"), "role = \"db\"\n").expect("written");
    let endpoint = etcd.endpoint(0);
    let result = machine.bootstrap(&["--endpoints", &endpoint, "--role", "web"]);
    assert_eq!(result.code, 1, "{result:?}");
    assert!(result.err.contains("role") && result.err.contains("50-site.toml"), "{result:?}");
    assert!(!directory.join("00-bootstrap.toml").exists());
    std::fs::write(directory.join("50-site.toml"), "host = \"db-7\"\n").expect("written");
    assert_eq!(machine.bootstrap(&["--endpoints", &endpoint]).code, 1, "the agent would be another host");
    std::fs::write(directory.join("50-site.toml"), "").expect("written");
    let not_text = std::os::unix::ffi::OsStringExt::from_vec(vec![b'/', 0xff]);
    let mut command = Command::new(binary("orchestrate"));
    let command = command
        .args(["--endpoints", &endpoint, "bootstrap", "--directory"])
        .arg::<std::ffi::OsString>(not_text);
    let result = CommandOutput::from(run(command, ""));
    assert!(result.code == 64 && result.err.contains("UTF-8"), "{result:?}");
    assert_eq!(machine.bootstrap(&["--endpoints", &endpoint]).code, 0);
}
