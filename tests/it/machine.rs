//! Faults of the machine and their effects: full disks, missing file descriptors, lost leases,
//! changed names.

use std::process::Command;
use std::time::Duration;
use tests::etcd::Etcd;
use tests::host::Host;
use tests::wait;

#[test]
fn a_store_without_space_keeps_the_host_at_work_and_it_recovers_alone() {
    let etcd = Etcd::with_quota(2 * 1024 * 1024);
    let store = etcd.store();
    let host = Host::started("h1", &etcd.endpoints());
    store.put("/current_version", "1");
    host.wait_for_listing(&store, "1");
    let block = "x".repeat(200_000);
    wait::until(
        "the alarm is raised",
        || store.try_put("/filler", block.as_bytes()).err().filter(|e| e.contains("space exceeded")),
        String::new,
    );
    host.write("code-check", "1\n");
    let result = || host.read("agent.log").contains("NOSPACE").then_some(());
    wait::until("the alarm is named", result, || host.describe());
    let lines = host.read("agent.log").matches("NOSPACE").count();
    let before = host.runs("check", "1");
    wait::until(
        "validation goes on",
        || (host.runs("check", "1") > before + 3).then_some(()),
        || host.describe(),
    );
    assert!(host.read("agent.log").matches("NOSPACE").count() < lines + 10, "no spin");
    let is_named =
        || host.status().filter(|s| s["store"]["trouble"].as_str().is_some_and(|t| t.contains("NOSPACE")));
    wait::until("the agent's status names it", is_named, || host.describe());
    let result = host.command(&["status"], "");
    assert!(result.out.contains("\nstore alarm: NOSPACE\n"), "{result:?}");
    let result = host.command(&["status", "-o", "json"], "");
    assert!(
        result.out.contains(
            r#""alarms": [
    "NOSPACE"
  ]"#
        ),
        "{result:?}"
    );
    host.remove("code-check");
    store.delete("/filler");
    let revision = store.revision();
    store.compact(revision);
    etcd.etcdctl(&["defrag"], "");
    etcd.etcdctl(&["alarm", "disarm"], "");
    store.put("/current_version", "2");
    wait::until_within(
        Duration::from_secs(60),
        "it recovers",
        || store.try_get("/running_version/2/h1").ok().flatten(),
        || host.describe(),
    );
}

#[test]
fn a_lease_that_is_lost_while_a_step_runs_is_replaced_and_the_step_goes_on() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let host = Host::started("h1", &etcd.endpoints());
    host.write("hold-packages", "");
    store.put("/current_version", "1");
    host.wait_for_begin("packages", "1");
    let lease = host.status().expect("status")["claim"]["lease"].as_str().expect("a lease").to_owned();
    etcd.etcdctl(&["lease", "revoke", &lease], "");
    let again =
        |s: &serde_json::Value| s["claim"]["state"] == "held" && s["claim"]["lease"] != lease.as_str();
    wait::until("the name is claimed again", || host.status().filter(again), || host.describe());
    host.remove("hold-packages");
    host.wait_for_listing(&store, "1");
    assert_eq!(host.begins("packages", "1"), 1);
}

#[test]
fn a_listing_that_vanished_with_its_lease_is_written_again() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let host = Host::started("h1", &etcd.endpoints());
    store.put("/current_version", "1");
    host.wait_for_listing(&store, "1");
    host.wait_for_verdict("ok");
    let lease = host.status().expect("status")["claim"]["lease"].as_str().expect("a lease").to_owned();
    etcd.etcdctl(&["lease", "revoke", &lease], "");
    host.wait_for_listing(&store, "1");
    assert_eq!(host.begins("packages", "1"), 1);
}

/// Size of a [`SmallDisk`]: the agent keeps 20 runs of steps, each in up to five pages, and a journal.
/// These must fit, or the disk is full though nobody filled it.
const DISK_BYTES: usize = 1024 * 1024;

/// A small file system for the state of one host; mounting it needs root.
pub(crate) struct SmallDisk {
    path: std::path::PathBuf,
}

impl SmallDisk {
    pub(crate) fn mount(host: &Host) -> Option<Self> {
        let path = host.path("state");
        std::fs::create_dir(&path).expect("made");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={DISK_BYTES},mode=700"), "none"])
            .arg(&path)
            .status();
        mounted.is_ok_and(|s| s.success()).then_some(Self { path })
    }

    /// Fills the file system completely; the write itself fails when the space is used up.
    pub(crate) fn fill(&self) {
        let _ = std::fs::write(self.path.join("filler"), vec![0u8; 2 * DISK_BYTES]);
    }

    pub(crate) fn empty(&self) {
        std::fs::remove_file(self.path.join("filler")).expect("removed");
    }

    pub(crate) fn remount(&self, options: &str) {
        // A step that is just writing its result keeps the file system busy, so this may need
        // several tries.
        let mount = || {
            let mut command = Command::new("mount");
            command.args(["-o", &format!("remount,bind,{options}")]).arg(&self.path).output().expect("mount")
        };
        wait::until("mounted again", || mount().status.success().then_some(()), || format!("{:?}", mount()));
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // The unmount is lazy, because the agent may still have files open there.
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}

#[test]
fn a_full_or_read_only_disk_starts_nothing_disruptive_and_heals() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut host = Host::new("h1", &etcd.endpoints());
    let Some(disk) = SmallDisk::mount(&host) else {
        tests::skip(
            "machine::a_full_or_read_only_disk_starts_nothing_disruptive_and_heals",
            "mounting needs root",
        );
        return;
    };
    host.start();
    store.put("/current_version", "1");
    host.wait_for_listing(&store, "1");
    let mut version = 1;
    type Fault<'a> = (&'a str, &'a dyn Fn(), &'a dyn Fn());
    let faults: [Fault; 2] = [
        ("full", &|| disk.fill(), &|| disk.empty()),
        ("read-only", &|| disk.remount("ro"), &|| disk.remount("rw")),
    ];
    for (name, breaks, heals) in faults {
        breaks();
        version += 1;
        store.put("/current_version", &version.to_string());
        let status = host.wait_for_verdict("blocked");
        assert!(status["detail"].as_str().expect("text").contains("cannot be written"), "{name}: {status}");
        assert_eq!(host.begins("packages", &version.to_string()), 0, "{name}");
        heals();
        host.wait_for_listing(&store, &version.to_string());
    }
}

#[test]
fn without_descriptors_a_step_fails_and_the_agent_lives() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let host = Host::started("h1", &etcd.endpoints());
    store.put("/current_version", "1");
    host.wait_for_listing(&store, "1");
    let limit = |count: usize| {
        let limits = format!("--nofile={count}:4096");
        let status = Command::new("prlimit").args(["--pid", &host.pid().to_string(), &limits]).status();
        assert!(status.expect("prlimit").success());
    };
    // Open file descriptors stay open. A new one would need a number below 3, and these are in use
    // for standard input, output and error.
    limit(3);
    store.put("/current_version", "2");
    let is_named = || {
        let status = std::fs::read_to_string(host.path("agent.log")).unwrap_or_default();
        (status.contains("Too many open files") || status.contains("No file descriptors")).then_some(())
    };
    wait::until("the trouble is said", is_named, || host.describe());
    assert!(!host.is_dead());
    limit(1024);
    host.wait_for_listing(&store, "2");
}

#[test]
fn the_name_is_fixed_while_the_agent_runs_and_steps_are_read_again() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let host = Host::started("h1", &etcd.endpoints());
    store.put("/current_version", "1");
    host.wait_for_listing(&store, "1");
    let settings = host.read("agent.toml").replace("host = \"h1\"", "host = \"h2\"\nrole = \"web\"");
    host.write("agent.toml", &settings);
    host.signal(rustix::process::Signal::HUP);
    let warned = || host.read("agent.log").contains("take effect after a restart").then_some(());
    wait::until("it says so", warned, || host.describe());
    host.write("do-packages", "echo \"$ORCHESTRATE_STEP_ROLE\" > $D/role\n");
    store.put("/current_version", "2");
    host.wait_for_listing(&store, "2");
    assert_eq!(host.read("role").trim(), "web");
    assert_eq!(host.status().expect("status")["host"], "h1");
    host.write("agent.toml", "nonsense = 1\n");
    host.signal(rustix::process::Signal::HUP);
    wait::until(
        "the mistake is named",
        || host.read("agent.log").contains("unknown setting").then_some(()),
        || host.describe(),
    );
    store.put("/current_version", "3");
    host.wait_for_listing(&store, "3");
}

#[test]
fn endpoints_from_a_file_are_looked_up_again() {
    let mut old = Etcd::single();
    let host = Host::new("h1", &[]);
    host.write("endpoints", &format!("# the first\n{}\n", old.endpoint(0)));
    let settings = format!("[store]\nbackstop = \"1s\"\nendpoints_file = {:?}\n", host.path("endpoints"));
    let mut host = host.with(&settings);
    host.start();
    let store = old.store();
    store.put("/current_version", "1");
    host.wait_for_listing(&store, "1");
    // The member returns on another port with its data.
    old.move_member(0);
    host.write("endpoints", &format!("{}\n", old.endpoint(0)));
    let store = old.store();
    store.put("/current_version", "2");
    host.wait_for_listing(&store, "2");
}

#[test]
fn settings_of_two_roles_append_and_are_shown_with_their_places() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    std::fs::create_dir(path("agent.d")).expect("made");
    std::fs::write(path("agent.toml"), "role = \"web\"\n").expect("written");
    let need = |service: &str| format!("[[requires]]\nservice = \"{service}\"\nphase = \"apply\"\n");
    std::fs::write(path("agent.d/10-web.toml"), need("db")).expect("written");
    std::fs::write(path("agent.d/20-mail.toml"), need("queue")).expect("written");
    let check = || {
        let mut command = Command::new(tests::process::binary("orchestrate-agent"));
        command.args(["--check-config", "--show", "--config"]).arg(path("agent.toml"));
        tests::host::CommandOutput::from(tests::process::run(&mut command, ""))
    };
    let result = check();
    assert_eq!(result.code, 0, "{result:?}");
    let agent_d = path("agent.d").display().to_string();
    for line in [
        format!("service = \"db\"  # {agent_d}/10-web.toml:2"),
        format!("service = \"queue\"  # {agent_d}/20-mail.toml:2"),
    ] {
        assert!(result.out.contains(&line), "{line} is missing:\n{}", result.out);
    }
    std::fs::write(path("agent.d/30-other.toml"), need("db")).expect("written");
    let result = check();
    assert_eq!((result.code, result.out.as_str()), (1, ""), "{result:?}");
    assert!(result.err.contains("30-other.toml:1") && result.err.contains("10-web.toml:1"), "{result:?}");
}
