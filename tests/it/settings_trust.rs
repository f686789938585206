//! Settings that other users can write do not decide what runs.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tests::etcd::Etcd;
use tests::host::Host;
use tests::process::{binary, run};
use tests::wait;

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("set");
}

/// Returns a host that logs the runs of its check and of its template's command.
fn busy_host(etcd: &Etcd) -> Host {
    let host = Host::new("h1", &etcd.endpoints());
    let at = |name: &str| host.path(name).display().to_string();
    let template = format!(
        "[[template]]\nsource = \"{}\"\ntarget = \"{}\"\ndebounce = \"50ms\"\non_change = [\"{}\"]\n",
        at("hosts.j2"),
        at("hosts.txt"),
        at("changed"),
    );
    let log = at("ran.log");
    let host = host.with(&template);
    host.write("hosts.j2", "{{ services() | tojson }}\n");
    host.write_executable("changed", &format!("#!/bin/sh\necho template >> {log}\n"));
    host.write_executable("look", &format!("#!/bin/sh\necho check >> {log}\n"));
    let check = serde_json::json!({"service": {"name": "web", "check":
        {"args": [host.path("look")], "interval": "200ms"}}});
    host.write_service("web.json", &check.to_string());
    std::fs::create_dir(host.path("agent.d")).expect("made");
    host.write("agent.d/role.toml", "role = \"web\"\n");
    host
}

/// Returns what ran so far: the log of check and template command, and the number of logged step
/// lines.
fn ran(host: &Host) -> (String, usize) {
    (host.read("ran.log"), host.steps().len())
}

fn has_children(host: &Host) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", host.pid())).expect("it runs");
    let children = tasks.flatten().map(|task| std::fs::read_to_string(task.path().join("children")));
    children.flatten().any(|children| !children.trim().is_empty())
}

fn check_config(host: &Host) -> (Option<i32>, String) {
    let mut command = Command::new(binary("orchestrate-agent"));
    let output = run(command.arg("--check-config").arg("--config").arg(host.path("agent.toml")), "");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn while_others_can_write_the_settings_nothing_of_them_runs_and_mending_that_is_enough() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut host = busy_host(&etcd);
    store.put("/current_version", "1");
    host.start();
    host.wait_for_listing(&store, "1");
    wait::until("the check ran", || ran(&host).0.contains("check\n").then_some(()), || host.describe());
    let nobody = |path: &Path, is: bool| chown(path, Some(if is { 65534 } else { 0 }), None).expect("set");
    type Change<'a> = &'a dyn Fn(&Path, bool);
    let table: [(&str, &str, Change); 4] = [
        ("agent.toml", "is writable by others (mode 666)", &|path, bad| {
            set_mode(path, if bad { 0o666 } else { 0o644 })
        }),
        ("agent.toml", "belongs to user 65534", &nobody),
        ("agent.d", "is writable by others (mode 777)", &|path, bad| {
            set_mode(path, if bad { 0o777 } else { 0o755 })
        }),
        ("agent.d/role.toml", "belongs to user 65534", &nobody),
    ];
    for (number, (name, how, change)) in table.into_iter().enumerate() {
        let version = (number + 2).to_string();
        let path = host.path(name);
        change(&path, true);
        host.signal(rustix::process::Signal::HUP);
        let status = host.wait_for_verdict("blocked");
        let detail = status["detail"].as_str().expect("text");
        assert!(detail.contains(&path.display().to_string()) && detail.contains(how), "{detail}");
        let (code, result) = check_config(&host);
        assert!(code == Some(1) && result.contains(how), "{code:?} {result}");
        // Processes that were already running end.
        wait::until("it ends", || (!has_children(&host)).then_some(()), || host.describe());
        let before = ran(&host);
        store.put("/current_version", &version);
        store.put(&format!("/available_services/s{number}/w1"), r#"{"addresses": ["10.7.0.1"], "port": 80}"#);
        let stays = || ran(&host) == before;
        wait::stays("nothing runs", Duration::from_secs(2), stays, || host.describe());
        // Names, leases and the report keep working.
        host.wait_for_name(&[&format!("s{number}.service.consul")], &["10.7.0.1"]);
        assert!(store.get(&format!("/running_version/{}/h1", number + 1)).is_some(), "it stays listed");
        // Reports are rate-limited; only the first one is certain to be written at once.
        if number == 0 {
            let result = || host.command(&["status"], "").out;
            let is_told = || Some(result()).filter(|out| out.contains("blocked") && out.contains(how));
            wait::until("the fleet is told", is_told, || format!("{}\n{}", result(), host.describe()));
        }
        change(&path, false);
        assert_eq!(check_config(&host).0, Some(0));
        // The agent notices the change without a signal; a signal only makes it faster.
        if number > 0 {
            host.signal(rustix::process::Signal::HUP);
        }
        host.wait_for_listing(&store, &version);
    }
    // The same rule holds when the agent starts.
    host.stop();
    set_mode(&host.path("agent.toml"), 0o666);
    let before = ran(&host);
    host.start();
    host.wait_for_verdict("blocked");
    store.put("/current_version", "9");
    wait::stays("nothing runs", Duration::from_secs(2), || ran(&host) == before, || host.describe());
    set_mode(&host.path("agent.toml"), 0o644);
    host.wait_for_listing(&store, "9");
}
