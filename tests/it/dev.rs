//! `orchestrate-agent --dev`: a store and an agent in one process.

use std::path::Path;
use std::process::Command;
use tests::host::CommandOutput;
use tests::process::{Running, binary, in_own_network, run};
use tests::wait;

/// Starts store and agent in a directory; returns the process and the endpoint from its log.
fn start(directory: &Path) -> (Running, String) {
    let log = directory.join("log");
    // The file may not exist.
    let _ = std::fs::remove_file(&log);
    let mut command = Command::new(binary("orchestrate-agent"));
    let running = Running::start(command.arg("--dev").arg(directory.join("dev")), &log);
    let text = || std::fs::read_to_string(&log).unwrap_or_default();
    let endpoint = || {
        let result = text();
        result.lines().find_map(|l| l.trim().strip_prefix("export ORCHESTRATE_ENDPOINTS=").map(str::to_owned))
    };
    let endpoint = wait::until("it says what to try", endpoint, text);
    (running, endpoint)
}

fn orchestrate(endpoint: &str, arguments: &[&str]) -> CommandOutput {
    let mut command = Command::new(binary("orchestrate"));
    command.env_clear().env("ORCHESTRATE_ENDPOINTS", endpoint).args(arguments);
    CommandOutput::from(run(&mut command, ""))
}

#[test]
fn what_it_says_to_try_works_and_is_still_there_after_a_restart() {
    let name = "dev::what_it_says_to_try_works_and_is_still_there_after_a_restart";
    // The fixed ports that `--dev` uses are free in the test's own network namespace.
    if !in_own_network(name) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let (mut first, endpoint) = start(directory.path());
    assert_eq!(endpoint, "http://127.0.0.1:2379");
    assert_eq!(orchestrate(&endpoint, &["trigger_update", "1"]).code, 0);
    let result = orchestrate(&endpoint, &["verify_hosts", "1", "dev", "--wait", "20s"]);
    assert_eq!(result.code, 0, "{result:?}");
    let installed = directory.path().join("dev/installed");
    assert_eq!(std::fs::read_to_string(&installed).expect("installed"), "version 1\n");
    // The service of the host is critical until its check has run once.
    let status = || orchestrate(&endpoint, &["status"]);
    wait::until("it is settled", || (status().code == 0).then_some(()), || format!("{:?}", status()));

    let mut second = Command::new(binary("orchestrate-agent"));
    let output = run(second.arg("--dev").arg(directory.path().join("dev")), "");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("another process uses the store"), "{output:?}");

    first.signal(rustix::process::Signal::TERM);
    wait::until("it ends", || first.ended().filter(|code| *code == Some(0)), String::new);
    let (_again, endpoint) = start(directory.path());
    let result = orchestrate(&endpoint, &["current_version"]);
    assert_eq!((result.code, result.out.as_str()), (0, "1\n"), "{result:?}");
    let result = orchestrate(&endpoint, &["verify_hosts", "1", "dev", "--wait", "20s"]);
    assert_eq!(result.code, 0, "{result:?}");
}
