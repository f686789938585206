//! The log of the agent at its default level.

use tests::etcd::Etcd;
use tests::host::{Host, STEPS};
use tests::wait;

fn host(etcd: &Etcd) -> Host {
    let mut host = Host::new("h1", &etcd.endpoints()).with("[environment]\nSHORT_KEY = \"e\"\n");
    host.set_environment("ORCHESTRATE_LOG", "info");
    host.start();
    host
}

fn lines(host: &Host, part: &str) -> Vec<String> {
    host.read("agent.log").lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
}

#[test]
fn the_log_has_what_an_operator_asks_for_and_no_more() {
    let etcd = Etcd::single();
    let (store, host) = (etcd.store(), host(&etcd));
    store.put("/current_version", "1");
    host.wait_for_listing(&store, "1");
    let validated = || (host.runs("check", "1") >= 4).then_some(());
    wait::until("it validates again and again", validated, || host.describe());
    assert_eq!(lines(&host, "step starts").len(), STEPS.len(), "{}", host.read("agent.log"));
    assert_eq!(lines(&host, "step ended").len(), STEPS.len(), "validations of a settled host are quiet");
    let short = lines(&host, "the secret SHORT_KEY is shorter than 4 bytes");
    assert_eq!(short.len(), 1, "it is said once, and not before each step");
    let desired = lines(&host, "the desired version");
    assert!(
        desired.iter().any(|line| line.contains(" INFO ") && line.contains("version=1 revision=")),
        "{desired:?}"
    );

    // What needs somebody is a warning.
    host.write("code-packages-2", "3\n");
    store.put("/current_version", "2");
    // The log keeps what it said; the verdict itself changes with the next attempt.
    let verdicts = || lines(&host, "the verdict of this host verdict=\"failed\"");
    let first = wait::until("it has failed", || verdicts().first().cloned(), || host.describe());
    let failed = lines(&host, "step failed");
    for part in [
        " WARN ",
        "phase=apply step=packages end=exited with code 3 took=",
        "last=\"packages of 2, attempt 1\"",
    ] {
        assert!(failed[0].contains(part), "{part}: {failed:?}");
    }
    assert!(first.contains(" WARN "), "{first}");
    host.remove("code-packages-2");
    host.wait_for_listing(&store, "2");
    let before = verdicts().len();
    host.write("code-check", "1\n");
    let again = || (verdicts().len() > before).then_some(());
    wait::until("it has failed again", again, || host.describe());
    assert!(!lines(&host, "step failed phase=validate").is_empty(), "a validation that fails is not quiet");
    assert_eq!(lines(&host, " { "), [""; 0], "no debug forms");
}

#[test]
fn a_time_without_the_store_is_logged_when_it_begins_and_when_it_ends() {
    let mut etcd = Etcd::single();
    let host = host(&etcd);
    etcd.store().put("/current_version", "1");
    host.wait_for_listing(&etcd.store(), "1");
    etcd.kill_member(0);
    let away = || lines(&host, "the store cannot be read");
    wait::until("the agent says so", || away().first().cloned(), || host.read("agent.log"));
    etcd.start_member(0);
    let back = || lines(&host, "the store can be read again");
    let back = wait::until("the agent says so", || back().first().cloned(), || host.read("agent.log"));
    assert!(away()[0].contains(" WARN ") && away()[0].contains("error="), "{:?}", away());
    assert!(back.contains(" INFO ") && back.contains("after=\""), "{back}");
    assert_eq!(away().len(), 1, "{:?}", away());
}

#[test]
fn the_log_can_be_json() {
    let etcd = Etcd::single();
    let mut host = Host::new("h1", &etcd.endpoints()).with("[log]\nformat = \"json\"\n");
    host.start();
    etcd.store().put("/current_version", "1");
    host.wait_for_listing(&etcd.store(), "1");
    let log = host.read("agent.log");
    // The agent may be writing its last line.
    let complete = log.rsplit_once('\n').map_or("", |(complete, _)| complete);
    let lines: Vec<serde_json::Value> = complete
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect();
    let is = |line: &&serde_json::Value| line["message"] == "step ended" && line["step"] == "packages";
    let ended = lines.iter().find(is).unwrap_or_else(|| panic!("{lines:#?}"));
    assert_eq!((&ended["level"], &ended["phase"]), (&"INFO".into(), &"apply".into()), "{ended}");
}
