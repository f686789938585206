//! `orchestrate-agent --dev`: a store and an agent in one process.

use std::path::Path;
use std::process::Command;
use tests::host::CommandOutput;
use tests::process::{Running, binary, in_own_network, run};
use tests::wait;

/// Starts store and agent in a directory; returns the process and the commands that it prints.
fn start(directory: &Path) -> (Running, String) {
    let log = directory.with_extension("log");
    // The file may not exist.
    let _ = std::fs::remove_file(&log);
    let mut command = Command::new(binary("orchestrate-agent"));
    let running = Running::start(command.arg("--dev").arg(directory), &log);
    let text = || std::fs::read_to_string(&log).unwrap_or_default();
    let is_whole = || Some(text()).filter(|text| text.contains("\nThe keys in the store: "));
    let guide = wait::until("it says what to try", is_whole, text);
    (running, guide.lines().filter(|line| line.starts_with("  ")).map(|line| format!("{line}\n")).collect())
}

/// Runs commands in a shell, as if they were pasted.
fn paste(commands: &str) -> CommandOutput {
    let mut shell = Command::new("sh");
    run(shell.arg("-s").env_clear().env("PATH", "/usr/bin:/bin"), commands).into()
}

/// Runs a command beside the programs that the guide names.
fn orchestrate(exports: &str, line: &str) -> CommandOutput {
    paste(&format!("{exports}\n{line}\n"))
}

/// Checks that a text has these parts, in this order.
fn check_order(text: &str, parts: &[&str]) {
    let mut rest = text;
    for part in parts {
        let at = rest.find(part).unwrap_or_else(|| panic!("{part:?} is not in\n{rest}\nof\n{text}"));
        rest = &rest[at..];
    }
}

fn exports(guide: &str) -> String {
    guide.lines().filter(|line| line.starts_with("  export")).collect::<Vec<_>>().join("\n")
}

#[test]
fn its_commands_can_be_pasted_and_its_state_outlives_a_restart() {
    // The fixed ports that `--dev` uses are free in the test's own network namespace.
    if !in_own_network("dev::its_commands_can_be_pasted_and_its_state_outlives_a_restart") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let dev = directory.path().join("dev");
    let (mut first, guide) = start(&dev);
    assert!(!guide.contains("ENDPOINTS="), "the port is the default one: {guide}");
    let pasted = paste(&guide);
    let answers = [
        "fleet: settled",
        "version 1\n",
        "reason:       apply step install exited with code 1 (version broken)",
        "\nthis version does not install\n",
        "dev-2  development",
        "\n1 1 8080 dev.node.consul.\n",
        "critical  127.0.0.1",
    ];
    assert_eq!(pasted.code, 0, "{pasted:?}");
    check_order(&pasted.out, &answers);
    check_order(
        &pasted.err,
        &["not at broken (1): dev\n", "apply step install", "rolling back from broken to 1"],
    );
    // Only a service that works has a name.
    assert_eq!(pasted.out.matches("\n1 1 8080 ").count(), 1, "{pasted:?}");

    // Another one finds the ports taken.
    let (mut second, guide_of_second) = start(&directory.path().join("second"));
    assert!(guide_of_second.contains("export ORCHESTRATE_ENDPOINTS="), "{guide_of_second}");
    let exports_of_second = exports(&guide_of_second);
    let result = orchestrate(&exports_of_second, "orchestrate trigger_update 7");
    assert_eq!(result.code, 0, "{result:?}");
    let result = orchestrate(&exports_of_second, "orchestrate verify_hosts 7 dev --wait 1m");
    assert_eq!(result.code, 0, "{result:?}");
    second.kill();

    let mut same = Command::new(binary("orchestrate-agent"));
    let output = run(same.arg("--dev").arg(&dev), "");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("another process uses the store"), "{output:?}");

    first.signal(rustix::process::Signal::TERM);
    wait::until("it ends", || first.ended().filter(|code| *code == Some(0)), String::new);
    let (_again, guide) = start(&dev);
    let result = orchestrate(&exports(&guide), "orchestrate verify_hosts 1 dev --wait 1m");
    assert_eq!(result.code, 0, "{result:?}");
    assert_eq!(orchestrate(&exports(&guide), "orchestrate current_version").out, "1\n");
}

#[test]
fn a_start_that_fails_leaves_nothing_behind() {
    let directory = tempfile::tempdir().expect("a directory");
    let dev = directory.path().join("a\"quote");
    let output = run(Command::new(binary("orchestrate-agent")).arg("--dev").arg(&dev), "");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(!dev.exists(), "{output:?}");
}
