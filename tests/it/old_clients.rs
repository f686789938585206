//! The old cron script and the old deployment job call the command under its old names, unmodified.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tests::etcd::Etcd;
use tests::host::{CommandOutput, Host};
use tests::process::binary;
use tests::wait;

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// A machine that is driven by an old cron script.
pub(super) struct OldMachine {
    pub(super) host: Host,
    endpoints: String,
    path: PathBuf,
}

impl OldMachine {
    pub(super) fn new(name: &str, endpoints: &[String]) -> Self {
        let host = Host::new(name, endpoints);
        let path = host.path("bin");
        std::fs::create_dir(&path).expect("made");
        let link = |from: PathBuf, to: &str| std::os::unix::fs::symlink(from, path.join(to)).expect("linked");
        link(binary("orchestrate"), "orchestrate");
        link(PathBuf::from(REPOSITORY).join("packaging/python/jorc"), "jorc");
        // Debian has no `python` program; the machines of the old deployment had one.
        host.write_executable("bin/python", "#!/bin/sh\nexec python3 \"$@\"\n");
        host.write_executable(
            "config-run",
            &host_script(
                &host,
                "echo \"config $1\" >> $D/log\nwhile [ -f $D/hold-config ]; do sleep 0.02; done\nread -r code < $D/config-code || code=0\nexit $code\n",
            ),
        );
        std::fs::create_dir(host.path("validate.d")).expect("made");
        std::fs::create_dir(host.path("state")).expect("made");
        host.write_executable(
            "validate.d/10-service",
            &host_script(
                &host,
                "echo validate >> $D/log\nread -r code < $D/validation-code || code=0\nexit $code\n",
            ),
        );
        host.write("config-code", "0\n");
        host.write("validation-code", "0\n");
        Self { host, endpoints: endpoints.join(","), path }
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear();
        command.env("PATH", format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", self.path.display()));
        command.env("PYTHONPATH", PathBuf::from(REPOSITORY).join("packaging/python"));
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("ORCHESTRATE_ENDPOINTS", &self.endpoints);
        command.env("ORCHESTRATE_HOSTNAME", self.host.name.as_str());
        command.env("ORCHESTRATE_STATE_DIR", self.host.state());
        command.env("ORCHESTRATE_LOCAL_VERSION_FILE", self.host.path("current_version"));
        command.env("ORCHESTRATE_TIMEOUT", "3s");
        command.env("CONFIG_RUN", self.host.path("config-run"));
        command.env("VALIDATION_DIRECTORY", self.host.path("validate.d"));
        command.env("FACTS", self.host.directory()).env("SLEEP", "0");
        command
    }

    /// Starts an agent that leaves versions to the script.
    pub(super) fn start_agent_beside(&mut self) {
        let host = std::mem::replace(&mut self.host, Host::new("none", &[]));
        self.host = host.with("driver = \"external\"");
        self.host.start();
    }

    /// Runs one of the cron scripts once.
    pub(super) fn cron_of(&self, script: &str) -> CommandOutput {
        let script = PathBuf::from(REPOSITORY).join("tests/old_clients").join(script);
        tests::process::run(&mut self.command(&script), "").into()
    }

    /// Runs the cron script once.
    fn cron(&self) -> CommandOutput {
        self.cron_with("")
    }

    fn cron_with(&self, between: &str) -> CommandOutput {
        let script = PathBuf::from(REPOSITORY).join("tests/old_clients/maybe-upgrade.sh");
        tests::process::run(self.command(&script).env("BETWEEN", between), "").into()
    }

    fn deploy(&self, version: &str, hosts: &[&str]) -> CommandOutput {
        let script = PathBuf::from(REPOSITORY).join("tests/old_clients/deploy.sh");
        tests::process::run(self.command(&script).arg(version).args(hosts), "").into()
    }

    /// Returns what ran since the last call.
    pub(super) fn ran(&self) -> Vec<String> {
        let text = self.host.read("log");
        self.host.remove("log");
        text.lines().map(str::to_owned).collect()
    }

    fn version(&self) -> String {
        self.host.read("current_version")
    }
}

fn host_script(host: &Host, body: &str) -> String {
    format!("#!/bin/sh\nD={}\n{body}", host.directory().display())
}

#[test]
fn first_boot_without_a_store_configures_and_does_not_upgrade() {
    let machine = OldMachine::new("oc1", &["http://127.0.0.1:1".into()]);
    let result = machine.cron();
    let ran = machine.ran();
    assert_eq!(ran.first().map(String::as_str), Some("config None"), "{result:?}");
    assert_eq!(machine.version(), "", "{result:?}");
}

#[test]
fn an_update_goes_through_and_the_next_turn_has_nothing_to_do() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let machine = OldMachine::new("oc1", &etcd.endpoints());
    store.put("/current_version", "41");
    let result = machine.cron();
    assert_eq!(result.code, 0, "{result:?}");
    assert_eq!(machine.ran(), ["config 41", "validate"], "{result:?}");
    assert_eq!(machine.version(), "41");
    assert!(store.get("/running_version/41/oc1").is_some());
    assert!(store.get("/status/validation/success/oc1").is_some());
    assert!(store.get("/status/puppet/success/oc1").is_some());
    machine.cron();
    assert_eq!(machine.ran(), ["validate"]);
    store.put("/current_version", "42");
    machine.cron();
    assert_eq!(machine.ran(), ["config 42", "validate"]);
    assert_eq!(store.list("/running_version/").into_keys().collect::<Vec<_>>(), ["/running_version/42/oc1"]);
}

#[test]
fn a_failing_apply_and_a_failing_validation_are_seen_by_the_deployment_and_heal() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let machine = OldMachine::new("oc-1", &etcd.endpoints());
    store.put("/current_version", "1");
    machine.cron();
    machine.ran();
    machine.host.write("config-code", "4\n");
    store.put("/current_version", "2");
    let result = machine.cron();
    assert_eq!(result.code, 1, "{result:?}");
    assert_eq!(machine.version(), "1");
    assert!(store.get("/running_version/1/oc-1").is_some(), "neither version nor listing moved");
    assert!(
        store.get("/status/puppet/failed/oc-1").is_some()
            && store.get("/status/validation/failed/oc-1").is_some()
    );
    let failures = machine.host.command(&["get_failures", "--hosts"], "");
    assert_eq!(failures.code, 1);
    assert_eq!(failures.out, "Failures:\n  Node: oc-1, Check: puppet\n  Node: oc-1, Check: validation\n");
    machine.host.write("config-code", "2\n");
    machine.host.write("validation-code", "1\n");
    assert_eq!(machine.cron().code, 1);
    assert_eq!(machine.version(), "1");
    assert_eq!(
        machine.host.command(&["get_failures", "--hosts"], "").out,
        "Failures:\n  Node: oc-1, Check: validation\n"
    );
    machine.host.write("validation-code", "0\n");
    assert_eq!(machine.cron().code, 0);
    assert_eq!(machine.version(), "2");
    assert_eq!(
        machine.host.command(&["get_failures"], "").out,
        "Validation failures :0\nPuppet failures :0\n"
    );
    // The deployment job turns the underscores of its inventory into hyphens.
    let result = machine.deploy("2", &["oc_1"]);
    assert_eq!(result.code, 0, "{result:?}");
    assert!(result.out.contains("Wanted version found: True"), "{result:?}");
}

#[test]
fn the_store_is_lost_between_pending_update_and_current_version() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let machine = OldMachine::new("oc1", &etcd.endpoints());
    store.put("/current_version", "1");
    machine.cron();
    machine.ran();
    store.put("/current_version", "2");
    machine.host.write("lose-store", "export ORCHESTRATE_ENDPOINTS=http://127.0.0.1:1\n");
    let result = machine.cron_with(&machine.host.path("lose-store").display().to_string());
    assert_eq!(
        machine.ran(),
        ["config 2", "validate"],
        "the version decided on is the one configured: {result:?}"
    );
    assert_eq!(machine.version(), "2");
    machine.cron();
    assert!(store.get("/running_version/2/oc1").is_some(), "told when the store is back");
}

#[test]
fn beside_an_agent_that_follows_the_script_drives_and_the_agent_keeps_the_lease() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut machine = OldMachine::new("oc1", &etcd.endpoints());
    machine.start_agent_beside();
    wait::until("the agent lives", || store.get("/orchestrate/live/oc1"), || machine.host.describe());
    store.put("/current_version", "7");
    let result = machine.cron();
    assert_eq!(result.code, 0, "{result:?}");
    assert_eq!(machine.ran(), ["config 7", "validate"]);
    let lease_of = |key: &str| {
        let (runtime, mut client) = store.parts();
        let answer = runtime.block_on(client.get(key, None)).expect("read");
        answer.kvs().first().map(|kv| kv.lease())
    };
    machine.host.wait_for_listing(&store, "7");
    let live = lease_of("/orchestrate/live/oc1");
    assert!(live.is_some_and(|lease| lease != 0));
    assert_eq!(lease_of("/running_version/7/oc1"), live, "listed under the agent's lease");
    machine.host.wait_for_verdict("ok");
    assert!(machine.host.steps().is_empty(), "the agent applies nothing");
}

#[test]
fn beside_an_agent_that_drives_the_script_changes_nothing() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut machine = OldMachine::new("oc1", &etcd.endpoints());
    machine.host.start();
    wait::until("the agent lives", || store.get("/orchestrate/live/oc1"), || machine.host.describe());
    machine.host.write("hold-packages", "");
    store.put("/current_version", "7");
    machine.host.wait_for_begin("packages", "7");
    let result = machine.host.command(&["pending_update"], "");
    assert_eq!((result.code, result.out.as_str()), (2, "Yes, there is an update pending\n"), "{result:?}");
    assert_eq!(machine.host.command(&["pending_update", "--peek"], "").code, 0);
    assert_eq!(machine.host.command(&["update_own_info", "--version", "7"], "").code, 3);
    assert_eq!(machine.host.command(&["update_own_status", "puppet_service", "4"], "").code, 3);
    machine.cron();
    assert!(!machine.ran().contains(&"config 7".to_owned()));
    assert!(store.get("/status/puppet/failed/oc1").is_none());
    machine.host.remove("hold-packages");
    machine.host.wait_for_listing(&store, "7");
}

#[test]
fn the_old_names_become_the_program_of_today() {
    let etcd = Etcd::single();
    let machine = OldMachine::new("oc1", &etcd.endpoints());
    etcd.store().put("/current_version", "5");
    let run = |program: &str, arguments: &[&str]| -> CommandOutput {
        let path = format!("{}:/usr/bin:/bin", machine.path.display());
        let found = path.split(':').map(|d| Path::new(d).join(program)).find(|p| p.exists()).expect(program);
        tests::process::run(machine.command(&found).args(arguments), "").into()
    };
    let endpoint = etcd.endpoint(0);
    let port = endpoint.rsplit(':').next().expect("a port");
    for arguments in [
        &["current_version"][..],
        &["--port", port, "current_version"],
        &["--host=127.0.0.1", "--port", port, "current_version"],
    ] {
        let module: Vec<&str> = ["-m", "jiocloud.orchestrate"].iter().chain(arguments).copied().collect();
        assert_eq!(run("python", &module).out, "5\n");
        assert_eq!(run("jorc", arguments).out, "5\n");
    }
    let module = ["-m", "jiocloud.upgrade"];
    let result = run("python", &[&module[..], &["--host", "127.0.0.1", "--port", port, "status"]].concat());
    assert_eq!(result.out, "{\"pending\":[],\"upgraded\":[],\"upgrading\":[]}\n", "{result:?}");
    let result = run("python", &[&module[..], &["upgrade", "6", "--noop"]].concat());
    assert_eq!(result.out, "6 would be triggered\n", "{result:?}");
    let result = run("python", &[&module[..], &["global_disable_puppet"]].concat());
    assert_eq!((result.code, result.out.as_str()), (0, ""), "{result:?}");
    assert_eq!(run("python", &module).code, 64);
}

#[test]
fn python_two_becomes_the_program_as_well() {
    let module = PathBuf::from(REPOSITORY).join("packaging/python");
    let works =
        Command::new("python2.7").arg("-c").arg("print(1)").output().is_ok_and(|o| o.status.success());
    if !works {
        tests::skip("old_clients::python_two_becomes_the_program_as_well", "no python2.7 on the PATH");
        return;
    }
    let etcd = Etcd::single();
    etcd.store().put("/current_version", "5");
    let machine = OldMachine::new("oc1", &etcd.endpoints());
    let mut command = machine.command(Path::new("/usr/bin/env"));
    let path = format!("{}:{}", machine.path.display(), std::env::var("PATH").unwrap_or_default());
    command.env("PATH", path).env("PYTHONPATH", module).args([
        "python2.7",
        "-m",
        "jiocloud.orchestrate",
        "current_version",
    ]);
    let result: CommandOutput = tests::process::run(&mut command, "").into();
    assert_eq!(result.out, "5\n", "{result:?}");
}

#[test]
fn a_deployment_fails_within_its_limit_when_a_host_never_arrives() {
    let etcd = Etcd::single();
    let machine = OldMachine::new("oc-1", &etcd.endpoints());
    etcd.store().put("/current_version", "1");
    machine.cron();
    let script = PathBuf::from(REPOSITORY).join("tests/old_clients/deploy.sh");
    let before = std::time::Instant::now();
    let result: CommandOutput =
        tests::process::run(machine.command(&script).env("LIMIT", "2").args(["1", "oc_1", "oc_2"]), "")
            .into();
    assert_ne!(result.code, 0, "{result:?}");
    assert!(result.out.contains("oc-1"), "the exit trap shows who is registered: {result:?}");
    assert!(before.elapsed() < Duration::from_secs(20));
}
