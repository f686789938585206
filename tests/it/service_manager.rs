//! The packaged unit under a real systemd, in a container whose files are an overlay on this
//! machine's files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tests::etcd::Etcd;
use tests::network::HostNetwork;
use tests::process::{Running, binary, in_own_network, run};
use tests::{skip, wait};

pub(crate) const UNIT: &str = "orchestrate-agent.service";

/// A container with systemd. Its files are written before it boots; its mounts and its network end
/// with this process.
pub(crate) struct Machine {
    directory: tempfile::TempDir,
    container: Option<Running>,
}

impl Machine {
    /// Creates a machine with the files of this one. Returns `None` where overlay file systems
    /// cannot be mounted.
    pub(crate) fn new() -> Option<Self> {
        Self::over(Path::new("/"))
    }

    /// Creates a machine whose initial files come from `lower`, which is not modified.
    pub(crate) fn over(lower: &Path) -> Option<Self> {
        let machine = Self { directory: tempfile::tempdir().expect("a directory"), container: None };
        ["upper", "work", "root"].iter().for_each(|n| fs::create_dir(machine.path(n)).expect("made"));
        let layers = format!(
            "lowerdir={},upperdir={},workdir={}",
            lower.display(),
            machine.path("upper").display(),
            machine.path("work").display()
        );
        let mut mount = Command::new("mount");
        mount.args(["-t", "overlay", "overlay", "-o", &layers]).arg(machine.path("root"));
        run(&mut mount, "").status.success().then_some(machine)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the path on this machine of a file with this absolute path in the container.
    pub(crate) fn file(&self, path: &str) -> PathBuf {
        self.path("root").join(path.trim_start_matches('/'))
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let file = self.file(path);
        fs::create_dir_all(file.parent().expect("a directory")).expect("made");
        fs::write(file, text).expect("written");
    }

    /// Copies the agent and its packaged unit into the machine, with these further lines of the unit and these
    /// settings. The machine sees neither this machine's journal nor the state of another agent.
    pub(crate) fn install_agent(&self, unit: &str, settings: &str) {
        fs::copy(binary("orchestrate-agent"), self.file("/usr/sbin/orchestrate-agent")).expect("copied");
        let packaged = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/systemd").join(UNIT);
        let packaged = fs::read_to_string(packaged).expect("the packaged unit");
        self.write(&format!("/etc/systemd/system/{UNIT}"), &packaged);
        self.write(&format!("/etc/systemd/system/{UNIT}.d/test.conf"), unit);
        self.write("/etc/orchestrate/agent.toml", settings);
        for path in ["/var/log/journal", "/var/lib/orchestrate"] {
            // They may not exist.
            let _ = fs::remove_dir_all(self.file(path));
        }
        symlink("/dev/null", self.file("/etc/systemd/system/etcd.service")).expect("masked");
    }

    pub(crate) fn boot(&mut self) {
        // Tests boot containers in parallel, so each needs its own name.
        let name = format!("orchestrate-{}", std::process::id());
        self.start(&["systemd-nspawn", "-M", &name]);
        self.wait_until_booted();
    }

    /// Starts the machine with a name and a network of its own; it boots in the background.
    pub(crate) fn start_at(&mut self, place: &HostNetwork, name: &str) {
        let unique = format!("orchestrate-{}-{name}", std::process::id());
        let enter = format!("--net={}", place.file().display());
        let network = format!("--network-namespace-path={}", place.file().display());
        // systemd-nspawn mounts `/sys`, which lists the interfaces, before it enters the network.
        self.start(&["nsenter", &enter, "systemd-nspawn", &network, "-M", &unique, "--hostname", name]);
    }

    fn start(&mut self, nspawn: &[&str]) {
        let mut command = Command::new("setpriv");
        // A test that is killed cannot end its containers itself.
        command.args(["--pdeathsig", "TERM"]).args(nspawn).args(["-q", "-D"]).arg(self.path("root"));
        command.args(["--register=no", "--keep-unit", "--console=pipe"]);
        command.args(["--link-journal=no", "-b", "systemd.unit=basic.target"]);
        self.container = Some(Running::start(&mut command, &self.path("boot.log")));
    }

    pub(crate) fn wait_until_booted(&self) {
        let up = || self.try_run(&["systemctl", "is-active", "basic.target"]).filter(|s| s.0);
        wait::until("it has booted", up, || self.describe());
    }

    /// Returns the process id of the container's first process, as seen from this machine.
    fn leader(&self) -> Option<i32> {
        let nspawn = self.container.as_ref()?.pid().as_raw_nonzero();
        let children = fs::read_to_string(format!("/proc/{nspawn}/task/{nspawn}/children")).ok()?;
        children.split_whitespace().next()?.parse().ok()
    }

    /// Returns a command that runs in the container; `None` if the container does not run.
    pub(crate) fn enter(&self, command: &[&str]) -> Option<Command> {
        let mut enter = Command::new("nsenter");
        enter.args(["-t", &self.leader()?.to_string(), "-m", "-u", "-i", "-n", "-p", "--"]).args(command);
        Some(enter)
    }

    /// Runs a command in the container; returns whether it succeeded, and its output.
    pub(crate) fn try_run(&self, command: &[&str]) -> Option<(bool, String)> {
        let output = run(&mut self.enter(command)?, "");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        let success = output.status.success();
        let errors = if success { String::new() } else { text(&output.stderr) };
        Some((success, text(&output.stdout) + &errors))
    }

    pub(crate) fn run(&self, command: &[&str]) -> String {
        let (success, result) = self.try_run(command).expect("it runs");
        assert!(success, "{command:?}: {result}\n{}", self.describe());
        result
    }

    pub(crate) fn property(&self, name: &str) -> String {
        self.run(&["systemctl", "show", "-P", name, UNIT])
    }

    fn wait_for_status_line(&self, part: &str) {
        let has_text = || self.property("StatusText").contains(part).then_some(());
        wait::until(part, has_text, || self.describe());
    }

    pub(crate) fn describe(&self) -> String {
        let result = |command: &[&str]| self.try_run(command).map(|s| s.1).unwrap_or_default();
        format!(
            "{}\n{}\n{}",
            fs::read_to_string(self.path("boot.log")).unwrap_or_default(),
            result(&["systemctl", "status", "--no-pager", UNIT]),
            result(&["journalctl", "--no-pager", "-n", "80"]),
        )
    }
}

impl Drop for Machine {
    /// Kills the first process of the container, and with it all others. The container would
    /// otherwise outlive the program that started it.
    fn drop(&mut self) {
        if let Some(leader) = self.leader().and_then(rustix::process::Pid::from_raw) {
            // The process may have ended by itself.
            let _ = rustix::process::kill_process(leader, rustix::process::Signal::KILL);
        }
    }
}

pub(crate) fn can_boot() -> Result<(), &'static str> {
    let runs = |program: &str| Command::new(program).arg("--version").output().is_ok();
    match () {
        () if !Path::new("/lib/systemd/systemd").exists() => Err("no systemd on this machine"),
        () if !runs("systemd-nspawn") => Err("no systemd-nspawn on the PATH"),
        () => Ok(()),
    }
}

#[test]
fn the_unit_is_ready_without_a_store_survives_a_kill_and_a_hang_and_lets_its_steps_live() {
    let name = "service_manager::the_unit_is_ready_without_a_store_survives_a_kill_and_a_hang_and_lets_its_steps_live";
    if let Err(why) = can_boot() {
        return skip(name, why);
    }
    if !in_own_network(name) {
        return;
    }
    let Some(mut machine) = Machine::new() else {
        return skip(name, "no file system can be laid over this machine's own");
    };
    let mut etcd = Etcd::single();
    let store = etcd.store();
    store.put("/current_version", "1");
    etcd.kill_member(0);

    // The packaged unit, with shorter time-outs.
    machine.install_agent(
        "[Service]\nWatchdogSec=10s\nRestartSec=100ms\n",
        &format!(
            "host = \"h1\"\n[store]\nendpoints = [{:?}]\nbackstop = \"1s\"\n[[apply]]\nname = \"slow\"\n\
             command = [\"/bin/sh\", \"-c\", \"echo $$ > /root/step; until [ -e /root/go-on ]; do sleep 0.1; done\"]\n\
             [[validate]]\nname = \"true\"\ncommand = [\"/bin/true\"]\n",
            etcd.endpoint(0)
        ),
    );
    machine.boot();

    // `systemctl start` returns when the agent has sent READY, although the store is unreachable.
    machine.run(&["systemctl", "start", UNIT]);
    assert_eq!(machine.property("ActiveState"), "active");
    machine.wait_for_status_line("waiting");

    etcd.start_member(0);
    etcd.wait_until_serving();
    let step = || fs::read_to_string(machine.file("/root/step")).ok().filter(|text| text.ends_with('\n'));
    let step = wait::until("the step runs", step, || machine.describe());
    machine.wait_for_status_line("running");

    // After kill -9 of the agent the step continues, and the restarted agent waits for its end.
    let restarts = || machine.property("NRestarts").parse::<u32>().expect("a number");
    let more_than = |before: u32| (restarts() > before).then_some(());
    let before = restarts();
    machine.run(&["systemctl", "kill", "--kill-whom=main", "--signal=KILL", UNIT]);
    wait::until("it is started again", || more_than(before), || machine.describe());
    machine.wait_for_status_line("running");
    machine.run(&["kill", "-0", step.trim()]);
    fs::write(machine.file("/root/go-on"), "").expect("written");
    machine.wait_for_status_line("ok");
    wait::until("it is listed", || store.get("/running_version/1/h1"), || machine.describe());

    // The watchdog ends an agent that hangs.
    let (before, limit) = (restarts(), Duration::from_secs(90));
    machine.run(&["systemctl", "kill", "--kill-whom=main", "--signal=STOP", UNIT]);
    wait::until_within(limit, "the watchdog", || more_than(before), || machine.describe());
    machine.wait_for_status_line("ok");

    // The journal holds the fields, and the message shows them.
    let lines = machine.run(&["journalctl", "--no-pager", "-o", "cat", "-u", UNIT]);
    assert!(lines.contains("the verdict of this host verdict=\"ok\""), "{lines}");
    let fields = machine.run(&["journalctl", "--no-pager", "-o", "json", "-u", UNIT]);
    assert!(fields.contains("\"F_VERDICT\":\"ok\""), "{fields}");

    machine.run(&["systemctl", "reload", UNIT]);
    machine.run(&["systemctl", "stop", UNIT]);
    assert_eq!(machine.property("ActiveState"), "inactive");
    assert_eq!(machine.property("Result"), "success");
}
